"""Damaged ligand files: whatever the bytes, the answer is a ligand or a reason, never another exception."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem

from holoshard.ingest.read.ligand import read_ligand
from holoshard.ingest.reasons import REASONS, REPAIRS
from holoshard.shards.errors import StructureError

FILES = (
    "data/real/layouts/pdbbind_style/1imx/1imx_ligand.sdf",
    "data/real/layouts/pdbbind_style_diffdock/1a0q/1a0q_ligand.mol2",
    "data/real/layouts/vina/basic_docking/solution/1iep_ligand.pdbqt",
    "data/real/layouts/posebusters/1ia1/1ia1_ligand.sdf",
    "data/real/nasty/openbabel/culgi_09.mol2",
    "cases/12-kekule-missing-nh/ligand.sdf",
)


def damage(data: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, cut out, put in or doubled, or the end cut off."""
    text = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        if not text:
            break
        at, kind = rng.randrange(len(text)), rng.randrange(5)
        if kind == 0:
            text[at] = rng.choice(b"0123456789 -.CNOPSHar\n$M\xff")
        elif kind == 1:
            del text[at : at + rng.randrange(1, 30)]
        elif kind == 2:
            text[at:at] = bytes(rng.choice(b"0123456789 \n-.") for _ in range(rng.randrange(1, 12)))
        elif kind == 3:
            other = rng.randrange(len(text))
            text[at : at + 20] = text[other : other + 20]
        elif rng.random() < 0.3:
            del text[at:]
    return bytes(text)


@pytest.mark.parametrize("name", [*FILES, "V3000"])
def test_damage_gives_a_ligand_or_a_reason(shared: Path, name: str) -> None:
    if name == "V3000":
        plain = Chem.MolFromMolFile(str(shared / FILES[3]))
        data = Chem.MolToV3KMolBlock(plain).encode()
    else:
        data = (shared / name).read_bytes()
    rng = random.Random(name)
    kept, reasons = 0, set()
    for _ in range(300):
        try:
            ligand = read_ligand(damage(data, rng), "x", hydrogens=rng.random() < 0.3)
        except StructureError as error:
            reasons.add(error.reason)
            continue
        kept += 1
        assert set(ligand.repairs) <= set(REPAIRS)
        assert ligand.n_heavy_atoms > 0
        assert np.isfinite(ligand.position).all()
        assert ligand.bond_atoms.size == 0 or ligand.bond_atoms.max() < ligand.n_atoms
    assert kept
    assert reasons
    assert reasons <= set(REASONS)
