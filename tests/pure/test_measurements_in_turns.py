"""The measurements in turns: who takes part, with which command, and how the cost of monitors is reckoned."""

from __future__ import annotations

import ast
import importlib.util
import pathlib
import sys
from types import ModuleType
from typing import Any

import pytest

from benchmarks.peers import workloads
from benchmarks.turns import Result
from benchmarks.turns_options import Options
from tfvolta.config import load_config

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = ROOT / "benchmarks" / "peers"


def module(folder: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"measure_{folder}", ROOT / "benchmarks" / folder / "measure.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def test_the_scripts_side_knows_nothing_of_tfvolta() -> None:
    names = (
        "peers/keras_script.py",
        "peers/keras_models.py",
        "peers/workloads.py",
        "peers/initial_values.py",
        "epoch_clock.py",
        "baton.py",
    )
    texts = {name: (ROOT / "benchmarks" / name).read_text(encoding="utf-8").lower() for name in names}
    assert [name for name, text in texts.items() if "tfvolta" in text] == []
    for path in PEERS.glob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"), str(path))


def test_contenders_of_a_model_differ_in_what_is_compared_alone(tmp_path: pathlib.Path) -> None:
    peers = module("peers")
    arguments = peers.parser().parse_args(["--tiny", "--torch-python", "py", "--set", "run.seed=1"])
    found = {each.name: each for each in peers.contenders(arguments, tmp_path)}
    assert {each.group for each in found.values()} == set(workloads.MODELS)
    assert sorted(name for name, each in found.items() if each.reference) == sorted(
        f"{model}/torch" for model in workloads.MODELS
    )
    plain, legacy = found["bert_large/keras3"], found["bert_large/tf_keras"]
    assert "TF_USE_LEGACY_KERAS" not in plain.environ and legacy.environ["TF_USE_LEGACY_KERAS"] == "1"
    same = [part.replace("tf_keras", "keras3") for part in legacy.command]
    assert same == plain.command and plain.command[-2:] == ["bert_large", "--tiny"]
    assert plain.command[1:4] == ["-m", "tfvolta", "run"] and "run.seed=1" in plain.command
    assert found["lstm/torch"].command == ["py", str(PEERS / "torch_script.py"), "lstm", "--tiny"]
    arguments = peers.parser().parse_args(["--only", r"lstm/keras3\+untuned"])
    (alone,) = peers.contenders(arguments, tmp_path)
    assert "tfvolta" not in alone.command


def test_every_override_is_one_that_the_config_takes() -> None:
    peers, monitors = module("peers"), module("monitors")
    for name, side in peers.SIDES.items():
        config = load_config(str(PEERS / "config.yaml"), overrides=list(side.get("set", ())))
        flags = peers.XLA_FLAGS.get(name.partition("+")[2], "")
        assert config.get("xla.flags") == [*filter(None, flags.split(","))] or not flags, name
    for settings in monitors.variants(100).values():
        load_config("tfvolta:default", overrides=list(settings))
    off = load_config("tfvolta:default", overrides=list(monitors.OFF)).monitor
    assert not any(value for value in off.model_dump().values() if isinstance(value, bool))


def test_costs_are_reckoned_over_windows_that_hold_one_watched_step(tmp_path: pathlib.Path) -> None:
    monitors = module("monitors")
    result = Result()
    for number in range(6):
        watched = 0.1 if number % 2 else 0.0
        for name, seconds in (("off", 10.0), ("gradients", 10.0 + watched)):
            row = {"round": number, "contender": f"xla/{name}", "seconds": seconds if number else 99.0}
            result.rows.append(row)
    result.rows.append({"round": 6, "contender": "xla/off", "seconds": 10.0})  # cut short here
    arguments = monitors.parser().parse_args([])
    chosen = [each for each in monitors.contenders(arguments, tmp_path) if each.group == "xla"]
    (cost,) = monitors.costs(chosen, result, Options(discard=1), 2)
    assert (cost["cost_percent"], cost["windows"]) == ("xla/gradients", 2)
    assert cost["estimate"] == cost["low"] == cost["high"] == pytest.approx(0.5)


def test_steps_must_divide_the_interval_of_the_gradient_monitor(capsys: Any) -> None:
    assert module("monitors").main(["--steps", "30"]) == 2
    assert "multiple of --steps" in capsys.readouterr().out
