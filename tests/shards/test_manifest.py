from __future__ import annotations

import contextlib
import json
from pathlib import Path

import h5py
import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_datasets import write_dataset
from random_complexes import random_complexes

import holoshard.shards
from holoshard.shards.complex import FIELDS, VOCABULARIES
from holoshard.shards.errors import FormatError, VersionError
from holoshard.shards.format.manifest import _checksum, parse_manifest, read_manifest
from holoshard.shards.read.dataset import open_dataset

SCHEMA = json.loads((Path(holoshard.shards.__file__).parent / "manifest.schema.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("manifest") / "set"
    write_dataset(out, list(random_complexes(60)), making={"seed": 1, "mine": "random"})
    return out


@pytest.fixture(scope="module")
def data(folder):
    return json.loads((folder / "manifest.json").read_text())


def signed(data):
    data = {k: v for k, v in data.items() if k != "checksum"}
    return json.dumps({**data, "checksum": _checksum(data)})


@pytest.mark.parametrize("container", ["hdf5", "zarr"])
def test_schema_describes_it(tmp_path, container):
    write_dataset(tmp_path / "set", list(random_complexes(30)), container=container)
    jsonschema.validate(json.loads((tmp_path / "set" / "manifest.json").read_text()), SCHEMA)


def test_schema_refuses_what_is_wrong(data):
    for key, value in (("container", "tar"), ("block_size", 0), ("shards", [{}]), ("fingerprint", "x")):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**data, key: value}, SCHEMA)


def test_it_comes_back(folder, data):
    manifest = read_manifest(folder)
    assert json.loads(manifest.to_json()) == data
    assert manifest.making == {"seed": 1, "mine": "random"}
    assert {f.key for f in FIELDS} == set(manifest.fields)
    assert data["vocabularies"] == {k: list(v) for k, v in VOCABULARIES.items()}


def test_fingerprint_is_that_of_the_content_and_its_order(tmp_path, folder):
    complexes = list(random_complexes(60))
    again = write_dataset(tmp_path / "again", complexes, container="zarr", making={"seed": 2})
    assert again.fingerprint == read_manifest(folder).fingerprint
    complexes[0], complexes[1] = complexes[1], complexes[0]
    assert write_dataset(tmp_path / "other", complexes).fingerprint != again.fingerprint


SPLIT = {"method": "random", "seed": 0, "n_groups": 3, "left_out": 0, "groups_by": "complex"}


@pytest.mark.parametrize(
    ("making", "said"),
    [
        ({"seen": "60"}, "making.seen is '60', expected a whole number"),
        ({"same_id": True}, "making.same_id is True, expected a whole number"),
        ({"seen": -1}, "making.seen is -1"),
        ({"split": "random"}, "making.split is 'random', expected an object"),
        ({"split": {"method": "random"}}, "making.split lacks the key seed"),
        ({"split": {**SPLIT, "left_out": None}}, "making.split.left_out is None"),
        ({"appended": [{"generation": 2}]}, r"making.appended\[0\] lacks the key n_complexes"),
        ({"appended": {}}, "making.appended is {}, expected a list"),
        ({"numbers": [1]}, r"making.numbers is \[1\], expected names"),
    ],
)
def test_a_history_that_commands_could_not_use_is_refused(data, making, said):
    with pytest.raises(FormatError, match=said):
        parse_manifest(signed({**data, "making": making}), "it")
    assert parse_manifest(signed({**data, "making": {"split": SPLIT, "mine": None}}), "it").n_complexes == 60


def test_a_newer_minor_version_is_read_and_what_it_adds_ignored(data):
    newer = {**data, "version": "1.9", "colour": "green"}
    newer["shards"] = [{**s, "mood": 1} for s in data["shards"]]
    assert parse_manifest(signed(newer), "it").n_complexes == 60


@pytest.mark.parametrize("version", ["2.0", "17"])
def test_a_newer_major_version_is_refused(data, version):
    with pytest.raises(VersionError, match=rf"has format version {version}; this holoshard reads up to 1.x"):
        parse_manifest(signed({**data, "version": version}), "it")


def test_an_edited_manifest_is_refused(data):
    with pytest.raises(FormatError, match="edited or damaged"):
        parse_manifest(json.dumps({**data, "n_complexes": 61}), "it")


def changed(data, shard=None, **top):
    shards = [{**data["shards"][0], **(shard or {})}, *data["shards"][1:]]
    return {**data, "shards": shards, **top}


@pytest.mark.parametrize("change", [
    {"format": "tar"}, {"version": None}, {"version": "one"}, {"container": "tar"}, {"block_size": 0},
    {"block_size": 1 << 40}, {"block_size": "16"}, {"n_complexes": 61}, {"fingerprint": "0" * 64},
    {"layouts": []},
    {"layouts": [{"columns": []}]}, {"layouts": {}},
    {"index": {"name": "../index.h5", "n_bytes": 1, "sha256": ""}},
    {"shard": {"name": "../secret.h5"}}, {"shard": {"name": "/etc/passwd"}}, {"shard": {"name": ".."}},
    {"shard": {"name": "a/b.h5"}}, {"shard": {"name": "a\\b.h5"}}, {"shard": {"name": ""}},
    {"shard": {"name": "a\0.h5"}}, {"shard": {"name": "test-00000.h5"}}, {"shard": {"name": 3}},
    {"shard": {"n_complexes": -1}}, {"shard": {"n_complexes": 0}}, {"shard": {"n_complexes": 1 << 52}},
    {"shard": {"n_complexes": True}}, {"shard": {"n_bytes": 1e9}}, {"shard": {"layout": 9}},
    {"shard": {"layout": -1}},
])  # fmt: skip
def test_nonsense_is_a_format_error(data, change):
    with pytest.raises(FormatError):
        parse_manifest(signed(changed(data, **change)), "it")


@pytest.mark.parametrize("change", [
    {"axis": "galaxy"}, {"name": "../x"}, {"name": ""}, {"dtype": "O"}, {"dtype": ">i2"}, {"dtype": "S9"},
    {"dtype": "i2,i2"}, {"dtype": 7}, {"shape": [0]}, {"shape": [-1]}, {"shape": [1 << 40]},
    {"shape": [1] * 9},
    {"shape": 3}, {"per_unit": -1}, {"codec": "pickle"}, {"codec": None}, {"chunk_rows": 0},
    {"chunk_rows": 1 << 60}, {"chunk_rows": "9"},
])  # fmt: skip
def test_a_nonsense_column_is_a_format_error(data, change):
    columns = data["layouts"][0]["columns"]
    i = next(i for i, c in enumerate(columns) if c["name"] == "position")
    layouts = [{"columns": [*columns[:i], {**columns[i], **change}, *columns[i + 1 :]]}]
    with pytest.raises(FormatError):
        parse_manifest(signed({**data, "layouts": layouts}), "it")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=4), x, max_size=3),
    max_leaves=6,
)


@given(draw=st.data(), value=JSON)
@settings(max_examples=200, deadline=None)
def test_any_value_anywhere_is_read_or_refused(data, draw, value):
    """Replace one value at a random place: a manifest or FormatError comes out, nothing else."""
    broken = json.loads(json.dumps(data))
    node, key = broken, draw.draw(st.sampled_from(sorted(broken)))
    while isinstance(node[key], dict | list) and node[key] and draw.draw(st.booleans()):
        node = node[key]
        key = draw.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
    node[key] = value
    for text in (signed(broken), json.dumps(broken)):
        with contextlib.suppress(FormatError):
            parse_manifest(text, "it")


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null", '"x"', "{}", "[" * 100_000])
def test_what_is_not_a_manifest_is_refused(text):
    with pytest.raises(FormatError):
        parse_manifest(text, "it")


def test_a_folder_without_manifest_says_how_to_make_one(tmp_path):
    with pytest.raises(FormatError, match="holoshard shard"):
        read_manifest(tmp_path)


def test_an_index_of_a_newer_major_version_is_refused(tmp_path):
    write_dataset(tmp_path / "set", list(random_complexes(20)))
    with h5py.File(tmp_path / "set" / "index.h5", "r+", locking=False) as file:
        assert file.attrs["version"] == b"1.0"
        file.attrs["version"] = np.bytes_("2.0")
    with pytest.raises(VersionError, match=r"index.h5 has format version 2.0"):
        open_dataset(tmp_path / "set").column("pk")
