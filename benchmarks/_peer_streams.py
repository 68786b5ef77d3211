"""The same samples in formats read in a row, shuffled by a buffer or in blocks: see :mod:`_peers`."""

from __future__ import annotations

import importlib.util
import io
import itertools
import os
import tarfile
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from _peers import BATCH, Arrow, H5py, Lmdb, Npz, Packed, Sample, Tensorstore, Zarr, collate

BUFFER = 4096  # samples that are shuffled together


def batched(samples: Iterable[Sample]) -> Iterator[dict[str, Any]]:
    """Padded batches; the last samples that make no batch are left out."""
    group: list[Sample] = []
    for sample in samples:
        group.append(sample)
        if len(group) == BATCH:
            yield collate(group)
            group = []


class WebDataset(Packed):
    name, needs = "WebDataset", "webdataset"

    def write(self, samples: Iterator[Sample]) -> None:
        self.path.mkdir(parents=True)
        groups = itertools.groupby(enumerate(samples), key=lambda pair: pair[0] // 1024)
        for number, group in groups:
            with tarfile.open(self.path / f"{number:05d}.tar", "w") as tar:
                for n, s in group:
                    data = self.pack(s)
                    entry = tarfile.TarInfo(f"{n:08d}.bin")
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))

    def batches(self, seed: int, part: int = 0, parts: int = 1) -> Iterator[dict[str, Any]]:
        import webdataset as wds

        urls = [str(p) for p in sorted(self.path.glob("*.tar"))]
        urls = [urls[i] for i in np.random.default_rng(seed).permutation(len(urls))][part::parts]
        if not urls:
            return
        data = wds.WebDataset(
            urls, shardshuffle=False, empty_check=False, nodesplitter=None, workersplitter=None
        ).shuffle(BUFFER, seed=seed)
        yield from batched(self.unpack(entry["bin"]) for entry in data)


class Mds(Packed):
    """Shuffled by its default rule; its workers share the samples among themselves."""

    name, needs = "MDS, mosaicml-streaming", "streaming"

    def write(self, samples: Iterator[Sample]) -> None:
        from streaming import MDSWriter

        with MDSWriter(out=str(self.path), columns={"data": "bytes"}) as out:
            for s in samples:
                out.write({"data": self.pack(s)})

    def share(self) -> None:
        """Made before the workers are: they meet in its shared memory."""
        from streaming import StreamingDataset
        from streaming.base.util import clean_stale_shared_memory

        clean_stale_shared_memory()
        self.data = StreamingDataset(
            local=str(self.path), shuffle=True, batch_size=BATCH, num_canonical_nodes=1
        )

    def close(self) -> None:
        self.data = None

    def batches(self, seed: int, part: int = 0, parts: int = 1) -> Iterator[dict[str, Any]]:
        if parts == 1:
            self.share()
        yield from batched(self.unpack(entry["data"]) for entry in self.data)


class LitData(Packed):
    """Shuffled by its rule: chunks, and samples within a chunk."""

    name, needs = "LitData", "litdata"

    def write(self, samples: Iterator[Sample]) -> None:
        from litdata.streaming.writer import BinaryWriter

        self.path.mkdir(parents=True)
        out = BinaryWriter(str(self.path), chunk_bytes=64 << 20)
        for i, s in enumerate(samples):
            out[i] = self.pack(s)
        out.done()
        out.merge(1)

    def batches(self, seed: int, part: int = 0, parts: int = 1) -> Iterator[dict[str, Any]]:
        from litdata import StreamingDataset

        data = StreamingDataset(str(self.path), shuffle=True, seed=seed)
        yield from batched(self.unpack(entry) for entry in data)


ALL = (Lmdb, Tensorstore, Arrow, H5py, Zarr, LitData, WebDataset, Mds, Npz)
PEERS = [p for p in ALL if importlib.util.find_spec(p.needs) is not None]
os.environ.setdefault("DO_NOT_TRACK", "1")  # some count their users
