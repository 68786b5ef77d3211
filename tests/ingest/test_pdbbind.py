"""PDBbind: index lines, folders and archives."""

from __future__ import annotations

import io
import tarfile

from trees import by_id, tar_of, touch

from holoshard.ingest.item import Label, Locator
from holoshard.ingest.read import archive
from holoshard.ingest.sources.pdbbind import parse_index


def test_index_lines_of_case_28(shared):
    found = {
        row["code"]: row for row in parse_index((shared / "cases/28-label-index-units/INDEX.txt").read_text())
    }
    assert [row["label"] for row in found.values()] == [
        "Kd=100uM", "Ki=10nM", "IC50~1.5mM", "Kd<=10pM", "Ki>500uM", "Kd=1000fM", "Kd=0.40M"
    ]  # fmt: skip
    assert found["9aad"]["resolution"] == "NMR"
    assert found["9aae"]["remark"] == "incomplete ligand"
    assert parse_index("2tpi  2.10  1982  Kd=49uM       // 2tpi.pdf (2-mer)")[0]["label"] == "Kd=49uM"


def test_pdbbind_in_a_folder_and_in_archives(tmp_path):
    root = tmp_path / "set"
    touch(
        root, "1e66/1e66_protein.pdb", "1e66/1e66_ligand.sdf", "1e66/1e66_ligand.mol2", "1e66/1e66_pocket.pdb"
    )
    touch(root, "deep/2abc/2abc_pocket.pdb.gz", "deep/2abc/2abc_ligand.mol2", "3abc/3abc_protein.pdb")
    touch(root, "4abc/4abc_ligand.sdf")
    touch(root, "index/INDEX_general_PL_data.2016", text="1e66 2.1 1999 8.0 Ki=10nM // 1e66.pdf (HUX)\n")
    touch(root, "index/INDEX_core_data.2016", text="1e66 2.1 1999 9.9 Ki=0.1nM // 1e66.pdf (HUX)\n")
    found = by_id(root)
    item = found["1e66"]
    assert item.structure == Locator(root / "1e66/1e66_protein.pdb")
    assert item.ligand == Locator(root / "1e66/1e66_ligand.sdf")
    assert item.alternates == (Locator(root / "1e66/1e66_ligand.mol2"),)
    assert item.labels == (Label(text="Ki=10nM"),)
    assert item.columns["sets"] == "INDEX_general_PL_data.2016,INDEX_core_data.2016"
    assert found["2abc"].structure == Locator(root / "deep/2abc/2abc_pocket.pdb.gz")
    assert found["3abc"].reason == found["4abc"].reason == "file_missing"
    for end in ("tar", "tar.gz"):
        packed = by_id(tar_of(root, tmp_path / f"set.{end}"))
        assert list(packed) == list(found)
        assert archive.load(packed["1e66"].alternates[0]) == b"x"
        assert packed["1e66"].labels == item.labels


def test_unsafe_members_of_a_source_are_refused_by_name(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in (
            "1abc/1abc_protein.pdb",
            "1abc/1abc_ligand.sdf",
            "../evil_protein.pdb",
            "/abs_ligand.sdf",
        ):
            entry = tarfile.TarInfo(name)
            entry.size = 1
            tar.addfile(entry, io.BytesIO(b"x"))
    found = by_id(tmp_path / "a.tar")
    assert {id_: getattr(item, "reason", "") for id_, item in found.items()} == {
        "../evil_protein.pdb": "unsafe_member", "/abs_ligand.sdf": "unsafe_member", "1abc": ""
    }  # fmt: skip
