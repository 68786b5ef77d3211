from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The makers beside the tests are imported by name: `from toy_complexes import toy_complexes`.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "shards"))


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of 96 toy complexes."""
    from toy_complexes import write_shards

    return write_shards(tmp_path_factory.mktemp("toy"))
