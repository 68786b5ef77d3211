"""Small complexes whose pK follows from their geometry, so that a small model can learn it."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np

from holoshard.shards.complex import NO_AFFINITY, Affinity, Complex
from holoshard.shards.make.pack import pack
from holoshard.shards.make.rule import Rule
from holoshard.shards.make.writer import write_part

sys.path.insert(0, str(Path(__file__).parent.parent / "shards"))
from random_complexes import random_complex


def toy_complex(rng: np.random.Generator, name: str) -> Complex:
    """30 to 60 atoms; pK rises with the ligand's size and with its contacts below 4 angstrom."""
    n, n_ligand = int(rng.integers(30, 60)), int(rng.integers(6, 16))
    made = random_complex(rng, name, n)
    residue = np.where(np.arange(n) < n_ligand, 0, made.residue).astype(np.uint16)
    position = np.round(rng.normal(0, rng.uniform(3, 6), (n, 3)), 3).astype(np.float32)
    gap = np.linalg.norm(position[:n_ligand, None] - position[None, n_ligand:], axis=-1)
    pk = 3.0 + 0.1 * n_ligand + 0.03 * float((gap < 4).sum())
    text = {**made.text, "label": f"{pk:.2f}", "columns": {"target": f"T{rng.integers(5)}", "weight": "2"}}
    affinity = Affinity(float(np.float32(pk)), "=", ("Kd", "Ki", "IC50")[int(rng.integers(3))])
    draw = rng.random()
    if draw < 0.05:
        affinity = dataclasses.replace(affinity, relation="<")
    elif draw < 0.1:
        affinity = NO_AFFINITY
    return dataclasses.replace(
        made, position=position, residue=residue, n_ligand_atoms=n_ligand, affinity=affinity, text=text
    )


def toy_complexes(n: int, seed: int = 0) -> list[Complex]:
    """n complexes with ids like t00000."""
    rng = np.random.default_rng(seed)
    return [toy_complex(rng, f"t{i:05d}") for i in range(n)]


def write_shards(out: Path, n: int = 96, seed: int = 0) -> Path:
    """A packed data set of n toy complexes with train, valid and test."""
    write_part(out / "parts" / "part-0.h5", toy_complexes(n, seed), block_size=16)
    pack([out / "parts"], out / "shards", rule=Rule(seed=seed), block_size=16)
    return out / "shards"
