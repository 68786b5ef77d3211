"""Random complexes that are valid in every field, made by numpy alone: ragged, seeded, quick."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from holoshard.shards.complex import (
    BOND_ORDERS,
    BOND_STEREOS,
    CHIRALITIES,
    HYBRIDISATIONS,
    KINDS,
    RELATIONS,
    RESIDUE_TYPES,
    Affinity,
    Complex,
    Flag,
    encode_names,
)

ELEMENTS = np.array([6, 6, 6, 6, 7, 8, 8, 16, 17], np.uint8)


def random_complex(
    rng: np.random.Generator,
    name: str,
    n_atoms: int | None = None,
    extra: dict[str, np.ndarray[Any, Any]] | None = None,
    **text: Any,
) -> Complex:
    """One complex of about 60 atoms, or of n_atoms; every field is filled, values are in range."""
    n = int(rng.integers(12, 110)) if n_atoms is None else n_atoms
    n_ligand = int(rng.integers(1, max(2, min(n, 40))))
    n_residues = 1 + (n - n_ligand + 7) // 8
    residue = np.concatenate([np.zeros(n_ligand, np.uint16), 1 + np.arange(n - n_ligand) // 8]).astype(
        np.uint16
    )
    first = rng.integers(0, max(1, n - 1), int(rng.integers(0, n + 1)) if n > 1 else 0)
    atoms = np.stack([first, first + 1], axis=1).astype(np.uint16)
    relation = RELATIONS[int(rng.integers(1, len(RELATIONS)))]
    pk = float(np.float32(rng.normal(6.5, 1.5)))
    affinity = Affinity(pk, relation, KINDS[int(rng.integers(1, len(KINDS)))], int(rng.integers(1, 4)),
                        float(np.float32(rng.random())), f"{pk:.2f}")  # fmt: skip
    if rng.random() < 0.1:
        affinity = Affinity(float("nan"), "none", "none", 0)

    def codes(size: int, n_words: int) -> np.ndarray[Any, Any]:
        return rng.integers(0, n_words, size).astype(np.uint8)

    residues = codes(n_residues, len(RESIDUE_TYPES))
    residues[0] = RESIDUE_TYPES.index("ligand")
    return Complex(
        position=(rng.integers(-20000, 20001, (n, 3)).astype(np.float32) / np.float32(1000)),
        element=rng.choice(ELEMENTS, n),
        charge=rng.integers(-1, 2, n).astype(np.int8),
        hybridisation=codes(n, len(HYBRIDISATIONS)),
        degree=codes(n, 5),
        hydrogens=codes(n, 4),
        aromatic=codes(n, 2),
        ring=codes(n, 2),
        chirality=codes(n, len(CHIRALITIES)),
        backbone=codes(n, 2),
        name=encode_names([f"C{i % 1000}" for i in range(n)], 4),
        residue=residue,
        b_factor=rng.integers(0, 9999, n).astype(np.float32) / np.float32(100),
        occupancy=rng.integers(0, 101, n).astype(np.float32) / np.float32(100),
        bond_atoms=atoms,
        bond_order=codes(len(atoms), len(BOND_ORDERS)),
        bond_conjugated=codes(len(atoms), 2),
        bond_ring=codes(len(atoms), 2),
        bond_stereo=codes(len(atoms), len(BOND_STEREOS)),
        residue_type=residues,
        residue_name=encode_names(["LIG"] + ["ALA"] * (n_residues - 1), 8),
        residue_chain=encode_names(["A"] * n_residues, 8),
        residue_number=rng.integers(-10, 1000, n_residues).astype(np.int32),
        residue_insertion=np.zeros(n_residues, np.uint8),
        n_ligand_atoms=n_ligand,
        affinity=affinity,
        centre=np.round(rng.normal(0, 30, 3), 3),
        pocket_radius=8.0,
        resolution=float("nan") if rng.random() < 0.2 else float(np.float32(rng.uniform(1, 3))),
        deposited=int(rng.integers(1990, 2025)) * 10000 + 101,
        flags=Flag.SYNTHETIC,
        text={
            "id": name,
            "source": "random",
            "smiles": "C" * n_ligand,
            "scaffold": f"c1ccccc1{'C' * int(rng.integers(0, 6))}",
            "sequences": {"A": "".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), 40))},
            "label": affinity.text,
            "columns": {"target": f"T{int(rng.integers(0, 9))}", "cluster": str(int(rng.integers(0, 9)))},
            **text,
        },
        extra=extra or {},
    )


def random_complexes(n: int, seed: int = 0, prefix: str = "c", **options: Any) -> Iterator[Complex]:
    """n complexes with ids like c00000; the same seed gives the same complexes."""
    rng = np.random.default_rng(seed)
    for i in range(n):
        yield random_complex(rng, f"{prefix}{i:05d}", **options)


def assert_same(found: Complex, expected: Complex) -> None:
    """Every field agrees, bit for bit, in value, dtype and shape."""
    from holoshard.shards.complex import FIELDS

    for f in FIELDS:
        if f.axis in ("complex", "text"):
            continue
        a, b = getattr(found, f.key), getattr(expected, f.key)
        assert a.dtype == f.value_dtype, (f.key, a.dtype)
        np.testing.assert_array_equal(a, b, err_msg=f.key)
    for name in ("n_ligand_atoms", "pocket_radius", "deposited", "flags"):
        assert getattr(found, name) == getattr(expected, name), name
    np.testing.assert_equal(found.resolution, expected.resolution)
    np.testing.assert_array_equal(found.centre, expected.centre)
    for name in ("relation", "kind", "count", "spread", "text"):
        assert getattr(found.affinity, name) == getattr(expected.affinity, name), name
    np.testing.assert_equal(found.affinity.pk, expected.affinity.pk)
    assert dict(found.text) == dict(expected.text)
    assert set(found.extra) == set(expected.extra)
    for key, value in expected.extra.items():
        np.testing.assert_array_equal(found.extra[key], value, err_msg=key)
