"""What benchmarks of learning share: results kept line by line, paired by seed, with intervals."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from holoshard.__main__ import main as holoshard

Rows = list[dict[str, Any]]
# Student's t, 97.5 %, by degrees of freedom.
T975 = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def interval(values: list[float]) -> str:
    """Mean and half the 95 % interval of Student's t."""
    if len(values) < 2:
        return f"{values[0]:+.2f}"
    half = T975.get(len(values) - 1, 1.96) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.fmean(values):+.2f} ± {half:.2f}"


def over(values: list[float], others: list[float]) -> list[float]:
    """By how many percent each value is larger than its partner."""
    return [100 * (a / b - 1) for a, b in zip(values, others, strict=True)]


def small_model(data: Path, seed: int, heads: int) -> str:
    """Tables of a configuration: a model that learns something in a few hundred steps."""
    return "\n".join((
        f"seed = {seed}",
        "[data]", f"path = {json.dumps(str(data))}", "batch_size = 16", "max_atoms = 64",
        "[model]", "width = 32", "layers = 2", f"heads = {heads}", "hidden = 64", "rbf = 16", "cutoff = 8.0",
    ))  # fmt: skip


@contextmanager
def data_set(given: Path | None, n: int) -> Iterator[Path]:
    """The data set that was named, or the embedded sample of `n` complexes, made, ingested and packed."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for arguments in (
            ["sample", "--out", str(folder / "sample"), "--n", str(n)],
            ["ingest", str(folder / "sample"), "--out", str(folder / "parts"), "--workers", "1"],
            ["shard", str(folder / "parts"), "--out", str(folder / "shards")],
        ):
            with redirect_stdout(sys.stderr):
                if holoshard(arguments):
                    raise SystemExit(f"holoshard {arguments[0]} failed")
        yield folder / "shards"


def arguments_of(about: str, steps: int) -> argparse.ArgumentParser:
    """Options that these benchmarks have in common."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a data set folder instead of the embedded sample")
    parser.add_argument("--name", default="sample", help="of the data set, in the table")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--out", type=Path, help="file of results: those there are not made again")
    parser.add_argument("--quick", action="store_true", help="20 steps of two seeds: the way, not figures")
    parser.add_argument("--table", action="store_true", help="print the table of what is there")
    return parser


def run(given: argparse.Namespace, units: list[str], work: Callable[[Path, int, str], Rows]) -> Rows:
    """Call `work(data, seed, unit)` for every seed and unit that has no rows yet; all rows.

    A row gets the keys name, seed and unit.
    """
    has_file = given.out is not None and given.out.exists()
    rows: Rows = [json.loads(line) for line in given.out.read_text().splitlines()] if has_file else []
    done = {(r["name"], r["seed"], r["unit"]) for r in rows}
    seeds = range(2 if given.quick else given.seeds)
    wanted = [(s, u) for s in seeds for u in units if (given.name, s, u) not in done]
    if given.table or not wanted:
        return rows
    with data_set(given.data, 96 if given.quick else 1500) as data:
        for seed, unit in wanted:
            made = [{"name": given.name, "seed": seed, "unit": unit, **row} for row in work(data, seed, unit)]
            rows += made
            if given.out is not None:
                given.out.parent.mkdir(parents=True, exist_ok=True)
                with given.out.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in made)
            for row in made:
                print(json.dumps(row), flush=True)
    return rows
