from __future__ import annotations

import os
from pathlib import Path

import pytest


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
