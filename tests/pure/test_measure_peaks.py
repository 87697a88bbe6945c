"""Peaks of cards: found by the driver's names, and never guessed."""

from __future__ import annotations

import types
from typing import Any, Optional

import pytest

from tfvolta.measure.energy import EnergyCounter
from tfvolta.measure.peaks import PEAKS, peak_of, utilisation


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("Tesla V100-SXM2-16GB", "V100 SXM2 16 GB"),
        ("Tesla V100-SXM2-32GB", "V100 SXM2 32 GB"),
        ("Tesla V100-SXM3-32GB", "V100 SXM2 32 GB"),
        ("Tesla V100-DGXS-32GB", "V100 SXM2 32 GB"),
        ("Tesla V100-PCIE-16GB", "V100 PCIe 16 GB"),
        ("Tesla V100-PCIE-32GB", "V100 PCIe 32 GB"),
        ("Tesla V100S-PCIE-32GB", "V100S PCIe 32 GB"),
        ("NVIDIA A100-SXM4-40GB", "A100 40 GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80 GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80 GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA GH200 480GB", None),
        ("Tesla T4", None),
        ("Tesla P100-SXM2-16GB", None),
        ("", None),
    ],
)
def test_cards_are_found_by_the_names_of_the_driver(name: str, card: Optional[str]) -> None:
    found = peak_of(name)
    assert (None if found is None else found.card) == card


def test_a_volta_has_neither_tf32_nor_bfloat16() -> None:
    peak = peak_of("Tesla V100-SXM2-32GB")
    assert peak is not None
    assert peak.flops("float32", tf32=True) == 15.7e12 and peak.flops("float16", tf32=True) == 125e12
    assert peak.flops("bfloat16", tf32=False) is None


def test_tf32_counts_only_where_it_is_on() -> None:
    peak = peak_of("NVIDIA H200")
    assert peak is not None
    assert peak.flops("float32", tf32=True) == 494.7e12 and peak.flops("float32", tf32=False) == 67e12


def test_every_row_has_a_source_and_figures_in_order() -> None:
    for peak in PEAKS:
        assert "data sheet" in peak.source
        assert 5 < peak.tera_flops["float16"] / peak.tera_flops["float32"] < 17, peak.card
        assert 900 <= peak.memory_gb_per_second <= 4800


def test_utilisation_is_that_of_a_published_run() -> None:
    # ResNet-50 v1.5, 1,270 images/s on a V100 with mixed precision: 4.1 G multiply-adds forward, 125 TFLOPS.
    assert utilisation(256 * 4.1e9, 256 / 1270, 125e12) == pytest.approx(0.25, abs=0.001)


def nvml(counts: bool = True) -> Any:
    """Two cards, of which the second has used twice as much; ``millijoules`` is what the first has used."""

    def total(handle: int) -> int:
        if not counts:
            raise RuntimeError("Not Supported")
        return int(module.millijoules) * (handle + 1)

    module = types.SimpleNamespace(
        millijoules=1000,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetTotalEnergyConsumption=total,
    )
    return module


def test_energy_is_the_sum_of_the_cards() -> None:
    module = nvml()
    counter = EnergyCounter(module, (0, 1))
    before = counter.joules()
    module.millijoules = 5000
    after = counter.joules()
    assert before == 3.0 and after == 15.0


def test_a_card_that_counts_no_energy_says_so() -> None:
    counter = EnergyCounter(nvml(counts=False), (0,))
    assert counter.joules() is None and "Not Supported" in counter.reason


def test_without_a_gpu_there_is_no_energy() -> None:
    assert EnergyCounter(None, ()).joules() is None
    assert EnergyCounter.of_process({"PATH": ""}).joules() is None
