"""Folders and archives for the tests of layouts, and what comes of them."""

from __future__ import annotations

import tarfile
from pathlib import Path

from holoshard.ingest.item import Item, Rejection
from holoshard.ingest.sources.layouts import choose


def touch(root: Path, *names: str, text: str = "x") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def tar_of(folder: Path, path: Path) -> Path:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as tar:
        for file in sorted(folder.rglob("*")):
            tar.add(file, file.relative_to(folder), recursive=False)
    return path


def items(path: Path, layout: str = "auto", labels: Path | None = None) -> list[Item | Rejection]:
    return list(choose(path, layout, labels).items())


def by_id(path: Path, **how) -> dict[str, Item | Rejection]:
    found = items(path, **how)
    assert len({item.id for item in found}) == len(found)
    return {item.id: item for item in found}
