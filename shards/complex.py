"""One holo structure and the one table that says how each of its fields is stored.

A complex is a ligand with the pocket of whole protein residues around it. Every array belongs to an
axis: ``atom``, ``bond``, ``residue`` (ragged: a different number of rows in each complex), ``complex``
(one row a complex) or ``text`` (a ragged run of bytes holding one JSON object a complex). The ligand's
atoms come first: rows ``0 .. n_ligand_atoms``; the pocket's follow, residue by residue.

:data:`FIELDS` is the contract between ingest, the shard format, the stream and the trainer. A field's
``key`` is its name as an attribute of :class:`Complex` and in a ``Batch``; its ``path`` is its name in
a shard file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

Axis = Literal["complex", "atom", "bond", "residue", "text"]
RAGGED_AXES: Final[tuple[Axis, ...]] = ("atom", "bond", "residue", "text")

# Vocabularies: an array holds the index into its tuple. They are only ever appended to, and index 0
# is always "nothing known", so that a field a source lacks is a column of zeros.
HYBRIDISATIONS: Final = ("unknown", "s", "sp", "sp2", "sp3", "sp3d", "sp3d2", "other")
CHIRALITIES: Final = ("none", "R", "S", "unassigned")
BOND_ORDERS: Final = ("unknown", "single", "double", "triple", "aromatic", "dative", "quadruple")
BOND_STEREOS: Final = ("none", "E", "Z", "any")
RELATIONS: Final = ("none", "=", "<", ">", "<=", ">=", "~")
KINDS: Final = ("none", "Kd", "Ki", "IC50", "EC50", "dG", "pK", "active", "inactive", "synthetic")
AMINO_ACIDS: Final = (
    "ALA", "ARG", "ASN", "ASP", "CYS", "GLN", "GLU", "GLY", "HIS", "ILE",
    "LEU", "LYS", "MET", "PHE", "PRO", "SER", "THR", "TRP", "TYR", "VAL",
)  # fmt: skip
NUCLEOTIDES: Final = ("A", "C", "G", "U", "DA", "DC", "DG", "DT")
RESIDUE_TYPES: Final = (
    "unknown",
    "ligand",
    *AMINO_ACIDS,
    "modified",  # an amino acid outside the twenty, such as MSE or a phosphorylated SER
    *NUCLEOTIDES,
    "water",
    "ion",
    "cofactor",
)
VOCABULARIES: Final[Mapping[str, tuple[str, ...]]] = {
    "hybridisation": HYBRIDISATIONS,
    "chirality": CHIRALITIES,
    "bond_order": BOND_ORDERS,
    "bond_stereo": BOND_STEREOS,
    "pk_relation": RELATIONS,
    "pk_kind": KINDS,
    "residue_type": RESIDUE_TYPES,
}


class Flag(IntFlag):
    """What is special about a complex; the bits of the field ``flags``."""

    SYNTHETIC = 1 << 0  # written by `holoshard sample`, not measured
    COVALENT = 1 << 1  # the ligand is bonded to the protein
    OUT_OF_RANGE = 1 << 2  # an atom leaves [-1, 1] after division by the data set's scale
    MULTI_MODEL = 1 << 3  # the file had more models than the first, which was used
    ZERO_OCCUPANCY = 1 << 4  # an atom that was kept has occupancy 0
    REPAIRED = 1 << 5  # text["repairs"] says what was mended
    CLASH = 1 << 6  # a ligand heavy atom lies within 2 angstrom of a pocket heavy atom but a metal, unbonded
    PREDICTED = 1 << 7  # the pose or the structure comes from a model, not from an experiment


@dataclass(frozen=True, slots=True)
class Field:
    """How one field is stored.

    ``per_unit`` marks fixed-point fields: stored integer = value * per_unit, and the reader divides
    by ``float32(per_unit)``, which is exact to the last stored digit (multiplying by the reciprocal
    is not).
    """

    axis: Axis
    name: str
    dtype: str  # on disk, as a little-endian numpy type
    shape: tuple[int, ...] = ()  # of one row
    unit: str = ""
    doc: str = ""
    per_unit: int = 0
    codec: Literal["positions", "bytes"] = "bytes"

    @property
    def key(self) -> str:
        """Name in Complex and Batch: bare for atoms and complexes, else with the axis before it."""
        return self.name if self.axis in ("atom", "complex") else f"{self.axis}_{self.name}"

    @property
    def path(self) -> str:
        """Name of the array in a shard file."""
        return f"{self.axis}/{self.name}"

    @property
    def value_dtype(self) -> np.dtype[Any]:
        """dtype that the reader hands out."""
        return np.dtype(np.float32) if self.per_unit else np.dtype(self.dtype)


FIELDS: Final[tuple[Field, ...]] = (
    Field("atom", "position", "<i2", (3,), "angstrom", "relative to `centre`; int32 in a shard "
          "with a complex that int16 cannot hold", per_unit=1000, codec="positions"),
    Field("atom", "element", "u1", doc="atomic number; 1 for deuterium, 0 for unknown"),
    Field("atom", "charge", "i1", unit="e", doc="formal charge"),
    Field("atom", "hybridisation", "u1", doc="index into HYBRIDISATIONS"),
    Field("atom", "degree", "u1", doc="bonded heavy atoms, in the whole structure"),
    Field("atom", "hydrogens", "u1", doc="bonded hydrogens, drawn or implied"),
    Field("atom", "aromatic", "u1", doc="1 in an aromatic ring"),
    Field("atom", "ring", "u1", doc="1 in any ring"),
    Field("atom", "chirality", "u1", doc="index into CHIRALITIES, from the coordinates"),
    Field("atom", "backbone", "u1", doc="1 for N, CA, C, O, OXT of an amino acid"),
    Field("atom", "name", "u1", (4,), doc="ASCII name as in the file, padded with zeros; a name "
          "of more than four letters is cut"),
    Field("atom", "residue", "<u2", doc="row on the residue axis, within the complex"),
    Field("atom", "b_factor", "<i4", unit="angstrom^2", doc="isotropic; 0 where the file has none",
          per_unit=100),
    Field("atom", "occupancy", "<i2", doc="1 where the file has none", per_unit=100),
    Field("bond", "atoms", "<u2", (2,), doc="rows on the atom axis, within the complex; first < second; "
          "each covalent bond once, of the ligand, the pocket, and between them"),
    Field("bond", "order", "u1", doc="index into BOND_ORDERS"),
    Field("bond", "conjugated", "u1", doc="1 if conjugated"),
    Field("bond", "ring", "u1", doc="1 in any ring"),
    Field("bond", "stereo", "u1", doc="index into BOND_STEREOS"),
    Field("residue", "type", "u1", doc="index into RESIDUE_TYPES"),
    Field("residue", "name", "u1", (8,), doc="ASCII name as in the file, padded with zeros"),
    Field("residue", "chain", "u1", (8,), doc="ASCII chain name, padded with zeros"),
    Field("residue", "number", "<i4", doc="residue number as the authors gave it"),
    Field("residue", "insertion", "u1", doc="ASCII insertion code, 0 for none"),
    Field("complex", "n_ligand_atoms", "<u2", doc="the first so many atoms are the ligand"),
    Field("complex", "pk", "<f4", unit="-log10(mol/L)", doc="NaN where there is no absolute label"),
    Field("complex", "pk_relation", "u1", doc="index into RELATIONS, on the pK scale: a Kd above "
          "10 uM is a pK below 5, '<'"),
    Field("complex", "pk_kind", "u1", doc="index into KINDS: what was measured"),
    Field("complex", "pk_count", "<u2", doc="measurements merged into pk"),
    Field("complex", "pk_spread", "<f4", unit="-log10(mol/L)", doc="largest minus smallest of them"),
    Field("complex", "centre", "<f8", (3,), "angstrom", "mean of the ligand's heavy atoms in the "
          "file's frame, rounded to 0.001 so that positions stay exact"),
    Field("complex", "pocket_radius", "<f4", unit="angstrom", doc="whole residues with a heavy atom "
          "this near any ligand heavy atom"),
    Field("complex", "resolution", "<f4", unit="angstrom", doc="NaN where the file has none"),
    Field("complex", "deposited", "<i4", doc="deposition date as the number yyyymmdd, 0 for unknown"),
    Field("complex", "flags", "<u4", doc="bits of Flag"),
    Field("text", "json", "u1", doc="UTF-8 bytes of one JSON object, keys sorted"),
)  # fmt: skip

TEXT_KEYS: Final[Mapping[str, str]] = {
    "id": "unique in the data set, always text",
    "source": "the data set or layout it came from",
    "smiles": "canonical isomeric SMILES of the ligand, heavy atoms, RDKit",
    "inchikey": "InChIKey of the ligand",
    "scaffold": "Murcko scaffold as SMILES, empty for a ligand without a ring",
    "sequences": "chain name -> one-letter sequence of the residues that were modelled",
    "ligand": "residue name or title of the ligand",
    "label": "the label as written in the source",
    "repairs": "list of repair codes, empty if the files were clean",
    "method": "experimental method where the file says so",
    "files": "list of [name, sha256] of the files read",
    "links": "list of [atom of the ligand, chain:residue:number:atom], only if it is bonded to others",
    "columns": "the source's own columns for this complex (target, cluster, split, ...), text",
}


@dataclass(frozen=True, slots=True)
class Affinity:
    """A label on the pK scale.

    Attributes
    ----------
    pk : -log10(mol/L), NaN if the source has no absolute value
    relation : one of RELATIONS, on the pK scale
    kind : one of KINDS
    count : measurements merged
    spread : largest minus smallest of them, in pK units
    text : the label as written in the source
    """

    pk: float
    relation: str = "="
    kind: str = "pK"
    count: int = 1
    spread: float = 0.0
    text: str = ""

    @property
    def is_censored(self) -> bool:
        """True if only a bound is known."""
        return self.relation in ("<", ">", "<=", ">=")


NO_AFFINITY: Final = Affinity(math.nan, "none", "none", count=0)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Complex:
    """One ligand in its pocket; arrays as the table FIELDS says, positions in angstrom.

    Shapes: atoms ``(n_atoms, ...)``, bonds ``(n_bonds, ...)``, residues ``(n_residues, ...)``.
    Fixed-point fields are float32 here. Nothing is copied or checked on construction; writers check
    with ``holoshard.shards.make.check``.
    """

    position: NDArray[np.float32]
    element: NDArray[np.uint8]
    charge: NDArray[np.int8]
    hybridisation: NDArray[np.uint8]
    degree: NDArray[np.uint8]
    hydrogens: NDArray[np.uint8]
    aromatic: NDArray[np.uint8]
    ring: NDArray[np.uint8]
    chirality: NDArray[np.uint8]
    backbone: NDArray[np.uint8]
    name: NDArray[np.uint8]
    residue: NDArray[np.uint16]
    b_factor: NDArray[np.float32]
    occupancy: NDArray[np.float32]
    bond_atoms: NDArray[np.uint16]
    bond_order: NDArray[np.uint8]
    bond_conjugated: NDArray[np.uint8]
    bond_ring: NDArray[np.uint8]
    bond_stereo: NDArray[np.uint8]
    residue_type: NDArray[np.uint8]
    residue_name: NDArray[np.uint8]
    residue_chain: NDArray[np.uint8]
    residue_number: NDArray[np.int32]
    residue_insertion: NDArray[np.uint8]
    n_ligand_atoms: int
    affinity: Affinity
    centre: NDArray[np.float64]
    pocket_radius: float
    resolution: float
    deposited: int
    flags: Flag
    text: Mapping[str, Any]
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        label = f"pK {self.affinity.relation} {self.affinity.pk:.2f}"
        return f"<Complex {self.id}: {self.n_ligand_atoms} ligand atoms of {self.n_atoms}, {label}>"

    @property
    def id(self) -> str:
        """Identifier, unique in its data set."""
        return str(self.text["id"])

    @property
    def n_atoms(self) -> int:
        """Atoms of ligand and pocket."""
        return len(self.element)

    @property
    def is_ligand(self) -> NDArray[np.bool_]:
        """Mask of the ligand's atoms, shape (n_atoms,)."""
        return np.arange(self.n_atoms) < self.n_ligand_atoms

    @property
    def xyz(self) -> NDArray[np.float64]:
        """Positions in the frame of the source file, shape (n_atoms, 3), angstrom, to 0.001."""
        return np.round(self.position.astype(np.float64) + self.centre, 3)

    def names(self) -> list[str]:
        """Atom names, without padding."""
        return decode_names(self.name)


def encode_names(names: list[str] | tuple[str, ...], width: int) -> NDArray[np.uint8]:
    """ASCII names as a zero-padded array, shape (len(names), width); longer ones are cut."""
    packed = np.array([n.encode("ascii", "replace")[:width] for n in names], dtype=f"S{width}")
    return packed.view(np.uint8).reshape(len(names), width)


def decode_names(codes: NDArray[np.uint8]) -> list[str]:
    """Undo :func:`encode_names`."""
    rows = np.ascontiguousarray(codes)
    return [b.decode("ascii") for b in rows.view(f"S{rows.shape[1]}").ravel()]
