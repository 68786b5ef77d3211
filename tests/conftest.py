from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "shards"))  # its makers serve the other rooms, too


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared real data, named by HOLOSHARD_SHARED."""
    value = os.environ.get("HOLOSHARD_SHARED")
    if not value:
        pytest.skip("HOLOSHARD_SHARED is not set: it names the folder with the shared real data")
    path = Path(value)
    if not path.is_dir():
        pytest.skip(f"HOLOSHARD_SHARED={value} is not a folder")
    return path


@pytest.fixture(scope="session")
def small_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of twenty random complexes in two splits."""
    from random_complexes import random_complexes

    from holoshard.shards.make.pack import pack
    from holoshard.shards.make.writer import write_part

    folder = tmp_path_factory.mktemp("small")
    write_part(folder / "part-0.h5", random_complexes(20, seed=1))
    pack([folder / "part-0.h5"], folder / "dataset")
    return folder / "dataset"
