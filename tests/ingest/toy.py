"""A process function for tests of the engine: a file's text says what becomes of it."""

from __future__ import annotations

import os
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from random_complexes import random_complex

from holoshard.ingest.engine import EngineOptions, run
from holoshard.ingest.item import Item, Label, Locator, Rejection
from holoshard.ingest.read import archive
from holoshard.shards.complex import Complex


@dataclass(frozen=True)
class ToyOptions:
    tag: str = ""


def process(item: Item, options: ToyOptions) -> Complex | Rejection:
    """Reads the structure file; notes each call in the file that TOY_LOG names."""
    if "TOY_LOG" in os.environ:
        with open(os.environ["TOY_LOG"], "a") as log:
            log.write(item.id + "\n")
    if not item.structure.path.is_file():
        return Rejection(item.id, "file_missing", f"no {item.structure}")
    text = archive.load(item.structure).decode()
    word = text.split()[0]
    if word == "refuse":
        return Rejection(item.id, "parse_failed", "two\nlines")
    if word == "raise":
        raise ValueError("a fault of ours")
    if word == "exit":
        os._exit(3)
    if word == "segv":
        import ctypes

        ctypes.string_at(0)
    if word == "hang":
        sum(range(10**14))  # holds the interpreter's lock, as native code does
    if word == "wait":
        time.sleep(float(text.split()[1]))
    if word == "slow":
        time.sleep(0.05)
    seed = zlib.crc32(f"{item.id} {text} {options.tag}".encode())
    return random_complex(
        np.random.default_rng(seed), item.id, repairs=["text_decoded"] if word == "mend" else []
    )


def toy_items(folder: Path, texts: dict[str, str]) -> list[Item]:
    """Files of these texts, and the items that read them."""
    folder.mkdir(exist_ok=True)
    items = []
    for name, text in texts.items():
        path = folder / f"{name}.txt"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        items.append(Item(name, Locator(path), labels=(Label("Kd", "=", "10", "nM"),), columns={"n": name}))
    return items


def run_slowly(folder: Path, n: int, workers: int, out: Path) -> None:
    """A run of n slow items, to be killed."""
    items = toy_items(folder, {f"i{k:03d}": "slow" for k in range(n)})
    engine = EngineOptions(workers=workers, task_size=8)
    run(items, out, process=process, options=ToyOptions(), engine=engine)
