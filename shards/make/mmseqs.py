"""Clusters of protein chains by MMseqs2, where it is installed.

Steinegger & Söding 2017, doi:10.1038/nbt.3988.

Chains are linked that align with ``IDENTITY`` or more of identical residues over ``COVERAGE`` of both;
clusters are what links connect (``--cluster-mode 1``), so that no linked chains are ever divided.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError

log = logging.getLogger("holoshard")

PROGRAM: Final = "mmseqs"
IDENTITY: Final = 0.3
COVERAGE: Final = 0.5
OPTIONS: Final = (
    "--min-seq-id", str(IDENTITY), "-c", str(COVERAGE), "--cov-mode", "0", "--cluster-mode", "1",
    "--single-step-clustering", "1", "-s", "7.5", "-e", "0.001", "-v", "1",
)  # fmt: skip


def installed() -> bool:
    """True if MMseqs2 can be called."""
    return shutil.which(PROGRAM) is not None


def version() -> str:
    """What MMseqs2 calls itself."""
    return _call("version").strip()


def chain_clusters(chains: Sequence[str]) -> NDArray[np.int64]:
    """Representative of each chain's cluster, as its place among the chains; UsageError if MMseqs2 fails."""
    leader = np.arange(len(chains))
    if not len(chains):
        return leader
    with tempfile.TemporaryDirectory(prefix="holoshard-") as folder:
        fasta, out = Path(folder) / "chains.fasta", Path(folder) / "out"
        fasta.write_text("".join(f">{i}\n{s}\n" for i, s in enumerate(chains)), encoding="ascii")
        _call("easy-cluster", str(fasta), str(out), str(Path(folder) / "work"), *OPTIONS)
        for line in Path(f"{out}_cluster.tsv").read_text(encoding="ascii").splitlines():
            first, member = map(int, line.split("\t"))
            leader[member] = first
    return leader


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
