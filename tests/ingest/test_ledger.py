"""The ledger: schema, balance, what the next run may take from it, inspection of what was refused."""

from __future__ import annotations

import polars as pl
import pytest
from toy import ToyOptions, process, toy_items

from holoshard.ingest import ledger
from holoshard.ingest.engine import EngineOptions, run
from holoshard.ingest.item import Item, Label, Locator, Rejection
from holoshard.ingest.refused import collect, folder_name
from holoshard.ingest.task import site_item
from holoshard.shards.errors import DataError

HERE = EngineOptions(workers=0, task_size=4)


def row(id_: str, reason: str = "", **values) -> ledger.Row:
    status = "refused" if reason else "kept"
    texts = dict.fromkeys(("message", "source", "part", "digest", "content"), "")
    lists = {name: [] for name in ("repairs", "files", "sha256", "stamps")}
    return {"id": id_, "status": status, "reason": reason, "seconds": 0.0, **texts, **lists, **values}


def test_accounts_balance():
    rows = ledger.frame(
        [row("a"), row("b", "timeout"), row("c", "timeout"), row("d", repairs=["text_decoded"])]
    )
    assert ledger.account(rows) == {
        "seen": 4, "kept": 2, "refused": 2, "reasons": {"timeout": 2}, "repairs": {"text_decoded": 1}
    }  # fmt: skip
    assert ledger.account(ledger.frame([]))["seen"] == 0


@pytest.mark.parametrize("rows", [[row("a"), row("a")], [row("a", "no_such_reason")]])
def test_what_does_not_balance_is_an_error(rows):
    with pytest.raises(DataError):
        ledger.account(ledger.frame(rows))


def test_a_digest_is_of_everything_but_the_place():
    item = Item("a", Locator("/one/a.pdb"), Locator("/one/a.sdf"), labels=(Label("Ki", "=", "1", "nM"),))
    same = Item("a", Locator("/two/b.pdb"), Locator("/two/b.sdf"), labels=item.labels)
    assert ledger.item_digest("f", item) == ledger.item_digest("f", same)
    others = [
        ledger.item_digest("g", item),
        ledger.item_digest("f", Item("b", item.structure, item.ligand, labels=item.labels)),
        ledger.item_digest("f", Item("a", item.structure, item.ligand, record=1, labels=item.labels)),
        ledger.item_digest("f", Item("a", item.structure, item.ligand)),
        ledger.item_digest(
            "f", Item("a", item.structure, item.ligand, labels=item.labels, columns={"x": "y"})
        ),
        ledger.item_digest("f", Item("a", item.structure, labels=item.labels)),
    ]
    assert len({ledger.item_digest("f", item), *others}) == 7


def test_prior_rows_by_item_and_by_site(tmp_path):
    names = ["1abc", "1abc:A:X:1", "1abc:B:X:1", "1abcd", "2abc", "ä"]
    ledger.write_frame(ledger.frame([row(name) for name in reversed(names)]), tmp_path / ledger.LEDGER)
    receipts = tmp_path / ledger.WORK / "run"
    receipts.mkdir(parents=True)
    ledger.write_frame(ledger.frame([row("2abc", "timeout")]), receipts / "1.parquet")
    (receipts / "2.parquet").write_bytes(b"cut short")
    prior = ledger.Prior(tmp_path)
    items = [
        Item("1abc", Locator(tmp_path), sites=True),
        Item("2abc", Locator(tmp_path)),
        Rejection("ä", "timeout", ""),
    ]
    assert list(prior.of(items)) == ["ä", "1abc:B:X:1", "1abc:A:X:1", "1abc", "2abc"]
    assert prior.of(items)["2abc"]["reason"] == "timeout"
    assert list(prior.of([Item("1abc", Locator(tmp_path))])) == ["1abc"]
    assert prior.of([Item("none", Locator(tmp_path))]) == {}


def test_a_folder_without_a_ledger_says_so(tmp_path):
    with pytest.raises(DataError, match="no output of ingest"):
        ledger.read(tmp_path)
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / ledger.LEDGER)
    with pytest.raises(DataError, match="other columns"):
        ledger.read(tmp_path)
    (tmp_path / ledger.LEDGER).write_bytes(b"not parquet")
    with pytest.raises(DataError, match="cannot be read"):
        ledger.read(tmp_path)


def test_refused_files_are_collected(tmp_path):
    items = toy_items(tmp_path / "in", {"a/b".replace("/", "_"): "fine", "bad": "refuse"})
    items.append(Item("../up:1", items[1].structure))
    run(items, tmp_path / "out", process=process, options=ToyOptions(), engine=HERE)
    for _ in range(2):
        assert collect(ledger.read(tmp_path / "out"), tmp_path / "out") == 2
    root = tmp_path / "out" / "refused" / "parse_failed"
    assert sorted(path.name for path in root.iterdir()) == sorted(["bad", folder_name("../up:1")])
    assert (root / "bad" / "bad.txt").read_text() == "refuse"
    assert (root / "bad" / "message.txt").read_text().startswith("bad\nparse_failed: two lines\n")
    assert folder_name("a/b") != folder_name("a_b")


def expand(item: Item, options: ToyOptions) -> list[Item] | Rejection:
    """Sites as the toy's text says: "sites X Y"."""
    words = item.structure.path.read_text().split()
    process(item, options)
    if words[0] == "none":
        return Rejection(item.id, "ligand_missing", "none")
    return [site_item(item, word) for word in words[1:]]


def test_sites_are_found_once_and_kept_apart(tmp_path, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setenv("TOY_LOG", str(log))
    texts = {"s1": "sites B:X:1 A:X:2", "s2": "none", "s3": "sites A:Y:1"}

    def go() -> tuple[list[str], list[str], dict]:
        log.write_text("")
        made = toy_items(tmp_path / "in", texts)
        items = [Item(one.id, one.structure, sites=True) for one in made]
        summary = run(
            items,
            tmp_path / "out",
            process=process,
            expand=expand,
            options=ToyOptions(),
            engine=HERE,
            total=3,
        )
        return log.read_text().split(), ledger.read(tmp_path / "out")["id"].to_list(), summary

    called, ids, summary = go()
    assert ids == ["s1:B:X:1", "s1:A:X:2", "s2", "s3:A:Y:1"]
    assert summary["reasons"] == {"ligand_missing": 1}
    parts = sorted(path.name for path in (tmp_path / "out" / "parts").iterdir())
    called, again, summary = go()
    assert (called, again, summary["reused"]) == ([], ids, 3)
    assert sorted(path.name for path in (tmp_path / "out" / "parts").iterdir()) == parts
    texts["s3"] = "sites A:Y:1 A:Z:1"
    called, ids, _ = go()
    assert called == ["s3", "s3:A:Y:1", "s3:A:Z:1"]
    assert ids[-1] == "s3:A:Z:1"
