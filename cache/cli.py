"""The commands of this room: cache stat, warm, verify, clear, advise."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from .account import FILLING
from .advise import advise as advice_on
from .blockfile import check_file, dataset_folder
from .disk import DiskTier
from .errors import SettingError
from .tier import Tier, format_size, parse_size
from .tiered import open_cache, parse_tier
from .warm import warm as fill

HELP = """Look after the caches that stand between a slow file system and a reader.

Examples::
    holoshard cache advise data/shards --tiers /local/nvme:256GiB --nodes 16

    holoshard cache warm data/shards --tiers /local/nvme:256GiB

    holoshard cache stat /local/nvme

Every command takes --json (print one JSON object as the last line) and --debug (show the traceback of an
error).
"""


@dataclass(frozen=True, slots=True)
class Output:
    """How a command reports.

    Parameters
    ----------
    json
        Print one JSON object as the last line of standard output.
    debug
        Show the traceback of an error.
    """

    json: bool = False
    debug: bool = False


app = App(name="cache", help=HELP, help_format="plaintext", result_action="return_value")
OUTPUT = Output()
Out = Annotated[Output, Parameter(name="*")]
Kind = Literal["cache", "decoded"]
Tiers = Annotated[list[str], Parameter(negative=(), consume_multiple=True)]


@app.command
def stat(folder: Path, *, kind: Kind = "cache", output: Out = OUTPUT) -> dict[str, Any]:
    """Say what a folder's cache holds.

    Examples::
        holoshard cache stat /local/nvme

    Parameters
    ----------
    folder
        The folder of a tier, as the configuration names it; /dev/shm for shared.
    kind
        cache, or decoded for decoded blocks.
    """
    tier = _tier(folder, kind)
    account = tier.account()
    if account is None:
        raise SettingError(f"{folder}: its cache cannot be opened; see the warning above")
    datasets = {}
    for path in account.datasets():
        sizes = [block.stat().st_size for block in account.blocks(path.name)]
        datasets[path.name] = {"blocks": len(sizes), "bytes": sum(sizes), "in_use": account.in_use(path.name)}
    filling = [f.name for f in (account.folder / "fill").iterdir() if FILLING.fullmatch(f.name)]
    used = account.used()
    tier.close()
    what = f"{format_size(used)} in {len(datasets)} data sets, {len(filling)} blocks being written"
    print(f"{account.folder}: {what}")
    for name, told in datasets.items():
        print(f"  {name}  {told['blocks']} blocks, {format_size(told['bytes'])}{', in use' * told['in_use']}")
    return {"used_bytes": used, "datasets": datasets, "filling": len(filling)}


@app.command
def warm(
    data: str, *, tiers: Tiers, split: str | None = None, threads: int = 4, output: Out = OUTPUT
) -> dict[str, Any]:
    """Read a data set into the folders of a cache before it is needed, in large reads.

    It ends with code 2 if a folder cannot be written, and with 1 if nothing at all was cached.

    Examples::
        holoshard cache warm data/shards --tiers /local/nvme:256GiB --split train

        holoshard cache warm s3://lab/shards --tiers /local/nvme:256GiB

    Parameters
    ----------
    data
        Folder or address of a data set, or one shard file.
    tiers
        Tiers as the configuration names them, fastest first; those in memory are left out.
    split
        Only the shards of this split.
    threads
        Reads at the same time.
    """
    folders = [text for text in tiers if not text.startswith(("memory:", "shared:"))]
    if not folders:
        raise SettingError("a tier in memory ends with its process; give the folder of a tier to warm")
    cache = open_cache(folders, data)
    for tier in cache.tiers:
        _check_writable(tier)
    assert cache.extents is not None
    ranges = list(cache.extents.ranges(split))
    if not ranges:
        known = ", ".join(dict.fromkeys(cache.extents.splits.values()))
        raise SettingError(f"{data}: nothing to warm; it has the splits {known}")
    counts = fill(cache, ranges, threads=threads)
    cache.close()
    told = f"{counts['read']} blocks read ({format_size(counts['read_bytes'])}), {counts['held']} were there"
    print(f"{data}: {told}, {counts['refused']} found no room")
    cached = counts["held"] + counts["read"] - counts["refused"]
    return {**counts, "exit_code": int(cached == 0)}


@app.command
def verify(folder: Path, *, kind: Kind = "cache", output: Out = OUTPUT) -> dict[str, Any]:
    """Check every block of a folder's cache and drop those that are damaged.

    Examples::
        holoshard cache verify /local/nvme

    Parameters
    ----------
    folder
        The folder of a tier.
    kind
        cache, or decoded for decoded blocks.
    """
    tier = _tier(folder, kind)
    account = tier.account()
    if account is None:
        raise SettingError(f"{folder}: its cache cannot be opened; see the warning above")
    good, damaged = 0, []
    for path in account.blocks():
        if check_file(path):
            good += 1
        elif path.exists():  # not one that left in the meantime
            damaged.append(f"{path.parent.name}/{path.name}")
            account.remove(path.parent.name, path.name)
    tier.close()
    print(f"{account.folder}: {good} blocks are whole, {len(damaged)} were damaged and dropped")
    return {"whole": good, "damaged": damaged, "exit_code": int(bool(damaged))}


@app.command
def clear(
    folder: Path, *, data: str | None = None, kind: Kind = "cache", output: Out = OUTPUT
) -> dict[str, Any]:
    """Drop the blocks of a folder's cache, of one data set or of all.

    Readers that use them go on; they fetch again.

    Examples::
        holoshard cache clear /local/nvme

        holoshard cache clear /local/nvme --data data/shards

    Parameters
    ----------
    folder
        The folder of a tier.
    data
        Only the blocks of this data set.
    kind
        cache, or decoded for decoded blocks.
    """
    tier = _tier(folder, kind)
    account = tier.account()
    if account is None:
        raise SettingError(f"{folder}: its cache cannot be opened; see the warning above")
    before = account.used()
    count = account.clear(dataset_folder(open_cache([], data).dataset) if data is not None else None)
    freed = before - account.used()
    tier.close()
    print(f"{account.folder}: {count} blocks dropped, {format_size(freed)} free again")
    return {"dropped": count, "freed_bytes": freed}


@app.command
def advise(
    data: str | None = None,
    *,
    tiers: Tiers,
    size: str | None = None,
    nodes: int = 1,
    split: str | None = None,
    zipf: float = 0.0,
    output: Out = OUTPUT,
) -> dict[str, Any]:
    """Say which share of reads a cache will answer, for each policy and shuffle, and what to set.

    Examples::
        holoshard cache advise data/shards --tiers memory:16GiB /local/nvme:256GiB --nodes 16

        holoshard cache advise --size 5TB --tiers /local/nvme:1TB --nodes 8 --zipf 0.8

    Parameters
    ----------
    data
        Folder or address of a data set.
    tiers
        Tiers of one node, fastest first.
    size
        Bytes of the data set, such as 5TB, instead of a folder.
    nodes
        Nodes that share an epoch.
    split
        The split that is read every epoch; all if not given.
    zipf
        Exponent of the weights of weighted sampling; 0 for uniform epochs.
    """
    if (data is None) == (size is None):
        raise SettingError("give the folder of a data set, or its --size")
    if data is not None:
        extents = open_cache([], data).extents
        n_bytes = sum(length for _, _, length in extents.ranges(split)) if extents else 0
    else:
        n_bytes = parse_size(str(size))
    found = advice_on(n_bytes, [parse_tier(text).capacity for text in tiers], nodes, zipf)
    print("\n".join(found.text))
    print(f"  tiers = {json.dumps(tiers)}")
    ratios = {f"{s}_{p}": ratio for (s, p), ratio in found.ratios.items()}
    return {"data_bytes": n_bytes, "hit_ratio": ratios, "shuffle": found.shuffle, "policy": found.policy}


def _check_writable(tier: Tier) -> None:
    """A training goes on without a folder; whoever fills it wants to hear that it is no use."""
    if not isinstance(tier, DiskTier):
        return
    if not tier.folder.is_dir() or not os.access(tier.folder, os.W_OK | os.X_OK):
        found = "is not writable" if tier.folder.is_dir() else "is no folder"
        raise SettingError(f"{tier.folder} {found}; expected one in which the cache may make its own")
    if tier.account() is None:
        raise SettingError(f"{tier.folder}: its cache cannot be opened; see the warning above")


def _tier(folder: Path, kind: str) -> DiskTier:
    """The tier of a folder, whatever its capacity."""
    tier = DiskTier(folder, 1 << 62, kind=kind)
    if not tier.root.is_dir():
        raise SettingError(f"{folder} holds no cache of this user ({tier.root.name} is missing)")
    return tier
