"""What was packed, and what was left aside, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ..format.manifest import Manifest
from .rule import WORDS

FEW: Final = 10  # groups of a split, below which its figures hang on a few of them


def packed_lines(out: Path, manifest: Manifest) -> list[str]:
    """What was written, and what was left aside, for people."""
    making, how = manifest.making, manifest.making["split"]
    splits = ", ".join(f"{name} {n}" for name, n in manifest.splits.items())
    lines = [f"{out}: {manifest.n_complexes} complexes in {len(manifest.shards)} shards ({splits})"]
    lines += [
        f"{name}: {manifest.splits[name]} complexes of {n} {WORDS[how['method']]}"
        for name, n in how.get("groups_in", {}).items()
    ]
    words = {"same_id": "came twice", "same_content": "had the content of another id",
             "id_conflicts": "had the id of another complex"}  # fmt: skip
    aside = [f"{making[k]} {w}" for k, w in words.items() if making[k]]
    lines += ["left aside: " + ", ".join(aside)] if aside else []
    if how["left_out"]:
        of = {"without a date": 0 if how.get("undated") == "train" else how.get("n_undated", 0),
              "near the test set": how.get("excluded", {}).get("n", 0),
              "of a group in two splits": how.get("between_splits", 0)}  # fmt: skip
        told = ", ".join(f"{n} {what}" for what, n in of.items() if n)
        lines.append(f"in no split: {how['left_out']}" + (f" ({told})" if told else ""))
    if "test_list" in how:
        lines.append(f"test list {how['test_list']['name']}: {how['test_list']['found']} found here")
    return lines


def few_groups(manifest: Manifest) -> str:
    """A warning if the splits that judge a model have fewer than FEW groups, else ""."""
    how = manifest.making["split"]
    few = {name: n for name, n in how.get("groups_in", {}).items() if name != "train" and n < FEW}
    if not few or how["method"] == "time":  # a day is no family of proteins or ligands
        return ""
    told = ", ".join(f"{name} {n}" for name, n in few.items())
    return (
        f"fewer than {FEW} {WORDS[how['method']]} in a split ({told}): figures on it hang on which they are; "
        "give it more with --fractions, or compare several --seed"
    )
