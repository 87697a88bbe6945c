"""The templates, and a config written back as YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pure.config_case import ROOT, TEMPLATES, write
from tfvolta.config import Config, dump_config, load_config
from tfvolta.config.dumping import config_to_dict
from tfvolta.config.schema import Xla

pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_templates_load_and_name_their_schema(path: Path) -> None:
    config = load_config(path)
    assert config.run.strict
    first = path.read_text(encoding="utf-8").splitlines()[0]
    reference = first.partition("$schema=")[2]
    assert (path.parent / reference).resolve() == ROOT / "docs" / "config.schema.json"
    assert not (config.get("communication.num_packs") is not None and config.get("xla.jit") != "off")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_every_setting_of_a_template_is_explained(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith(" ")]
    settings = [line for line in lines if not line.strip().startswith("#")]
    assert all("#" in line for line in settings if not line.strip().startswith("devices:"))


def test_templates_of_volta_ask_for_nothing_that_volta_lacks() -> None:
    for name in ("v100_16gb", "v100_32gb", "dgx1", "dgx2"):
        config = load_config(ROOT / "configs" / f"{name}.yaml")
        assert config.get("math.tf32") is None
        assert config.get("mixed_precision.policy") == "mixed_float16"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_dump_round_trips(path: Path) -> None:
    config = load_config(path, ["run.directory='on: # \"x\" \\\\ \u00e4'", "nccl.socket_interface=^lo", "xla=null"])
    text = dump_config(config)
    again = load_config(write(text))
    assert again == config
    assert config_to_dict(again) == config_to_dict(config)
    assert "# override 2 (nccl.socket_interface=^lo)" in text


def test_dump_of_odd_values_round_trips() -> None:
    odd = [
        "",
        " ",
        "null",
        "true",
        "1",
        "1e3",
        "~",
        "a: b",
        "a #b",
        "- x",
        "\n",
        "\t",
        "\x7f",
        "\u2028",
        "\U0001f600",
        "'",
        '"',
        "\\",
        "--",
    ]
    config = load_config(
        mixed_precision={"float32_layers": odd, "loss_scale": {"initial": 1e-30, "fixed": 1e300}},
        devices={"memory_limit_mb": None, "visible": []},
        xla={},
        fit={"steps_per_execution": 10**30},
    )
    again = load_config(write(dump_config(config)))
    assert config_to_dict(again) == config_to_dict(config)
    assert again.get("mixed_precision.float32_layers") == odd


def test_dump_without_provenance() -> None:
    config = Config(xla=Xla(jit="off"))
    assert dump_config(config) == "xla:\n  jit: off\n"
    assert load_config(write(dump_config(Config()))) == Config()


def test_to_dict_with_and_without_defaults() -> None:
    config = load_config(xla={"jit": "off"})
    assert config_to_dict(config) == {"xla": {"jit": "off"}}
    assert config_to_dict(config, given_only=False)["run"]["directory"] == "runs"
