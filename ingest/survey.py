"""What a run is about to read, looked over before it starts: how many items, and the files they leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from ..shards.errors import UsageError
from .item import Item, Rejection
from .ledger import Prior, locators
from .sources.layouts import Chosen
from .sources.pairs import LIGANDS, STRUCTURES
from .sources.tree import Tree, plain

KNOWN: Final = (*STRUCTURES, *LIGANDS, ".tar", ".tgz", ".zip")  # endings of what may hold a complex
_BATCH: Final = 4096  # items whose earlier rows are looked up together
_MARKS: Final = str.maketrans("_-", "..")


@dataclass(frozen=True, slots=True)
class Survey:
    """The number of items; the files of known endings that belong to none of them, by ending; the ids of a
    table of labels that belong to none.
    """

    n_items: int
    unused: dict[str, int]
    unmet: tuple[str, ...] = ()


def survey(chosen: Sequence[Chosen], *, apart: bool = False) -> Survey:
    """Look over the sources. No folder is walked for it but those that a layout walks by itself.

    Parameters
    ----------
    apart : each measurement of an item counts, as in ``layouts.items``
    """
    n_items, unused = 0, Counter[str]()
    for one in chosen:
        tree, used, refused = one.request.tree, set[str](), set[str]()
        for item in one.items():
            n_items += 1
            if isinstance(item, Item):
                n_items += max(0, len(item.labels) - 1) * apart
                used.update(_names(item, tree))
            else:
                refused.add(item.id)
        if tree.is_walked:
            unused.update(map(_ending, left_over(tree.names, used, refused)))
    tables = [one.joined.unmet for one in chosen if one.joined is not None]
    unmet = tuple(sorted(set.intersection(*tables))) if tables else ()
    return Survey(n_items, dict(unused.most_common()), unmet)


def refuse_another_source(items: Iterable[Item | Rejection], out: Path) -> None:
    """Raise UsageError if an earlier run kept complexes in ``out``, and these items name not one of its own.

    Such a run would remove all that is there, most often because the wrong ``--out`` was given.
    """
    prior = Prior(out)
    n_kept = prior.n_kept
    rest = iter(items)
    while n_kept:
        batch = list(islice(rest, _BATCH))
        if not batch:
            raise UsageError(
                f"{out} holds {n_kept} complexes of an earlier ingest, and the source names not one of them: "
                "all would be removed; give another --out, name both sources in one call, or say --replace"
            )
        if prior.of(batch):
            return


def left_over(names: Sequence[str], used: Collection[str], refused: Collection[str]) -> Iterator[str]:
    """The files of known endings that belong to no complex, in order.

    A file belongs to a complex, too, if it lies in its folder and begins with the same word, as a PDBbind
    pocket does; if the folder has one complex and no other; or if the item that it names was refused.
    """
    words: dict[str, set[str]] = {}
    for name in used:
        folder, _, base = name.rpartition("/")
        words.setdefault(folder, set()).add(_word(base))
    single = _single(used)
    for name in names:
        folder, _, base = name.rpartition("/")
        if not _ending(name) or name in used or folder in single or _word(base) in words.get(folder, ()):
            continue
        if not any(start in refused for start in _starts(name, base)):
            yield name


def _single(used: Collection[str]) -> set[str]:
    """Folders with one structure that is used: all in them is that structure's."""
    structures = Counter(name.rpartition("/")[0] for name in used if plain(name).lower().endswith(STRUCTURES))
    return {folder for folder, count in structures.items() if folder and count == 1}


def _names(item: Item, tree: Tree) -> Iterator[str]:
    """The names in the tree of an item's files."""
    for locator in locators(item):
        if locator.path == tree.path:
            yield locator.member.removeprefix("./") or tree.path.name
        else:
            yield str(locator.path).removeprefix(f"{tree.path}/")


def _starts(name: str, base: str) -> Iterator[str]:
    """What a refusal for want of a file may be called: the name, or its beginning up to a mark."""
    yield from (name, plain(name))
    marked = base.translate(_MARKS)
    at = marked.find(".")
    while at >= 0:
        yield base[:at]
        at = marked.find(".", at + 1)


def _word(base: str) -> str:
    return base.translate(_MARKS).partition(".")[0].lower()


def _ending(name: str) -> str:
    """The ending of a structure file or archive, without that of its compression; "" for other files."""
    bare = plain(name).lower()
    return next((end for end in KNOWN if bare.endswith(end)), "")
