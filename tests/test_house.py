"""The house keeps its shape: rooms, arrows, packages, commands."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("shards", "ingest", "cache", "train")
# ingest -> shards <- train -> cache
ARROWS = {"shards": set(), "cache": set(), "ingest": {"shards"}, "train": {"shards", "cache"}}
GROUND_FLOOR = {"numpy", "h5py", "numcodecs"}


def imported(path: Path, *, top_level_only: bool = False) -> set[str]:
    """Modules that a file imports, relative ones resolved under ``holoshard``."""
    package = ("holoshard", *path.relative_to(ROOT).parent.parts)
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            name = ".".join(filter(None, (base, node.module or "")))
            found |= {name} | {f"{name}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_imports_follow_the_arrows(room):
    for path in sorted((ROOT / room).rglob("*.py")):
        others = {m.split(".")[1] for m in imported(path) if m.startswith("holoshard.") and m.count(".") >= 1}
        reached = (others & set(ROOMS)) - {room}
        assert reached <= ARROWS[room], f"{path.relative_to(ROOT)} imports {sorted(reached - ARROWS[room])}"


def test_ground_floor_needs_only_the_base_packages():
    import sys

    for path in sorted((ROOT / "shards").rglob("*.py")):
        if path.name == "cli.py":
            continue
        outside = {m.split(".")[0] for m in imported(path, top_level_only=True)} - {"holoshard", ""}
        extra = outside - GROUND_FLOOR - set(sys.stdlib_module_names)
        assert not extra, f"{path.relative_to(ROOT)} imports {sorted(extra)} at module level"


def test_every_folder_of_code_is_a_listed_package():
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {
        ".".join(("holoshard", *p.parent.relative_to(ROOT).parts))
        for room in (*ROOMS, "configs")
        for p in (ROOT / room).rglob("__init__.py")
    }
    assert listed == folders | {"holoshard"}
    assert {p.name for p in ROOT.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_every_dependency_says_why():
    text = (ROOT / "pyproject.toml").read_text()
    block = text[text.index("dependencies = [") : text.index("[project.scripts]")]
    for line in block.splitlines():
        if re.match(r'\s+"', line) and '"holoshard[' not in line:
            assert "# " in line, f"no reason given: {line.strip()}"


def test_make_help_lists_every_target():
    text = (ROOT / "Makefile").read_text()
    phony = next(line for line in text.splitlines() if line.startswith(".PHONY:")).split()[1:]
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in phony:
        assert re.search(rf"^  make {target}\b", shown, re.M), f"make help does not show {target}"


def test_no_file_is_too_long():
    long = {
        str(path.relative_to(ROOT)): lines
        for room in (*ROOMS, "benchmarks")
        for path in (ROOT / room).rglob("*.py")
        if (lines := path.read_text().count("\n")) > 400
    }
    assert not long
