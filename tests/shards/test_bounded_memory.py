"""Packing needs no more memory for more data."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import replace

from random_complexes import random_complexes

from holoshard.shards.make.writer import write_part

CODE = textwrap.dedent(
    """
    import resource, sys
    from pathlib import Path
    from holoshard.shards.make.pack import pack
    manifest = pack([Path(sys.argv[1])], Path(sys.argv[2]), memory=8 << 20, threads=2, shard_bytes=4 << 20)
    print(manifest.n_complexes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
    """
)


def test_memory_does_not_grow_with_the_data(tmp_path):
    """5,600 complexes more, some 50 MB unpacked, and the peak is hardly higher (in MiB)."""
    base = list(random_complexes(200, seed=1, n_atoms=200))
    peaks = []
    for name, copies in (("few", 12), ("many", 40)):
        folder = tmp_path / name
        folder.mkdir()
        for k in range(0, copies, 4):
            some = (
                replace(c, deposited=20000101 + j, text={**c.text, "id": f"{j}-{c.id}"})
                for j in range(k, k + 4)
                for c in base
            )
            write_part(folder / f"part-{k:03d}.h5", some)
        arguments = [sys.executable, "-c", CODE, str(folder), str(tmp_path / f"{name}-out")]
        env = os.environ | {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}  # a steady measure
        done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=env)
        n, peak = map(int, done.stdout.split())
        assert n == 200 * copies
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 12, peaks
