"""Choosing a layout: what is recognised and why, and that no name leads outside."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from trees import items, touch

from holoshard.ingest.item import Item, Rejection
from holoshard.ingest.read.archive import load
from holoshard.ingest.sources.layouts import LAYOUTS, choose, named
from holoshard.ingest.sources.tree import Tree
from holoshard.shards.errors import StructureError, UsageError

# What the raw layouts of the shared pack are, and how many items and refusals each names.
SHARED = {
    "crossdocked2020": ("crossdocked", 113, {}),
    "diffsbdd": ("pairs", 1, {}),
    "dude": ("dude", 58, {}),
    "misato": ("misato", 0, {"no_protein": 20}),
    "openfe_benchmarks": ("openfe", 44, {}),
    "pdbbind_style": ("pdbbind", 2, {}),
    "pdbbind_style_diffdock": ("pdbbind", 1, {}),
    "plinder": ("plinder", 2, {}),
    "plinder_ingest": ("pairs", 1, {}),
    "posebusters": ("posebusters", 2, {}),
    "predicted_boltz": ("predicted", 1, {}),
    "rcsb_same_entry": ("rcsb", 5, {}),
    "targetdiff": ("crossdocked", 1, {}),
    "vina": ("pairs", 6, {}),
}


def test_the_list_of_shared_layouts_is_whole(shared):
    assert sorted(SHARED) == sorted(path.name for path in (shared / "data/real/layouts").iterdir())


@pytest.mark.parametrize("folder", SHARED)
def test_shared_layouts_are_recognised(shared, folder):
    layout, n_items, refused = SHARED[folder]
    chosen = choose(shared / "data/real/layouts" / folder)
    assert chosen.source.name == layout
    assert chosen.why
    found = list(chosen.items())
    assert len({item.id for item in found}) == len(found)
    assert sum(isinstance(item, Item) for item in found) == n_items
    assert Counter(item.reason for item in found if isinstance(item, Rejection)) == refused


def test_what_is_not_known_is_a_wrong_call_with_the_mend(tmp_path):
    touch(tmp_path, "readme.txt")
    with pytest.raises(UsageError, match=r"no layout that is known.*--layout"):
        choose(tmp_path)
    with pytest.raises(UsageError, match="there is no layout 'pdbbnd'"):
        named("pdbbnd")
    with pytest.raises(UsageError, match="there is no labels file"):
        choose(tmp_path, labels=Path("none.csv"))
    with pytest.raises(UsageError, match="there is no"):
        choose(tmp_path / "none")
    with pytest.raises(UsageError, match="cannot be loaded"):
        named("no.such.module:Layout")


def test_a_layout_of_the_users_own(tmp_path, monkeypatch):
    touch(tmp_path, "mine/a.xyz")
    (tmp_path / "own_layout.py").write_text(
        "from holoshard.ingest.item import Item\n"
        "class Own:\n"
        "    name = 'own'\n"
        "    def recognise(self, request):\n"
        "        return ''\n"
        "    def items(self, request):\n"
        "        for name in request.tree.names:\n"
        "            yield Item(name, request.tree.locator(name))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [item.id for item in items(tmp_path / "mine", layout="own_layout:Own")] == ["a.xyz"]


def test_names_of_layouts_are_unique():
    assert len({source.name for source in LAYOUTS}) == len(LAYOUTS)
    assert all(source.__class__.__doc__ for source in LAYOUTS)


def test_links_to_folders_end(tmp_path):
    touch(tmp_path / "a", "x.pdb", "sub/y.pdb")
    (tmp_path / "a" / "sub" / "loop").symlink_to(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "link").symlink_to(tmp_path / "a" / "sub")
    assert Tree(tmp_path / "a").names == ["sub/y.pdb", "x.pdb"]
    assert "link/y.pdb" in Tree(tmp_path / "b").names


def test_a_link_to_itself_is_one_that_leads_nowhere(tmp_path):
    touch(tmp_path / "a", "1abc/1abc_protein.pdb", "1abc/1abc_ligand.sdf", "2abc/2abc_protein.pdb")
    for name in ("self", "2abc/2abc_ligand.sdf"):
        (tmp_path / "a" / name).symlink_to(Path(name).name)
    assert {"self", "2abc/2abc_ligand.sdf", "1abc/1abc_ligand.sdf"} <= set(Tree(tmp_path / "a").names)
    assert [item.id for item in items(tmp_path / "a")] == ["1abc", "2abc"]
    with pytest.raises(StructureError) as caught:
        load(Tree(tmp_path / "a").locator("2abc/2abc_ligand.sdf"))
    assert caught.value.reason == "file_unreadable"
