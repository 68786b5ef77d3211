"""A complex as named arrays and one JSON text, and what the names mean: what every record format is given."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..complex import VOCABULARIES, Field
from ..format.records import parse_text, valued
from ..read.dataset import Dataset

ABOUT: Final = "fields.json"  # beside every export


@dataclass(frozen=True, slots=True)
class Record:
    """One complex.

    Attributes
    ----------
    name : its row in the export as eight digits: ids may hold anything
    arrays : key -> array, (atoms, ...), (bonds, ...), (residues, ...) or of one complex; fixed-point fields
        as float32
    text : the text record; ``id``, and ``split`` of the data set, are always there
    """

    name: str
    arrays: dict[str, NDArray[Any]]
    text: dict[str, Any]

    def json(self) -> bytes:
        """The text as UTF-8."""
        return json.dumps(self.text, sort_keys=True, ensure_ascii=False).encode()

    def npz(self) -> bytes:
        """The arrays as numpy's own archive."""
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **self.arrays)
        return buffer.getvalue()


def records(dataset: Dataset, rows: Iterable[int]) -> Iterator[Record]:
    """The complexes at some rows, in that order."""
    splits = dataset.column("split")
    for number, row in enumerate(rows):
        block, at = dataset.block_of(row)
        one = valued(block.slice(at, at + 1))
        arrays = {k: a[0] if one.fields[k].axis == "complex" else a for k, a in one.columns.items()}
        text = parse_text(arrays.pop("text_json"))
        arrays = {k: np.asarray(a) for k, a in arrays.items()}
        yield Record(f"{number:08d}", arrays, {**text, "split": str(splits[row])})


def fields_of(dataset: Dataset) -> dict[str, Field]:
    """The fields that a record has, by key."""
    return {k: f for k, f in dataset.manifest.fields.items() if f.axis != "text"}


def about(dataset: Dataset) -> str:
    """The meaning of the names, as JSON: axis, dtype, shape of a row, unit, doc, words of a vocabulary."""
    told = {
        key: {
            "axis": f.axis, "dtype": f.value_dtype.name, "shape": list(f.shape), "unit": f.unit, "doc": f.doc,
            **({"words": list(VOCABULARIES[key])} if key in VOCABULARIES else {}),
        }
        for key, f in fields_of(dataset).items()
    }  # fmt: skip
    return json.dumps(told, indent=1)
