"""What half precision does to coordinates, and to distances computed from them.

Ligand and pocket atoms of the shared pack's complexes, in three frames: raw (that of the source file),
centred (from the ligand's centroid) and scaled (centred, divided by the data set's scale). They are rounded
to float16 and bfloat16, and the distances between ligand and pocket atoms are computed

stored      from rounded coordinates, in double precision: half precision as storage
computed    with every operation rounded: differences, squares, sum, root
product     with every operation rounded, as |a|^2 + |b|^2 - 2ab: what a matrix product of coordinates does

Errors are in angstrom in every frame: maximum and root mean square over all pairs.

    HOLOSHARD_SHARED=... python benchmarks/coordinates.py [--quick] [--json] [--data DIR]
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holoshard.ingest.pipeline import IngestOptions, process
from holoshard.ingest.sources.layouts import choose
from holoshard.shards.complex import Complex
from holoshard.shards.format.container import POSITION_SCALE
from holoshard.shards.read.dataset import open_dataset

Array = NDArray[np.float64]
Round = Callable[[Array], Array]
QUICK = 40  # every so many complexes
NEAR = 5.0  # angstrom: the pairs that contacts and edges are made of
FRAMES = ("raw", "centred", "scaled")


def half(values: Array) -> Array:
    """To float16 and back."""
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float64)


def brain(values: Array) -> Array:
    """To bfloat16 and back: float32 with the lower 16 bits rounded away, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    bits = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


TYPES: dict[str, Round] = {"float16": half, "bfloat16": brain}


@dataclass
class Error:
    """Of some values in angstrom."""

    largest: float = 0.0
    squares: float = 0.0
    n: int = 0
    lost: int = 0  # not finite

    def add(self, found: Array, true: Array) -> None:
        gap = np.abs(found - true).ravel()
        fine = gap[np.isfinite(gap)]
        self.lost += len(gap) - len(fine)
        self.n += len(gap)
        self.largest = max(self.largest, float(fine.max(initial=0.0)))
        self.squares += float(fine @ fine)

    def plain(self) -> dict[str, float]:
        kept = max(self.n - self.lost, 1)
        return {
            "max": round(self.largest, 6),
            "rms": round((self.squares / kept) ** 0.5, 6),
            "lost": self.lost,
            "n": self.n,
        }


def distances(a: Array, b: Array, rounded: Round) -> Array:
    """Between all atoms of two sets, every operation rounded."""
    square = rounded(rounded(a[:, None] - b[None]) ** 2)
    total = rounded(rounded(square[..., 0] + square[..., 1]) + square[..., 2])
    return rounded(np.sqrt(total))


def by_product(a: Array, b: Array, rounded: Round) -> Array:
    """The same by the norms and the scalar product, summed in float32 as tensor cores do, then rounded."""
    norms = [rounded((x * x).sum(axis=1)) for x in (a, b)]
    total = rounded(rounded(norms[0][:, None] + norms[1][None]) - rounded(2 * (a @ b.T)))
    return rounded(np.sqrt(np.maximum(total, 0)))


def complexes(data: Path | None, shared: Path | None, step: int) -> Iterator[Complex]:
    if data is not None:
        dataset = open_dataset(data)
        yield from (dataset[i] for i in range(0, len(dataset), step))
        return
    assert shared is not None
    for number, item in enumerate(choose(shared / "data/real").items()):
        if number % step == 0:
            found = process(item, IngestOptions())  # type: ignore[arg-type]
            assert isinstance(found, Complex), found
            yield found


def measure(c: Complex, errors: dict[tuple[str, str, str], Error]) -> None:
    position, n = c.position.astype(np.float64), c.n_ligand_atoms
    true = np.linalg.norm(position[:n, None] - position[None, n:], axis=2)
    near = true < NEAR
    frames = {"raw": position + c.centre, "centred": position, "scaled": position / POSITION_SCALE}
    for frame, xyz in frames.items():
        unit = POSITION_SCALE if frame == "scaled" else 1.0
        for name, rounded in TYPES.items():
            with np.errstate(over="ignore", invalid="ignore"):
                low = rounded(xyz)
                ways = {
                    "stored": np.linalg.norm(low[:n, None] - low[None, n:], axis=2),
                    "computed": distances(low[:n], low[n:], rounded),
                    "product": by_product(low[:n], low[n:], rounded),
                }
            errors[frame, name, "coordinate"].add(low * unit, xyz * unit)
            for way, found in ways.items():
                errors[frame, name, way].add(found * unit, true)
                errors[frame, name, f"{way}, under {NEAR:g}"].add(found[near] * unit, true[near])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=f"every {QUICK}th complex, some seconds")
    parser.add_argument("--json", action="store_true", help="a last line of JSON")
    parser.add_argument("--data", type=Path, help="a data set or part instead of the shared pack")
    parser.add_argument("--shared", type=Path, default=os.environ.get("HOLOSHARD_SHARED"))
    given = parser.parse_args()
    if given.data is None and given.shared is None:
        parser.error("set HOLOSHARD_SHARED or --shared to the folder of the shared data, or give --data")
    whats = [
        "coordinate",
        *(f"{w}{k}" for w in ("stored", "computed", "product") for k in ("", f", under {NEAR:g}")),
    ]
    errors = {(f, t, w): Error() for f in FRAMES for t in TYPES for w in whats}
    count, reach = 0, {"raw": 0.0, "centred": 0.0}
    for c in complexes(given.data, given.shared and Path(given.shared), QUICK if given.quick else 1):
        measure(c, errors)
        count += 1
        reach["centred"] = max(reach["centred"], float(np.abs(c.position).max()))
        reach["raw"] = max(reach["raw"], float(np.abs(c.position + c.centre).max()))
    print(f"{count} complexes; reach raw {reach['raw']:.1f}, centred {reach['centred']:.1f} angstrom")
    print(f"{'error in angstrom':<22}" + "".join(f"{f + ' ' + t:>26}" for t in TYPES for f in FRAMES))
    for what in whats:
        cells = [errors[f, t, what].plain() for t in TYPES for f in FRAMES]
        lost = "".join(f"{int(c['lost']):>26}" for c in cells) if any(c["lost"] for c in cells) else ""
        print(f"{what:<22}" + "".join(f"{c['max']:>15.4f} {c['rms']:>10.5f}" for c in cells))
        if lost:
            print(f"{'  not finite':<22}" + lost)
    if given.json:
        found = {"/".join(key): error.plain() for key, error in errors.items()}
        print(json.dumps({"complexes": count, "scale": POSITION_SCALE, "reach": reach, "errors": found}))


if __name__ == "__main__":
    main()
