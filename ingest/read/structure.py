"""Macromolecular structures as arrays: PDB, mmCIF, BinaryCIF.

What a file is comes from its content. gemmi reads PDB and mmCIF; its ``FlatStructure`` gives every
column as an array, so no Python loop runs over atoms. Alternate locations, hydrogens and waters are
still in what is returned: ``chemistry.select`` decides on them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import gemmi
import numpy as np
from numpy.typing import NDArray

from ...shards.errors import StructureError
from .definitions import Definition

ENTITIES: Final = ("unknown", "polymer", "nonpolymer", "branched", "water")  # gemmi.EntityType's order
LinkKind = Literal["covalent", "disulfide", "metal", "hydrogen", "unknown"]
Format = Literal["pdb", "mmcif", "bcif"]
_ELEMENT: Final = np.zeros(256, np.uint8)  # gemmi's element codes to atomic numbers
_ELEMENT[:119] = np.arange(119)
_ELEMENT[119] = 1  # deuterium has a code of its own, past the last element


@dataclass(frozen=True, slots=True)
class Address:
    """One atom as LINK, SSBOND and struct_conn name it; the author's chain and number."""

    chain: str
    residue: str
    number: int
    insertion: str
    atom: str
    altloc: str = ""

    def __str__(self) -> str:
        return f"{self.chain}:{self.residue}:{self.number}{self.insertion}:{self.atom}"


@dataclass(frozen=True, slots=True)
class Link:
    """A bond that the file states, beyond those within residues and along the chain."""

    first: Address
    second: Address
    kind: LinkKind


@dataclass(frozen=True, slots=True)
class Header:
    """What the file says of itself.

    Attributes
    ----------
    code : PDB id or data block name
    resolution : angstrom, NaN if the file has none
    deposited : yyyymmdd, 0 if the file has none
    predicted : True for ModelCIF and theoretical models
    n_models : models in the file; the first was read
    """

    code: str = ""
    title: str = ""
    method: str = ""
    resolution: float = math.nan
    deposited: int = 0
    predicted: bool = False
    n_models: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """The first model of a file. Atoms of a residue are contiguous.

    Attributes
    ----------
    position : float64, shape (n, 3), angstrom
    element : uint8, atomic number; 1 for deuterium, 0 for unknown
    charge : int8
    name : S8, atom name
    altloc : uint8, ASCII letter or digit, 0 for none
    occupancy, b_factor : float32; 1 and 0 where the file has none
    residue : int32, row of the residue table
    residue_start : int64, shape (r + 1,), first atom of each residue
    residue_name, residue_chain : S8; the chain as the authors named it
    residue_subchain : S8, label_asym_id of an mmCIF file, b"" in others
    residue_number : int32, residue_insertion : uint8, 0 for none
    residue_entity : uint8, index into ENTITIES, as the file has it; 0 in a PDB file
    residue_het : bool, written as HETATM
    definitions : what the file says of residues that the dictionary does not know, by residue name
    """

    position: NDArray[np.float64]
    element: NDArray[np.uint8]
    charge: NDArray[np.int8]
    name: NDArray[np.bytes_]
    altloc: NDArray[np.uint8]
    occupancy: NDArray[np.float32]
    b_factor: NDArray[np.float32]
    residue: NDArray[np.int32]
    residue_start: NDArray[np.int64]
    residue_name: NDArray[np.bytes_]
    residue_chain: NDArray[np.bytes_]
    residue_subchain: NDArray[np.bytes_]
    residue_number: NDArray[np.int32]
    residue_insertion: NDArray[np.uint8]
    residue_entity: NDArray[np.uint8]
    residue_het: NDArray[np.bool_]
    links: tuple[Link, ...]
    header: Header
    repairs: tuple[str, ...]
    format: Format
    definitions: Mapping[str, Definition] = field(default_factory=dict)

    @property
    def n_atoms(self) -> int:
        """Atoms, of every kind."""
        return len(self.element)

    @property
    def n_residues(self) -> int:
        """Residues, waters and ligands among them."""
        return len(self.residue_name)

    def take(self, keep: NDArray[np.bool_]) -> Structure:
        """The structure with only some of its atoms; a residue left without atoms goes.

        Parameters
        ----------
        keep : mask, shape (n_atoms,)
        """
        rows = keep.nonzero()[0]
        old = self.residue[rows]
        counts = np.bincount(old, minlength=self.n_residues)
        alive = counts > 0
        renumber = np.cumsum(alive, dtype=np.int32) - np.int32(1)
        start = np.zeros(int(alive.sum()) + 1, np.int64)
        np.cumsum(counts[alive], out=start[1:])
        atoms = {k: getattr(self, k).take(rows, axis=0) for k in ATOM_COLUMNS}
        residues = {k: getattr(self, k)[alive] for k in RESIDUE_COLUMNS}
        return replace(self, **atoms, **residues, residue=renumber[old], residue_start=start)


ATOM_COLUMNS: Final = ("position", "element", "charge", "name", "altloc", "occupancy", "b_factor")
RESIDUE_COLUMNS: Final = (
    "residue_name", "residue_chain", "residue_subchain", "residue_number", "residue_insertion",
    "residue_entity", "residue_het",
)  # fmt: skip


def sniff(data: bytes, name: str) -> Format:
    """Format of a structure file by its content.

    Raises
    ------
    StructureError
        ``empty_file``, ``format_mismatch`` for a known format that holds no structure, ``format_unknown``.
    """
    head = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if not head and not data.strip(b"\xef\xbb\xbf \t\r\n"):
        raise StructureError("empty_file", f"{name} has no content")
    if b"dataBlocks" in data[:512] or b"dataBlocks" in data[-64:] or b"categories" in data[:512]:
        return "bcif"
    if b"mmtfVersion" in data[:4096] or b"mmtfProducer" in data[:4096]:
        raise StructureError(
            "format_mismatch", f"{name} is MMTF, which is not read; convert it to mmCIF or BinaryCIF"
        )
    if b"\x00" in head:
        raise StructureError("format_unknown", f"{name} is binary and none of the formats that are read")
    if _is_cif(head):
        return "mmcif"
    if head.startswith(_PDB_RECORDS) or b"\nATOM " in data or b"\nHETATM" in data:
        return "pdb"
    if b"V2000" in head or b"V3000" in head or b"@<TRIPOS>" in head:
        raise StructureError("format_mismatch", f"{name} is a small-molecule file, not a structure file")
    raise StructureError("format_unknown", f"{name} is neither PDB, mmCIF nor BinaryCIF")


_PDB_RECORDS: Final = (
    b"ATOM ", b"HETATM", b"HEADER", b"REMARK", b"TITLE ", b"CRYST1", b"MODEL", b"COMPND", b"SEQRES",
    b"EXPDTA", b"AUTHOR", b"NUMMDL", b"SPLIT ", b"CAVEAT", b"OBSLTE", b"ROOT", b"USER", b"HELIX ", b"LINK ",
    b"SSBOND", b"SHEET ", b"END",
)  # fmt: skip


def _is_cif(head: bytes) -> bool:
    """True if the first line that is no comment opens a data block, or a loop for want of one."""
    for line in head.splitlines():
        line = line.strip().lower()
        if line and not line.startswith(b"#"):
            return line.startswith(b"data_") or line == b"loop_"
    return False


def read_structure(data: bytes, name: str, assembly: str = "") -> Structure:
    """Read the first model of a structure file.

    Parameters
    ----------
    data : content, decompressed
    name : for messages
    assembly : biological assembly to build, "" for the coordinates as deposited

    Raises
    ------
    StructureError
        ``empty_file``, ``format_unknown``, ``format_mismatch``, ``parse_failed``, ``structure_empty``,
        ``structure_bad_coordinates``.
    """
    kind = sniff(data, name)
    if kind == "bcif":
        from .binary import structure_from_bcif

        found = structure_from_bcif(data, name, assembly)
    elif kind == "pdb":
        from .pdb import read_pdb

        found = read_pdb(data, name, assembly)
    else:
        from .mmcif import read_mmcif

        data, decoded = to_utf8(data)
        found = read_mmcif(data, name, assembly)
        if decoded:
            found = replace(found, repairs=(*found.repairs, "text_decoded"))
    return _checked(found, name)


def to_utf8(data: bytes) -> tuple[bytes, bool]:
    """Content as UTF-8, and whether it had to be taken for Latin-1 instead."""
    if data.isascii():
        return data, False
    try:
        data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1").encode(), True
    return data, False


def _checked(found: Structure, name: str) -> Structure:
    if not found.n_atoms:
        raise StructureError("structure_empty", f"{name} has no atoms")
    if not np.isfinite(found.position).all():
        bad = int((~np.isfinite(found.position)).any(axis=1).sum())
        raise StructureError("structure_bad_coordinates", f"{name} has {bad} atoms without coordinates")
    if found.n_atoms > 1 and not found.position.any():
        raise StructureError("structure_bad_coordinates", f"all coordinates of {name} are zero")
    return found


def expand(structure: gemmi.Structure, assembly: str, name: str) -> None:
    """Build a biological assembly in place, before anything is stripped; copies on special positions merge.

    gemmi fails on assemblies of structures whose waters were removed, so this comes first.
    """
    known = [a.name for a in structure.assemblies]
    if assembly not in known:
        raise StructureError(
            "parse_failed", f"{name} has no biological assembly {assembly!r}; it has {known or 'none'}"
        )
    try:
        structure.transform_to_assembly(assembly, gemmi.HowToNameCopiedChain.AddNumber)
    except RuntimeError as error:
        raise StructureError("parse_failed", f"assembly {assembly} of {name}: {error}") from error


def flatten(structure: gemmi.Structure, kind: Format, header: Header, repairs: tuple[str, ...]) -> Structure:
    """gemmi's first model as arrays that outlive it."""
    flat = gemmi.FlatStructure(structure)
    if not len(flat):
        return assemble({}, (), header, repairs, kind)
    models = flat.model_num
    stop = len(flat) if models[0] == models[-1] else int(np.argmax(models != models[0]))
    columns: dict[str, Any] = {
        "position": np.array(flat.pos[:stop], np.float64),
        "element": _ELEMENT[flat.elements[:stop]],
        "charge": np.array(flat.charge[:stop], np.int8),
        "name": _packed(flat.atom_names, stop),
        "altloc": np.array(flat.altlocs[:stop]).view(np.uint8),
        "occupancy": np.array(flat.occ[:stop], np.float32),
        "b_factor": np.array(flat.b_iso[:stop], np.float32),
        "residue_name": _packed(flat.residue_names, stop),
        "residue_chain": _packed(flat.chain_ids, stop),
        "residue_number": np.array(flat.resnums[:stop], np.int32),
        "residue_insertion": np.array(flat.icodes[:stop]).view(np.uint8),
        "residue_het": np.array(flat.het_flags[:stop]) == ord("H"),
    }
    if kind != "pdb":  # in a PDB file both are gemmi's guesses
        columns["residue_subchain"] = _packed(flat.subchains, stop)
        columns["residue_entity"] = np.array(flat.entity_type[:stop], np.uint8)
    columns["residue_insertion"][columns["residue_insertion"] == ord(" ")] = 0
    return assemble(columns, links_of(structure), header, repairs, kind)


def _packed(names: Any, stop: int) -> NDArray[np.uint64]:
    """(n, 8) characters as one integer each: compared and looked up at the price of integers."""
    return np.ascontiguousarray(names[:stop]).view(np.uint64).ravel()


def assemble(
    columns: dict[str, Any], links: tuple[Link, ...], header: Header, repairs: tuple[str, ...], kind: Format
) -> Structure:
    """Structure of columns as readers have them.

    Parameters
    ----------
    columns : as the attributes of Structure, names as uint64. With "first", the first atom of each residue,
        residue columns have a row a residue (but for residue_het); without it a row an atom, and residues
        begin wherever one of them changes. residue_subchain and residue_entity may be missing
    """
    if not columns:
        columns = {k: np.zeros(0, np.uint64) for k in (*ATOM_COLUMNS, *RESIDUE_COLUMNS)}
        columns |= {"position": np.zeros((0, 3)), "element": np.zeros(0, np.uint8)}
    n = len(columns["element"])
    first = columns.get("first")
    residues = {k: columns[k] for k in RESIDUE_COLUMNS if k in columns}
    if first is None:
        first = _starts(columns, n)
        residues = {k: v[first] for k, v in residues.items()}
    else:
        residues["residue_het"] = columns["residue_het"][first]
    residues.setdefault("residue_subchain", np.zeros(len(first), np.uint64))
    residues.setdefault("residue_entity", np.zeros(len(first), np.uint8))
    for key in ("residue_name", "residue_chain", "residue_subchain"):
        residues[key] = residues[key].view("S8")
    atoms = {k: columns[k] for k in ATOM_COLUMNS}
    atoms["name"] = atoms["name"].view("S8")
    start = np.append(first, n)
    return Structure(
        **atoms,
        **residues,
        residue=np.repeat(np.arange(len(first), dtype=np.int32), np.diff(start)),
        residue_start=start,
        links=links,
        header=header,
        repairs=repairs,
        format=kind,
    )


def _starts(columns: dict[str, Any], n: int) -> NDArray[np.int64]:
    """First atom of each residue."""
    new = np.ones(n, bool)
    new[1:] = False
    for key in ("residue_number", "residue_name", "residue_chain", "residue_insertion", "residue_subchain"):
        if key in columns:
            new[1:] |= columns[key][1:] != columns[key][:-1]
    return np.flatnonzero(new)


_KINDS: Final[dict[str, LinkKind]] = {
    "Covale": "covalent",
    "Disulf": "disulfide",
    "MetalC": "metal",
    "Hydrog": "hydrogen",
    "Unknown": "unknown",
}


def links_of(structure: gemmi.Structure) -> tuple[Link, ...]:
    """The bonds that LINK, SSBOND or struct_conn state, but for those to symmetry copies."""
    found = []
    for connection in structure.connections:
        if connection.asu == gemmi.Asu.Different:  # the partner is a symmetry copy, not in the file
            continue
        first, second = (_address(p) for p in (connection.partner1, connection.partner2))
        found.append(Link(first, second, _KINDS[connection.type.name]))
    return tuple(found)


def _address(partner: gemmi.AtomAddress) -> Address:
    id_ = partner.res_id
    altloc = partner.altloc.strip("\0 ")
    number = id_.seqid.num if id_.seqid.num is not None else 0
    return Address(partner.chain_name, id_.name, number, id_.seqid.icode.strip(), partner.atom_name, altloc)
