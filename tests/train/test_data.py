from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from toy_complexes import toy_complexes
from toy_model import make

from holoshard.shards.complex import NO_AFFINITY, RELATIONS, Flag
from holoshard.shards.errors import DataError, UsageError
from holoshard.shards.make.writer import write_part
from holoshard.shards.read.dataset import open_dataset
from holoshard.train.config import TrainConfig
from holoshard.train.configfile import parse_config
from holoshard.train.data import (
    add_noise,
    pieces,
    read_labels,
    sampling_weights,
    to_tensors,
    training_stream,
)


@dataclasses.dataclass
class Part:
    data_rank: int = 0
    data_size: int = 1


def first_batch(shards, inputs="complex", batch_size=8, **share):
    config = parse_config(f"[data]\npath = '{shards}'\nbatch_size = {batch_size}", "x")
    dataset = open_dataset(shards)
    batch = next(iter(training_stream(dataset, config, Part(**share), 0, 0)))
    return dataset, to_tensors(batch, inputs)


def test_tensors_are_those_of_the_complexes(shards):
    dataset, batch = first_batch(shards)
    for row, index in enumerate(batch["index"].tolist()):
        c = dataset[index]
        n = c.n_atoms
        assert batch["atom_mask"][row].sum() == n
        assert batch["pool_mask"][row].sum() == c.n_ligand_atoms
        np.testing.assert_array_equal(batch["position"][row, :n], c.position)
        np.testing.assert_array_equal(batch["element"][row, :n], c.element)
        np.testing.assert_array_equal(batch["atom_residue_type"][row, :n], c.residue_type[c.residue])
        np.testing.assert_array_equal(batch["bond_atoms"][row][batch["bond_mask"][row]], c.bond_atoms)
        assert batch["pk"][row].item() == pytest.approx(c.affinity.pk, nan_ok=True)
        assert RELATIONS[batch["pk_relation"][row]] == c.affinity.relation


def test_hidden_pocket(shards):
    dataset, batch = first_batch(shards, "ligand")
    assert batch["position"].shape[1] == batch["pool_mask"].sum(1).max()
    assert torch.equal(batch["atom_mask"], batch["pool_mask"])
    kept = batch["bond_atoms"].amax(-1)[batch["bond_mask"]]
    assert kept.max() < batch["position"].shape[1]
    for row, index in enumerate(batch["index"].tolist()):
        c = dataset[index]
        assert batch["bond_mask"][row].sum() == (c.bond_atoms < c.n_ligand_atoms).all(1).sum()


def test_hidden_ligand(shards):
    _, batch = first_batch(shards, "pocket")
    assert not (batch["atom_mask"] & batch["ligand_mask"]).any()
    assert torch.equal(batch["atom_mask"], batch["pool_mask"])
    model = make()
    with torch.no_grad():
        here = model(batch)
        batch["element"] = torch.where(batch["ligand_mask"], 9, batch["element"])
        batch["position"] = batch["position"] + 3.0 * batch["ligand_mask"][..., None]
        torch.testing.assert_close(model(batch), here)


@pytest.mark.parametrize("size", [2, 3])
def test_parts_make_the_global_batch(shards, size):
    _, whole = first_batch(shards)
    parts = [first_batch(shards, data_rank=rank, data_size=size)[1]["index"] for rank in range(size)]
    assert torch.equal(torch.cat(parts), whole["index"])


def test_labels_weigh_what_the_configuration_says(shards):
    dataset = open_dataset(shards)
    plain = read_labels(dataset, TrainConfig())
    pk = dataset.column("pk")
    assert np.array_equal(plain.weight, np.isfinite(pk).astype(np.float32))
    train = np.zeros(len(pk), bool)
    train[dataset.indices("train")] = True
    exact = pk[train & (dataset.column("pk_relation") == 1)].astype(np.float64)
    assert plain.mean == pytest.approx(exact.mean())
    assert plain.sd == pytest.approx(exact.std())
    text = "[loss]\nweight_column = 'weight'\nkind_weights = {Ki = 3.0, IC50 = 0.0}"
    weighed = read_labels(dataset, parse_config(text, "x")).weight
    for row, c in enumerate(dataset):
        by_kind = {"Ki": 3.0, "IC50": 0.0, "none": 0.0}.get(c.affinity.kind, 1.0)
        assert weighed[row] == 2.0 * by_kind


def test_a_column_of_weights_that_nothing_has_is_refused(shards):
    dataset = open_dataset(shards)
    drawn = parse_config("[data]\nsample_column = 'nope'", "x").data
    with pytest.raises(UsageError, match="column 'nope' of weights; there are: target, weight"):
        sampling_weights(dataset, drawn)
    with pytest.raises(UsageError, match="column 'nope'"):
        read_labels(dataset, parse_config("[loss]\nweight_column = 'nope'", "x"))


def test_no_labels_to_learn_from(tmp_path):
    bare = [dataclasses.replace(c, affinity=NO_AFFINITY) for c in toy_complexes(5)]
    write_part(tmp_path / "part-0.h5", bare)
    config = parse_config("[data]\ntrain_split = 'all'", "x")
    with pytest.raises(DataError, match="5 complexes but 0 with an exact pK"):
        read_labels(open_dataset(tmp_path / "part-0.h5"), config)


def test_labels_that_nobody_measured_are_counted(tmp_path):
    """Of those that are learned from: without a pK none is."""
    marks = [Flag.SYNTHETIC, Flag(0), Flag(0), Flag.SYNTHETIC | Flag.COVALENT, Flag(0)]
    made = [dataclasses.replace(c, flags=f) for c, f in zip(toy_complexes(5), marks, strict=True)]
    made[4] = dataclasses.replace(made[4], affinity=NO_AFFINITY, flags=Flag.SYNTHETIC)
    assert all(c.affinity.pk == c.affinity.pk for c in made[:4])
    write_part(tmp_path / "part-0.h5", made)
    config = parse_config("[data]\ntrain_split = 'all'", "x")
    assert read_labels(open_dataset(tmp_path / "part-0.h5"), config).synthetic == 0.5


def test_a_batch_larger_than_the_split(shards):
    with pytest.raises(DataError, match="expected at least one batch of 500"):
        first_batch(shards, batch_size=500)


def test_noise_belongs_to_the_complex(shards):
    _, a = first_batch(shards)
    _, b = first_batch(shards, data_rank=1, data_size=2)
    plain = a["position"].clone()
    add_noise(a, 0.2, 0, 0)
    add_noise(b, 0.2, 0, 0)
    n = int(b["atom_mask"][0].sum())
    torch.testing.assert_close(a["position"][4:, :n][0], b["position"][0, :n])
    step = (a["position"] - plain)[a["atom_mask"]]
    assert step.std() == pytest.approx(0.2, rel=0.1)
    _, c = first_batch(shards)
    add_noise(c, 0.2, 0, 1)
    assert not torch.allclose(a["position"], c["position"])


def test_pieces_make_the_batch(shards):
    _, batch = first_batch(shards)
    cut = list(pieces(batch, 3))
    assert [len(p["index"]) for p in cut] == [3, 2, 3]
    for name, whole in batch.items():
        assert torch.equal(torch.cat([p[name] for p in cut]), whole)
