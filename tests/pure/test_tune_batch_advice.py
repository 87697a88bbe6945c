"""What belongs to a batch size, and the config that is written, by hand-worked numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tfvolta.cli.main import main
from tfvolta.config import load_config
from tfvolta.errors import ConfigError
from tfvolta.tune.batch_advice import advise, holding
from tfvolta.tune.batch_result import BatchResult, agree, config_text
from tfvolta.tune.trial import Trained


@pytest.mark.parametrize(
    "optimizer, rate",
    [("SGD", 0.8), ("Adam", 0.2), ("AdamW", 0.2), ("RMSprop", 0.2)],
)
def test_the_learning_rate_grows_with_the_batch(optimizer: str, rate: float) -> None:
    advice = advise(256, Trained(batch=64, optimizer=optimizer, learning_rate=0.2 if optimizer == "SGD" else 0.1))
    assert advice.learning_rate == pytest.approx(rate) and advice.warmup_epochs == 5.0


def test_a_smaller_batch_needs_no_warm_up() -> None:
    advice = advise(16, Trained(batch=64, optimizer="SGD", learning_rate=0.4))
    assert advice.learning_rate == pytest.approx(0.1) and advice.warmup_epochs == 0.0


def test_accumulation_that_holds_the_rows_of_an_update_changes_no_rate() -> None:
    advice = advise(16, Trained(batch=64, optimizer="SGD", learning_rate=0.4), reduce_every=4)
    assert advice.learning_rate is None and "nothing changes" in advice.reasons[0]


def test_a_schedule_is_left_to_the_script() -> None:
    advice = advise(128, Trained(batch=32, optimizer="Adam", has_schedule=True))
    assert advice.learning_rate is None and "by 2" in advice.reasons[0]


def test_an_optimizer_without_a_rule_is_said() -> None:
    assert "no rule" in advise(128, Trained(batch=32, optimizer="Mine", learning_rate=1.0)).reasons[0]


@pytest.mark.parametrize(
    "largest, whole, pair",
    [(100, 256, (64, 4)), (256, 256, (256, 1)), (7, 21, (7, 3)), (48, 96, (48, 2)), (40, 97, None), (5, 1, (1, 1))],
)
def test_batches_that_make_one_update(largest: int, whole: int, pair: object) -> None:
    assert holding(largest, whole, 8) == pair


def test_workers_agree_on_the_smallest() -> None:
    contents = [
        {"largest": 128, "rates": {"64": 100.0, "128": 150.0}},
        {"largest": 96, "rates": {"64": 90.0, "96": 80.0}},
    ]
    result = agree(contents)
    assert (result.largest, result.fastest, dict(result.rates)) == (96, 64, {64: 90.0})
    assert "worker 1" in result.limit


@pytest.mark.parametrize("contents", [[], [{"largest": None, "rates": {}}], [{"a": 1}], [[]]])
def test_results_that_cannot_agree(contents: list[object]) -> None:
    with pytest.raises(ConfigError):
        agree(contents)  # type: ignore[arg-type]


def test_the_config_that_is_written_loads(tmp_path: Path) -> None:
    advice = advise(128, Trained(batch=32, optimizer="SGD", learning_rate=0.1), 2)
    path = tmp_path / "batch.yaml"
    path.write_text(config_text(advice, None, "largest 128,\nfastest 128"))
    config = load_config(str(path))
    assert config.get("fit.batch_size") == 128 and config.get("communication.reduce_every") == 2
    assert config.get("learning_rate.target") == pytest.approx(0.8)
    assert config.get("xla.jit") == "auto"  # of the config that it extends


def test_wrong_arguments_are_all_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch-size", "--start", "no", "--steps", "0", "--choose", "biggest"]) == 2
    text = capsys.readouterr().err
    for part in ("--start", "--steps", "--choose", "script"):
        assert part in text


def test_several_processes_are_sent_to_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    assert main(["batch-size", "--set", "strategy.kind=horovod", str(script)]) == 2
    assert "--agree" in capsys.readouterr().err


def test_agreement_from_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for number, largest in enumerate((64, 32)):
        path = tmp_path / f"worker-{number}.json"
        path.write_text(json.dumps(BatchResult(largest, 32, {32: 5.0}, "").to_json()))
        paths.append(str(path))
    assert main(["batch-size", "--json", "--agree", *paths]) == 0
    assert json.loads(capsys.readouterr().out)["largest"] == 32


@pytest.mark.parametrize(
    ("epochs", "warmup", "word"), [(90, 5.0, "5 epochs"), (2, 0.5, "script's 2"), (20, 5.0, "5 epochs")]
)
def test_the_warm_up_leaves_most_of_the_training(epochs: int, warmup: float, word: str) -> None:
    advice = advise(512, Trained(32, "SGD", 0.1, epochs=epochs))
    assert advice.warmup_epochs == warmup and word in advice.reasons[-1]
