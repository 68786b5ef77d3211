"""A small model and random batches for it."""

from __future__ import annotations

import numpy as np
import torch

from holoshard.train.config import ModelConfig
from holoshard.train.model.transformer import ATOM_FEATURES, AffinityTransformer, first_weights

TINY = ModelConfig(width=32, layers=2, heads=4, rbf=8, cutoff=8.0)


def random_batch(sizes=(20, 31), n_ligand=(7, 12), seed=0, N=None):
    """A padded batch of random atoms, as data.to_tensors makes it."""
    rng = np.random.default_rng(seed)
    B, N = len(sizes), N or max(sizes)
    real = np.arange(N) < np.array(sizes)[:, None]
    ligand = np.arange(N) < np.array(n_ligand)[:, None]
    batch = {name: rng.integers(0, 6, (B, N)) * real for name, _ in ATOM_FEATURES}
    batch |= {"atom_mask": real, "ligand_mask": ligand, "pool_mask": ligand}
    batch["position"] = (rng.normal(0, 4, (B, N, 3)) * real[..., None]).astype(np.float32)
    batch["bond_atoms"] = np.stack([np.arange(10), np.arange(1, 11)], -1)[None].repeat(B, 0)
    batch["bond_order"] = rng.integers(1, 5, (B, 10))
    batch["bond_mask"] = np.ones((B, 10), bool)
    batch["pk_kind"] = rng.integers(1, 4, B)
    return {name: torch.from_numpy(value) for name, value in batch.items()}


def make(config=TINY, seed=0):
    model = AffinityTransformer(config)
    with torch.no_grad():
        for parameter, value in first_weights(model, seed):
            parameter.copy_(value)
        model.head.out.weight.normal_(0, 0.5, generator=torch.Generator().manual_seed(1))
    return model.eval()


def rotation(seed):
    q, r = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    q *= np.sign(np.diag(r))
    return torch.from_numpy(q * np.sign(np.linalg.det(q))).float()
