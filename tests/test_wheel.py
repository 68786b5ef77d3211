"""The wheel, installed where nothing of ours is: the reader alone needs three packages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
IGNORED = shutil.ignore_patterns(".*", "data", "runs", "build", "dist", "*.egg-info", "__pycache__", "tests")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "source", ignore=IGNORED)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run([*build, str(folder / "source")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


def test_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    outside = [n for n in names if not n.startswith(("holoshard/", "holoshard-"))]
    assert not outside
    assert not [n for n in names if "/tests/" in n or "/benchmarks/" in n]
    data = ("py.typed", "shards/FORMAT.md", "shards/manifest.schema.json", "shards/make/casf_2016.txt",
            "configs/sample.toml")  # fmt: skip
    for needed in ("__main__.py", "shards/read/dataset.py", *data):
        assert f"holoshard/{needed}" in names


@pytest.mark.timeout(900)
def test_reader_alone_beside_a_project_with_the_same_names(wheel, tmp_path, small_dataset):
    """Base dependencies only, in a project with its own train.py, cache/ and shards/."""
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel]
    done = subprocess.run(install, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    listing = subprocess.run([python, "-m", "pip", "list", "--format=json"], capture_output=True, text=True)
    installed = {p["name"] for p in json.loads(listing.stdout)}
    assert not installed & {"torch", "rdkit", "zarr", "dask", "polars", "cyclopts"}

    project = tmp_path / "project"
    for folder in ("cache", "shards", "ingest"):
        (project / folder).mkdir(parents=True)
        (project / folder / "__init__.py").write_text("MINE = True\n")
    (project / "train.py").write_text("MINE = True\n")
    (project / "read.py").write_text(
        textwrap.dedent(
            """
            import json, sys
            import cache, ingest, shards, train
            import holoshard

            assert all(m.MINE for m in (cache, ingest, shards, train))
            dataset = holoshard.open_dataset(sys.argv[1])
            first = dataset[0]
            batch = next(iter(dataset.stream(split=None, batch_size=4, shuffle=False)))
            print(json.dumps([len(dataset), first.id, first.n_atoms, list(batch["position"].shape)]))
            """
        )
    )
    read = subprocess.run(
        [python, "read.py", str(small_dataset)], cwd=project, capture_output=True, text=True
    )
    assert read.returncode == 0, read.stderr

    import holoshard

    here = holoshard.open_dataset(small_dataset)
    n, first_id, n_atoms, shape = json.loads(read.stdout)
    assert (n, first_id, n_atoms) == (len(here), here[0].id, here[0].n_atoms)
    assert shape[0] == 4
    assert shape[2] == 3

    # The command line is an extra: without it, one line says how to get it.
    bare = subprocess.run(
        [python, "-m", "holoshard", "info", "x"], cwd=project, capture_output=True, text=True
    )
    assert bare.returncode == 2
    assert "pip install 'holoshard[cli]'" in bare.stderr
    assert "Traceback" not in bare.stderr
