"""One item -> Complex or Rejection. Bad data never raises.

The steps: read the protein (or the whole complex) and resolve its conformers; read the ligand from its
own file, from another beside it, or as residues of the structure; take the pocket around it; look up
features; put the label on the pK scale. Proteins and ligand files are remembered for the next items of
the same process, which often share them.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..shards.complex import NO_AFFINITY, Affinity, Complex, Flag
from ..shards.errors import StructureError, UsageError
from .chemistry.affinity import Merge, describe, to_affinity
from .chemistry.embedded import bonds_out, embedded_ligand
from .chemistry.features import PocketAtoms, pocket_atoms
from .chemistry.molecule import Ligand
from .chemistry.pocket import Pocket, find_pocket
from .chemistry.quality import NO_FILTERS, Filters, Qualities, check
from .chemistry.receptor import Receptor, as_receptor
from .chemistry.record import Parts, missing_share, to_complex
from .chemistry.select import favour, find_ligand
from .item import Item, Locator, Rejection
from .read.archive import digest, load, stamp
from .read.ligand import read_ligand
from .read.structure import read_structure

_CLASH: Final = 2.0  # angstrom
_WIDEST: Final = 1000.0  # angstrom: wider than any complex
_PROTEINS: Final = 4  # remembered; a large one takes 10 MB
_LIGAND_FILES: Final = 4


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """What a user may choose of reading one complex.

    Parameters
    ----------
    pocket
        Radius in angstrom: whole residues with a heavy atom this near any ligand heavy atom.
    hydrogens
        Keep drawn hydrogens as atoms.
    waters
        Keep waters of the pocket.
    assembly
        Biological assembly to build ("1" is the first), "" for the coordinates as deposited.
    unlabelled
        What becomes of a complex without an absolute label: kept without a pK, or refused. An unreadable or
        impossible label always refuses it.
    merge
        What becomes of repeated measurements: "median" in pK, with their number and spread; or "separate",
        each a complex of its own, named id@1, id@2, ...
    bonds
        Of a ligand whose bonds neither a file nor the dictionary nor a SMILES states: "perceive" tells them
        from the geometry where that leaves no doubt, and the record says so (repair bonds_perceived);
        "stated" refuses it.
    max_atoms
        Of ligand and pocket; more is refused.
    filters
        Limits of quality, all off by default.
    """

    pocket: float = 8.0
    hydrogens: bool = False
    waters: bool = False
    assembly: str = ""
    unlabelled: Literal["keep", "refuse"] = "keep"
    merge: Merge = "median"
    bonds: Literal["perceive", "stated"] = "perceive"
    max_atoms: int = 16384
    filters: Filters = NO_FILTERS

    def __post_init__(self) -> None:
        if not 0 < self.pocket <= _WIDEST:
            raise UsageError(f"--pocket is {self.pocket:g}; expected angstrom above 0, at most {_WIDEST:g}")
        if self.max_atoms < 1:
            raise UsageError(f"--max-atoms is {self.max_atoms}; expected at least 1")


@dataclass(slots=True)
class Trace:
    """What was done for one item, kept or refused.

    Attributes
    ----------
    files : (name, SHA-256 of the file as it lies) of the files read
    seconds : step -> CPU seconds
    repairs : codes of ``REPAIRS``
    timed : measure the seconds; asking for the time is a call of the system, twice a step
    """

    files: list[tuple[str, str]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    repairs: list[str] = field(default_factory=list)
    timed: bool = True

    def step(self, name: str) -> AbstractContextManager[None]:
        """Add the CPU time of the block to a step."""
        return self._step(name) if self.timed else nullcontext()

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        start = time.process_time()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - start

    def read(self, locator: Locator, seen: str = "") -> None:
        """Note a file that was read; ``seen`` is its stamp, if that is known."""
        self.files.append((_name(locator), digest(locator, seen)))


def _name(locator: Locator) -> str:
    """The file's own name, or the member's."""
    return PurePath(locator.member).name if locator.member else locator.path.name


_T = TypeVar("_T")


class _Recent(Generic[_T]):
    """The last few results of a function of a file, dropped when the file changes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: OrderedDict[tuple[str, ...], _T] = OrderedDict()

    def get(self, key: tuple[str, ...], make: Callable[[], _T]) -> _T:
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        made = self._kept[key] = make()
        if len(self._kept) > self._size:
            self._kept.popitem(last=False)
        return made

    def clear(self) -> None:
        self._kept.clear()


_receptors: _Recent[Receptor] = _Recent(_PROTEINS)
_ligand_bytes: _Recent[bytes] = _Recent(_LIGAND_FILES)


def clear_caches() -> None:
    """Forget proteins and ligand files."""
    _receptors.clear()
    _ligand_bytes.clear()


def process(item: Item, options: IngestOptions, trace: Trace | None = None) -> Complex | Rejection:
    """Read one complex.

    Parameters
    ----------
    trace : filled with files, timings and repairs, whatever comes of the item

    Returns
    -------
    The complex, or why there is none; ``internal_error`` for a fault of ours.
    """
    trace = Trace(timed=False) if trace is None else trace
    try:
        return _process(item, options, trace)
    except StructureError as error:
        return Rejection(item.id, error.reason, _line(str(error)))
    except Exception as error:  # whatever it is, the run goes on and the ledger says so
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        place = f"{PurePath(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}" if where else "?"
        return Rejection(item.id, "internal_error", _line(f"{type(error).__name__} at {place}: {error}"))


def _line(text: str) -> str:
    return " ".join(text.split())[:500]


def _process(item: Item, options: IngestOptions, trace: Trace) -> Complex:
    options = replace(options, assembly=options.assembly or item.assembly) if item.assembly else options
    with trace.step("label"):
        affinity = _affinity(item, options)
    receptor = _receptor(item.structure, options, trace)
    receptor = _completed(receptor, item)
    trace.repairs += receptor.structure.repairs
    own: NDArray[np.int64] | None = None
    if item.ligand is None:
        with trace.step("ligand"):
            receptor, own = _asked_for(receptor, item, options)
            ligand = embedded_ligand(receptor, own, options.hydrogens, item.smiles)
            _refuse_perceived(ligand, item.residue or "the ligand", options)
    else:
        ligand = _ligand_of_files(item, options, trace)
    trace.repairs += ligand.repairs
    with trace.step("pocket"):
        pocket, links = _pocket(receptor, ligand, own, options)
    if len(pocket.copies):
        trace.repairs.append("ligand_copy_removed")
    with trace.step("features"):
        atoms = pocket_atoms(receptor, pocket.residues, options.hydrogens)
        if atoms.n_doubled:
            trace.repairs.append("doubled_atoms")
        n_atoms = ligand.n_atoms + len(atoms.rows)
        if n_atoms > min(options.max_atoms, np.iinfo(np.uint16).max):
            raise StructureError(
                "too_large", f"{n_atoms} atoms of ligand and pocket, at most {options.max_atoms}"
            )
        _check_quality(receptor, ligand, atoms, pocket, options)
        trace.repairs[:] = dict.fromkeys(trace.repairs)
        parts = Parts(receptor, ligand, own, atoms, links)
        return to_complex(
            item, parts, affinity, pocket_radius=options.pocket, flags=_flags(item, parts, pocket, trace),
            files=trace.files, repairs=trace.repairs,
        )  # fmt: skip


def _asked_for(receptor: Receptor, item: Item, options: IngestOptions) -> tuple[Receptor, NDArray[np.int64]]:
    """The residues of the ligand; the file is read again where another residue took the place of it."""
    try:
        return receptor, find_ligand(receptor, item.residue)
    except StructureError as error:
        if error.reason != "ligand_missing" or not item.residue:
            raise
        whole = read_structure(load(item.structure), _name(item.structure), options.assembly)
        favoured = favour(whole, item.residue)
        if favoured is None:
            raise
    receptor = _completed(as_receptor(favoured), item)
    return receptor, find_ligand(receptor, item.residue)


def _affinity(item: Item, options: IngestOptions) -> Affinity:
    try:
        return to_affinity(item.labels, options.merge)
    except StructureError as error:
        if error.reason not in ("label_missing", "label_relative") or options.unlabelled == "refuse":
            raise
        written = "; ".join(dict.fromkeys(filter(None, map(describe, item.labels))))
        return Affinity(math.nan, "none", "none", count=0, text=written) if written else NO_AFFINITY


def _receptor(locator: Locator, options: IngestOptions, trace: Trace) -> Receptor:
    def make() -> Receptor:
        with trace.step("load"):
            data = load(locator)
        with trace.step("structure"):
            found = read_structure(data, _name(locator), options.assembly)
        with trace.step("select"):
            return as_receptor(found)

    seen = stamp(locator)
    try:
        receptor = _receptors.get((str(locator), seen, options.assembly), make)
    finally:
        _note(locator, trace, seen)
    if not receptor.polymer.any():
        raise StructureError("no_protein", f"{locator} has no polymer residue, hence no pocket")
    return receptor


def _completed(receptor: Receptor, item: Item) -> Receptor:
    """The receptor with the source's date and resolution where its file states none."""
    s = receptor.structure
    deposited = s.header.deposited or item.deposited
    resolution = s.header.resolution
    if math.isnan(resolution) and item.resolution:
        resolution = item.resolution
    if deposited == s.header.deposited and resolution is s.header.resolution:
        return receptor
    header = replace(s.header, deposited=deposited, resolution=resolution)
    return replace(receptor, structure=replace(s, header=header))


def _note(locator: Locator, trace: Trace, seen: str) -> None:
    """Note a file if it can be read at all."""
    try:
        trace.read(locator, seen)
    except StructureError:
        return


def _ligand_of_files(item: Item, options: IngestOptions, trace: Trace) -> Ligand:
    """The ligand from its file, or from the first of the alternates that can be read."""
    assert item.ligand is not None
    trouble: StructureError | None = None
    for locator in (item.ligand, *item.alternates):
        seen = stamp(locator)
        try:
            with trace.step("load"):
                key = (str(locator), seen)
                data = _ligand_bytes.get(key, lambda at=locator: load(at))  # type: ignore[misc]
            with trace.step("ligand"):
                ligand = read_ligand(data, _name(locator), item.record, options.hydrogens)
                _refuse_perceived(ligand, _name(locator), options)
        except StructureError as error:
            trouble = trouble or error
            _note(locator, trace, seen)
            continue
        _note(locator, trace, seen)
        if trouble is not None:
            trace.repairs.append("alternate_file")
        return ligand
    assert trouble is not None
    raise trouble


def _refuse_perceived(ligand: Ligand, name: str, options: IngestOptions) -> None:
    if options.bonds == "stated" and "bonds_perceived" in ligand.repairs:
        said = f"nothing states the bonds of {name}; --bonds perceive would tell them from its geometry"
        raise StructureError("ligand_no_bond_orders", said)


def _pocket(
    receptor: Receptor, ligand: Ligand, own: NDArray[np.int64] | None, options: IngestOptions
) -> tuple[Pocket, list[tuple[int, int]]]:
    """The pocket, and the (ligand row, structure atom) pairs that covalent bonds of the file join."""
    links: list[tuple[int, int]] = []
    if own is not None:
        row = {int(atom): k for k, atom in enumerate(ligand.row.tolist())}
        links = [(row[a], b) for a, b in bonds_out(receptor, own) if a in row]
    heavy = ligand.element != 1
    pocket = find_pocket(
        receptor, ligand.position[heavy], ligand.element[heavy], options.pocket,
        own=own, waters=options.waters, bonded=[b for _, b in links],
    )  # fmt: skip
    return pocket, links


def _check_quality(
    receptor: Receptor, ligand: Ligand, atoms: PocketAtoms, pocket: Pocket, options: IngestOptions
) -> None:
    if options.filters == NO_FILTERS:
        return
    s = receptor.structure
    check(
        Qualities(
            s.header.resolution, ligand.occupancy, s.occupancy[atoms.rows], pocket.nearest,
            missing_share(receptor, atoms), ligand.element,
        ),
        options.filters,
    )  # fmt: skip


def _flags(item: Item, parts: Parts, pocket: Pocket, trace: Trace) -> Flag:
    s = parts.receptor.structure
    empty = (s.occupancy[parts.pocket.rows] == 0).any() or (parts.ligand.occupancy == 0).any()
    found = Flag(0)
    for flag, holds in (
        (Flag.SYNTHETIC, item.synthetic),
        (Flag.COVALENT, bool(parts.links)),
        (Flag.MULTI_MODEL, s.header.n_models > 1),
        (Flag.ZERO_OCCUPANCY, bool(empty)),
        (Flag.REPAIRED, bool(trace.repairs)),
        (Flag.CLASH, pocket.nearest < _CLASH),
        (Flag.PREDICTED, item.predicted or s.header.predicted),
    ):
        if holds:
            found |= flag
    return found
