"""Which chains are related, against alignments of all pairs by another program."""

from __future__ import annotations

import csv
import gzip

import numpy as np
import pytest
from families import founder, kin, natural, relative

from holoshard.shards.make.alignment import EXTEND, OPEN
from holoshard.shards.make.identity import CHANCE, LAMBDA, K, chain_identities, identities, linked_chains

NAMES = "ALA ARG ASN ASP CYS GLN GLU GLY HIS ILE LEU LYS MET PHE PRO SER THR TRP TYR VAL"
LETTERS = {NAMES[4 * i : 4 * i + 3]: letter for i, letter in enumerate("ARNDCQEGHILKMFPSTWYV")}


@pytest.fixture(scope="module")
def truth():
    """Identity of two chains over the shorter by Biopython, 0 if their score may be chance."""
    Align = pytest.importorskip("Bio.Align")
    aligner = Align.PairwiseAligner(
        mode="local", substitution_matrix=Align.substitution_matrices.load("BLOSUM62"),
        open_gap_score=-OPEN, extend_gap_score=-EXTEND,
    )  # fmt: skip

    def identity(a, b):
        if aligner.score(a, b) < np.log(K * len(a) * len(b) / CHANCE) / LAMBDA:
            return 0.0
        same = sum(x == y for x, y in zip(*map(str, aligner.align(a, b)[0]), strict=True))
        return same / min(len(a), len(b))

    return identity


def test_short_chains():
    pairs = [("", "A"), ("ACDEF", "ACDEF"), ("ACDEF", "ACDEFG"), ("A" * 3, "C" * 3), ("", "")]
    assert identities(pairs).tolist() == [0, 1, 0, 0, 0]


def test_relatives_down_to_30_percent_are_found_among_strangers(truth):
    """The recall that the module states, with a little room."""
    rng = np.random.default_rng(2)
    founders = [natural(rng, int(n)) for n in rng.integers(120, 300, 80)]
    relatives = [kin(rng, f, share) for f, share in zip(founders, rng.uniform(0.3, 0.5, 80), strict=True)]
    strangers = [natural(rng, int(n)) for n in rng.integers(100, 300, 160)]
    chains = [*founders, *relatives, *strangers]
    expected = np.array([truth(f, r) for f, r in zip(founders, relatives, strict=True)])
    found = np.zeros(80)
    for i, (others, share) in enumerate(chain_identities(chains, range(80))):
        assert not (others >= 160).any()
        assert share[others == i].tolist() == [1]
        found[i] = share[others == 80 + i].sum()
    hit = found > 0
    assert found[hit] == pytest.approx(expected[hit], abs=0.05)  # alignments of one score differ
    assert hit[expected >= 0.35].mean() >= 0.97
    middle = (expected >= 0.3) & (expected < 0.35)
    assert middle.sum() >= 15
    assert hit[middle].mean() >= 0.85
    clusters = linked_chains(chains)
    assert (clusters[:80] == clusters[80:160])[expected >= 0.35].mean() >= 0.97
    assert len(np.unique(clusters[160:])) == 160


def test_families_larger_than_one_round_are_found_whole():
    rng = np.random.default_rng(3)
    a = founder(rng, 120)
    chains = [a, *(relative(rng, a, 0.6) for _ in range(80)), *(founder(rng, 150) for _ in range(40))]
    ((others, share),) = chain_identities(chains, [0])
    assert others.tolist() == list(range(81))
    assert share[1:] == pytest.approx(0.62, abs=0.15)
    assert (linked_chains(chains)[:81] == 0).all()


def test_chains_of_real_proteins(shared, truth):
    """All pairs of a sample, against Biopython's alignment of each."""
    chains = _chains(shared / "data" / "real")[::4][:40]
    assert len(chains) == 40
    missed, near = [], 0
    for i, (others, share) in enumerate(chain_identities(chains, range(len(chains)))):
        found = dict(zip(others.tolist(), share.tolist(), strict=True))
        expected = {j: truth(chains[i], c) for j, c in enumerate(chains) if j != i}
        assert found.pop(i) == 1
        assert all(expected[j] > 0 for j in found)
        assert all(abs(expected[j] - s) < 0.05 for j, s in found.items())
        near += sum(s >= 0.3 for s in expected.values())
        missed += [s for j, s in expected.items() if s and j not in found]
    assert near > 30
    assert max(missed, default=0) < 0.3


def _chains(folder):
    """Sequences of the CA atoms of the pack's PDB files, one of each."""
    with (folder / "complexes.csv").open() as file:
        paths = sorted({row["protein_path"] for row in csv.DictReader(file)})
    found = set()
    for path in (folder / p for p in paths if ".pdb" in p):
        data = path.read_bytes()
        lines = (
            (gzip.decompress(data) if path.suffix == ".gz" else data).decode("ascii", "replace").splitlines()
        )
        chains: dict[str, str] = {}
        for line in lines:
            if line.startswith("ATOM") and line[12:16] == " CA " and line[16] in " A":
                chains[line[21]] = chains.get(line[21], "") + LETTERS.get(line[17:20], "X")
        found |= {s for s in chains.values() if len(s) >= 60}
    return sorted(found)
