"""What a source hands to the pipeline, and what the pipeline says of it when it cannot be kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Locator:
    """Where the bytes of one file are: a path, or a member of the archive at that path.

    Attributes
    ----------
    path, member : the file, or the archive and the name in it
    offset, size : hints of a source that has listed the archive: where the member's bytes (in a zip: its
        local header) lie and how many they are as stored, so that a reader needs no index; -1 if unknown
    """

    path: Path
    member: str = ""
    offset: int = field(default=-1, compare=False, repr=False)
    size: int = field(default=-1, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.path}!{self.member}" if self.member else str(self.path)


@dataclass(frozen=True, slots=True)
class Label:
    """A measurement as its source wrote it, not yet on the pK scale.

    Attributes
    ----------
    kind : what was measured, in the source's words: "Ki", "pIC50", "dG", "dG_relative", ...; "" if unknown
    relation : "=", "<", ">", "<=", ">=", "~", ...; on the source's own scale, not the pK scale
    value, unit : text as written; "" if the source has only ``text``
    text : free text such as "Ki=20nM" where the source has no columns, else "" (it is then read instead)
    temperature : kelvin, for a dG; 0 where the source does not say
    """

    kind: str = ""
    relation: str = "="
    value: str = ""
    unit: str = ""
    text: str = ""
    temperature: float = 0.0


@dataclass(frozen=True, slots=True)
class Item:
    """One complex to be read.

    Attributes
    ----------
    id : unique in the run, always text
    structure : the protein's file (or the whole complex)
    ligand : the ligand's file; None if the ligand is a residue of the structure file
    record : 0-based record of a multi-record ligand file
    residue : "chain:name:number[insertion code]" of a ligand inside the structure file; name or chain may be
        empty for "whichever"; "" altogether to let the pipeline choose the ligand
    alternates : further files of the same ligand, tried in order if the first cannot be read
    smiles : of the ligand, where the source has it: the bonds of a residue that no dictionary knows
    labels : measurements of this complex, possibly none, possibly several
    columns : the source's own columns, text
    source : the data set or layout
    synthetic, predicted : marks for ``Complex.flags``
    resolution, deposited : angstrom, and the date as yyyymmdd, where the structure file states none; 0 for
        unknown
    assembly : biological assembly to build where the options name none: "1" is the first
    sites : True if every ligand of the structure is a complex of its own, found when the file is read; its id
        is this id, a colon, and its ``residue``
    """

    id: str
    structure: Locator
    ligand: Locator | None = None
    record: int = 0
    residue: str = ""
    alternates: tuple[Locator, ...] = ()
    smiles: str = ""
    labels: tuple[Label, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    synthetic: bool = False
    predicted: bool = False
    resolution: float = 0.0
    deposited: int = 0
    assembly: str = ""
    sites: bool = False


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why an item is not in the data.

    Attributes
    ----------
    id : the item's id
    reason : a code of ``holoshard.ingest.reasons.REASONS``
    message : what was found and what was expected, one line
    """

    id: str
    reason: str
    message: str
