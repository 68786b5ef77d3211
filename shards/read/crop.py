"""What is derived of a block once it is decoded: an atom's residue type, and the crop to so many atoms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..complex import Field
from ..errors import FormatError
from ..format.block import Block
from .batch import ATOM_RESIDUE_TYPE

PAIRS: Final = 1 << 18  # atom pairs whose distances are held at once: 2 MiB, which a core's cache holds
_FAR: Final = 2.0**46  # beyond 8,000 angstrom, in units of 1e-6 angstrom^2


def with_residue_type(block: Block, out: NDArray[Any] | None = None) -> Block:
    """Add ``atom_residue_type``, the type of the residue of each atom, to a block's columns.

    ``out`` has room for it: (n_atoms or more,), of the dtype of ``residue_type``.
    """
    residue, types = block.columns["residue"], block.columns["residue_type"]
    atoms = block.counts["atom"]
    some = atoms > 0
    most = np.maximum.reduceat(residue, block.starts["atom"][some]) if some.any() else residue
    if np.any(most >= block.counts["residue"][some]):
        raise FormatError("an atom's residue lies outside its complex; expected a row of its residue axis")
    few = len(types) <= np.iinfo(np.uint16).max  # then half the time goes into smaller numbers
    row = np.repeat(block.starts["residue"].astype(np.uint16 if few else np.int64), atoms)
    row += residue
    found = (
        types[:0]
        if not len(types)
        else np.take(types, row, out=None if out is None else out[: len(row)], mode="clip")
    )
    return replace(
        block,
        fields={**block.fields, ATOM_RESIDUE_TYPE: residue_type_field(block.fields)},
        columns={**block.columns, ATOM_RESIDUE_TYPE: found},
    )


def residue_type_field(fields: Mapping[str, Field]) -> Field:
    """The field of ``atom_residue_type``."""
    return replace(fields["residue_type"], axis="atom")


def crop(block: Block, max_atoms: int) -> Block:
    """Keep so many atoms a complex of a raw block: the ligand and the pocket atoms nearest to any of it.

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
    position = block.columns["position"]
    keep = np.ones(len(position), np.bool_)
    large = np.flatnonzero(counts > max_atoms)
    large = large[np.argsort(counts[large], kind="stable")]
    while len(large):
        width = int(counts[large[-1]])
        some = large[-max(PAIRS // (width * int(ligand[large].max(initial=1))), 1) :]
        large = large[: -len(some)]
        place = np.arange(width)
        inside = place < counts[some][:, None]
        rows = np.where(inside, starts[some][:, None] + place, starts[some][:, None])
        # Unique keys: by distance, then by row; the ligand's below all others, padding above.
        key = (nearest(position[rows], ligand[some]) << 16) + place
        key[~inside] = np.iinfo(np.int64).max
        last = np.partition(key, max_atoms - 1, axis=1)[:, max_atoms - 1]
        stays = (key <= last[:, None]) & ((key < 0) | (ligand[some] < max_atoms)[:, None]) | (key < 0)
        keep[rows[inside]] = stays[inside]
    return keep


def nearest(position: NDArray[np.integer], n_ligand: NDArray[np.int64]) -> NDArray[np.int64]:
    """Squared distance of each atom to the nearest ligand atom, -1 for the ligand's own.

    Stored positions are whole numbers, which float64 multiplies and adds without rounding: the result is
    the same on every machine, whatever the order of its sums.

    Parameters
    ----------
    position : shape (b, n, 3), in units of 0.001 angstrom, the ligand's atoms first
    n_ligand : shape (b,)

    Returns
    -------
    shape (b, n), in units of 1e-6 angstrom^2
    """
    x = position.astype(np.float64)
    square = np.einsum("bni,bni->bn", x, x)
    most = int(n_ligand.max(initial=1))
    own = np.arange(most) < n_ligand[:, None]
    # |l - x|^2 = (-2 l, |l|^2, 1) . (x, 1, |x|^2); a place beyond the ligand is out of reach
    reach = np.where(own, square[:, :most], _FAR)
    one = np.ones_like(square)
    ligand = np.concatenate([-2.0 * x[:, :most], reach[..., None], one[:, :most, None]], axis=2)
    atoms = np.stack([x[..., 0], x[..., 1], x[..., 2], one, square], axis=1)
    least: NDArray[np.int64] = np.minimum((ligand @ atoms).min(axis=1), _FAR).astype(np.int64)
    least[np.arange(position.shape[1]) < n_ligand[:, None]] = -1
    return least
