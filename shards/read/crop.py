"""What is derived of a block once it is decoded: an atom's residue type, and the crop to so many atoms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError
from ..format.block import Block
from .batch import ATOM_RESIDUE_TYPE

PAIRS: Final = 1 << 21  # atom pairs whose distances are held at once: 8 MiB of float32


def with_residue_type(block: Block) -> Block:
    """Add ``atom_residue_type``, the type of the residue of each atom, to a block's columns."""
    residue, types = block.columns["residue"].astype(np.int64), block.columns["residue_type"]
    atoms = block.counts["atom"]
    if np.any(residue >= np.repeat(block.counts["residue"], atoms)):
        raise FormatError("an atom's residue lies outside its complex; expected a row of its residue axis")
    row = residue + np.repeat(block.starts["residue"], atoms)
    field = replace(block.fields["residue_type"], axis="atom")
    return replace(
        block,
        fields={**block.fields, ATOM_RESIDUE_TYPE: field},
        columns={**block.columns, ATOM_RESIDUE_TYPE: types[row]},
    )


def crop(block: Block, max_atoms: int) -> Block:
    """Keep ``max_atoms`` atoms a complex: the whole ligand and the pocket atoms nearest to any of its atoms.

    Of atoms equally near the first in the file's order stays. Bonds to an atom that goes, go with it;
    a ligand larger than ``max_atoms`` stays whole, alone. Residues stay, so that their rows still hold.
    """
    starts, counts = block.starts["atom"], block.counts["atom"]
    if not np.any(counts > max_atoms):
        return block
    keep = _keep(block, max_atoms)
    order = np.cumsum(keep) - 1  # an atom's row once the others are gone
    kept = np.add.reduceat(np.append(keep, False), starts, dtype=np.int64) * (counts > 0)
    begin = np.cumsum(kept) - kept
    columns, new = dict(block.columns), {**block.counts, "atom": kept}
    if "bond_atoms" in columns:
        complexes = np.repeat(np.arange(block.n_complexes), block.counts["bond"])
        ends = columns["bond_atoms"].astype(np.int64)
        if np.any(ends >= counts[complexes][:, None]):
            raise FormatError("a bond's atom lies outside its complex; expected a row of its atom axis")
        ends = ends + starts[complexes][:, None]
        whole = keep[ends].all(1)
        local = order[ends] - begin[complexes][:, None]
        columns["bond_atoms"] = local.astype(columns["bond_atoms"].dtype)
        new["bond"] = np.bincount(complexes[whole], minlength=block.n_complexes).astype(np.int64)
        columns.update({key: c[whole] for key, c in columns.items() if block.fields[key].axis == "bond"})
    columns.update({key: c[keep] for key, c in columns.items() if block.fields[key].axis == "atom"})
    return Block.of(block.fields, columns, new)


def _keep(block: Block, max_atoms: int) -> NDArray[np.bool_]:
    """Mask of the atoms that stay, shape (n_atoms,)."""
    starts, counts = block.starts["atom"], block.counts["atom"]
    ligand = block.columns["n_ligand_atoms"].astype(np.int64)
    keep = np.ones(len(block.columns["position"]), np.bool_)
    large = np.flatnonzero(counts > max_atoms)
    large = large[np.argsort(counts[large] * ligand[large], kind="stable")]
    while len(large):
        width, n_ligand = int(counts[large[-1]]), int(ligand[large[-1]])
        some = large[-max(PAIRS // max(width * n_ligand, 1), 1) :]
        large = large[: -len(some)]
        place = np.arange(int(counts[some].max()))
        inside = place < counts[some][:, None]
        rows = np.where(inside, starts[some][:, None] + place, 0)
        near = nearest(block.columns["position"][rows], ligand[some])
        near[~inside] = np.inf
        rank = np.argsort(np.argsort(near, axis=1, kind="stable"), axis=1, kind="stable")
        stays = rank < np.maximum(ligand[some], max_atoms)[:, None]
        keep[rows[inside]] = stays[inside]
    return keep


def nearest(position: NDArray[Any], n_ligand: NDArray[np.int64]) -> NDArray[np.float32]:
    """Squared distance of each atom to the nearest ligand atom, -1 for the ligand's own.

    Parameters
    ----------
    position : shape (b, n, 3), angstrom, the ligand's atoms first
    n_ligand : shape (b,)

    Returns
    -------
    shape (b, n), angstrom^2; infinite without a ligand
    """
    most = int(n_ligand.max(initial=1))
    square = np.zeros((*position.shape[:2], most), np.float32)
    for axis in range(3):
        x = position[..., axis]
        difference = x[:, :, None] - x[:, None, :most]
        square += difference * difference
    square = np.where((np.arange(most) < n_ligand[:, None])[:, None], square, np.float32(np.inf))
    least: NDArray[np.float32] = square.min(axis=2)
    least[np.arange(position.shape[1]) < n_ligand[:, None]] = -1
    return least
