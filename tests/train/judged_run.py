"""A small data set and a run's folder whose model is a formula: made in a second, judged like any other."""

from __future__ import annotations

import json
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
from random_complexes import random_complex

from holoshard.shards.complex import Affinity, Complex, Flag
from holoshard.shards.make.pack import pack
from holoshard.shards.make.rule import Rule
from holoshard.shards.make.writer import write_part
from holoshard.shards.read.dataset import Dataset

CONFIG = '[data]\npath = "{path}"\n\n[model]\nwidth = 16  # <script>alert("config")</script>\n'


MEASURED = Flag(0)


def learnable_complexes(n: int, seed: int = 0, flags: Flag = MEASURED) -> list[Complex]:
    """Complexes whose pK grows with the ligand, all labels exact but every twentieth, a bound."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(n):
        holo = random_complex(rng, f"x{i:04d}", n_atoms=60)
        pk = float(np.float32(4 + 0.1 * holo.n_ligand_atoms + 0.3 * rng.normal()))
        affinity = Affinity(pk, "<" if i % 20 == 7 else "=", ("Kd", "Ki")[i % 2], 1, 0.0, f"{pk:.2f}")
        made.append(replace(holo, affinity=affinity, flags=flags))
    return made


def small_dataset(folder: Path, n: int = 240, **options: Flag) -> Path:
    """Written and packed as any other; the data set's folder."""
    write_part(folder / "part-0.h5", learnable_complexes(n, **options))
    pack([folder / "part-0.h5"], folder / "shards", rule=Rule(fractions=(0.5, 0.1, 0.4)))
    return folder / "shards"


class FormulaPredictor:
    """Stands for a trained model: pK from the ligand's size, 0.1 an atom, and a little more."""

    step = 40
    offset = 0.1

    def __init__(self, path: Path) -> None:
        text = (path / "config.toml").read_text(encoding="utf-8")
        where = text.partition('path = "')[2].partition('"')[0]
        data = types.SimpleNamespace(path=where, target_column="target", cluster_column="cluster")
        self.config = types.SimpleNamespace(data=data)

    @classmethod
    def load(cls, path: Path, device: str = "cpu") -> FormulaPredictor:
        return cls(path)

    def predict(self, dataset: Dataset, split: str) -> types.SimpleNamespace:
        index = dataset.indices(split)
        size = np.asarray(dataset.column("n_ligand_atoms"), dtype=np.float64)[index]
        return types.SimpleNamespace(index=index, pk=4 + 0.1 * size + self.offset, sd=None)


def run_folder(folder: Path, dataset: Path) -> Path:
    """A run's folder as training leaves it, without the model."""
    folder.mkdir()
    (folder / "config.toml").write_text(CONFIG.format(path=dataset), encoding="utf-8")
    lines = [{"run": {"parameters": 1234, "device": "cpu", "precision": "fp32", "torch": "2.13.0"}}]
    for step in range(10, 110, 10):
        lines.append({"step": step, "epoch": 0, "loss": 1 / step, "lr": 1e-3, "samples_per_s": 100.0,
                      "data_wait": 0.5, "forward": 1.0, "backward": 2.0, "optimizer": 0.5})  # fmt: skip
    lines.append(
        {"step": 100, "epoch": 0, "eval": {"split": "valid", "rmse": 0.5, "pearson": 0.9}, "best": True}
    )
    lines.append({"step": 50, "event": "resumed"})
    lines.append({"step": 60, "epoch": 0, "loss": 0.5, "lr": 1e-3})
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"step": 70, "lo'
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    return folder
