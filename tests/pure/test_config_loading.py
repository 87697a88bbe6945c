"""Loading: files, extends, paths, speed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pure.config_case import ROOT, only, problems, write
from tfvolta.config import Config, load_config
from tfvolta.config.distribution import Strategy
from tfvolta.config.provenance import origin_of

pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_default_needs_no_file() -> None:
    config = load_config()
    assert config.get("mixed_precision.policy") == "mixed_float16"
    assert config.get("xla.jit") == "auto"
    assert config.strategy is None
    assert config == load_config("tfvolta:default") == load_config(ROOT / "configs" / "default.yaml")


def test_sections_alone_start_from_nothing() -> None:
    config = load_config(strategy={"kind": "mirrored"})
    assert config.strategy == Strategy(kind="mirrored")
    assert config.xla is None and config.devices is None


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "null\n", "{}\n", "\ufeff", "extends: []\n"])
def test_empty_file_says_nothing(text: str) -> None:
    config = load_config(write(text))
    assert config == Config()
    assert config.provenance == {}


def test_empty_section_is_absent() -> None:
    config = load_config(write("xla:\n  # jit: auto\nrun:\nmixed_precision: {loss_scale: }\n"))
    assert config.xla is None
    assert config.run.strict is True
    assert config.mixed_precision is not None and config.mixed_precision.loss_scale.initial == 32768


def test_extends_merges_mappings_and_replaces_lists() -> None:
    write("xla: {jit: auto, flags: [--a=1, --b=2]}\ndevices: {memory_growth: true}\n", "base.yaml")
    config = load_config(write("extends: base.yaml\nxla:\n  flags: [--c=3]\n"))
    assert config.get("xla.jit") == "auto"
    assert config.get("xla.flags") == ["--c=3"]
    assert config.get("devices.memory_growth") is True


def test_extends_is_relative_to_the_file_that_says_it() -> None:
    write("fit: {steps_per_execution: 3}\n", "lib/common/base.yaml")
    write("extends: common/base.yaml\n", "lib/gpu.yaml")
    config = load_config(write("extends: lib/gpu.yaml\n"))
    assert config.get("fit.steps_per_execution") == 3
    assert str(origin_of(config, "fit.steps_per_execution")) == "lib/common/base.yaml:1"


def test_later_of_several_bases_wins_and_a_diamond_is_fine() -> None:
    write("run: {seed: 1}\nxla: {jit: auto}\n", "base.yaml")
    write("extends: base.yaml\nxla: {jit: model}\n", "one.yaml")
    write("extends: base.yaml\nxla: {jit: off}\n", "two.yaml")
    config = load_config(write("extends:\n  - one.yaml\n  - two.yaml\n"))
    assert config.get("xla.jit") == "off"
    assert config.get("run.seed") == 1


def test_extends_takes_a_template_of_the_package() -> None:
    config = load_config(write("extends: tfvolta:default\nxla: {jit: off}\n"))
    assert str(origin_of(config, "xla.jit")).startswith("a.yaml:2, over tfvolta:default:")
    assert str(origin_of(config, "mixed_precision.policy")).startswith("tfvolta:default:")


def test_paths_know_home_and_variables(tmp_path: Path) -> None:
    write("run: {seed: 5}\n", "site/base.yaml")
    environ = {"SITE": str(tmp_path / "site"), "HOME": str(tmp_path)}
    assert load_config(write("extends: ${SITE}/base.yaml\n"), environ=environ).run.seed == 5
    assert load_config("~/site/base.yaml", environ=environ).run.seed == 5
    problem = only("a.yaml", environ={})
    assert problem.where == "a.yaml:1: extends"
    assert "SITE" in problem.why and "export SITE=" in problem.fix


def test_extends_in_a_circle_is_told_with_the_whole_way() -> None:
    write("extends: c.yaml\n", "b.yaml")
    write("extends: ./a.yaml\n", "c.yaml")
    problem = only(write("extends: b.yaml\n"))
    assert problem.where == "c.yaml:1: extends"
    assert problem.received == "a.yaml -> b.yaml -> c.yaml -> a.yaml"


def test_too_many_files_end_soon() -> None:
    for index in range(30):
        write(f"extends: [f{index + 1}.yaml, f{index + 1}.yaml]\n", f"f{index}.yaml")
    write("", "f30.yaml")
    started = time.perf_counter()
    assert any("at most" in problem.expected for problem in problems("f0.yaml"))
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize("value", ["3", "[1]", "{a: b}", "true", '""', "[a.yaml, [b]]"])
def test_extends_of_a_wrong_type(value: str) -> None:
    found = problems(write(f"# first\nextends: {value}\n", "top.yaml"))
    assert found[-1].where == "top.yaml:2: extends"
    assert all(problem.fix for problem in found)


def test_missing_files_have_a_did_you_mean() -> None:
    write("", "lib/v100.yaml")
    problem = only("lib/v10.yaml")
    assert "did you mean lib/v100.yaml?" in problem.fix and problem.received == "lib/v10.yaml"
    problem = only(write("\nextends: v10.yml\n", "lib/a.yaml"))
    assert problem.where == "lib/a.yaml:2: extends"
    assert "did you mean v100.yaml?" in problem.fix
    assert "did you mean tfvolta:default?" in only("tfvolta:defualt").fix
    assert "tfvolta:default" in only("default").fix
    assert "tfvolta:default" in only("tfvolta:../../secret").fix


@pytest.mark.parametrize("path", [3, 3.5, b"a.yaml", "", ["a.yaml"], "a\0b", "x" * 5000, ".", "a.yaml/b", "/dev/zero"])
def test_paths_that_are_no_config_files(path: object) -> None:
    write("xla: {jit: off}\n")
    problem = only(path)
    assert problem.expected and problem.received and problem.fix


def test_folder_names_its_files() -> None:
    write("", "configs/a.yaml")
    assert "a.yaml" in only("configs").fix


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"run:\n  directory: l\xe4ufe\n")
    problem = only("latin.yaml")
    assert problem.where == "latin.yaml:2" and "0xe4" in problem.received and "iconv" in problem.fix


def test_values_that_do_not_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    from pydantic import model_validator

    from tfvolta.config import loading

    class Joint(Config):
        @model_validator(mode="after")
        def no_seed(self) -> Joint:
            if self.run.seed == 7:
                raise ValueError("a seed of 7 brings luck")
            return self

    monkeypatch.setattr(loading, "Config", Joint)
    problem = only(write("run: {seed: 7}\n"))
    assert problem.why == "a seed of 7 brings luck" and "a.yaml:1" in problem.received


def test_get() -> None:
    config = load_config(xla={"jit": "off"})
    assert config.get("xla.jit") == "off"
    assert config.get("cudnn.autotune") is None
    assert config.get("run.strict") is True
    for key in ("xla.jiit", "cudnn.autotun", "provenance", "get", "xla.model_dump", ""):
        with pytest.raises(AttributeError):
            config.get(key)


def test_default_loads_fast() -> None:
    load_config()
    started = time.perf_counter()
    for _ in range(5):
        load_config()
    assert (time.perf_counter() - started) / 5 < 0.15


def test_importing_the_package_is_lazy() -> None:
    code = "import sys, tfvolta, tfvolta.config; sys.exit(any(m in sys.modules for m in ('pydantic', 'ruamel.yaml')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_file_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated, because root may read everything."""

    def refuse(*arguments: object, **keywords: object) -> None:
        raise PermissionError(13, "Permission denied")

    write("run: {}\n")
    monkeypatch.setattr("builtins.open", refuse)
    problem = only("a.yaml")
    assert "permissions" in problem.why and problem.fix == "chmod u+r a.yaml"
