"""The command line of a bench: what cannot be measured is refused before a process is started, with the fix."""

from __future__ import annotations

import json
import pathlib
from typing import Any, ClassVar

import pytest

from tests.pure.bench_results import entry, lap
from tfvolta.bench.bench import Bench, Plan
from tfvolta.bench.comparison import compare
from tfvolta.bench.contender import Contender, Course, command, parse, problems
from tfvolta.bench.entrant import explained
from tfvolta.bench.judged import Gate
from tfvolta.bench.measured import Ending
from tfvolta.bench.printing import print_result
from tfvolta.bench.result import BenchResult
from tfvolta.bench.stages import Stage, Way, gate, refused, stages
from tfvolta.bench.workloads.registry import WORKLOADS
from tfvolta.cli.main import main
from tfvolta.errors import ConfigError, EvidenceError
from tfvolta.facts.record import load

MLP = WORKLOADS["mlp"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["resnet5"], "did you mean: tfvolta bench resnet50"),
        (["bert-huge"], "did you mean: tfvolta bench bert_large"),
        ([], "a model"),
        (["mlp", "--batch", "0"], "--batch"),
        (["mlp", "--batch", "many"], "many"),
        (["mlp", "--rounds", "0", "--limit", "-1"], "--limit"),
        (["mlp", "--image-size", "32"], "--image-size"),
        (["resnet50", "--layers", "3"], "--layers"),
        (["mlp", "--data", "no.npz"], "no.npz"),
        (["mlp", "--data", "no"], "FILE.npz or module:function"),
        (["mlp", "--seeds", "a"], "--seeds"),
        (["mlp", "--scaling", "wek"], "did you mean weak"),
        (["mlp", "--config", "no.yaml"], "no.yaml"),
        (["mlp", "--set", "xla.jit=nonsense"], "xla.jit"),
        (["mlp", "--against", "xla.jit=nonsense"], "xla.jit"),
        (["mlp", "--against", "xla.jt=off"], "xla.jit"),
        (["mlp", "--against", "a.yaml b.yaml"], "give --against for each"),
        (["mlp", "--against", "workers=none"], "whole number"),
        (["mlp", "--against", "stack=keras2"], "python=.venv/keras2/bin/python"),
        (["mlp", "--against", "python=nowhere"], "can be run"),
        (["mlp", "--against", "none 'unfinished"], "No closing quotation"),
        (["mlp", "--against", "none", "--against", "none"], "a name of its own"),
        (["mlp", "--workers", "2"], "strategy.kind=multi_worker_mirrored"),
        (["mlp", "--set", "strategy.kind=multi_worker_mirrored"], "workers=2"),
        (["mlp", "--stages", "--against", "none", "--against", "xla.jit=off"], "one tuned config"),
        (["mlp", "--set", "strategy.kind=mirrored", "--set", "strategy.devices=[GPU:7]"], "GPU:7"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    words: list[str], said: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *words]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*/*"))


def test_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list"]) == 0
    assert set(WORKLOADS) == {line.split()[0] for line in capsys.readouterr().out.splitlines()}


def test_words_make_a_contender() -> None:
    reference = Contender("base", "base.yaml", ("run.seed=1",))
    found = parse("xla.jit=off name=plain batch=64 stack=tf_keras", reference)
    assert found == Contender("plain", "base.yaml", ("run.seed=1", "xla.jit=off"), "tf_keras", 1, 64)
    other = parse("other.yaml mixed_precision=null", reference)
    assert other == Contender("other.yaml mixed_precision=null", "other.yaml", ("mixed_precision=null",))
    assert parse(other.words, reference) == other


def test_overrides_of_the_untouched_script_are_those_of_the_default() -> None:
    assert parse("xla.jit=off", Contender("none", "none")).config is None


def course(**changes: Any) -> Course:
    return Course("mlp", MLP.tiny, 5, 2, 7, **changes)


def test_commands_are_those_that_a_person_would_type(tmp_path: pathlib.Path) -> None:
    plain = command(Contender("none", "none"), course(), 3, tmp_path)
    assert plain[1].endswith("train.py") and plain[2] == "mlp" and plain[plain.index("--seed") + 1] == "3"
    assert json.loads(plain[plain.index("--sizes") + 1]) == MLP.tiny.to_json()
    one = command(Contender("a", None, ("xla.jit=off",), batch=64), course(), 0, tmp_path)
    assert (
        one[1:4] == ["-m", "tfvolta", "run"] and "xla.jit=off" in one and '"batch": 64' in one[one.index("--sizes") + 1]
    )
    several = Contender("b", None, ("strategy.kind=horovod",), workers=2)
    both = command(several, course(), 0, tmp_path)
    assert both[1:6] == ["-m", "tfvolta", "launch", "--workers", "2"] and both[both.index("--ranks") + 1] == "2"
    assert "watchdog.stall_seconds=3600" in both
    divided = Contender("c", None, ("strategy.kind=horovod", "data.sharding=data"), workers=2)
    assert "--ranks" not in command(divided, course(), 0, tmp_path)


def test_contenders_take_the_memory_of_a_gpu_as_they_need_it() -> None:
    grown = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    assert Contender("a", "none").environment == grown
    assert Contender("a", None, ("devices=null",), stack="tf_keras").environment == {
        "TF_USE_LEGACY_KERAS": "1",
        **grown,
    }
    # Where the config says how, it is left to say so.
    assert Contender("a", None, ("devices.memory_growth=false",)).environment == {}


def test_names_must_differ() -> None:
    assert "twice" in problems([Contender("a", "none"), Contender("a", "none")], {})[0].received


@pytest.mark.parametrize(
    ("code", "text", "ending", "said"),
    [
        (
            2,
            "warning\ntfvolta: This config cannot be applied.\nxla.jit\n  expected: off\n",
            Ending.REFUSED,
            "expected: off",
        ),
        (1, "Traceback\nValueError: no such column\n", Ending.CRASH, "exit code 1: ValueError: no such column"),
        (-11, "", Ending.CRASH, "signal 11"),
        (-9, "", Ending.OUT_OF_MEMORY, "SIGKILL"),
        (1, "RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[8]\n", Ending.OUT_OF_MEMORY, "OOM"),
    ],
)
def test_a_process_that_ends_early_is_explained(code: int, text: str, ending: Ending, said: str) -> None:
    found, reason = explained(code, text)
    assert found is ending and said in reason


def way(**changes: Any) -> Way:
    return Way(Contender("none", "none"), Contender("tuned", None, ("run.strict=false",)), 32, **changes)


def test_stages_grow_from_one_device_to_several_nodes() -> None:
    one, node, nodes = stages(way(workers=4), load("dgx1"))
    assert [stage.devices for stage in (one, node, nodes)] == [1, 8, 4]
    for stage, batch in zip((one, node, nodes), (32, 256, 128)):
        assert stage.contender is not None and stage.contender.batch == batch
        loaded = stage.contender.load()
        assert loaded.get("strategy.kind") in (None, "mirrored", "multi_worker_mirrored")
    strong = stages(way(workers=4, weak=False), load("dgx1"))
    assert {stage.contender.batch for stage in strong if stage.contender is not None} == {32}


def test_a_stage_that_the_machine_has_not_is_named() -> None:
    machine = load("dgx1").model_copy(update={"gpus": ()})
    one, node, nodes = stages(way(), machine)
    assert one.contender is not None and node.contender is None and nodes.contender is None
    assert "--logical-devices 2" in node.reason and "--workers" in nodes.reason
    logical = stages(way(logical_devices=2), machine)[1]
    assert logical.contender is not None and logical.contender.load().get("strategy.logical_cpus") == 2


def result(**changes: Any) -> BenchResult:
    losses = (1.0, 1.1, 0.95)
    base = entry("base", *(lap([1.0] * 7, loss, seed) for seed, loss in enumerate(losses)))
    new = entry("new", *(lap([0.6] * 7, loss, seed) for seed, loss in enumerate(losses)))
    fields = {
        "created": "2026-12-01T00:00:00Z",
        "command": ("tfvolta", "bench", "mlp"),
        "model": "mlp",
        "description": "dense layers",
        "sizes": MLP.tiny.to_json(),
        "steps": 10,
        "warmup_epochs": 1,
        "rounds": 7,
        "seeds": (0, 1, 2),
        "method": ("medians",),
        "entries": (base, new),
        "comparisons": (compare(new, base),),
    }
    return BenchResult(**{**fields, **changes})


def test_a_gate_passes_a_win_and_tells_its_efficiency() -> None:
    (won,) = result().comparisons
    one, two = Stage("one device", Contender("a")), Stage("one node", Contender("b"), 2)
    passed = gate(two, one, won)
    assert passed.passes and passed.efficiency == pytest.approx(1 / 0.6 / 2) and not refused([passed])
    failed = gate(two, one, None, "b: crash")
    assert failed.passes is False and refused([passed, failed])
    assert not refused([Gate(stage="one node", reason="NOT_APPLICABLE")])


def test_a_result_is_read_as_it_was_written(tmp_path: pathlib.Path) -> None:
    written = result()
    written.write(tmp_path)
    assert BenchResult.read(tmp_path) == written
    (tmp_path / "bench.json").write_text("{}")
    with pytest.raises(EvidenceError, match="bench"):
        BenchResult.read(tmp_path)


def test_a_result_is_printed_with_its_method_and_its_doubts(capsys: pytest.CaptureFixture[str]) -> None:
    (won,) = result().comparisons
    gates = (gate(Stage("one device", Contender("new")), Stage("baseline", Contender("base")), won),)
    print_result(result(gates=gates))
    text = " ".join(capsys.readouterr().out.split())
    for words in ("533.3", "WIN. faster: 1.667 times", "PASSES", "medians", "in the band", "no GPU"):
        assert words in text, words


class Quiet(Bench):
    """Measures nothing: gives what it is told to."""

    seconds: ClassVar[dict[str, float]] = {}
    measured: ClassVar[list[tuple[str, ...]]] = []

    def _measure(self, contenders: Any, stage: str) -> Any:
        losses = (1.0, 1.1, 0.95)
        Quiet.measured = [*Quiet.measured, tuple(contender.name for contender in contenders)]
        found = []
        for contender in contenders:
            laps = [lap([self.seconds[contender.name]] * 7, loss, seed) for seed, loss in enumerate(losses)]
            found.append(entry(contender.name, *laps, batch=contender.batch))
        self._entries += found
        return found


def climbed(folder: pathlib.Path, side_by_side: bool) -> tuple[Quiet, BenchResult]:
    """Stages of which the second is far too slow."""
    plan = Plan(MLP, course(), (0, 1, 2), folder, ("tfvolta", "bench"), load("dgx1"))
    bench, Quiet.measured = Quiet(plan, lambda text: None), []
    Quiet.seconds = {"baseline": 1.0, "one device": 0.5, "one node": 9.0, "several nodes": 0.9}
    return bench, bench.climb(way(workers=4), side_by_side)


def test_the_way_ends_at_the_first_refusal(tmp_path: pathlib.Path) -> None:
    bench, found = climbed(tmp_path, side_by_side=False)
    assert [(each.stage, each.passes) for each in found.gates] == [("one device", True), ("one node", False)]
    assert bench.measured == [("baseline", "one device"), ("one device", "one node")]


def test_side_by_side_all_stages_are_judged_against_the_last_that_passed(tmp_path: pathlib.Path) -> None:
    bench, found = climbed(tmp_path, side_by_side=True)
    assert bench.measured == [("baseline", "one device", "one node", "several nodes")]
    assert [each.passes for each in found.gates] == [True, False, True]
    assert [each.reference for each in found.gates] == ["baseline", "one device", "one device"]
    assert found.gates[2].efficiency == pytest.approx(4 * 0.5 / 0.9 / 4)


def test_a_contender_without_words_is_refused() -> None:
    with pytest.raises(ConfigError):
        parse("workers=0", Contender("a"))
