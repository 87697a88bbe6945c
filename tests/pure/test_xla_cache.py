"""The folder of compiled steps: one for each release, device and set of flags, and the releases that cannot fill it."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest

from tests.pure.recorded_context import H200, V100, RecordedContext, RecordedModel, machine
from tfvolta.config.schema import Config
from tfvolta.conflicts import Request
from tfvolta.contradictions import find_contradictions
from tfvolta.facts.schema import TensorFlowBuild
from tfvolta.knobs.registry import knob
from tfvolta.knobs.xla_cache import cache_folder
from tfvolta.knobs.xla_flags import parse_flags
from tfvolta.outcome import Status

OLD = TensorFlowBuild(version="2.15.1")


def test_another_device_release_or_flag_has_another_folder() -> None:
    facts = [machine(H200), machine(V100), machine(V100, tensorflow=OLD), machine()]
    folders = {cache_folder("kept", each, {}) for each in facts}
    folders.add(cache_folder("kept", facts[0], {"XLA_FLAGS": "--xla_gpu_autotune_level=3"}))
    assert len(folders) == 5
    assert all(os.path.isabs(each) and os.sep + "kept" + os.sep in each for each in folders)
    assert cache_folder("kept", machine(H200), {}) == cache_folder("kept", machine(H200, 8), {})


def test_flags_of_ones_own_stay() -> None:
    facts = machine(H200)
    environ = {"TF_XLA_FLAGS": "--tf_xla_max_cluster_size=9", "XLA_FLAGS": "--xla_gpu_autotune_level=3"}
    context = RecordedContext(Config(), facts, environ)
    knob("xla_cache").apply("kept", context)
    flags = parse_flags(context.environ["TF_XLA_FLAGS"])
    assert flags["tf_xla_max_cluster_size"] == "9"
    assert flags["tf_xla_persistent_cache_directory"] == cache_folder("kept", facts, environ)
    tuned = parse_flags(context.environ["XLA_FLAGS"])
    assert tuned["xla_gpu_per_fusion_autotune_cache_dir"].startswith(flags["tf_xla_persistent_cache_directory"])
    assert knob("xla_cache").verify("kept", context).status is Status.PENDING
    assert knob("xla_cache").undo(context) and context.environ == environ


def test_tensorflow_2_15_keeps_what_is_compiled_for_a_gpu_only() -> None:
    context = RecordedContext(Config(), machine(V100, tensorflow=OLD))
    knob("xla_cache").apply("kept", context)
    assert parse_flags(context.environ["TF_XLA_FLAGS"])["tf_xla_persistent_cache_device_types"] == "XLA_GPU_JIT"
    assert "XLA_FLAGS" not in context.environ
    assert knob("xla_cache").problems("kept", machine(V100, tensorflow=OLD), {}) == []
    (problem,) = knob("xla_cache").problems("kept", machine(tensorflow=OLD), {})
    assert "TargetRegistry::lookupTarget" in problem.why and "remove xla.cache_directory" in problem.fix
    assert knob("xla_cache").problems("kept", machine(), {}) == []


@pytest.mark.parametrize(
    ("files", "compiled", "status", "said"),
    [
        ([], True, Status.NO_EFFECT, "nothing was written"),
        (["xla_compile_cache__1__2__XLA_CPU_JIT.pb"], True, Status.APPLIED, "1 compiled steps were written"),
        (["something else"], False, Status.PENDING, "nothing of the model"),
    ],
)
def test_the_files_are_the_proof(
    tmp_path: pathlib.Path, files: list[str], compiled: bool, status: Status, said: str
) -> None:
    each, context = knob("xla_cache"), RecordedContext(Config(), machine())
    each.apply(str(tmp_path), context)
    folder = pathlib.Path(cache_folder(str(tmp_path), context.facts, context.environ))
    folder.mkdir()
    for name in files:
        (folder / name).touch()
    context.model = RecordedModel()
    context.model.jit = context.model.traced = compiled
    outcome = each.verify(str(tmp_path), context)
    assert outcome.status is status and said in outcome.message
    if status is Status.APPLIED:  # the next run finds them there
        later = RecordedContext(Config(), machine())
        each.apply(str(tmp_path), later)
        later.model = context.model
        assert "it was loaded" in each.verify(str(tmp_path), later).message


def test_a_folder_of_ones_own_is_a_contradiction() -> None:
    config = Config.model_validate({"xla": {"cache_directory": "kept"}})
    environ: dict[str, Any] = {"TF_XLA_FLAGS": "--tf_xla_persistent_cache_directory=/elsewhere"}
    each = knob("xla_cache")
    (found,) = find_contradictions(Request(config, machine(), environ), [(each, "kept")])
    assert found.where == "environment: TF_XLA_FLAGS" and "/elsewhere" in found.received
    other = {"TF_XLA_FLAGS": "--tf_xla_max_cluster_size=9"}
    assert find_contradictions(Request(config, machine(), other), [(each, "kept")]) == []
