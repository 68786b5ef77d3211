"""The engine: balanced accounts, the same bytes for any way of running, one bad item harms no other."""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import chain
from pathlib import Path

import polars as pl
import pytest
from toy import ToyOptions, process, run_slowly, toy_items

from holoshard.ingest import ledger
from holoshard.ingest.engine import EngineOptions, cut, run
from holoshard.ingest.item import Item, Locator, Rejection
from holoshard.shards.errors import UsageError
from holoshard.shards.read.dataset import open_dataset

HERE = EngineOptions(workers=0, task_size=8)
# Where the toy and the random complexes lie, for processes of their own.
PLACES = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "shards")]


def texts(n: int, **special: str) -> dict[str, str]:
    return {f"i{k:03d}": "fine" for k in range(n)} | special


def go(items, out, *, engine=HERE, options=None):
    return run(items, out, process=process, options=options or ToyOptions(), engine=engine)


def parts(out: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted((out / "parts").iterdir())}


def rows(out: Path) -> dict[str, dict]:
    return {row["id"]: row for row in ledger.read(out).iter_rows(named=True)}


def kept_ids(out: Path) -> set[str]:
    return {id_ for p in (out / "parts").iterdir() for id_ in open_dataset(p).ids()}


def without_times(out: Path) -> pl.DataFrame:
    return ledger.read(out).drop("seconds")


@pytest.fixture
def called(tmp_path, monkeypatch):
    """The ids that were read since the last call."""
    log = tmp_path / "calls.log"
    monkeypatch.setenv("TOY_LOG", str(log))

    def take() -> list[str]:
        found = log.read_text().split() if log.exists() else []
        log.unlink(missing_ok=True)
        return found

    return take


def test_accounts_balance_and_one_bad_item_stops_nothing(tmp_path):
    items = toy_items(tmp_path / "in", texts(20, i003="refuse", i007="raise", i011="mend"))
    items.insert(5, Item("gone", Locator(tmp_path / "nowhere")))
    items.append(Rejection("said", "unsafe_member", "it lies outside"))
    items.append(items[0])
    items.append(items[0])
    summary = go(items, tmp_path / "out")
    assert summary["seen"] == 24
    assert summary["kept"] == 18
    assert summary["refused"] == 6
    assert summary["reasons"] == {
        "parse_failed": 1, "internal_error": 1, "file_missing": 1, "unsafe_member": 1, "duplicate_id": 2
    }  # fmt: skip
    assert summary["repairs"] == {"text_decoded": 1}
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary
    found = rows(tmp_path / "out")
    assert list(found) == [item.id for item in items[:-2]] + ["i000#2", "i000#3"]
    assert found["i003"]["message"] == "two lines"
    assert found["i007"]["message"] == "ValueError: a fault of ours"
    assert found["i011"]["repairs"] == ["text_decoded"]
    assert found["i000"]["sha256"] == [hashlib.sha256(b"fine").hexdigest()]
    assert kept_ids(tmp_path / "out") == {id_ for id_, row in found.items() if row["status"] == "kept"}


def test_parts_do_not_depend_on_the_workers(tmp_path):
    items = toy_items(tmp_path / "in", texts(60, i003="refuse", i030="raise"))
    for name, workers in (("here", 0), ("one", 1), ("two", 2)):
        go(items, tmp_path / name, engine=EngineOptions(workers=workers, task_size=8))
    assert len(parts(tmp_path / "here")) > 3
    assert parts(tmp_path / "here") == parts(tmp_path / "one") == parts(tmp_path / "two")
    ledgers = {(tmp_path / name / "ledger.parquet").read_bytes() for name in ("here", "one", "two")}
    assert len(ledgers) == 1
    times = ledger.read(tmp_path / "two")["seconds"]
    assert (times > 0).all()


def test_again_reads_only_what_is_new_or_changed(tmp_path, called):
    folder, out = tmp_path / "in", tmp_path / "out"
    go(toy_items(folder, texts(50, i003="refuse")), out)
    assert len(called()) == 50
    before = parts(out)
    summary = go(toy_items(folder, texts(50, i003="refuse")), out)
    assert called() == []
    assert summary["reused"] == 49
    assert parts(out) == before

    changed = texts(50, i003="fine", i020="mend")
    del changed["i010"]
    changed = dict(sorted((changed | {"i0205": "fine"}).items()))
    go(toy_items(folder, changed), out)
    assert sorted(called()) == ["i003", "i020", "i0205"]
    go(toy_items(folder, changed), tmp_path / "fresh")
    assert parts(out) == parts(tmp_path / "fresh")
    assert without_times(out).equals(without_times(tmp_path / "fresh"))
    assert kept_ids(out) == set(changed)


def test_a_touched_or_moved_file_is_not_read_again(tmp_path, called):
    folder, out = tmp_path / "in", tmp_path / "out"
    go(toy_items(folder, texts(10)), out)
    called()
    (folder / "i001.txt").touch()
    go(toy_items(folder, texts(10)), out)
    folder.rename(tmp_path / "moved")
    go(toy_items(tmp_path / "moved", texts(10)), out)
    assert called() == []
    assert rows(out)["i001"]["files"] == [str(tmp_path / "moved" / "i001.txt")]


def test_other_options_read_everything_again(tmp_path, called):
    items = toy_items(tmp_path / "in", texts(10))
    go(items, tmp_path / "out")
    called()
    go(items, tmp_path / "out", options=ToyOptions("other"))
    assert len(called()) == 10


def test_a_file_that_was_missing_is_read_when_it_comes(tmp_path, called):
    folder = tmp_path / "in"
    items = toy_items(folder, texts(3))
    (folder / "i001.txt").unlink()
    assert go(items, tmp_path / "out")["reasons"] == {"file_missing": 1}
    called()
    go(items, tmp_path / "out")
    assert called() == []
    assert go(toy_items(folder, texts(3)), tmp_path / "out")["kept"] == 3
    assert called() == ["i001"]


def test_a_part_that_is_gone_or_damaged_is_made_again(tmp_path):
    items, out = toy_items(tmp_path / "in", texts(20)), tmp_path / "out"
    go(items, out)
    before = parts(out)
    first = sorted((out / "parts").iterdir())[0]
    first.unlink()
    go(items, out)
    assert parts(out) == before


@pytest.mark.parametrize("word", ["exit", "segv"])
def test_an_item_that_ends_the_process_is_isolated(tmp_path, word):
    items = toy_items(tmp_path / "in", texts(30, i007=word))
    summary = go(items, tmp_path / "out", engine=EngineOptions(workers=2, task_size=8))
    assert summary["reasons"] == {"crashed": 1}
    assert summary["kept"] == 29
    row = rows(tmp_path / "out")["i007"]
    assert ("Segmentation fault" in row["message"]) == (word == "segv")


def test_an_item_that_hangs_is_ended(tmp_path):
    items = toy_items(tmp_path / "in", texts(12, i005="hang"))
    summary = go(items, tmp_path / "out", engine=EngineOptions(workers=1, task_size=8, timeout=1.5))
    assert summary["reasons"] == {"timeout": 1}
    assert summary["kept"] == 11
    assert rows(tmp_path / "out")["i005"]["message"] == "reading it took longer than 1.5 s"


def test_waiting_is_ended_later_than_work(tmp_path):
    items = toy_items(tmp_path / "in", texts(6, i002="wait 1", i004="wait 99"))
    summary = go(items, tmp_path / "out", engine=EngineOptions(workers=1, task_size=8, timeout=0.5))
    assert summary["reasons"] == {"timeout": 1}  # as on a machine with other work, where items take longer
    assert rows(tmp_path / "out")["i004"]["reason"] == "timeout"


@pytest.mark.parametrize("name", ["../{}", "{}/../../{}", "/{}", "part-.h5", "sub/{}"])
def test_a_ledger_that_names_files_elsewhere_is_not_followed(tmp_path, called, name):
    items, out = toy_items(tmp_path / "in", texts(3)), tmp_path / "out"
    go(items, out)
    before = parts(out)
    (part,) = before
    forged = name.format(part, part)
    elsewhere = out / "parts" / forged
    if name.startswith("../"):
        (out / "parts" / part).rename(elsewhere)
    ledger.write_frame(ledger.read(out).with_columns(pl.lit(forged).alias("part")), out / ledger.LEDGER)
    called()
    assert go(items, out)["kept"] == 3
    assert called() == ["i000", "i001", "i002"]
    assert parts(out) == before


def test_a_run_that_was_killed_goes_on_to_the_same_bytes(tmp_path, called):
    folder = tmp_path / "in"
    items = toy_items(folder, dict.fromkeys(texts(120), "slow"))
    go(items, tmp_path / "whole", engine=EngineOptions(workers=2, task_size=8))
    called()
    context = multiprocessing.get_context("spawn")
    seen = 0
    for _ in range(2):
        child = context.Process(target=run_slowly, args=(folder, 120, 1, tmp_path / "out"))
        child.start()
        receipts = tmp_path / "out" / ".work"
        deadline = time.monotonic() + 60
        while len(list(receipts.glob("*/*.parquet"))) < seen + 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert len(list(receipts.glob("*/*.parquet"))) >= seen + 3
        seen = len(list(receipts.glob("*/*.parquet")))
        assert not (tmp_path / "out" / "summary.json").exists()
    time.sleep(1)  # workers notice that their parent has gone
    called()
    go(items, tmp_path / "out", engine=EngineOptions(workers=2, task_size=8))
    assert 0 < len(called()) <= 104
    assert parts(tmp_path / "out") == parts(tmp_path / "whole")
    assert len({(tmp_path / name / "ledger.parquet").read_bytes() for name in ("out", "whole")}) == 1
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        ".lock", "ledger.parquet", "parts", "summary.json", "timings.parquet"
    ]  # fmt: skip


def test_interrupt_stops_promptly(tmp_path):
    toy_items(tmp_path / "in", dict.fromkeys(texts(400), "slow"))
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; sys.path[:0] = {PLACES!r}\n"
        "from pathlib import Path; from toy import run_slowly\n"
        "if __name__ == '__main__':\n"
        f"    run_slowly(Path({str(tmp_path / 'in')!r}), 400, 2, Path({str(tmp_path / 'out')!r}))\n"
    )
    child = subprocess.Popen([sys.executable, str(script)], start_new_session=True, stderr=subprocess.PIPE)
    while len(list((tmp_path / "out" / ".work").glob("*/*.parquet"))) < 2:
        time.sleep(0.02)
        assert child.poll() is None
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to everyone
    assert child.wait(timeout=20) != 0
    assert b"KeyboardInterrupt" in child.stderr.read()
    child.stderr.close()


def test_one_run_at_a_time(tmp_path):
    (tmp_path / "out").mkdir()
    import fcntl

    with (tmp_path / "out" / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="another ingest"):
            go([], tmp_path / "out")


def test_duplicate_content_is_refused_on_request(tmp_path):
    items = toy_items(tmp_path / "in", texts(20))  # all files and labels are the same
    items += toy_items(tmp_path / "more", {"other": "mend"})
    engine = EngineOptions(workers=0, task_size=8, duplicates="refuse")
    summary = go(items, tmp_path / "out", engine=engine)
    assert summary["reasons"] == {"duplicate_content": 19}
    assert kept_ids(tmp_path / "out") == {"i000", "other"}
    assert rows(tmp_path / "out")["i001"]["message"] == "i000 has the same files, record and label"
    before = parts(tmp_path / "out")
    go(items, tmp_path / "out", engine=engine)
    assert parts(tmp_path / "out") == before


def test_tasks_are_cut_by_content(tmp_path):
    items = [Item(f"c{k}", Locator(tmp_path)) for k in range(1000)]
    prior = ledger.Prior(tmp_path)
    tasks = [[item.id for item in task.items] for task in cut(items, 16, prior)]
    assert list(chain.from_iterable(tasks)) == [item.id for item in items]
    assert all(12 <= len(task) <= 20 for task in tasks[:-1])
    again = [[item.id for item in task.items] for task in cut(items[500:], 16, prior)]
    assert len([task for task in again if task not in tasks]) <= 8


def test_a_scheduler_elsewhere(tmp_path):
    import distributed

    items = toy_items(tmp_path / "in", texts(20, i007="exit"))
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50
    ) as cluster:
        engine = EngineOptions(scheduler=cluster.scheduler_address, task_size=8)
        summary = go(items, tmp_path / "out", engine=engine)
    assert summary["reasons"] == {"crashed": 1}
    assert summary["kept"] == 19
    with pytest.raises(UsageError, match="there is no Dask scheduler"):
        go(items, tmp_path / "out", engine=EngineOptions(scheduler="tcp://127.0.0.1:1"))


def test_what_is_not_ours_in_the_output_folder_stays(tmp_path):
    (tmp_path / "out" / "parts").mkdir(parents=True)
    mine = tmp_path / "out" / "parts" / "thesis.txt"
    mine.write_text("mine")
    with pytest.raises(UsageError, match="other things"):
        go(toy_items(tmp_path / "in", texts(2)), tmp_path / "out")
    assert mine.read_text() == "mine"


def test_ids_that_cannot_be_written_are_refused_and_end_no_run(tmp_path):
    names = ("good", "tab\there", "x" * 300, "line\nbreak")
    items = [
        replace(item, id=name) for item, name in zip(toy_items(tmp_path / "in", texts(4)), names, strict=True)
    ]
    summary = go(items, tmp_path / "out")
    assert (summary["seen"], summary["kept"], summary["reasons"]) == (4, 1, {"id_unusable": 3})


def test_names_made_here_give_way_to_the_ids_of_the_source(tmp_path):
    items = toy_items(tmp_path / "in", dict.fromkeys(("a", "b", "a#2", "row 2", "x.pdb", "''"), "fine"))
    a = items[0]
    items[2:2] = [a, a, Rejection("row 2", "id_missing", "row 2 has no id")]
    items[:0] = [Rejection("x.pdb", "unsafe_member", "a link"), Rejection("a\n", "file_missing", "gone")]
    items += [replace(a, id=""), replace(a, id="a#3")]
    summary = go(items, tmp_path / "out")
    assert (summary["seen"], summary["kept"]) == (len(items), 7)
    found = {id_: row["reason"] for id_, row in rows(tmp_path / "out").items()}
    assert found == {
        **dict.fromkeys(("a", "b", "a#2", "row 2", "x.pdb", "''", "a#3"), ""),
        "a#4": "duplicate_id", "a#5": "duplicate_id", "row 2#2": "id_missing", "x.pdb#2": "unsafe_member",
        "'a\\n'": "file_missing", "''#2": "id_missing",
    }  # fmt: skip


def test_complexes_that_left_the_source_are_counted(tmp_path):
    items = toy_items(tmp_path / "in", texts(3))
    assert go(items, tmp_path / "out")["removed"] == 0
    assert go(items[:1], tmp_path / "out")["removed"] == 2


def test_complexes_with_a_label_are_counted(tmp_path):
    items, out = toy_items(tmp_path / "in", texts(30, i003="refuse")), tmp_path / "out"

    def n_labelled() -> int:
        found = [c.affinity.pk for part in (out / "parts").iterdir() for c in open_dataset(part)]
        return sum(not math.isnan(pk) for pk in found)

    first = go(items, out)["labelled"]
    assert 0 < first == n_labelled() < 29
    assert go(items, out)["labelled"] == first  # of an earlier run's parts
    assert go([items[0], *items[2:]], out)["labelled"] == n_labelled()
    engine = EngineOptions(workers=0, task_size=8, duplicates="refuse")
    assert go(items, out, engine=engine)["labelled"] == n_labelled() <= 1
