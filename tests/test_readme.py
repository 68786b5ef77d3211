"""What the README shows works as it stands."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)


def block(word: str) -> str:
    (found,) = (b for b in BLOCKS if word in b)
    return found


def test_reading_shards(small_dataset):
    code = (
        block("dataset = holoshard.open_dataset")
        .replace("data/shards", str(small_dataset))
        .replace("batch_size=64", "batch_size=8")
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_columns_of_ones_own_reach_batches(tmp_path, small_dataset):
    from holoshard.shards.make.pack import pack
    from holoshard.shards.read.dataset import open_dataset

    code = block("def with_depth").replace("data/parts/parts", str(small_dataset.parent))
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    pack([tmp_path / "deep.h5"], tmp_path / "shards")
    batch = next(iter(open_dataset(tmp_path / "shards").stream(batch_size=4, fields=["position", "depth"])))
    expected = np.linalg.norm(batch["position"], axis=2)
    np.testing.assert_allclose(batch["depth"], expected, rtol=1e-6)


def test_a_layout_of_ones_own(tmp_path, monkeypatch):
    from holoshard.ingest.sample import write_sample
    from holoshard.ingest.sources import layouts
    from holoshard.shards.read.dataset import open_dataset

    (tmp_path / "mylab.py").write_text(block("class MyLab"))
    write_sample(tmp_path / "sample", n=6)
    with (tmp_path / "sample" / "labels.csv").open() as table:
        rows = [r for r in csv.DictReader(table) if r["protein_path"].endswith(".pdb")]
    row = next(r for r in rows if r["ligand_path"].endswith(".sdf") and r["ligand_record"] in ("", "0"))
    folder = tmp_path / "screens" / "one"
    folder.mkdir(parents=True)
    (tmp_path / "screens" / "dock.log").touch()
    shutil.copy(tmp_path / "sample" / row["protein_path"], folder / "receptor.pdb")
    shutil.copy(tmp_path / "sample" / row["ligand_path"], folder / "pose.sdf")
    (folder / "affinity.txt").write_text("Ki<=20nM\n")
    command = ["ingest", "screens", "--layout", "mylab:MyLab", "--out", "parts", "--workers", "0"]
    path = os.pathsep.join([".", os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-m", "holoshard", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )
    (part,) = (tmp_path / "parts" / "parts").glob("*.h5")
    (holo,) = open_dataset(part)
    assert holo.id == "one"
    assert (holo.affinity.relation, holo.affinity.kind) == (">=", "Ki")
    monkeypatch.syspath_prepend(str(tmp_path))
    own = layouts.named("mylab:MyLab")
    assert layouts.choose(tmp_path / "screens").source.name != "mylab"
    monkeypatch.setattr(layouts, "LAYOUTS", (own, *layouts.LAYOUTS))
    chosen = layouts.choose(tmp_path / "screens")
    assert (chosen.source.name, chosen.unread) == ("mylab", ())


def test_every_command_and_make_target_it_names_exists():
    from holoshard.__main__ import COMMANDS

    named = {
        w for cell in re.findall(r"`holoshard ([a-z|\\]+)", README) for w in cell.replace("\\", "").split("|")
    }
    assert named - {""} <= set(COMMANDS), named - set(COMMANDS)
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"`?make ([a-z]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_the_caches_of_its_configuration(small_dataset, tmp_path):
    from holoshard.train.configfile import parse_config

    (text,) = re.findall(r"^```toml\n(\[data\].*?)^```", README, re.M | re.S)
    made = parse_config(text, "README.md")
    assert made.data.shuffle == "local"
    assert len(made.cache.tiers) == 2
    assert (made.cache.decoded, made.cache.whole) == ("shared:32GiB", True)


def test_a_tier_of_ones_own(small_dataset, tmp_path):
    (tmp_path / "sqlitetier.py").write_text(block("class Sqlite"))
    code = f"""
import numpy as np
from holoshard import open_dataset
from holoshard.cache.tiered import open_cache
from holoshard.cache.warm import warm

dataset = open_dataset({str(small_dataset)!r})
cache = open_cache(["memory:1KiB", "sqlitetier:Sqlite:1MiB"], {str(small_dataset)!r})
warm(cache, cache.extents.ranges("train"))
fetches = cache.source.fetches
for a, b in zip(dataset.stream("train", 4), dataset.stream("train", 4, fetch=cache), strict=True):
    assert np.array_equal(a["position"], b["position"])
assert cache.source.fetches == fetches > 0
assert cache.counters()["sqlite"]["hits"] > 0
cache.close()
small = open_cache(["sqlitetier:Sqlite:1KiB"], {str(small_dataset)!r})
assert small.source.fetches == 0 and small.tiers[0].used() > 0
"""
    path = os.pathsep.join([".", os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, check=True
    )
