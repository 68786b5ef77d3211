"""What a split is made of: the facts of the complexes, and the rule that divides them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError, UsageError
from .identity import LEAST_SEEN
from .mmseqs import ClusterWith

Method = Literal["random", "cluster", "scaffold", "tanimoto", "protein-ligand", "time", "given"]
METHODS: Final[tuple[Method, ...]] = (
    "random", "cluster", "scaffold", "tanimoto", "protein-ligand", "time", "given",
)  # fmt: skip
Undated = Literal["leave-out", "train"]
Near = Literal["no", "protein", "ligand", "either", "both"]
SPLITS: Final = ("train", "valid", "test")
# What the groups of a split are called, for the methods that make groups.
WORDS: Final = {
    "cluster": "clusters", "scaffold": "scaffolds", "tanimoto": "ligand clusters",
    "protein-ligand": "clusters", "time": "days",
}  # fmt: skip
LEFT_OUT: Final = -1  # in no split
FREE: Final = -2  # not yet decided
MAX_SEED: Final = (1 << 53) - 1  # a whole number that every reader of JSON keeps


@dataclass(frozen=True, slots=True)
class Facts:
    """What a split needs to know of complexes, one entry each, in order of their ids.

    Attributes
    ----------
    ids : unique, sorted
    scaffolds : Murcko scaffold as SMILES, empty without a ring
    ligands : InChIKey or SMILES, empty if unknown
    sequences : one-letter sequences of the protein chains, "/" between them
    smiles : of the ligands, empty if unknown
    deposited : shape (n,), yyyymmdd, 0 for unknown
    columns : some of the label table's own columns by name; "" where a complex has none
    column_names : all of its columns
    """

    ids: Sequence[str]
    scaffolds: Sequence[str]
    ligands: Sequence[str]
    sequences: Sequence[str]
    smiles: Sequence[str]
    deposited: NDArray[np.int32]
    columns: Mapping[str, Sequence[str]]
    column_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Rule:
    """How complexes are divided.

    Attributes
    ----------
    method : see :mod:`.split`
    fractions : of complexes in train, valid and test, adding up to 1
    seed : of the order in which groups are dealt
    column : with "given", the column that names the split; with "cluster", the one that names the group
    cluster_with : what compares sequences, for clusters where no column has them, and for neighbours
    file : with "given", a file that names the split of each id, instead of a column
    undated : where complexes without a date go with "time"
    cuts : with "time", the first day of valid and of test as yyyymmdd; found if None
    test_list : a list that is the test set: the name of one that is shipped, or a file of ids
    exclude : which complexes near the test set leave train and valid: near in protein, in ligand, in either,
        or in both (or with nearly the same ligand; see :mod:`.groups`)
    identity, tanimoto : from which similarity on a protein or ligand is near
    """

    method: Method = "random"
    fractions: tuple[float, ...] = (0.8, 0.1, 0.1)
    seed: int = 0
    column: str | None = None
    cluster_with: ClusterWith = "auto"
    file: str | None = None
    undated: Undated = "leave-out"
    cuts: tuple[int, int] | None = None
    test_list: str | None = None
    exclude: Near = "no"
    identity: float = 0.5
    tanimoto: float = 0.6

    def __post_init__(self) -> None:
        """UsageError if it cannot be meant."""
        if self.method not in METHODS:
            raise UsageError(f"--split {self.method}: expected one of {', '.join(METHODS)}")
        shares = self.fractions
        if (
            len(shares) != 3
            or not all(0 <= f <= 1 for f in shares)
            or not math.isclose(sum(shares), 1, abs_tol=1e-6)
        ):
            raise UsageError(
                "fractions are of train, valid and test, not negative, and add up to 1; found "
                f"{tuple(shares)}"
            )
        if not 0 <= self.seed <= MAX_SEED:
            raise UsageError(f"--seed {self.seed}: expected 0 to {MAX_SEED}")
        if not LEAST_SEEN <= self.identity <= 1:
            raise UsageError(
                f"--identity {self.identity}: expected {LEAST_SEEN} (below, relatives are often missed) to 1"
            )
        if not 0 < self.tanimoto <= 1:
            raise UsageError(f"--tanimoto {self.tanimoto}: expected more than 0, at most 1")
        if self.file is not None and self.method != "given":
            raise UsageError(f"--split-file goes with --split given, not with --split {self.method}")
        if self.test_list is not None and self.method == "given":
            raise UsageError("--split given names the test set itself; leave out --test-list")

    def plain(self) -> dict[str, Any]:
        """As plain data, without what is at its default and says nothing of the result."""
        default = Rule()
        always: dict[str, Any] = {"method": self.method, "seed": self.seed}
        if self.method != "given":
            always["fractions"] = [float(f) for f in self.fractions]
        rest = {
            k: getattr(self, k) for k in self.__slots__ if k not in ("method", "seed", "fractions", "cuts")
        }
        told = {k: v for k, v in rest.items() if v != getattr(default, k)}
        told |= {k: Path(told[k]).name for k in ("file", "test_list") if k in told}
        if self.exclude != "no":
            told |= {"identity": self.identity, "tanimoto": self.tanimoto}
        return {**always, **told, **({"cuts": list(self.cuts)} if self.cuts else {})}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Rule:
        """The rule of a data set, from what its manifest records; FormatError if it records no rule."""
        told = {k: record[k] for k in cls.__slots__ if k in record}
        try:
            for key in ("fractions", "cuts"):
                if key in told:
                    told[key] = tuple(told[key])
            if "test_list" in told:
                told["test_list"] = told["test_list"]["name"]
            return cls(**told)
        except (TypeError, KeyError, ValueError, UsageError) as error:
            raise FormatError(f"the manifest records a split that cannot be: {error}") from error


@dataclass(frozen=True, slots=True)
class Split:
    """A split and how it came about.

    Attributes
    ----------
    of : shape (n,), int8, index into SPLITS of each complex, or LEFT_OUT
    groups : shape (n,), int64, group of each complex, 0 .. n_groups - 1
    record : the rule and what came of it, for the manifest
    """

    of: NDArray[np.int8]
    groups: NDArray[np.int64]
    record: dict[str, Any]
