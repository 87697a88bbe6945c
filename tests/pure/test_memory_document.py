"""The tables of docs/estimate_memory.md are made from files of results; and how lines of points are read."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.memory_estimate import document, points  # noqa: E402


def test_the_page_is_as_the_results_say() -> None:
    assert document.main(["--check"]) == 0, "run python benchmarks/memory_estimate/document.py"


def test_a_point_stands_beside_its_estimate(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = {"model": "resnet50", "policy": "float32", "xla": "off", "batch": 64, "workspace_limit_mb": 128}
    peaks = {"steady_peak_bytes": 2**31, "first_step_peak_bytes": 2**32, "predicted_peak_bytes": 2**30 * 3}
    (tmp_path / "a_points.jsonl").write_text(json.dumps({**point, **peaks}) + "\n")
    (tmp_path / "a_estimates.jsonl").write_text(json.dumps({**point, "estimate_gib": 4.4, "parts": {}}) + "\n")
    monkeypatch.setattr(document, "RESULTS", tmp_path)
    row = "| ResNet-50, limit 128 MiB | float32 | off | 64 | 2.00 | 4.00 | 3.00 | +50.0 % | 4.40 | +10.0 % |"
    page = document.written("x\n<!-- running: made -->\nold\n<!-- end -->\ny")
    assert row in page and "old" not in page and page.startswith("x\n") and page.endswith("\ny")
    assert "No result" in document.before()


def test_what_the_allocator_took_is_read_from_its_log() -> None:
    log = """
I0000 bfc_allocator.cc:176] Extending allocation by 1.00GiB bytes for mklcpu.
I0000 bfc_allocator.cc:183] Total allocated bytes: 1.00GiB
I0000 bfc_allocator.cc:176] Extending allocation by 2.00MiB bytes for GPU_0_bfc.
I0000 bfc_allocator.cc:183] Total allocated bytes: 2.00MiB
I0000 bfc_allocator.cc:176] Extending allocation by 1.50GiB bytes for GPU_0_bfc.
I0000 bfc_allocator.cc:183] Total allocated bytes: 1.50GiB
I0000 bfc_allocator.cc:183] Total allocated bytes: 7.00GiB
"""
    assert points.reserved_bytes(log) == int(1.5 * 2**30)
    assert points.reserved_bytes("nothing") is None


def test_every_point_has_a_name_of_its_own() -> None:
    names = [points.name_of(point) for point in points.points()]
    assert len(names) == len(set(names)) == 21 and not any("," in name for name in names)
    assert all("bert_large" in name for name in names[:6])  # they take longest
