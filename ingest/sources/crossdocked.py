"""CrossDocked2020: a folder a pocket with ``X_rec.pdb``, poses ``X_rec_Y_lig_tt_docked_0.sdf``; .types files.

A line of a types file reads ``good pK rmsd receptor ligand #score``: whether the pose lies within 2 angstrom
of the crystal's, the affinity (0 for unknown, negative for a pose that is not good), the distance. Poses that
no types file names are read as well, without a label, and so are pairs ``Z.sdf`` and ``Z_pocket10.pdb``, the
form in which the set is handed on to generative models.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Final

from ...shards.errors import UsageError
from ..item import Item, Label, Locator, Rejection
from ..read.archive import fault_of_name
from .source import Request
from .tree import Tree, folders_of, join, plain

log = logging.getLogger("holoshard")

POSE = re.compile(r"(?P<receptor>.+_rec)_.+_(?:tt|it\d*|lig)_?(?:docked|min)\w*\.sdf")
LOOSE = re.compile(r".+_lig_\w*(?:docked|min)\w*\.sdf")
POCKET: Final = "_pocket10.pdb"
GNINA = re.compile(r"(?P<stem>.+)_(?P<record>\d+)\.gninatypes")


class CrossDocked:
    """The layout ``crossdocked``."""

    name = "crossdocked"

    def recognise(self, request: Request) -> str:
        """Poses named for their receptors, or a types file."""
        for folder, files in folders_of(request.tree.peek).items():
            names = {plain(name) for name in files}
            for name in sorted(names):
                match = POSE.fullmatch(name)
                if match and {f"{match['receptor']}.pdb", name.removesuffix(".sdf") + POCKET} & names:
                    return f"{folder or request.tree.path} holds {name} and its receptor"
        for name in request.tree.peek:
            if name.endswith(".types") and _lines(request.tree, name):
                return f"{name} lists receptors and poses"
        return ""

    def items(self, request: Request) -> Iterator[Item | Rejection]:
        """One a line of the types files, then one a pose that they do not name."""
        tree, named = request.tree, set[str]()
        for types in (name for name in tree.names if name.endswith(".types")):
            _say_what_is_lost(tree, types)
            for words in _lines(tree, types):
                item = _of_line(tree, types, words)
                if item.id not in named:  # the folds of a cross-validation repeat each other
                    named |= {item.id, item.id.partition(":")[0]}
                    yield item
        for folder, files in tree.folders.items():
            for stem, poses in _poses(files).items():
                if join(folder, stem) not in named:
                    yield _of_pose(tree, folder, files, stem, poses)


def _lines(tree: Tree, name: str) -> list[list[str]]:
    """The lines of a types file that have what it takes."""
    found = [line.split() for line in tree.text(name).splitlines()]
    return [words for words in found if len(words) >= 5 and words[0] in ("0", "1")]


def _say_what_is_lost(tree: Tree, name: str) -> None:
    text = tree.text(name)
    if "\0" in text:
        raise UsageError(f"{name} is binary; expected lines such as '1 6.5 0.9 rec.pdb lig.sdf #-7.1'")
    n_lines = sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in text.splitlines())
    lost = n_lines - len(_lines(tree, name))
    if lost:
        log.warning("%s: %d of %d lines name no receptor and pose, and are lost", name, lost, n_lines)


def _of_line(tree: Tree, types: str, words: list[str]) -> Item | Rejection:
    good, affinity, rmsd, receptor, ligand = words[:5]
    score = next((word[1:] for word in words[5:] if word.startswith("#")), "")
    record, match = 0, GNINA.fullmatch(ligand)
    if match:  # the released files name gnina's own format, made from record n of the SDF
        ligand, record = f"{match['stem']}.sdf", int(match["record"])
        receptor = re.sub(r"_\d+\.gninatypes$", ".pdb", receptor)
    fault = fault_of_name(receptor) or fault_of_name(ligand)
    name = plain(ligand).removesuffix(".sdf") + (f":{record}" if record else "")
    if fault:
        return Rejection(name, "unsafe_member", f"{types} names {receptor} and {ligand}: {fault}")
    value = affinity.lstrip("-")
    try:
        known = float(value) > 0
    except ValueError:
        return Rejection(name, "label_unreadable", f"{types}: {affinity!r} is no number")
    return Item(
        id=name,
        structure=_find(tree, receptor),
        ligand=_find(tree, ligand),
        record=record,
        labels=(Label("pK", "=", value),) if known else (),
        columns={
            "target": name.partition("/")[0],
            "good_pose": good,
            "rmsd": rmsd,
            "score": score,
            "types": types,
        },
        source="crossdocked",
        predicted=True,
    )


def _find(tree: Tree, name: str) -> Locator:
    """The file of this name, packed or not; the name itself if there is none, for the ledger to say so."""
    for suffix in ("", ".gz"):
        for candidate in (name + suffix, name.removesuffix(".gz")):
            if tree.has(candidate):
                return tree.locator(candidate)
    return Locator(tree.path / name) if tree.is_folder else Locator(tree.path, name)


def _poses(files: list[str]) -> dict[str, list[str]]:
    """Pose files by what they are called without suffix: the same pose may lie there packed and plain."""
    found: dict[str, list[str]] = {}
    for name in files:
        if POSE.fullmatch(plain(name)) or LOOSE.fullmatch(plain(name)):
            found.setdefault(plain(name).removesuffix(".sdf"), []).append(name)
    return found


def _of_pose(tree: Tree, folder: str, files: list[str], stem: str, poses: list[str]) -> Item | Rejection:
    match = POSE.fullmatch(f"{stem}.sdf")
    wanted = [f"{stem}{POCKET}", f"{match['receptor']}.pdb" if match else ""]
    structures = [name for want in wanted for name in files if plain(name) == want]
    receptors = [name for name in files if plain(name).endswith("_rec.pdb")]
    if not structures and not match and len(receptors) == 1:
        structures = receptors
    if not structures:
        return Rejection(join(folder, stem), "file_missing", f"{folder} has no receptor of {stem}")
    ligand, *alternates = (tree.locator(join(folder, name)) for name in sorted(poses))
    return Item(
        id=join(folder, stem),
        structure=tree.locator(join(folder, structures[0])),
        ligand=ligand,
        alternates=tuple(alternates),
        columns={"target": folder},
        source="crossdocked",
        predicted=True,
    )
