"""What both sides of the comparison with PyTorch begin with, and how their losses are compared."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.peers.agree import BAND, compared, parsed
from benchmarks.peers.initial_values import initial_values
from benchmarks.peers.workloads import TINY, Workload


def test_convolutions_are_he_normal_over_fan_out_and_no_gamma_is_zero() -> None:
    values = dict(initial_values(Workload("resnet50", 1, 1, 10, 32, 64, (1, 1, 1, 1))))
    for name, size in (("stage2_block0_second_conv", 3), ("stage3_block0_third_conv", 1), ("stem_conv", 7)):
        (kernel,) = values[name]
        assert kernel.shape[:2] == (size, size) and kernel.dtype == np.float32
        assert kernel.std() == pytest.approx(math.sqrt(2 / (size * size * kernel.shape[-1])), rel=0.03)
    gamma, beta, mean, variance = values["stage0_block0_third_norm"]
    assert gamma.min() == variance.min() == 1 and not beta.any() and not mean.any()
    assert values["head"][0].std() == pytest.approx(0.01, rel=0.03)


def test_kernels_of_bert_are_normal_and_cut_at_two_deviations() -> None:
    values = dict(initial_values(Workload("bert_large", 1, 1, 2, 16, 128, (1,), heads=4, words=500)))
    kernels = [values["words"][0], values["layer0_inner"][0], *values["layer0_attention"][::2]]
    assert [kernel.shape for kernel in kernels[2:]] == [(128, 4, 32)] * 3 + [(4, 32, 128)]
    for kernel in kernels:
        assert np.abs(kernel).max() <= 0.04
        assert kernel.std() == pytest.approx(0.02 * 0.8796, rel=0.03)  # the deviation of what is left


def test_an_lstm_begins_orthogonal_with_an_open_forget_gate() -> None:
    kernel, recurrent, bias = dict(initial_values(TINY["lstm"]))["lstm1"]
    assert kernel.shape == recurrent.shape == (16, 64)
    np.testing.assert_allclose(recurrent @ recurrent.T, np.eye(16), atol=1e-5)
    assert bias.reshape(4, 16).sum(1).tolist() == [0, 16, 0, 0]
    assert np.abs(kernel).max() <= math.sqrt(6 / 80)


def test_a_seed_gives_the_same_values_again_and_another_seed_others() -> None:
    for workload in TINY.values():
        once, again = dict(initial_values(workload)), dict(initial_values(workload))
        other = dict(initial_values(workload, seed=1))
        assert list(once) == list(again) == list(other)
        assert all(np.array_equal(a, b) for name in once for a, b in zip(once[name], again[name]))
        assert not np.array_equal(once["head"][0], other["head"][0])


def test_losses_agree_within_the_band_alone() -> None:
    keras = parsed("noise\n{'seconds': [1.0, 1.0], 'loss': [2.0, 1.5]}\n", "keras")
    torch = parsed('{"first_loss": 2.001}\n{"loss": 1.5}\n', "torch")
    assert (keras, torch) == ([2.0, 1.5], [2.001, 1.5])
    assert compared("lstm", keras, torch)["agrees"]
    assert not compared("lstm", [2.02, 1.5], [2.0, 1.5])["agrees"]  # other weights
    assert not compared("lstm", [2.0, 1.5 + 2.1 * BAND], [2.0, 1.5])["agrees"]
    assert not compared("lstm", keras, [2.0, float("nan")])["agrees"]
    with pytest.raises(ValueError, match="2 losses against 1"):
        compared("lstm", keras, [2.0])
