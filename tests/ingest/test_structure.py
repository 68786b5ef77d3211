from __future__ import annotations

import gzip

import numpy as np
import pytest
from pdbtext import atom_line, chain_lines, residue_lines

from holoshard.ingest.read import pdb
from holoshard.ingest.read.columns import find_lines
from holoshard.ingest.read.structure import ATOM_COLUMNS, RESIDUE_COLUMNS, read_structure, sniff, to_utf8
from holoshard.shards.errors import StructureError

CIF_HEAD = """data_TEST
_entry.id TEST
loop_
_atom_site.group_PDB
_atom_site.id
_atom_site.type_symbol
_atom_site.label_atom_id
_atom_site.label_alt_id
_atom_site.label_comp_id
_atom_site.label_asym_id
_atom_site.label_seq_id
_atom_site.Cartn_x
_atom_site.Cartn_y
_atom_site.Cartn_z
_atom_site.auth_seq_id
_atom_site.auth_asym_id
_atom_site.pdbx_PDB_model_num
"""


def refuse(data: bytes | str, reason: str, match: str | None = None) -> None:
    data = data.encode() if isinstance(data, str) else data
    with pytest.raises(StructureError, match=match) as caught:
        read_structure(data, "file")
    assert caught.value.reason == reason


def contents(path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def same_structure(a, b, *, but=()) -> None:
    for key in (*ATOM_COLUMNS, *RESIDUE_COLUMNS, "residue", "residue_start"):
        if key not in but:
            np.testing.assert_array_equal(getattr(a, key), getattr(b, key), err_msg=key)
    assert str(a.header) == str(b.header)  # NaN resolutions are equal here
    assert a.links == b.links


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty_file"),
        (b" \r\n\t\n", "empty_file"),
        (b"\x00\x01\x02 binary", "format_unknown"),
        (b"hello world\n", "format_unknown"),
        (b"data_x\n_cell.length_a 1\n", "format_mismatch"),
        (b"REMARK nothing more\nEND\n", "structure_empty"),
        (b"lig\n  prog 3D\n\n  1  0  0  0  0  0  0  0  0  0999 V2000\n", "format_mismatch"),
        (b"@<TRIPOS>MOLECULE\nx\n", "format_mismatch"),
        (b"\x83\xabmmtfVersion\xa31.0", "format_mismatch"),
        (b"ATOM 1 N MET A 1 11.1 6.1 -6.5 -0.30 1.85\n", "format_mismatch"),  # PQR, shorter than the columns
        (b"ATOM      1  N   MET A   1      11.104   6.134\n", "parse_failed"),  # cut off
        (b"data_x\nloop_\n_a.b\n_a.c\n1\n", "parse_failed"),
        (b"\x83\xaadataBlocks\x90 cut", "parse_failed"),
    ],
)
def test_what_is_no_structure_is_refused_with_its_reason(data, reason):
    refuse(data, reason)


def test_format_comes_from_the_content():
    assert sniff(b"# comment\ndata_x\n", "x.pdb") == "mmcif"
    assert sniff(b"HEADER x\n", "x.cif") == "pdb"
    assert sniff(b"junk\n" + chain_lines(["ALA"]).encode(), "x") == "pdb"


def test_a_shifted_line_is_refused_and_not_sliced():
    good = chain_lines(["ALA", "GLY"])
    shifted = good.replace("ATOM      1  CA  GLY", "ATOM 100000  CA  GLY", 1)
    assert len(shifted) == len(good)  # an index of six digits eats the blank: still in its columns
    pushed = good.splitlines(keepends=True)
    pushed[3] = pushed[3][:6] + "1" + pushed[3][6:]
    refuse("".join(pushed), "format_mismatch", "line 4")
    wide = good.replace(f"{1.458:8.3f}{0.0:8.3f}", "-1000.1230.000  ", 1)
    refuse(wide, "format_mismatch", "line 2")


@pytest.mark.parametrize("tail", [" -0.3000 1.8500", "  0.1414 1.8240", "  0.00000000   1.850"])
def test_charge_and_radius_are_no_occupancy_and_b_factor(tail):
    line = atom_line("CA", "ALA", "A", 1, (1, 2, 3), "C")[:54]
    with pytest.raises(StructureError, match="PQR") as caught:
        read_structure(f"{line}{tail}\n".encode(), "x")
    assert caught.value.reason == "format_mismatch"
    for fine in ("  1.00100.00", "  1.00******", "     1    20", "  1.00", ""):
        assert read_structure(f"{line}{fine}\n".encode(), "x").n_atoms == 1


def test_mmcif_without_its_lesser_columns_is_read():
    tags = "".join(f"_atom_site.{k}\n" for k in ("label_atom_id", "auth_comp_id", "auth_seq_id"))
    tags += "".join(f"_atom_site.cartn_{k}\n" for k in "xyz")
    found = read_structure(f"data_x\nloop_\n{tags}CA ALA 7 1 2 3\nCB ALA 7 1 2 4.5\n".encode(), "x")
    assert found.element.tolist() == [6, 6]
    assert (found.residue_number.tolist(), found.occupancy.tolist()) == ([7], [1, 1])
    assert found.repairs == ("element_guessed",)
    with pytest.raises(StructureError, match="lacks Cartn_z"):
        read_structure(f"data_x\nloop_\n{tags[:-19]}CA ALA 7 1 2\n".encode(), "x")


def test_missing_coordinates_are_refused():
    line = atom_line("CA", "ALA", "A", 1, (1, 2, 3), "C")
    refuse(line.replace("   1.000", "********"), "structure_bad_coordinates", "line 1")
    refuse(line.replace("   2.000", "     nan"), "structure_bad_coordinates")
    zero = "".join(atom_line(a, "ALA", "A", 1, (0, 0, 0), "C") for a in ("CA", "CB"))
    refuse(zero, "structure_bad_coordinates", "zero")
    refuse(line[:40] + "\n", "parse_failed", "ends before")


def test_crlf_and_cut_lines_read_the_same():
    text = chain_lines(["ALA", "SER", "GLY"])
    whole = read_structure(text.encode(), "x")
    same_structure(read_structure(text.replace("\n", "\r\n").encode(), "x"), whole)
    cut = "".join(line.rstrip() + "\n" for line in text.splitlines())  # no charge column
    same_structure(read_structure(cut.encode(), "x"), whole)
    same_structure(read_structure(text.rstrip("\n").encode(), "x"), whole)


def test_end_closes_the_file():
    text = chain_lines(["ALA"]) + "END\n" + chain_lines(["GLY"], chain="B")
    assert read_structure(text.encode(), "x").residue_name.tolist() == [b"ALA"]


def test_models_are_one_and_what_follows_the_last_is_seen():
    one, two = chain_lines(["ALA"]), chain_lines(["ALA"], shift=(0.3, 0, 0))
    late = atom_line("C1", "LIG", "B", 1, (3, 3, 3), "C", het=True)
    found = read_structure(
        f"MODEL        1\n{one}ENDMDL\nMODEL        2\n{two}ENDMDL\n{late}END\n".encode(), "x"
    )
    assert found.header.n_models == 2
    assert found.residue_name.tolist() == [b"ALA", b"LIG"]
    assert found.repairs == ("ligand_after_endmdl",)
    open_ended = read_structure(f"MODEL        1\n{one}MODEL        2\n{two}END\n".encode(), "x")
    assert (open_ended.n_atoms, open_ended.header.n_models) == (5, 2)


def test_blank_occupancy_is_one_and_a_blank_element_is_found():
    lines = chain_lines(["ALA"]).splitlines()
    short = "".join(line[:54] + "\n" for line in lines)
    found = read_structure(short.encode(), "x")
    assert found.occupancy.tolist() == [1.0] * 5
    assert found.b_factor.tolist() == [0.0] * 5
    assert found.element.tolist() == [7, 6, 6, 8, 6]
    assert found.repairs == ("element_guessed",)


def test_an_element_that_is_none_is_found_by_the_atom_s_name():
    lines = chain_lines(["PHE"]).splitlines(keepends=True)
    odd = "".join(line[:76] + " A" + line[78:] if " CB " in line else line for line in lines)
    assert odd != "".join(lines)
    found = read_structure(odd.encode(), "x")
    assert found.element.tolist() == read_structure("".join(lines).encode(), "x").element.tolist()
    assert found.repairs == ("element_guessed",)
    unknown = atom_line("UNK", "UNX", "B", 9, (9, 9, 9), "X", het=True)
    kept = read_structure(("".join(lines) + unknown).encode(), "x")
    assert (kept.element[-1], kept.repairs) == (0, ())


@pytest.mark.parametrize("ending", ["", "   "])
def test_a_pdbqt_receptor_has_the_elements_of_its_atom_types(ending):
    types = {"N": "N", "CA": "C", "C": "C", "O": "OA", "CB": "A"}
    pdb = chain_lines(["PHE", "CYS"]).splitlines()
    pdb += [atom_line("SG", "CYS", "A", 2, (9, 9, 9), "S").rstrip("\n")]
    metals = {"ZN": "Zn", "CA": "Ca", "FE": "Fe", "MG": "Mg", "MN": "Mn", "CL": "Cl", "BR": "Br"}
    pdb += [
        atom_line(m, m, "B", 20 + i, (20 + 5 * i, 0, 0), m, het=True).rstrip("\n")
        for i, m in enumerate(metals)
    ]
    pdbqt = []
    for line in pdb:
        kind = metals.get(line[17:20].strip()) or types.get(line[12:16].strip(), "SA")
        pdbqt.append(f"{line[:66]}    {-0.342:6.3f} {kind}{ending}")
    found = read_structure("\n".join(pdbqt).encode(), "x")
    whole = read_structure("\n".join(pdb).encode(), "x")
    assert found.element.tolist() == whole.element.tolist()
    assert whole.element[-7:].tolist() == [30, 20, 26, 12, 25, 17, 35]
    assert found.charge.tolist() == [0] * found.n_atoms
    assert found.repairs == ()


def test_a_carbon_written_one_column_to_the_left_is_no_calcium():
    line = "ATOM      1 CA   LYS A   1     111.252  98.373  98.187\n"
    ion = "HETATM    2 CA    CA A   2     121.252  98.373  98.187\n"
    assert read_structure((line + ion).encode(), "x").element.tolist() == [6, 20]


def test_charges_sign_first_are_accepted_and_recorded():
    text = atom_line("ZN", "ZN", "A", 1, (1, 2, 3), "Zn", het=True, charge="+2")
    found = read_structure(text.encode(), "x")
    assert found.charge.tolist() == [2]
    assert "charge_swapped" in found.repairs


def strict(text: str):
    """The structure by the strict reader, None if it steps back."""
    return pdb._read_strict(pdb._Lines(text.encode()), 1, ())


def test_decimals_are_parsed_as_float_does():
    rng = np.random.default_rng(5)
    texts = [f"{v:8.3f}" for v in rng.uniform(-999, 999, 2000)]
    texts += ["  -0.001", "   0.000", "9999.999", "-999.999"]
    line = atom_line("CA", "ALA", "A", 1, (0, 0, 0), "C")
    found = strict("".join(line[:38] + text + line[46:] for text in texts))
    assert found is not None
    np.testing.assert_array_equal(found.position[:, 1], [float(t) for t in texts])


@pytest.mark.parametrize(
    "text",
    [
        "1 2.0000", "  1.00 0", " - 1.000", "  --1.00", "   a.000", "    .500", "  1-.000", "  +1.000",
        "1.000   ", "  1,000 ", "        ",
    ],
)  # fmt: skip
def test_decimals_refuse_what_is_not_in_its_columns(text):
    line = atom_line("CA", "ALA", "A", 1, (0, 0, 0), "C")
    for column in (30, 38, 46):
        assert strict(line) is not None
        assert strict(line[:column] + text[:8] + line[column + 8 :]) is None


def test_names_are_stripped_on_both_sides():
    texts = [" CA ", "HG21", "ZN  ", "   N", "C   ", " 1HB", "    ", "C  A"]
    line = atom_line("CA", "ALA", "A", 1, (0, 0, 0), "C")
    found = strict("".join(line[:12] + text + line[16:] for text in texts))
    assert found is not None
    assert found.name.tolist() == [text.strip().encode() for text in texts]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (54, " 1.0  "), (54, "1.00  "), (60, "  20.0"), (60, "-.0000"), (20, "X"), (22, "12 4"), (22, " -  "),
        (22, "12-4"), (27, "0"), (76, "Qq"), (78, "x+"), (78, "+2"),
    ],
)  # fmt: skip
def test_the_strict_reader_steps_back_for_one_field_out_of_its_columns(column, text):
    line = atom_line("CA", "ALA", "A", 1, (0, 0, 0), "C")
    assert strict(line + line[:12] + " CB " + line[16:]) is not None
    assert strict(line + line[:column] + text + line[column + len(text) :]) is None


@pytest.mark.parametrize("blank", [0, 999])  # more lines than a file of that size has, mostly
@pytest.mark.parametrize("width", [66, 70, 77, 78, 79, 80, 81, 85])
def test_lines_of_any_width_are_found(width, blank):
    lines = [line.ljust(90)[:width] for line in chain_lines(["ALA", "GLY"]).splitlines()]
    text = "\n".join(["REMARK", "", *[""] * blank, *lines])
    start, length, record, plain = find_lines(np.frombuffer(text.encode(), np.uint8))
    assert [text[a : a + n] for a, n in zip(start.tolist(), length.tolist(), strict=True)] == text.split("\n")
    assert record[2 + blank :].tolist() == [int.from_bytes(b"ATOM", "little")] * 9
    assert plain
    for odd in ("\r", "\xe5"):  # wherever it stands
        for at in (3, len(text) - 30, len(text) - 1):
            spoiled = np.frombuffer((text[:at] + odd + text[at + 1 :]).encode("latin-1"), np.uint8)
            assert not find_lines(spoiled)[3]
    found = strict(text)
    if width < 78:
        assert found is None  # no element, or half of one
    else:
        assert found is not None
        assert found.element.tolist() == [7, 6, 6, 8, 6, 7, 6, 6, 8]


def test_the_strict_reader_steps_back_where_atoms_of_a_residue_are_apart():
    ala, gly = chain_lines(["ALA"]).splitlines(keepends=True), chain_lines(["GLY"], start=2)
    text = "".join([*ala[:2], gly, *ala[2:]])
    assert strict(text) is None
    found = read_structure(text.encode(), "x")  # gemmi puts them together
    assert found.residue_name.tolist() == [b"ALA", b"GLY"]
    assert np.diff(found.residue_start).tolist() == [5, 4]


def both_readers(data: bytes):
    """(strict, lenient) structures of a PDB file; (None, ...) if the strict one steps back."""
    data = to_utf8(data)[0].replace(b"\r\n", b"\n")
    lines, n_models = pdb._Lines(data), 1
    if np.isin(lines.record, (pdb._MODEL, pdb._ENDMDL)).any():
        data, n_models, _ = pdb._first_model(data, lines)
        lines = pdb._Lines(data)
    if not lines.is_atom.any():
        return None, None
    strict = pdb._read_strict(lines, n_models, ())
    return strict, strict and pdb._read_lenient(data, lines, "x", "", n_models, [])


@pytest.mark.parametrize("part", [pytest.param(k, marks=pytest.mark.slow if k else ()) for k in range(8)])
def test_strict_and_lenient_readers_agree_on_every_file_of_the_pack(shared, part):
    paths = sorted(p for e in ("pdb", "pdb.gz", "ent") for p in shared.rglob(f"*.{e}"))
    agreed = 0
    for path in paths[part::8]:
        data = contents(path)
        try:
            if sniff(data, path.name) != "pdb":
                continue
        except StructureError:
            continue
        strict, lenient = both_readers(data)
        # gemmi makes one residue of those that share a number where a program left out the chains.
        if strict is not None and lenient is not None and strict.n_residues == lenient.n_residues:
            same_structure(strict, lenient)
            agreed += 1
    assert agreed >= 25


@pytest.mark.parametrize("assembly", ["", "1"])
@pytest.mark.parametrize("entry", ["1aki", "1o1z", "3o5r"])
def test_pdb_mmcif_and_binary_cif_of_one_entry_agree(shared, entry, assembly):
    folder = shared / "data/real/layouts/rcsb_same_entry"
    text, binary, columns = (
        read_structure((folder / f"{entry}.{e}").read_bytes(), entry, assembly)
        for e in ("cif", "bcif", "pdb")
    )
    same_structure(binary, text)
    assert (text.format, binary.format, columns.format) == ("mmcif", "bcif", "pdb")
    for key in (*ATOM_COLUMNS, "residue_name", "residue_chain", "residue_number", "residue_het"):
        np.testing.assert_array_equal(getattr(columns, key), getattr(text, key), err_msg=key)
    assert columns.header.resolution == text.header.resolution
    assert columns.header.deposited == text.header.deposited


def test_assembly_without_its_optional_columns_is_built(shared):
    text = (shared / "cases/25-assembly-after-water-removal/complex.cif").read_text()
    bare = text
    for column in ("details", "method_details", "oligomeric_details", "oligomeric_count"):
        bare = bare.replace(f"_pdbx_struct_assembly.{column}\n", "")
    bare = bare.replace("1 author_defined_assembly ? dimeric 2", "1")
    assert bare != text
    for data in (text, bare):
        found = read_structure(data.encode(), "x", "1")
        assert (found.residue_name != b"HOH").sum() == 3
    with pytest.raises(StructureError, match="no biological assembly '7'"):
        read_structure(text.encode(), "x", "7")


def test_headers(shared):
    found = read_structure((shared / "data/real/nasty/plip/1xdn.pdb").read_bytes(), "x").header
    assert (found.method, found.resolution, found.deposited) == ("X-RAY DIFFRACTION", 1.2, 20040907)
    model = shared / "data/real/layouts/predicted_boltz/NRAS_BRAF_GDP_model_0.cif"
    header = read_structure(model.read_bytes(), "x").header
    assert header.predicted
    assert np.isnan(header.resolution)
    assert header.deposited == 0


def test_links_are_read_and_those_to_symmetry_copies_are_not(shared):
    found = read_structure((shared / "cases/26-covalent-ligand/complex.cif").read_bytes(), "x")
    assert [(str(k.first), str(k.second), k.kind) for k in found.links] == [
        ("A:CYS:12:SG", "A:MOV:201:C1", "covalent")
    ]
    moved = (
        (shared / "cases/26-covalent-ligand/complex.cif").read_text().replace("1_555 1_555", "1_555 2_665")
    )
    assert read_structure(moved.encode(), "x").links == ()


def test_take_drops_atoms_and_empty_residues():
    found = read_structure((chain_lines(["ALA", "GLY", "SER"])).encode(), "x")
    keep = (found.residue != 1) & (found.name != b"CB")
    part = found.take(keep)
    assert part.residue_name.tolist() == [b"ALA", b"SER"]
    assert part.residue.tolist() == [0] * 4 + [1] * 4
    assert part.residue_start.tolist() == [0, 4, 8]
    np.testing.assert_array_equal(part.position, found.position[keep])


def test_a_second_block_with_the_coordinates_is_found():
    atoms = "ATOM 1 C CA . ALA A 1 1.0 2.0 3.0 1 A 1\n"
    found = read_structure(f"data_first\n_cell.length_a 1\n{CIF_HEAD}{atoms}".encode(), "x")
    assert found.position.tolist() == [[1, 2, 3]]
    assert found.occupancy.tolist() == [1.0]


def test_ideal_coordinates_survive_the_columns():
    found = read_structure(residue_lines("TRP", "A", 1).encode(), "x")
    assert found.n_residues == 1
    assert set(found.name.tolist()) >= {b"CA", b"CH2", b"NE1"}
