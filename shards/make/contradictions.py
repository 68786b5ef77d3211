"""What a manifest and an index say twice must agree with what the shards hold, even where checksums do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from numpy.typing import NDArray

from ..errors import FormatError
from ..format.manifest import MANIFEST, Manifest
from ..read.dataset import Dataset
from .convert import index_arrays
from .damage import Damage
from .index import IndexColumns

CLOSE: Final = 1e-4  # sums over an earlier generation are known to the six decimals that its manifest has
ASIDE: Final = ("same_id", "same_content", "id_conflicts")


def contradictions(dataset: Dataset, told: IndexColumns) -> list[Damage]:
    """Compare index and manifest with the single values of all blocks, in their order."""
    manifest = dataset.manifest
    try:
        told.check_unique()
        arrays = told.arrays(manifest.shards, manifest.block_size)
        stored = index_arrays(dataset.reader.source)
    except FormatError as error:
        return [Damage(manifest.index_name, None, str(error))]
    found = [Damage(manifest.index_name, None, reason) for reason in _columns(arrays, stored)]
    statistics = told.statistics(manifest.shards)
    if not _same(manifest.statistics, statistics):
        where = next(iter(_differences("", manifest.statistics, statistics)))
        found.append(Damage(MANIFEST, None, f"its statistics are not those of the shards: {where}"))
    return [*found, *(Damage(MANIFEST, None, reason) for reason in _counts(manifest))]


def _columns(arrays: Mapping[str, NDArray[Any]], stored: Mapping[str, NDArray[Any]]) -> Iterator[str]:
    for name, expected in arrays.items():
        if name not in stored:
            yield f"the column {name} is missing"
        elif stored[name].shape != expected.shape:
            yield f"{name} has shape {stored[name].shape}, the shards {expected.shape}"
        else:
            unknown = (expected != expected) & (stored[name] != stored[name])  # NaN in both
            differ = (stored[name] != expected) & ~unknown
            if differ.any():
                row = int(differ.argmax())
                yield (f"{name} of {int(differ.sum())} complexes is not that of the shards: row {row} has "
                       f"{stored[name][row]}, expected {expected[row]}")  # fmt: skip


def _counts(manifest: Manifest) -> Iterator[str]:
    """What was seen is what is here and what was left aside."""
    making, split = manifest.making, manifest.making.get("split")
    if not isinstance(split, Mapping) or any(k not in making for k in ("seen", *ASIDE)):
        return
    kept = making["seen"] - sum(making[k] for k in ASIDE) - split.get("left_out", 0)
    if kept != manifest.n_complexes:
        yield f"its making says that {kept} complexes were kept; there are {manifest.n_complexes}"


def _same(a: Any, b: Any) -> bool:
    return not any(True for _ in _differences("", a, b))


def _differences(where: str, a: Any, b: Any) -> Iterator[str]:
    """Places where two trees of plain data differ, numbers by more than rounding."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted({*a, *b}):
            yield from _differences(f"{where}.{key}".lstrip("."), a.get(key), b.get(key))
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _differences(f"{where}[{i}]", x, y)
    elif isinstance(a, float | int) and isinstance(b, float | int):
        if not math.isclose(a, b, rel_tol=CLOSE, abs_tol=CLOSE):
            yield f"{where} is {a}, expected {b}"
    elif a != b:
        yield f"{where} is {a!r:.60}, expected {b!r:.60}"
