"""The same samples in other formats that find any sample, or any row, by its number.

A sample is a dictionary of arrays: the default fields of a stream. Each format is written and read as its
users would; :mod:`_peer_streams` has those that are read in a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Sample = dict[str, np.ndarray[Any, Any]]
BATCH, BLOCK, WINDOW = 64, 256, 16  # complexes; complexes; blocks that are shuffled together
ATOM = ("position", "element", "charge", "hybridisation", "aromatic", "degree", "atom_residue_type")
BOND = ("bond_atoms", "bond_order")


def collate(samples: Sequence[Sample]) -> dict[str, np.ndarray[Any, Any]]:
    """Padded arrays, as most data loaders make them."""
    out = {}
    for key, first in samples[0].items():
        if key not in ATOM and key not in BOND:
            out[key] = np.stack([s[key] for s in samples])
            continue
        width = max(len(s[key]) for s in samples)
        out[key] = np.zeros((len(samples), width, *first.shape[1:]), first.dtype)
        for row, s in zip(out[key], samples, strict=True):
            row[: len(s[key])] = s[key]
    n = np.array([len(s["element"]) for s in samples])[:, None]
    out["atom_mask"] = np.arange(out["element"].shape[1]) < n
    return out


class Rows:
    """A format that finds any sample by its number: shuffled over the whole data set."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, i: int) -> Sample:
        raise NotImplementedError

    def share(self) -> None:
        """Get ready for a DataLoader's workers to share the samples among themselves."""

    def close(self) -> None:
        """Let go of what must not be carried through a fork, nor keep files in the page cache."""

    def batches(self, seed: int, part: int = 0, parts: int = 1) -> Iterator[dict[str, Any]]:
        order = np.random.default_rng(seed).permutation(len(self)).tolist()[part::parts]
        for begin in range(0, len(order) - BATCH + 1, BATCH):
            yield collate([self[i] for i in order[begin : begin + BATCH]])


class Packed(Rows):
    """Arrays of a sample as one run of bytes; the header is the number of atoms and bonds."""

    def __init__(self, path: Path, like: Sample) -> None:
        self.path, self.like = path, like

    def pack(self, s: Sample) -> bytes:
        head = np.array([len(s["element"]), len(s["bond_order"])], np.int64).tobytes()
        return head + b"".join(np.ascontiguousarray(a).tobytes() for a in s.values())

    def unpack(self, data: Any) -> Sample:
        n_atoms, n_bonds = np.frombuffer(data, np.int64, 2).tolist()
        offset, found = 16, {}
        for key, a in self.like.items():
            rows = n_atoms if key in ATOM else n_bonds if key in BOND else 1
            shape = (rows, *a.shape[1:]) if key in ATOM or key in BOND else a.shape
            count = int(np.prod(shape))
            found[key] = np.frombuffer(data, a.dtype, count, offset).reshape(shape)
            offset += count * a.itemsize
        return found


class Lmdb(Packed):
    name, needs = "LMDB", "lmdb"

    def __init__(self, path: Path, like: Sample) -> None:
        super().__init__(path, like)
        self.n, self.env = 0, None

    def write(self, samples: Iterator[Sample]) -> None:
        import lmdb

        self.path.mkdir(parents=True)
        with lmdb.open(str(self.path), map_size=1 << 36) as env, env.begin(write=True) as txn:
            for i, s in enumerate(samples):
                txn.put(b"%08d" % i, self.pack(s))

    def _open(self) -> Any:
        import lmdb

        if self.env is None:
            self.env = lmdb.open(str(self.path), readonly=True, lock=False, readahead=False, max_spare_txns=1)
            self.txn = self.env.begin(buffers=True)
        return self.txn

    def close(self) -> None:
        if self.env is not None:
            self.txn.abort()
            self.env.close()
            self.env = self.txn = None

    def __len__(self) -> int:
        if not self.n:
            self._open()
            self.n = int(self.env.stat()["entries"])
        return self.n

    def __getitem__(self, i: int) -> Sample:
        return self.unpack(self._open().get(b"%08d" % i))


class Npz(Rows):
    name, needs = "one npz a sample", "numpy"

    def __init__(self, path: Path, like: Sample) -> None:
        self.path, self.n = path, 0

    def write(self, samples: Iterator[Sample]) -> None:
        for i, s in enumerate(samples):
            folder = self.path / f"{i // 1000:04d}"
            folder.mkdir(parents=True, exist_ok=True)
            np.savez(folder / f"{i:08d}.npz", **s)

    def __len__(self) -> int:
        self.n = self.n or sum(1 for _ in self.path.rglob("*.npz"))
        return self.n

    def __getitem__(self, i: int) -> Sample:
        with np.load(self.path / f"{i // 1000:04d}" / f"{i:08d}.npz") as found:
            return {key: found[key] for key in found.files}


class Arrow(Rows):
    name, needs = "Arrow IPC, pyarrow", "pyarrow"

    def __init__(self, path: Path, like: Sample) -> None:
        self.path, self.like, self.table = path, like, None

    def write(self, samples: Iterator[Sample]) -> None:
        import pyarrow as pa

        self.path.mkdir(parents=True)
        writer, group = None, []
        for s in samples:
            group.append({k: a.tobytes() for k, a in s.items()})
            if len(group) == BLOCK:
                writer = writer or pa.ipc.new_file(
                    self.path / "data.arrow", pa.Table.from_pylist(group).schema
                )
                writer.write_table(pa.Table.from_pylist(group))
                group = []
        if group:
            writer = writer or pa.ipc.new_file(self.path / "data.arrow", pa.Table.from_pylist(group).schema)
            writer.write_table(pa.Table.from_pylist(group))
        if writer is not None:
            writer.close()

    def close(self) -> None:
        self.table = None

    def _open(self) -> Any:
        import pyarrow as pa

        if self.table is None:
            reader = pa.ipc.open_file(pa.memory_map(str(self.path / "data.arrow")))
            self.table = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        return self.table

    def __len__(self) -> int:
        return sum(b.num_rows for b in self._open())

    def __getitem__(self, i: int) -> Sample:
        batch, row = self._open()[i // BLOCK], i % BLOCK
        found = {}
        for k, a in self.like.items():
            data = np.frombuffer(batch.column(k)[row].as_buffer(), a.dtype)
            found[k] = data.reshape(-1, *a.shape[1:]) if k in ATOM or k in BOND else data.reshape(a.shape)
        return found


class Blocks:
    """A format of flat arrays: blocks of samples are read, a window of them is shuffled."""

    def __init__(self, path: Path, like: Sample) -> None:
        self.path, self.like, self.arrays = path, like, None

    def write(self, samples: Iterator[Sample]) -> None:
        everything = list(samples)
        for axis, keys in (("atom", ATOM), ("bond", BOND)):
            counts = [len(s[keys[0]]) for s in everything]
            self.put(f"{axis}_start", np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
            for key in keys:
                self.put(key, np.concatenate([s[key] for s in everything]))
        for key in self.like:
            if key not in ATOM and key not in BOND:
                self.put(key, np.stack([s[key] for s in everything]))

    def put(self, key: str, array: np.ndarray[Any, Any]) -> None:
        raise NotImplementedError

    def open(self, key: str) -> Any:
        raise NotImplementedError

    def block(self, b: int) -> list[Sample]:
        if self.arrays is None:
            starts = {a: np.asarray(self.open(f"{a}_start")[:]) for a in ("atom", "bond")}
            self.arrays = {k: self.open(k) for k in self.like}, starts
        arrays, starts = self.arrays
        lo, hi = b * BLOCK, min((b + 1) * BLOCK, len(starts["atom"]) - 1)
        got, found = {}, [dict[str, Any]() for _ in range(hi - lo)]
        for key, array in arrays.items():
            axis = "atom" if key in ATOM else "bond" if key in BOND else ""
            bounds = starts[axis][lo : hi + 1] if axis else np.arange(lo, hi + 1)
            got[key] = self.read(array, int(bounds[0]), int(bounds[-1]))
            local = (bounds - bounds[0]).tolist()
            for i, s in enumerate(found):
                s[key] = got[key][local[i] : local[i + 1]] if axis else got[key][i]
        return found

    def read(self, array: Any, lo: int, hi: int) -> np.ndarray[Any, Any]:
        return np.asarray(array[lo:hi])

    def __len__(self) -> int:
        return int(self.open("atom_start").shape[0]) - 1

    def share(self) -> None:
        """See Rows."""

    def close(self) -> None:
        self.arrays = None

    def batches(self, seed: int, part: int = 0, parts: int = 1) -> Iterator[dict[str, Any]]:
        rng = np.random.default_rng(seed)
        blocks = rng.permutation(-(-len(self) // BLOCK)).tolist()[part::parts]
        held: list[Sample] = []
        for begin in range(0, len(blocks), WINDOW):
            window = held + [s for b in blocks[begin : begin + WINDOW] for s in self.block(b)]
            order = rng.permutation(len(window)).tolist()
            whole = len(order) // BATCH * BATCH
            for k in range(0, whole, BATCH):
                yield collate([window[i] for i in order[k : k + BATCH]])
            held = [window[i] for i in order[whole:]]


class H5py(Blocks):
    name, needs = "h5py, flat arrays", "h5py"

    def put(self, key: str, array: np.ndarray[Any, Any]) -> None:
        import h5py

        self.path.mkdir(parents=True, exist_ok=True)
        with h5py.File(self.path / "data.h5", "a") as file:
            file.create_dataset(
                key, data=array, chunks=(min(16384, len(array)), *array.shape[1:]), compression="lzf"
            )

    def open(self, key: str) -> Any:
        import h5py

        return h5py.File(self.path / "data.h5")[key]


class Zarr(Blocks):
    name, needs = "zarr-python", "zarr"

    def put(self, key: str, array: np.ndarray[Any, Any]) -> None:
        import zarr

        rest = array.shape[1:]
        shard = -(-min(len(array), 1 << 20) // 16384) * 16384
        made = zarr.create_array(
            self.path / key, shape=array.shape, dtype=array.dtype, chunks=(16384, *rest),
            shards=(shard, *rest), compressors=zarr.codecs.BloscCodec(cname="lz4"),
        )  # fmt: skip
        made[:] = array

    def open(self, key: str) -> Any:
        import zarr

        return zarr.open_array(self.path / key, mode="r")


class Tensorstore(Zarr):
    name, needs = "tensorstore on Zarr v3", "tensorstore"

    def open(self, key: str) -> Any:
        import tensorstore as ts

        return ts.open({"driver": "zarr3", "kvstore": f"file://{self.path / key}/"}, open=True).result()

    def read(self, array: Any, lo: int, hi: int) -> np.ndarray[Any, Any]:
        return np.asarray(array[lo:hi].read().result())
