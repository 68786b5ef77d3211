from __future__ import annotations

import json
from pathlib import Path

import pytest
from rdkit import Chem, rdBase

from holoshard.ingest.read.ligand import read_ligand
from holoshard.ingest.read.molblock import read_molblock, split_records
from holoshard.shards.errors import StructureError

METHANOL = """methanol
  test              3D
comment
  2  1  0  0  0  0  0  0  0  0999 V2000
    0.0000    0.1000    0.2000 C   0  0  0  0  0  0
    1.2000    0.7000    0.1000 O   0  0  0  0  0  0
  1  2  1  0
M  END
"""


def records(data: bytes) -> list[bytes]:
    return [data[start:end] for start, end in split_records(data)]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_records_are_split_at_their_delimiters(newline: str) -> None:
    text = "a\nM  END\n$$$$\n\n$$$$\nc $$$$ in a line\nM  END\n$$$$\n".replace("\n", newline)
    assert [r.split() for r in records(text.encode())] == [
        [b"a", b"M", b"END"], [], [b"c", b"$$$$", b"in", b"a", b"line", b"M", b"END"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "n"),
    [(b"", 0), (b"\n\n", 0), (b"a\n", 1), (b"a\n$$$$", 1), (b"a\n$$$$\n", 1), (b"a\n$$$$\n\n \n", 1),
     (b"a\n$$$$\nb", 2), (b"$$$$\nb", 2), (b"a\n$$$$ trailing\nb\n$$$$\n", 2)],
)  # fmt: skip
def test_number_of_records(data: bytes, n: int) -> None:
    assert len(split_records(data)) == n


def test_case_many_records(shared: Path) -> None:
    case = shared / "cases/39-sdf-many-records"
    expected = json.loads((case / "expected.json").read_text())
    data = (case / "ligands.sdf").read_bytes()
    assert len(split_records(data)) == expected["records"]
    assert [read_ligand(data, "x", k).smiles for k in range(expected["records"])] == expected["smiles"]


def test_a_bad_record_shifts_nothing(shared: Path) -> None:
    good = METHANOL + "$$$$\n"
    data = (good + "rubbish\n$$$$\n" + good.replace("methanol", "third")).encode()
    with pytest.raises(StructureError, match="record 1") as caught:
        read_ligand(data, "x.sdf", 1)
    assert caught.value.reason == "parse_failed"
    assert read_ligand(data, "x.sdf", 2).title == "third"


def test_split_agrees_with_rdkit_on_real_files(shared: Path) -> None:
    for path in sorted((shared / "data/real/layouts").rglob("*.sdf")):
        with rdBase.BlockLogs():
            assert len(split_records(path.read_bytes())) == len(Chem.SDMolSupplier(str(path), sanitize=False))


def test_dirty_fields_are_zeroed_and_nothing_else() -> None:
    dirty = METHANOL.replace("C   0  0  0  0  0  0", "C   0  3  1  2  0  4").replace(
        "  1  2  1  0", "  1  2  1  1  0  1"
    )
    block = read_molblock(dirty.encode())
    assert block.repairs == ("sdf_hcount_field", "sdf_bond_topology")
    lines = block.text.split("\n")
    assert lines[4].endswith("C   0  3  1  0  0  4")  # charge, parity and valence stay
    assert lines[6] == "  1  2  1  1  0  0"
    assert block.symbols == ("C", "O")


def test_clean_blocks_pass_unchanged() -> None:
    block = read_molblock((METHANOL + "> <x>\n1\n").encode())
    assert (block.text, block.title, block.dimension, block.repairs) == (METHANOL, "methanol", "3D", ())


def test_line_ends_byte_order_mark_and_encoding() -> None:
    plain = read_molblock(METHANOL.encode())
    assert read_molblock(METHANOL.replace("\n", "\r\n").encode()) == plain
    assert read_molblock(METHANOL.replace("\n", "\r").encode()) == plain
    assert read_molblock(b"\xef\xbb\xbf" + METHANOL.encode()) == plain
    latin = read_molblock(METHANOL.replace("methanol", "m\xe9thanol").encode("latin-1"))
    assert (latin.title, latin.repairs) == ("m\xe9thanol", ("text_decoded",))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  2  1  0", "  3  1  0"),  # an atom too few
        ("  2  1  0", "  2  9  0"),
        ("  2  1  0", "  x  1  0"),
        ("comment\n  2", "  2"),  # a header line missing: the counts line is not where it should be
    ],
)
def test_counts_that_do_not_hold(old: str, new: str) -> None:
    with pytest.raises(StructureError) as caught:
        read_molblock(METHANOL.replace(old, new).encode())
    assert caught.value.reason == "parse_failed"


def test_a_block_cut_short_is_refused() -> None:
    for cut in range(len(METHANOL) - len("M  END\n") - 15):
        with pytest.raises(StructureError) as caught:
            read_ligand(("$$$$\n" + METHANOL[:cut]).encode(), "x.sdf", 1)
        assert caught.value.reason in ("parse_failed", "record_missing")


@pytest.mark.parametrize("case", ["10-sdf-hcount-field", "11-sdf-bond-topology"])
def test_case_query_fields(shared: Path, case: str) -> None:
    expected = json.loads((shared / "cases" / case / "expected.json").read_text())
    ligand = read_ligand((shared / "cases" / case / "ligand.sdf").read_bytes(), "ligand.sdf")
    assert ligand.n_atoms == expected["heavy"]
    assert int(ligand.aromatic.sum()) == expected["aromatic_atoms"]
    assert ligand.smiles == expected["smiles"]
    assert ligand.repairs == ({"10": "sdf_hcount_field", "11": "sdf_bond_topology"}[case[:2]],)


def test_an_x_tool_ligand_is_what_its_atoms_and_bonds_say(shared: Path) -> None:
    """RDKit alone makes a query of this file and finds none of its hydrogens."""
    data = (shared / "data/real/layouts/pdbbind_style/1imx/1imx_ligand.sdf").read_bytes()
    with rdBase.BlockLogs():
        assert Chem.MolFromMolBlock(data.decode()).HasQuery()
    ligand = read_ligand(data, "1imx_ligand.sdf")
    assert ligand.repairs == ("sdf_hcount_field", "sdf_bond_topology")
    # CHAPSO's relative of the index, "CPQ": deoxy-BigCHAP, C42 H75 N3 O15
    assert sorted(zip(*_counts(ligand.element), strict=True)) == [(6, 42), (7, 3), (8, 15)]
    assert int(ligand.hydrogens.sum()) == 75


def _counts(element: object) -> tuple[list[int], list[int]]:
    import numpy as np

    values, counts = np.unique(np.asarray(element), return_counts=True)
    return values.tolist(), counts.tolist()
