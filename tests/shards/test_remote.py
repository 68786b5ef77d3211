from __future__ import annotations

import pickle
import re
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from make_datasets import write_dataset
from random_complexes import assert_same, random_complexes

from holoshard.shards.errors import FormatError, UsageError
from holoshard.shards.read.dataset import open_dataset


class RangeHandler(BaseHTTPRequestHandler):
    """Serves files of a folder by range, and keeps a list of what was asked."""

    def __init__(self, folder, asked, ranges, *arguments):
        self.folder, self.asked, self.ranges = folder, asked, ranges
        super().__init__(*arguments)

    def do_GET(self):
        path = self.folder / self.path.lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        self.asked.append((path.name, last - first + 1))
        if self.ranges:
            data = data[first : last + 1]
        self.send_response(206 if self.ranges else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def serve():
    servers = []

    def start(folder, ranges=True):
        asked = []
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(RangeHandler, folder, asked, ranges))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", asked

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("container", ["hdf5", "zarr"])
def test_a_data_set_on_a_server_is_read_by_ranges(tmp_path, serve, container):
    complexes = list(random_complexes(60))
    write_dataset(tmp_path / "set", complexes, container=container)
    address, asked = serve(tmp_path)
    dataset = open_dataset(f"{address}/set/")
    np.testing.assert_array_equal(dataset.column("n_atoms"), [c.n_atoms for c in complexes])
    assert [name for name, _ in asked] == ["manifest.json", "index.h5"]
    assert_same(dataset[50], complexes[50])
    if container == "hdf5":
        assert asked[2:] == [
            ("test-00000.h5", int(dataset.reader.table["length"][dataset.reader.locate(50)[0]]))
        ]
    batch = next(iter(dataset.stream("train", batch_size=8)))
    assert batch.size == 8
    assert_same(pickle.loads(pickle.dumps(dataset))[3], complexes[3])


def test_what_a_server_lacks_or_cannot_do_is_said(tmp_path, serve):
    write_dataset(tmp_path / "set", list(random_complexes(20)))
    address, _ = serve(tmp_path)
    with pytest.raises(FormatError, match=r"nothing/manifest\.json cannot be read: HTTP 404"):
        open_dataset(f"{address}/nothing")
    whole, _ = serve(tmp_path, ranges=False)
    with pytest.raises(UsageError, match="whole files only"):
        open_dataset(f"{whole}/set")[0]
    with pytest.raises(FormatError, match="cannot be read"):
        open_dataset("http://127.0.0.1:9/set")


def test_object_stores_through_fsspec(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    complexes = list(random_complexes(60))
    write_dataset(tmp_path / "set", complexes, container="zarr")
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "set"), "/bucket/set", recursive=True)
    dataset = open_dataset("memory://bucket/set")
    assert_same(dataset[7], complexes[7])
    memory.rm("/bucket/set/train-00000.zarr", recursive=True)
    with pytest.raises(FormatError, match="is missing"):
        open_dataset("memory://bucket/set")[7]
    with pytest.raises(UsageError, match="quark://"):
        open_dataset("quark://bucket/set")


def test_object_stores_through_obstore(tmp_path):
    pytest.importorskip("obstore", reason="obstore is not installed")
    complexes = list(random_complexes(60))
    write_dataset(tmp_path / "set", complexes)
    dataset = open_dataset(f"file://{tmp_path}/set")
    assert type(dataset.reader.fetch).__name__ == "ObstoreFetch"
    assert_same(dataset[7], complexes[7])
    assert_same(pickle.loads(pickle.dumps(dataset))[3], complexes[3])
    with pytest.raises(FormatError, match=r"nothing/manifest\.json"):
        open_dataset(f"file://{tmp_path}/nothing")
