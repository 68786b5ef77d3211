"""Clusters and identities of protein chains by MMseqs2, where it is installed.

Steinegger & Söding 2017, doi:10.1038/nbt.3988.

Chains are linked that align with ``IDENTITY`` or more of identical residues over ``COVERAGE`` of both;
clusters are what links connect (``--cluster-mode 1``), so that no linked chains are ever divided. The
identity of two chains is counted as in :mod:`.identity`: the identical residues of MMseqs2's alignment over
the length of the shorter one.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .owner import scratch

log = logging.getLogger("holoshard")

ClusterWith = Literal["auto", "mmseqs", "built-in"]

NAME: Final = "MMseqs2"
PROGRAM: Final = "mmseqs"
IDENTITY: Final = 0.3
COVERAGE: Final = 0.5
SEARCH: Final = ("-s", "7.5", "-e", "0.001", "-v", "1")
OPTIONS: Final = (
    "--min-seq-id", str(IDENTITY), "-c", str(COVERAGE), "--cov-mode", "0", "--cluster-mode", "1",
    "--single-step-clustering", "1", *SEARCH,
)  # fmt: skip


def installed() -> bool:
    """True if MMseqs2 can be called."""
    return shutil.which(PROGRAM) is not None


def chosen(with_what: ClusterWith) -> bool:
    """True if sequences are to be compared by MMseqs2: asked for, or there and nothing else asked for."""
    return with_what == "mmseqs" or (with_what == "auto" and installed())


def version() -> str:
    """What MMseqs2 calls itself."""
    return _call("version").strip()


def chain_clusters(chains: Sequence[str]) -> NDArray[np.int64]:
    """Representative of each chain's cluster, as its place among the chains; UsageError if MMseqs2 fails."""
    leader = np.arange(len(chains))
    if not len(chains):
        return leader
    with scratch(PROGRAM) as folder:
        out = folder / "out"
        fasta = _fasta(folder / "chains.fasta", chains, range(len(chains)))
        _call("easy-cluster", fasta, str(out), str(folder / "work"), *OPTIONS)
        for line in Path(f"{out}_cluster.tsv").read_text(encoding="ascii").splitlines():
            first, member = map(int, line.split("\t"))
            leader[member] = first
    return leader


def chain_identities(
    chains: Sequence[str], asked: Sequence[int]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """For each asked chain: the distinct chains that are related to it (itself among them), and how much."""
    found = {i: {i: 1.0} for i in asked}
    if len(asked):
        with scratch(PROGRAM) as folder:
            query = _fasta(folder / "asked.fasta", chains, asked)
            target = _fasta(folder / "chains.fasta", chains, range(len(chains)))
            out = folder / "out.tsv"
            _call("easy-search", query, target, str(out), str(folder / "work"), *SEARCH,
                  "-a", "--max-seqs", str(max(len(chains), 300)),
                  "--format-output", "query,target,nident")  # fmt: skip
            for line in out.read_text(encoding="ascii").splitlines():
                i, j, same = map(int, line.split("\t"))
                share = min(same / max(min(len(chains[i]), len(chains[j])), 1), 1.0)
                found[i][j] = max(share, found[i].get(j, 0.0))
    for i in asked:
        others = sorted(found[i])
        yield np.array(others, np.int64), np.array([found[i][j] for j in others], np.float32)


def _fasta(path: Path, chains: Sequence[str], rows: Sequence[int]) -> str:
    """Write some chains under their numbers."""
    path.write_text("".join(f">{i}\n{chains[i]}\n" for i in rows), encoding="ascii")
    return str(path)


def _call(*arguments: str) -> str:
    try:
        done = subprocess.run(
            [PROGRAM, *arguments], capture_output=True, text=True, check=False, errors="replace"
        )
    except OSError as error:
        raise UsageError(f"MMseqs2 ({PROGRAM}) cannot be called: {error}; install it (mmseqs2 in Debian, "
                         "Homebrew, bioconda), or use --cluster-with built-in") from error  # fmt: skip
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise UsageError(f"{PROGRAM} {arguments[0]} failed: {words[-1] if words else done.returncode}")
    return done.stdout
