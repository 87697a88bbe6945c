"""Ladders: which rungs a config has, who runs when, what counts as a gain, and what is said of it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Optional

import pytest

from tests.pure.evidence_examples import evidence, outcome, step
from tests.pure.machines import machine
from tfvolta.cli.main import main
from tfvolta.config import load_config
from tfvolta.config.schema import Config
from tfvolta.evidence.ladders import ladder_of
from tfvolta.evidence.schema import Evidence
from tfvolta.ladder.gain import FASTER, FEW, OPEN, SLOWER, UNKNOWN, gain
from tfvolta.ladder.ladder import climb
from tfvolta.ladder.process import RungProcess
from tfvolta.ladder.request import RungRequest
from tfvolta.ladder.result import LadderResult
from tfvolta.ladder.rung import EVERYWHERE, GROUPS, NOWHERE, Rung, config_of, rungs_of
from tfvolta.ladder.rung_run import RungRun, Setting
from tfvolta.ladder.table import print_ladder
from tfvolta.plan import make_plan
from tfvolta.report.faults import faults

DEFAULT = load_config("tfvolta:default")


def run(rung: str, repeat: int, rate: Optional[float], **more: Any) -> RungRun:
    figures = {"step_seconds": 64 / rate, "steps": 100} if rate else {}
    return RungRun(rung, repeat, 1.0, **{"examples_per_second": rate, "first_step_seconds": 2.0, **figures, **more})


def runs(rung: str, *rates: float, **more: Any) -> list[RungRun]:
    return [run(rung, number, rate, **more) for number, rate in enumerate(rates, start=1)]


# Rungs


def test_every_section_has_its_place() -> None:
    placed = [name for _, sections in GROUPS for name in sections] + [*EVERYWHERE, *NOWHERE]
    assert sorted(placed) == sorted(Config.model_fields)


def test_the_default_config_climbs_from_nothing_to_everything_on_a_gpu() -> None:
    rungs, skipped = rungs_of(make_plan(DEFAULT, machine("dgx1", stack="keras3"), {}))
    assert [rung.name for rung in rungs] == ["plain", "precision", "kernels", "xla", "memory"] and not skipped
    assert rungs[0].sections == () and rungs[2].added == ("kernels",)
    assert set(rungs[-1].sections) == {"mixed_precision", "kernels", "xla", "devices"}


def test_what_cannot_apply_gets_no_rung_but_a_reason() -> None:
    plan = make_plan(DEFAULT, machine("dgx1", stack="keras2", gpus=()), {})
    rungs, skipped = rungs_of(plan)
    assert [rung.name for rung in rungs] == ["plain", "precision", "xla"]
    assert "FusedBatchNormV3 by itself" in skipped["kernels"] and "no GPU" in skipped["memory"]
    assert "memory" in [rung.name for rung in rungs_of(plan, hidden_gpu=True)[0]]  # TensorFlow may know better


def test_a_rungs_config_holds_its_sections_and_what_every_rung_has() -> None:
    whole = load_config("tfvolta:default", overrides=["run.seed=3", "checkpoint.every_steps=5"])
    part = config_of(whole, Rung("xla", ("mixed_precision", "xla"), ("xla",)))
    assert part.run.seed == 3 and part.monitor == whole.monitor and part.xla == whole.xla
    assert part.kernels is part.devices is part.checkpoint is None
    assert {key.split(".")[0] for key in part.provenance} == {"run", "monitor", "mixed_precision", "xla"}
    assert whole.kernels is not None and "kernels.cudnn_rnn" in whole.provenance


# Climbing


def test_rungs_take_turns_and_the_order_turns_round() -> None:
    seen: list[tuple[str, int]] = []

    def once(rung: Rung, repeat: int) -> RungRun:
        seen.append((rung.name, repeat))
        return run(rung.name, repeat, 100.0)

    found = climb([Rung("plain"), Rung("a"), Rung("b")], 3, once, lambda done: None)
    assert seen == [
        (name, n) for n, order in ((1, "plain a b"), (2, "b a plain"), (3, "plain a b")) for name in order.split()
    ]
    assert len(found) == 9


def test_a_rung_that_adds_nothing_or_fails_is_run_once() -> None:
    idle = (Setting("cudnn_rnn", "NOT_APPLICABLE", "The model has no such layer."),)

    def once(rung: Rung, repeat: int) -> RungRun:
        more = {"idle": {"settings": idle}, "bad": {"reason": "exit code 1"}}
        return run(rung.name, repeat, 100.0, **more.get(rung.name, {}))

    rungs = [Rung("plain"), Rung("idle", ("kernels",), ("kernels",)), Rung("bad"), Rung("last")]
    found = climb(rungs, 5, once, lambda done: None)
    assert [sum(each.rung == rung.name for each in found) for rung in rungs] == [5, 1, 1, 5]
    result = LadderResult.of(rungs, found, {}, {})
    by_name = {each.rung.name: each for each in result.rungs}
    assert by_name["idle"].idle == "The model has no such layer." and by_name["idle"].gain is None
    assert by_name["bad"].gain is not None and by_name["bad"].gain.verdict == UNKNOWN and result.failed
    assert by_name["last"].gain is not None and by_name["last"].gain.reference == "plain"  # not one that failed
    assert result.whole is not None and (result.whole.treated, result.whole.reference) == ("last", "plain")


# Gains


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [
        ((110, 120, 112, 118, 111), FASTER),
        ((90, 80, 85, 95, 99), SLOWER),
        ((110, 120, 99, 118, 111), OPEN),  # one pair the other way: the interval holds 1
        ((100, 100, 100, 100, 100), OPEN),
        ((110, 120, 112, 118), FEW),  # all the same way, which chance does in one case of eight
        ((200,), FEW),
    ],
)
def test_a_gain_is_one_only_where_its_interval_says_so(rates: tuple[float, ...], verdict: str) -> None:
    found = gain(runs("xla", *rates), runs("plain", *[100.0] * len(rates)))
    assert found is not None and found.verdict == verdict
    assert found.ratio is not None and found.ratio.low <= found.ratio.estimate <= found.ratio.high
    assert found.text().startswith(verdict) and f"{len(rates)} pair" in found.text()


def test_pairs_are_of_one_repeat_and_of_good_runs() -> None:
    treated = [run("xla", 1, 300.0), run("xla", 2, 300.0, reason="killed"), run("xla", 4, 300.0)]
    found = gain(treated, runs("plain", 100.0, 100.0, 100.0))
    assert found is not None and found.pairs == 1 and found.verdict == FEW
    lost = gain([run("xla", 1, None, reason="out of memory")], runs("plain", 100.0))
    assert lost is not None and lost.verdict == UNKNOWN and lost.text() == "not measured against plain."
    assert gain(runs("plain", 100.0), []) is None


def test_a_longer_first_step_is_earned_back_or_not() -> None:
    plain = runs("plain", *[64.0] * 5)  # a second a step
    fast = gain(runs("xla", *[128.0] * 5, first_step_seconds=32.0), plain)
    assert fast is not None and fast.first_step_seconds == 30.0 and fast.earned_back_steps == pytest.approx(60)
    assert "earned back after 60 steps; a fit here has 100" in fast.text(100)
    slow = gain(runs("xla", *[32.0] * 5, first_step_seconds=32.0), plain)
    assert slow is not None and slow.earned_back_steps is None and "earned" not in slow.text(100)


def test_steps_stand_in_where_examples_are_not_counted() -> None:
    bare = [RungRun("xla", n, 1.0, step_seconds=0.5) for n in range(1, 6)]
    found = gain(bare, [RungRun("plain", n, 1.0, step_seconds=1.0) for n in range(1, 6)])
    assert found is not None and found.ratio is not None and found.ratio.estimate == 2.0


# What is printed, and what a report repeats


def result() -> LadderResult:
    rungs = [Rung("plain"), Rung("xla", ("xla",), ("xla",))]
    settings = (Setting("jit", "APPLIED", "The traced train step is compiled by XLA."),)
    compiled = runs("xla", *[150.0] * 5, settings=settings, faults=("3 of 100 steps skipped",), loss="nan")
    about = {
        "script": "train.py",
        "path": "/home/me/train.py",
        "arguments": ["--fast"],
        "config": "a.yaml",
        "values": {"xla": {"jit": "auto"}, "devices": {"memory_growth": True}},
        "machine": "node1: no GPU",
        "stack": "keras3",
        "host": "node1",
    }
    return LadderResult.of(rungs, runs("plain", *[100.0] * 5, loss=0.25) + compiled, {"memory": "no GPU"}, about)


def test_the_table_shows_figures_gains_settings_and_faults(capsys: Any) -> None:
    print_ladder(result(), "/runs/ladder-1/ladder.json")
    text = " ".join(capsys.readouterr().out.split())
    for words in (
        "faster: 1.5 times the throughput of plain, 1.5 to 1.5 (94 %, 5 pairs)",
        "memory adds nothing here: no GPU",
        "jit: The traced train step is compiled by XLA.",
        "3 of 100 steps skipped (5 of 5 runs)",
        "nan",
        "/runs/ladder-1/ladder.json",
    ):
        assert words in text, words


def test_a_report_finds_the_ladder_of_its_own_script_settings_and_machine(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "ladder-1").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "ladder.json").write_text("[1")
    (tmp_path / "ladder-1" / "ladder.json").write_text(json.dumps(result().to_json()))
    fields: dict[str, Any] = {"host": "node1", "cwd": "/home/me", "fits": [{"epochs": 1}]}
    own = evidence(command=["tfvolta", "run", "train.py", "--fast"], **fields)
    found = ladder_of(own, tmp_path)
    assert found is not None and found[0] == str(tmp_path / "ladder-1" / "ladder.json")
    other_values = {"values": {"xla": {"jit": "off"}}, "provenance": {}}
    for changed in ({"command": ["tfvolta", "run", "train.py"]}, {"stack": "keras2"}, {"host": "node2"}):
        assert ladder_of(own.updated_with(**changed), tmp_path) is None, changed
    assert ladder_of(own.updated_with(config=other_values), tmp_path) is None
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-1" / "evidence.json").write_text(own.model_dump_json())
    assert main(["report", str(tmp_path / "run-1")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "What was gained xla faster: 1.5 times the throughput of plain" in text and "What went wrong nothing" in text
    (tmp_path / "ladder-1" / "ladder.json").unlink()
    main(["report", str(tmp_path / "run-1")])
    assert "not measured a ladder tells, section by section: tfvolta ladder train.py --fast" in " ".join(
        capsys.readouterr().out.split()
    )


def test_what_went_wrong_is_told_once_each() -> None:
    train = [{"function": "train", "compiled": True, "traced": n < 1, "seconds": 2.0} for n in range(3)]
    validated = {"function": "validation", "compiled": False, "traced": True, "seconds": 1.0}
    run_with: Evidence = evidence(
        plan=[step("jit", "auto")],
        outcomes={"jit": outcome("NO_EFFECT", "refused"), "seed": outcome("APPLIED")},
        measurements={
            "loss_scale": {"skipped": 3, "attempted": 40, "scale": 4096.0},
            "compilations": {"alarms": ["a new shape"], "entries": [*train, validated]},
            "gradients": {"non_finite": 7, "samples": 2},
        },
        warnings=["the script set jit_compile", "a new shape"],
        error={"type": "ValueError", "message": "bad\nworse"},
    )
    assert faults(run_with) == [
        "jit without effect: refused",
        "3 of 40 steps skipped: their gradients were not finite; the loss scale is 4,096 at the end",
        "a new shape",
        "XLA compiled the train step 2 times more after the first, in calls of 4 s",
        "7 gradient values were not finite in the 2 steps looked at",
        "the script set jit_compile",
        "ended by ValueError: bad",
    ]
    assert "a new shape" not in faults(run_with, warned=False)
    assert faults(evidence()) == []


# Processes, without TensorFlow


def process(folder: Path, body: str, limit_seconds: float) -> RungProcess:
    script = folder / "train.py"
    script.write_text(body)
    request = RungRequest(None, (), str(folder / "runs"), "", (), str(script), ())
    return RungProcess(request, limit_seconds, folder)


def test_a_run_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    body = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    began = time.monotonic()
    done = process(tmp_path, body, 5.0).run(Rung("plain"), 1)
    assert done.reason == "not done after 5 s" and time.monotonic() - began < 60
    assert done.faults == ("not done after 5 s",)
    child = int((tmp_path / "pid").read_text())
    stat = Path(f"/proc/{child}/stat")  # where nobody collects orphans, a dead one stays as a zombie
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import os; print('last words', flush=True); os._exit(3)", "exit code 3: last words"),
        ("import os; os.kill(os.getpid(), 9)", "ended by signal 9: nothing was printed"),
        ("raise ValueError('no data')", "ValueError: no data"),
        ("import sys; sys.exit(4)", "SystemExit: 4"),
        ("pass", "the script never called model.fit in this process"),
    ],
)
def test_how_a_run_ended_is_said(body: str, reason: str, tmp_path: Path) -> None:
    done = process(tmp_path, body, 60.0).run(Rung("plain"), 2)
    assert done.reason == reason and (tmp_path / "2-plain.txt").exists()


# The command line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--repeats", "0", "train.py"], "--repeats"),
        (["--steps", "many", "train.py"], "--steps"),
        (["--set", "strategy.kind=horovod", "train.py"], "strategy.kind"),
        (["missing.py"], "missing.py"),
        (["--set", "xla.jit=perhaps", "train.py"], "xla.jit"),
    ],
)
def test_what_cannot_be_used_is_refused(
    words: list[str], says: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("pass")
    assert main(["ladder", *words]) == 2
    assert says in capsys.readouterr().err and not (tmp_path / "runs").exists()
