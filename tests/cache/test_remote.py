"""Servers and object stores: right ranges, patience with what passes, none with what does not."""

from __future__ import annotations

import errno
import json
import pickle
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from holoshard.__main__ import main
from holoshard.cache.errors import SettingError, SourceError
from holoshard.cache.extents import read_extents
from holoshard.cache.prefetch import Prefetcher
from holoshard.cache.remote import HttpSource, ObjectSource, source_for
from holoshard.cache.source import Patient
from holoshard.cache.tiered import open_cache
from holoshard.shards.read.dataset import open_dataset


class Handler(BaseHTTPRequestHandler):
    """Files of a folder by range, as a web server and S3 give them; ``trouble`` is answered first."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        with server.lock:
            server.asked[self.path] += 1
            trouble = server.trouble.pop(0) if server.trouble else None
        if trouble is not None and trouble != "cut":
            return self.answer(trouble, b"", {"Retry-After": "0"})
        path = server.folder / self.path.lstrip("/").removeprefix("bucket/")
        if not path.is_file():
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        body = path.read_bytes()
        wanted = self.headers.get("Range")
        if wanted is None or server.whole_only:
            return self.answer(200, body)
        first, last = (int(n) for n in wanted.removeprefix("bytes=").split("-"))
        if first >= len(body):
            return self.answer(416, b"")
        part = body[first : last + 1]
        told = {"Content-Range": f"bytes {first}-{first + len(part) - 1}/{len(body)}"}
        if trouble == "cut":
            told["Content-Length"] = str(len(part))
            part = part[: len(part) // 2]
            self.close_connection = True
        return self.answer(206, part, told)

    def answer(self, status, body, headers=None):
        told = {"Content-Length": str(len(body)), "ETag": '"x"',
                "Last-Modified": "Mon, 05 Jan 2026 00:00:00 GMT", **(headers or {})}  # fmt: skip
        self.send_response(status)
        for name, value in told.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(small_dataset, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.folder, made.lock, made.trouble, made.asked = small_dataset, threading.Lock(), [], Counter()
    made.whole_only, made.daemon_threads = False, True
    made.address = f"http://127.0.0.1:{made.server_port}"
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def s3(server, monkeypatch):
    pytest.importorskip("obstore")
    settings = {"ENDPOINT_URL": server.address, "ALLOW_HTTP": "true", "REGION": "eu-west-1"}
    for name, value in {**settings, "SKIP_SIGNATURE": "true"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    return "s3://bucket"


def places(server, request, kind):
    return server.address if kind == "http" else request.getfixturevalue("s3")


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_ranges_and_what_may_pass(server, request, kind):
    address = places(server, request, kind)
    body = (server.folder / "index.h5").read_bytes()
    source = Patient(source_for(address), pause_s=0.001)
    assert bytes(source(f"{address}/index.h5", 10, 100)) == body[10:110]
    assert bytes(source(f"{address}/index.h5", len(body) - 5, 5)) == body[-5:]
    server.trouble = [503, 500, 429]
    assert bytes(source(f"{address}/index.h5", 0, 7)) == body[:7]
    assert source.retries == 3
    server.trouble = [503] * 9
    with pytest.raises(SourceError, match=r"index.h5, 7 bytes at 0: tried 5 times in .*503"):
        source(f"{address}/index.h5", 0, 7)
    server.trouble = []
    before = sum(server.asked.values())
    with pytest.raises(SourceError) as caught:
        source(f"{address}/nothing.h5", 0, 7)
    assert caught.value.errno == errno.ENOENT
    assert sum(server.asked.values()) == before + 1


def test_what_is_particular_to_http(server):
    body, source = (server.folder / "index.h5").read_bytes(), Patient(HttpSource(), pause_s=0.001)
    path = f"{server.address}/index.h5"
    server.trouble = ["cut", "cut"]
    assert source(path, 0, 50) == body[:50]
    assert source.retries == 2
    assert source(path, 1 << 30, 10) == b""
    for status, code in ((403, errno.EACCES), (501, errno.ENOSYS), (418, errno.EINVAL)):
        server.trouble = [status]
        with pytest.raises(SourceError, match=f"HTTP {status}") as caught:
            source(path, 0, 7)
        assert caught.value.errno == code
    server.whole_only = True
    assert source(path, 0, 7) == body[:7]
    with pytest.raises(SettingError, match="whole files only"):
        source(path, 7, 7)
    server.shutdown()
    server.server_close()
    with pytest.raises(SourceError, match="tried 5 times"):
        source(path, 0, 7)


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_a_data_set_on_a_server_through_tiers_and_reading_ahead(server, request, kind, tmp_path):
    address = places(server, request, kind)
    assert read_extents(address, source_for(address)).files.keys() == read_extents(server.folder).files.keys()
    dataset, here = open_dataset(address), open_dataset(server.folder)
    cache = open_cache([f"{tmp_path}:64MiB"], address)
    future = [(s.path, s.offset, s.length) for s in dataset.stream("train", 4).ranges()]
    server.trouble = [503]
    with Prefetcher(cache, future, readers=2) as ahead:
        batches = dataset.stream("train", 4, fetch=ahead)
        for a, b in zip(batches, here.stream("train", 4), strict=True):
            assert np.array_equal(a["position"], b["position"])
    assert cache.source.retries == 1
    assert cache.source.fetched_bytes == read_extents(server.folder).files["train-00000.h5"][:, 1].sum()
    again = pickle.loads(pickle.dumps(cache))
    assert bytes(again(*future[0])) == bytes(cache(*future[0]))
    assert again.source.fetches == 0
    cache.close()


def test_a_data_set_on_a_server_is_warmed(server, tmp_path, capsys):
    assert main(["cache", "warm", server.address, "--tiers", f"{tmp_path}:64MiB", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["read_bytes"] == read_extents(server.folder).n_bytes
    assert main(["cache", "advise", server.address, "--tiers", "memory:1GiB"]) == 0
    requests = sum(n for path, n in server.asked.items() if "00000" in path)
    assert requests < told["read"]  # neighbours together
    cache = open_cache([f"{tmp_path}:64MiB"], server.folder)  # the same content, elsewhere
    for range_ in cache.extents.ranges():
        cache(*range_)
    assert cache.source.fetches == 0
    cache.close()
    assert main(["cache", "clear", str(tmp_path), "--data", server.address, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["dropped"] == told["read"]


def test_addresses_that_nothing_reads():
    with pytest.raises(SettingError, match="pip install"):
        source_for("carrier-pigeon://loft/7")
    assert isinstance(pickle.loads(pickle.dumps(ObjectSource())), ObjectSource)
