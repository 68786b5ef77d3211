from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holoshard.shards.errors import ConfigError
from holoshard.train.compress.compressor import make_compressor, pack_bits, unpack_bits
from holoshard.train.compress.eden import Eden, hadamard, normal_levels
from holoshard.train.compress.sign import Sign

# Mean square error of the best b-bit table for the normal distribution (Max, doi:10.1109/TIT.1960.1057548).
MAX_1960 = {1: 0.3634, 2: 0.1175, 3: 0.03454, 4: 0.009497, 5: 0.002499}


def gaussian(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def heavy(n, seed=0):
    """Cauchy: a few values outweigh all others."""
    return gaussian(n, seed=seed) / gaussian(n, seed=seed + 1).abs()


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**31))
def test_bits_come_back(rows, eights, seed):
    bits = torch.randint(0, 2, (rows, 8 * eights), generator=torch.Generator().manual_seed(seed))
    packed = pack_bits(bits)
    assert packed.dtype == torch.uint8
    assert packed.shape == (rows, eights)
    assert torch.equal(unpack_bits(packed).long(), bits)


@pytest.mark.parametrize("compressor", [Sign(), *(Eden(bits) for bits in range(1, 9))], ids=repr)
def test_packed_size_is_what_is_packed(compressor):
    x = gaussian(3, 2 * compressor.block)
    packed = compressor.encode(x, [1, 2, 3])
    assert packed.dtype == torch.uint8
    assert packed.shape == (3, compressor.packed_size(x.shape[1]))
    assert compressor.decode(packed, [1, 2, 3]).shape == x.shape
    bits = getattr(compressor, "bits", 1)
    assert packed.numel() * 8 / x.numel() == pytest.approx(bits + 32 / compressor.block)


def test_sign_keeps_signs_and_mean_magnitudes():
    x = gaussian(2, 3 * 1024) * torch.tensor([1.0, 10.0, 100.0]).repeat_interleave(1024)
    y = Sign().decode(Sign().encode(x, [0, 0]), [0, 0])
    assert torch.equal(y >= 0, x >= 0)
    torch.testing.assert_close(y.abs().view(2, 3, 1024)[..., 0], x.abs().view(2, 3, 1024).mean(-1))
    # The mean magnitude is the best of all scales.
    error = (x - y).square().sum()
    assert error < (x - 1.01 * y).square().sum()
    assert error < (x - 0.99 * y).square().sum()


@pytest.mark.parametrize("bits", range(1, 9))
def test_eden_loses_what_theory_says(bits):
    x, seeds = gaussian(8, 16 * 4096), list(range(8))
    y = Eden(bits).decode(Eden(bits).encode(x, seeds), seeds)
    found = float((x - y).square().sum() / x.square().sum())
    levels, edges = normal_levels(bits)
    z = gaussian(1_000_000, seed=3)
    distortion = float((z - levels[torch.bucketize(z, edges)]).square().mean())
    # An unbiased scale turns a distortion D into D / (1 - D); for one bit that is pi / 2 - 1.
    assert found == pytest.approx(distortion / (1 - distortion), rel=0.02)
    if bits == 1:
        assert found == pytest.approx(math.pi / 2 - 1, rel=0.01)
    if bits in MAX_1960:
        assert distortion == pytest.approx(MAX_1960[bits], rel=0.02)


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("x", [heavy(4096), torch.eye(4096)[5] + 1e-3], ids=["cauchy", "spike"])
def test_eden_is_unbiased_on_heavy_tails(bits, x):
    draws = 1500
    seeds = list(range(draws))
    y = Eden(bits).decode(Eden(bits).encode(x.expand(draws, -1), seeds), seeds)
    error = (y.mean(0) - x).square().sum() / x.square().sum()
    single = (y - x).square().sum(1).mean() / x.square().sum()
    # The mean of unbiased draws comes nearer with their number; a bias would stay.
    assert error < 1.25 * single / draws
    # Along x itself, where a wrong scale would show.
    along = (y @ x / x.square().sum()).double()
    assert abs(along.mean() - 1) < 4 * along.std() / math.sqrt(draws) + 1e-4


def test_one_rotation_would_be_biased(monkeypatch):
    """Why there are two: what the test above looks for is there with one."""
    monkeypatch.setattr("holoshard.train.compress.eden.ROTATIONS", 1)
    x, draws = torch.zeros(4096), 1500
    x[7], x[9] = 1.0, 0.5
    y = Eden(1).decode(Eden(1).encode(x.expand(draws, -1), list(range(draws))), list(range(draws)))
    single = (y - x).square().sum(1).mean()
    assert (y.mean(0) - x).square().sum() > 5 * single / draws


def test_hadamard_is_orthonormal_and_its_own_inverse():
    matrix = hadamard(64)
    torch.testing.assert_close(matrix @ matrix, torch.eye(64))
    x = gaussian(2, 4096)
    torch.testing.assert_close(Eden()._hadamard(x), x @ hadamard(4096), atol=1e-5, rtol=1e-5)


def test_zeros_stay_zeros():
    x = torch.zeros(1, 4096)
    for compressor in (Sign(), Eden(1), Eden(8)):
        assert not compressor.decode(compressor.encode(x, [3]), [3]).any()


def test_names_and_bits_are_checked():
    assert make_compressor("sign") == Sign()
    assert make_compressor("eden", 4) == Eden(4)
    with pytest.raises(ConfigError, match='"sign" or "eden"'):
        make_compressor("zip")
    with pytest.raises(ConfigError, match=r"compression\.bits = 9, expected 1 to 8"):
        Eden(9)
