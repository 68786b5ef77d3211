"""The commands that make, grow, check and change data sets: shard, append, convert, verify."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from ..console import Output, log
from ..read.dataset import open_dataset
from .append import append as extend
from .convert import convert as copy_into
from .generations import sweep
from .mmseqs import ClusterWith
from .options import byte_size
from .pack import MEMORY, pack
from .packed import few_groups, packed_lines
from .repair import repair
from .rule import SPLITS, Method, Near, Rule, Undated
from .verify import verify as check_all
from .writer import SHARD_BYTES

OUTPUT = Output()
Out = Annotated[Output, Parameter(name="*")]
Bytes = Annotated[int, Parameter(converter=byte_size)]


def shard(
    parts: Annotated[list[Path], Parameter(negative=())],
    *,
    out: Path,
    container: Literal["hdf5", "zarr"] = "hdf5",
    split: Method = "random",
    seed: int = 0,
    fractions: tuple[float, float, float] = (0.8, 0.1, 0.1),
    split_column: str | None = None,
    split_file: Path | None = None,
    cluster_with: ClusterWith = "auto",
    undated: Undated = "leave-out",
    test_list: str | None = None,
    exclude_neighbours: Near = "no",
    identity: float = 0.5,
    tanimoto: float = 0.6,
    number: Annotated[tuple[str, ...], Parameter(negative=(), consume_multiple=True)] = (),
    block_size: int | None = None,
    shard_bytes: Bytes = SHARD_BYTES,
    codec: str = "blosc",
    memory: Bytes = MEMORY,
    threads: int | None = None,
    output: Out = OUTPUT,
) -> dict[str, Any]:
    """Make a data set of the parts that ingest wrote: deduplicate, split, mix, write.

    The same complexes, options and seed give the same bytes, however they were cut into parts. A data set
    that is at --out already is replaced in the end, all at once; holoshard append adds to one.

    Examples::
        holoshard shard data/parts --out data/shards

        holoshard shard data/a data/b --out data/shards --split cluster --seed 1

        holoshard shard data/parts --out data/shards --split given --split-column fold

        holoshard shard data/parts --out data/shards --test-list casf-2016 --exclude-neighbours both

    Parameters
    ----------
    parts
        Parts (.h5), folders of them, the --out folders of ingest, or data sets.
    out
        Folder of the data set.
    container
        hdf5: files of flat arrays. zarr: the same arrays as Zarr v3 folders.
    split
        random; cluster: by the column "cluster", or by protein sequence; scaffold: by the ligand's
        Murcko scaffold; tanimoto: by clusters of similar ligands, needs RDKit; protein-ligand: what is
        alike in both stays together; time: oldest to newest; given: a column or a file names the split.
    seed
        Of the split and of the order.
    fractions
        Of train, valid and test; whole groups are never divided to match them.
    split_column
        The column of the label table for --split given ("split") or cluster ("cluster").
    split_file
        For --split given, a CSV or TSV file with the columns id and split instead.
    cluster_with
        What compares protein sequences: mmseqs, built-in, or auto: for clusters a column "cluster" if all
        have it, else MMseqs2 where it is installed.
    undated
        Where complexes without a date go with --split time: left out, or train, where they may leak.
    test_list
        A list that is the test set: casf-2016, or a file with an id a line; --split divides the others.
    exclude_neighbours
        Keep complexes near the test set out of train and valid: near in protein, in ligand, in either, or
        in both (or with nearly the same ligand).
    identity
        From this share of identical residues on a protein is near.
    tanimoto
        From this similarity on a ligand is near.
    number
        Columns of the label table that become numbers of their own, in the index and in batches.
    block_size
        Complexes that are read together; 256, fewer in a small data set.
    shard_bytes
        A shard file is closed when it is about so large: 256MiB, or a number of bytes.
    codec
        blosc, blosc-lz4, blosc-zstd, gzip (for readers without plugins) or none.
    memory
        For the complexes held at once: 1GiB, or a number of bytes.
    threads
        That read and pack; one a core if not given. The bytes do not depend on it.
    """
    start = time.monotonic()
    rule = Rule(
        method=split, fractions=fractions, seed=seed, column=split_column, cluster_with=cluster_with,
        file=None if split_file is None else str(split_file), undated=undated, test_list=test_list,
        exclude=exclude_neighbours, identity=identity, tanimoto=tanimoto,
    )  # fmt: skip
    manifest = pack(
        parts, out, rule=rule, container=container, block_size=block_size, shard_bytes=shard_bytes,
        codec=codec, memory=memory, threads=threads, numbers=number,
    )  # fmt: skip
    making = manifest.making
    print("\n".join(packed_lines(out, manifest)))
    empty = [
        name for name, share in zip(SPLITS, fractions, strict=True) if share and name not in manifest.splits
    ]
    if empty and split != "given":
        log.warning("nothing is in %s: the groups are too few or too large; try another --seed or --split",
                    " and ".join(empty))  # fmt: skip
    if few := few_groups(manifest):
        log.warning("%s", few)
    return {
        "out": str(out), "n_complexes": manifest.n_complexes, "splits": manifest.splits,
        "n_shards": len(manifest.shards), "n_bytes": sum(s.n_bytes for s in manifest.shards),
        "fingerprint": manifest.fingerprint, **making, "seconds": round(time.monotonic() - start, 3),
    }  # fmt: skip


def append(
    data: Path,
    parts: Annotated[list[Path], Parameter(negative=())],
    *,
    split_file: Path | None = None,
    test_list: str | None = None,
    shard_bytes: Bytes = SHARD_BYTES,
    codec: str = "blosc",
    memory: Bytes = MEMORY,
    threads: int | None = None,
    output: Out = OUTPUT,
) -> dict[str, Any]:
    """Add what a data set does not hold yet, as a new generation of it; nothing that is there is rewritten.

    New complexes are divided by the rule that made the data set: one whose group is in a split goes there.
    The manifest of the generation before is kept as manifest.N.json, and opens that generation.

    Examples::
        holoshard append data/shards data/parts-of-june

        holoshard info data/shards/manifest.1.json

    Parameters
    ----------
    data
        Folder of the data set.
    parts
        Parts (.h5), folders of them, the --out folders of ingest, or data sets.
    split_file
        The file that names the splits, if the data set was divided by one.
    test_list
        The file of the test list, if the data set has one that is not shipped.
    shard_bytes
        A shard file is closed when it is about so large: 256MiB, or a number of bytes.
    codec
        blosc, blosc-lz4, blosc-zstd, gzip (for readers without plugins) or none.
    memory
        For the complexes held at once: 1GiB, or a number of bytes.
    threads
        That read and pack; one a core if not given. The bytes do not depend on it.
    """
    start = time.monotonic()
    before = open_dataset(data).manifest.generation
    manifest = extend(
        data, parts, split_file=None if split_file is None else str(split_file), test_list=test_list,
        shard_bytes=shard_bytes, codec=codec, memory=memory, threads=threads,
    )  # fmt: skip
    added = manifest.making["appended"][-1] if manifest.generation > before else None
    print(f"{data}: {added['n_complexes']} complexes added, generation {manifest.generation}" if added
          else f"{data}: nothing new; generation {before} stays")  # fmt: skip
    print("\n".join(packed_lines(data, manifest)))
    return {
        "out": str(data), "generation": manifest.generation, "n_complexes": manifest.n_complexes,
        "splits": manifest.splits, "added": added["n_complexes"] if added else 0,
        "fingerprint": manifest.fingerprint, "seconds": round(time.monotonic() - start, 3),
    }  # fmt: skip


def convert(
    source: Path,
    out: Path,
    *,
    container: Literal["hdf5", "zarr"] | None = None,
    output: Out = OUTPUT,
) -> dict[str, Any]:
    """Copy a data set, or one shard, into the other container, without packing anything again.

    Every checksum is verified on the way. Converting back gives the same files, byte for byte.

    Examples::
        holoshard convert data/shards data/shards-zarr

        holoshard convert data/shards-zarr data/shards-again --container hdf5

    Parameters
    ----------
    source
        Folder of a data set, or one shard or part file.
    out
        Folder to make, or file (.h5) or folder (.zarr) for a single shard; nothing that exists is replaced.
    container
        Of the copy; the other one than the source's if not given.
    """
    manifest = copy_into(source, out, container)
    print(f"{out}: {manifest.n_complexes} complexes in {len(manifest.shards)} {manifest.container} shards")
    return {
        "out": str(out), "container": manifest.container, "n_complexes": manifest.n_complexes,
        "n_shards": len(manifest.shards), "fingerprint": manifest.fingerprint,
    }  # fmt: skip


def verify(
    data: Path,
    *,
    threads: int | None = None,
    repair_from: Annotated[tuple[Path, ...], Parameter(negative=(), consume_multiple=True)] = (),
    output: Out = OUTPUT,
) -> dict[str, Any]:
    """Check every checksum and offset of a data set, a part or a shard file; exit 1 if any is wrong.

    Names the damaged blocks and the complexes in them, and mends them where told to.

    Examples::
        holoshard verify data/shards

        holoshard verify data/parts/part-0000.h5

        holoshard verify data/shards --repair-from data/parts

    Parameters
    ----------
    data
        Folder of a data set, folder of parts, or one shard or part file.
    threads
        That check at the same time; one a core if not given.
    repair_from
        Parts or another copy: what is damaged is made anew of them, all else stays. The result is what
        was written at first, to the byte, or nothing is replaced.
    """
    report = check_all(data, threads)
    print("\n".join(report.lines()))
    found: dict[str, Any] = {"damage": [
        {"file": d.file, "block": d.block, "reason": d.reason, "ids": list(d.ids)} for d in report.damage
    ]}  # fmt: skip
    if repair_from and data.is_dir():
        sweep(data)
    if repair_from and not report.ok:
        mended = repair(data, repair_from, report)
        found |= {"mended": list(mended.shards), "mended_blocks": mended.n_blocks}
        print(f"mended {', '.join(mended.shards)}: {mended.n_blocks} blocks made anew")
        report = check_all(data, threads)
        print(report.lines()[-1])
    return {
        "ok": report.ok, "n_complexes": report.n_complexes, "n_blocks": report.n_blocks,
        **found, "exit_code": 0 if report.ok else 1,
    }  # fmt: skip
