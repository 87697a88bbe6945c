"""Overrides and arguments: what wins, where it came from, what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pure.config_case import only, problems, write
from tfvolta.config import load_config
from tfvolta.config.distribution import Strategy
from tfvolta.config.provenance import origin_of
from tfvolta.config.schema import Xla

pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_precedence_is_recorded() -> None:
    write("xla: {jit: clustering}\n", "base.yaml")
    name = write("extends: base.yaml\n\nxla:\n  jit: model\n")
    config = load_config(name, ["xla.jit=auto", "xla.jit=off", "run.seed=3"], xla={"jit": "model"}, run={"seed": 4})
    origin = config.provenance["xla.jit"]
    assert config.get("xla.jit") == "model"
    assert origin.kind == "argument"
    assert [loser.kind for loser in origin.overridden] == ["override", "override", "file", "file"]
    assert str(origin) == (
        "argument xla, over override 2 (xla.jit=off), override 1 (xla.jit=auto), a.yaml:4, base.yaml:1"
    )
    assert str(config.provenance["run.seed"]) == "argument run, over override 3 (run.seed=3)"
    assert config.run.seed == 4


def test_every_given_leaf_has_an_origin_and_nothing_else() -> None:
    config = load_config(
        write("mixed_precision:\n  loss_scale:\n    initial: 8\nxla: {}\n"), ["devices.visible=[0, 1]"]
    )
    assert {key: origin.text for key, origin in config.provenance.items()} == {
        "mixed_precision.loss_scale.initial": "a.yaml:3",
        "xla": "a.yaml:4",
        "devices.visible": "override 1 (devices.visible=[0, 1])",
    }
    assert origin_of(config, "mixed_precision.policy").kind == "default"
    assert origin_of(config, "run").kind == "default"
    with pytest.raises(AttributeError):
        origin_of(config, "mixed_precision.polciy")


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("devices.visible=[0, 1]", "devices.visible", [0, 1]),
        ("devices.visible=[]", "devices.visible", []),
        ("devices.visible=null", "devices.visible", None),
        ("xla.jit=off", "xla.jit", "off"),
        ("xla.jit = off ", "xla.jit", "off"),
        ("xla.flags=[--a=b=c]", "xla.flags", ["--a=b=c"]),
        ("nccl.socket_interface==eth0", "nccl.socket_interface", "=eth0"),
        ("nccl.socket_interface=^docker,lo", "nccl.socket_interface", "^docker,lo"),
        ("devices.memory_limit_mb=0x400", "devices.memory_limit_mb", 1024),
        ("mixed_precision.loss_scale.fixed=1e3", "mixed_precision.loss_scale.fixed", 1000.0),
        ("mixed_precision.loss_scale={initial: 2, growth_steps: 3}", "mixed_precision.loss_scale.growth_steps", 3),
        ('run.directory="a b"', "run.directory", "a b"),
        ("run.directory='123'", "run.directory", "123"),
    ],
)
def test_override_values_are_yaml(override: str, key: str, value: object) -> None:
    config = load_config(write(""), [override])
    assert config.get(key) == value
    assert type(config.get(key)) is type(value)


def test_null_removes_a_section_and_says_so() -> None:
    config = load_config(write("xla: {jit: off}\nrun: {strict: false}\n"), ["xla=null", "run=null"])
    assert config.xla is None and config.run.strict is True
    assert str(origin_of(config, "xla.jit")) == "override 1 (xla=null), over a.yaml:1"
    again = load_config("a.yaml", ["xla=null", "xla.flags=[--a]"])
    assert again.get("xla.jit") is None and again.get("xla.flags") == ["--a"]
    assert load_config("a.yaml", xla=None).xla is None


@pytest.mark.parametrize(
    ("override", "fix"),
    [
        ("xla.jiit=auto", "did you mean xla.jit? Write: xla.jit=auto"),
        ("xla.jit", "xla.jit=VALUE"),
        ("xla.jit: auto", "xla.jit=auto"),
        ("xla.jit auto", "xla.jit=auto"),
        ("=auto", "xla.jit=off"),
        ("xla..jit=auto", "xla.jit=off"),
        ("", "xla.jit=off"),
        ("xla.jit=", "xla.jit=null"),
        ("xla.jit=on", "xla.jit=auto"),
        ("devices.memory_limit_mb=12GB", "devices.memory_limit_mb=12288"),
        ("xla.flags.0=--a", "xla.flags=["),
        ("extends=b.yaml", "at the top of the config file"),
        ("xla.jit=[off", "close the list"),
        ("xla={jit: off, jit: auto}", "delete one"),
        ("strategy=mirrored", "strategy={kind: mirrored}"),
    ],
)
def test_problem_with_an_override_names_it(override: str, fix: str) -> None:
    problem = only(write(""), ["run.seed=1", override])
    assert problem.where == f"override 2: {override!r}"
    assert fix in problem.fix
    assert problem.expected and problem.received


def test_overrides_have_to_be_a_list_of_strings() -> None:
    assert only(write(""), "xla.jit=off").fix == 'overrides=["xla.jit=off"]'
    assert only("a.yaml", [("xla.jit", "off")]).where.startswith("override 1")


def test_arguments_take_instances_and_python_values() -> None:
    name = write("xla: {jit: off, flags: [--a]}\n")
    config = load_config(name, xla=Xla(jit="model"), devices={"visible": (0, 1)}, run={"directory": Path("out")})
    assert config.get("xla.jit") == "model"
    assert config.get("xla.flags") == ["--a"], "an instance gives only what was given to it"
    assert config.get("devices.visible") == [0, 1]
    assert config.run.directory == "out"


def test_problems_with_arguments() -> None:
    circle: dict[str, object] = {}
    circle["loss_scale"] = circle
    found = problems(
        stratgy={"kind": "mirrored"},
        xla=Strategy(kind="mirrored"),
        fit=3,
        nccl={"debug": object(), "protocol": 10**5000},
        devices={"visible": {0, 1}},
        mixed_precision=circle,
    )
    fixes = "\n".join(problem.fix for problem in found)
    assert "strategy={'kind': 'mirrored'}" in fixes
    assert "xla=Xla(...)" in fixes
    assert "fit={'steps_per_execution': 3}" in fixes
    assert all(problem.where.startswith("argument") and problem.fix for problem in found)


def test_all_places_report_at_once() -> None:
    write("xla: {jit: of}\n", "base.yaml")
    found = problems(write("extends: base.yaml\nfit: {steps: 1}\n"), ["run.sed=1"], nccl={"debug": "info"})
    assert [problem.where for problem in found] == [
        "base.yaml:1: xla.jit",
        "a.yaml:2: fit.steps",
        "override 1: 'run.sed=1'",
        "argument: nccl.debug",
    ]


def test_a_fault_under_another_value_is_still_told() -> None:
    assert only(write("xla: true\n"), ["xla.jit=off"]).where == "a.yaml:1: xla"
