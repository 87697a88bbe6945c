"""``tfvolta estimate memory`` and ``tensor-cores``: arguments, and what is made of what a script trains."""

from __future__ import annotations

import io
import json
import pathlib
from typing import Any

import pytest
from rich.console import Console

from tfvolta.cli import estimate_memory, script_estimate
from tfvolta.cli.main import main
from tfvolta.footprint import LayerFigures, Product
from tfvolta.footprint.memory import HeavyLayer, MemoryEstimate
from tfvolta.footprint.tensor_cores import audit
from tfvolta.report.memory import print_memory

GIB = 2**30


def estimate(batch: int, compiled: bool = False) -> dict[str, Any]:
    held = batch * GIB // 8
    layers = (HeavyLayer("conv", "Conv2D", held, 4, 100.0),)
    found = MemoryEstimate(batch, compiled, GIB, GIB, 0, held // (1 + compiled), 0, 0, 0, 0, layers=layers)
    return json.loads(json.dumps(found.to_json()))  # type: ignore[no-any-return]


def found(**changes: Any) -> dict[str, Any]:
    row = LayerFigures("d", "Dense", (), (), "float16", (), 64, (Product("MatMul", "float16", 8, 9, 8),))
    content = {
        "model": "m", "class": "Sequential", "stack": "keras3", "parameters": 12, "compute_dtypes": ["float16"],
        "batch": 64, "guessed": False, "evidence": "runs/1", "seconds": 2.0,
        "memory": {"plain": estimate(64), "compiled": estimate(64, True), "planned": "plain"},
        "compared": {"plain": estimate(32), "compiled": estimate(32, True), "planned": "plain"},
        "tensor_cores": json.loads(json.dumps(audit([row], 8).to_json())),
    }  # fmt: skip
    return {**content, **changes}


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> list[dict[str, Any]]:
    """Requests that would have been answered by a process with TensorFlow."""
    requests: list[dict[str, Any]] = []

    def look(request: dict[str, Any], seconds: float, on_gpu: bool = False) -> dict[str, Any]:
        requests.append({**request, "seconds": seconds, "on_gpu": on_gpu})
        return found()

    monkeypatch.setattr(script_estimate, "look", look)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("", encoding="utf-8")
    return requests


def test_the_request_has_the_script_s_own_arguments(looked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["estimate", "memory", "--batch", "96", "--precision", "mixed_float16", "--json", "train.py", "--lr", "0.1"]
    assert main(words) == 0
    (request,) = looked
    assert (request["script"], request["arguments"], request["batch"]) == ("train.py", ("--lr", "0.1"), 96)
    assert request["overrides"] == ("mixed_precision.policy=mixed_float16",)
    assert not request["on_gpu"] and not request["compare_half"]
    assert json.loads(capsys.readouterr().out)["estimate"]["peak"] == estimate(64)["peak"]


@pytest.mark.parametrize(("card", "code", "fits"), [("v100_16gb", 0, True), ("8", 1, False)])
def test_a_card_says_whether_it_fits(
    looked: Any, capsys: pytest.CaptureFixture[str], card: str, code: int, fits: bool
) -> None:
    assert main(["estimate", "memory", "--card", card, "--json", "train.py"]) == code
    assert looked[0]["compare_half"]
    said = json.loads(capsys.readouterr().out)["card"]
    assert said["fits"] is fits
    # 2 GiB of variables, an eighth of a GiB for each example, and 600 MiB for CUDA.
    rest = (16_160 / 1024 if fits else 8) - 2 - 600 / 1024
    assert said["largest_batch"] == int(rest * 8)


def test_with_and_without_xla(looked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "memory", "--xla", "on", "train.py"]) == 0
    text = capsys.readouterr().out
    assert "compiled by XLA" in text and "The same without XLA: 10,240 MiB" in text


def test_everything_that_is_wrong_is_told_at_once(looked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--batch", "0", "--precision", "float8", "--xla", "maybe", "--time-limit", "x", "missing.py"]
    assert main(["estimate", "memory", *words]) == 2
    text = capsys.readouterr().err
    for word in ("--batch", "--precision", "--xla", "--time-limit", "missing.py, which is not there"):
        assert word in text
    assert not looked


def test_a_saved_model_does_not_say_how_it_is_trained(looked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pathlib.Path("model.keras").write_text("", encoding="utf-8")
    assert main(["estimate", "memory", "model.keras"]) == 2
    assert "does not say which optimiser" in capsys.readouterr().err
    assert main(["estimate", "tensor-cores", "--input-shape", "8,8,3", "model.keras"]) == 0
    assert looked[0]["input_shape"] == (8, 8, 3)


def test_a_share_that_is_too_small_is_an_exit_code(looked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "tensor-cores", "--at-least", "50", "train.py"]) == 1
    text = capsys.readouterr().out
    assert "9 to 16 units" in text
    assert main(["estimate", "tensor-cores", "--input-shape", "8,x", "train.py"]) == 2


def test_a_refined_figure_is_shown_with_the_device_that_it_is_for() -> None:
    refined = {"total_bytes": 3 * GIB, "device": "CPU:0", "seconds": 4.0}
    content = estimate_memory.summary(found(refined=refined), "on", None, None)
    assert content["refined"]["peak_bytes"] == 3 * GIB
    console = Console(file=io.StringIO(), width=100)
    print_memory(content, 3, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "3,072 MiB, compiled for CPU:0; a GPU's program is another one" in " ".join(text.split())


def test_a_script_that_fails_or_takes_too_long_is_said(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("", encoding="utf-8")
    with pytest.raises(script_estimate.EstimateError, match=r"still at work after 0\.01 s"):
        script_estimate.look({"script": str(script)}, 0.01)


def test_a_machine_without_tensorflow_is_said(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit(3)", encoding="utf-8")
    with pytest.raises(script_estimate.EstimateError, match="no TensorFlow in"):
        script_estimate.look({"script": str(script), "directory": str(tmp_path)}, 60.0)
