from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from judged_run import FormulaPredictor, run_folder, small_dataset

from holoshard.shards.complex import Flag
from holoshard.shards.errors import DataError, UsageError
from holoshard.shards.read.dataset import open_dataset
from holoshard.train import predictor
from holoshard.train.judge import baselines, figures, page
from holoshard.train.judge.evaluate import evaluate
from holoshard.train.judge.pocket import scene
from holoshard.train.judge.predictions import read_predictions, write_predictions
from holoshard.train.judge.report import write_report
from holoshard.train.judge.runlog import read_log

pytest.importorskip("matplotlib")
VOID = {"meta", "br", "link", "img", "input", "hr"}


class Checker(HTMLParser):
    """Elements close in the order in which they opened; collects what a test asks about."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.tags = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open += [] if tag in VOID else [tag]
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "data", "action") or (value and "url(" in value):
                self.links.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return small_dataset(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def dataset(data):
    return open_dataset(data)


@pytest.fixture
def run(data, tmp_path, monkeypatch):
    monkeypatch.setattr(predictor, "Predictor", FormulaPredictor)
    monkeypatch.setattr(baselines, "N_TREES", 10)
    folder = run_folder(tmp_path / "run", data)
    for split in ("valid", "test"):
        evaluate(folder, split, n_boot=50, baselines=split == "test")
    return folder


def test_the_page_is_whole_and_alone(run):
    path = write_report(run)
    text = path.read_text(encoding="utf-8")
    found = Checker(text)
    assert path == run / "report.html"
    assert len(text.encode()) < 1_000_000
    assert len(found.ids) == len(set(found.ids))
    for link in found.links:
        target = re.sub(r"^url\(|\)$", "", link) if link.startswith("url(") else link
        for inner in re.findall(r"#[\w.-]+", target) or [target]:
            assert inner.startswith("#")
            assert inner[1:] in found.ids
    outside = set(re.findall(r"https?://[^\s\"'<>]+", text))
    assert outside <= {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}
    assert found.tags.count("svg") == 5  # scatter, errors, curves, and intervals of RMSE and Pearson
    assert "nan" not in re.sub(r"<script.*?</script>", "", text, flags=re.S).lower().replace("nano", "")


def test_the_same_run_gives_the_same_bytes(run):
    first = write_report(run).read_bytes()
    assert write_report(run).read_bytes() == first


def test_figures_are_those_of_the_evaluation(run):
    result = evaluate(run, "test", n_boot=50)
    text = write_report(run).read_text(encoding="utf-8")
    tile = rf"RMSE \(test\)</span><b>{result['rmse']:.2f}</b><span>\[{result['rmse_ci'][0]:.2f}, "
    assert re.search(tile, text)
    assert "this run - mean" in text
    assert "1,234 parameters" in text
    assert "50 draws of 9 clusters" in text
    assert "drawn from 9 clusters: too few for an interval to be trusted" in text
    assert "leaves out 0" not in text
    (run / "evaluation-valid.json").unlink()
    path = run / "evaluation-test.json"
    for n, brackets, differ in ((2, False, False), (10, True, True)):
        path.write_text(json.dumps({**result, "n_units": n}), encoding="utf-8")
        text = write_report(run).read_text(encoding="utf-8")
        assert ("Brackets are" in text, "leaves out 0" in text) == (brackets, differ)
        assert ("drawn from 2 clusters: too few for an interval." in text) is (n == 2)


def test_what_comes_from_data_is_no_markup(run):
    table = read_predictions(run / "predictions-test.csv")
    evil = '<script>alert("id")</script><img src=x onerror=alert(1)>$\\frac{'
    order = np.argsort(-np.abs(table.predicted - table.pk))
    ids = list(table.id)
    for i in order:
        ids[i] = evil + str(i)
    write_predictions(
        run / "predictions-test.csv", replace(table, id=tuple(ids), target=(evil,) * len(table))
    )
    (run / "predictions-$x<b>.csv").write_bytes((run / "predictions-test.csv").read_bytes())
    (run / 'evaluation-"><b>.json').write_bytes((run / "evaluation-test.json").read_bytes())
    text = write_report(run).read_text(encoding="utf-8")
    found = Checker(text)
    assert "alert(" in text
    assert "<script>alert" not in text
    assert "img" not in found.tags
    assert "$x&lt;b&gt;" in text


@pytest.mark.parametrize("flags", [Flag(0), Flag.SYNTHETIC])
def test_synthetic_data_is_said_to_be(tmp_path, monkeypatch, flags):
    monkeypatch.setattr(predictor, "Predictor", FormulaPredictor)
    made = small_dataset(tmp_path, 40, flags=flags)
    folder = run_folder(tmp_path / "run", made)
    evaluate(folder, n_boot=10)
    assert ('class="banner">Synthetic data. All' in write_report(folder).read_text()) is bool(flags)


def test_a_run_that_is_not_evaluated(tmp_path, data):
    folder = run_folder(tmp_path / "bare", data)
    text = write_report(folder).read_text()
    Checker(text)
    assert "has not been evaluated" in text
    (folder / "metrics.jsonl").unlink()
    Checker(write_report(folder).read_text())


def test_a_data_set_that_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(predictor, "Predictor", FormulaPredictor)
    (tmp_path / "gone").mkdir()
    moved = small_dataset(tmp_path / "gone", 40)
    folder = run_folder(tmp_path / "late", moved)
    evaluate(folder, n_boot=10)
    shutil.rmtree(tmp_path / "gone")
    text = write_report(folder).read_text()
    assert "no longer there" in text
    assert "RMSE (test)" in text


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(UsageError, match=r"config\.toml"):
        write_report(tmp_path)


def test_a_broken_evaluation_is_named(run):
    (run / "evaluation-test.json").write_text("{")
    with pytest.raises(DataError, match=r"evaluation-test\.json"):
        write_report(run)


def test_the_log_of_a_resumed_run(run):
    log = read_log(run)
    steps, loss = log.series("loss")
    assert steps.tolist() == list(range(10, 110, 10))
    assert loss[5] == 0.5  # the later line holds
    assert log.evaluated("pearson")[1].tolist() == [0.9]
    assert [e["event"] for e in log.events] == ["resumed"]


def test_a_long_curve_keeps_its_mean():
    steps = np.arange(10_001)
    values = np.random.default_rng(0).normal(size=10_001)
    thin_steps, thin = figures._thin_curve((steps, values))
    assert len(thin) <= figures.MAX_LINE
    assert thin[0] == pytest.approx(values[:13].mean())
    assert thin_steps[-1] <= 10_000


def test_a_large_scatter_stays_small(run):
    table = read_predictions(run / "predictions-test.csv")
    rows = np.arange(20_000) % len(table)
    assert len(figures.scatter([("test", table.select(rows))])) < 300_000


def test_text_hides_nothing():
    assert (
        page.text('<a b="c">&\'\x1b[0m') == "&lt;a b=&quot;c&quot;&gt;&amp;&#x27;\N{REPLACEMENT CHARACTER}[0m"
    )


def test_a_scene_is_the_complex(dataset):
    holo = dataset[0]
    drawn = scene(holo)
    assert len(drawn["xyz"]) == 3 * len(drawn["element"]) == 3 * holo.n_atoms
    assert drawn["bonds"] == holo.bond_atoms.ravel().tolist()
    between = np.array(drawn["xyz"][:3]) - drawn["xyz"][3 * holo.n_ligand_atoms :][:3]
    assert between == pytest.approx(holo.position[0] - holo.position[holo.n_ligand_atoms], abs=0.02)


def test_the_pages_parts_are_left_out_when_empty():
    assert page.section("Title", "", "") == ""
    assert page.table(["a"], []) == ""
    shown = page.table(["a", "b", "c"], [["x", "-", 1], ["y", "-", "-"]])
    assert ">b</th>" not in shown
    assert shown.count("<td") == 4
