"""The report in the terminal: a verdict in a sentence, words beside colours, readable in 80 columns and when piped."""

from __future__ import annotations

import io
import os
import platform
import re
import subprocess
import sys

import pytest
from rich.console import Console

from tests.pure.evidence_examples import PROBLEM, evidence, outcome, step
from tfvolta.errors import NoEffectError, Problem
from tfvolta.evidence.schema import ErrorRecord, Evidence
from tfvolta.report.terminal import print_report
from tfvolta.report.verdict import is_alive, verdict
from tfvolta.report.words import in_lines, shown


def printed(run: Evidence, path: str | None = None, width: int = 80, colour: bool = False) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=colour, color_system="standard" if colour else None)
    print_report(run, path, console)
    return stream.getvalue()


def test_verdict_of_a_good_run() -> None:
    assert verdict(evidence()) == "Completed after 90.0 s; 2 settings: 2 applied and verified."


def test_verdict_counts_every_outcome() -> None:
    statuses = ["APPLIED", "NO_EFFECT", "LATE", "NOT_APPLICABLE", "UNVERIFIABLE", "PENDING", "PENDING"]
    run = evidence(outcomes={f"k{n}": outcome(status) for n, status in enumerate(statuses)})
    words = verdict(run)
    assert "7 settings" in words and "2 not reached" in words
    for phrase in ("applied and verified", "without effect", "too late", "not applicable here", "not verifiable"):
        assert f"1 {phrase}" in words or f"1 applied but {phrase}" in words


def test_verdict_of_a_failed_run_names_the_error() -> None:
    run = evidence(status="failed", error=ErrorRecord.of(ValueError("bad shape")))
    assert verdict(run).startswith("Failed after 90.0 s by ValueError;")


def test_verdict_of_a_refused_run_counts_the_problems() -> None:
    run = evidence(status="refused", conflicts=[PROBLEM, PROBLEM], outcomes={})
    assert verdict(run) == "Refused before training: 2 problems; no settings."


def test_a_killed_run_and_a_running_one_are_told_apart() -> None:
    here = {"status": "running", "ended": None, "host": platform.node()}
    assert is_alive(evidence(**here, pid=os.getpid()))
    assert "Still running" in verdict(evidence(**here, pid=os.getpid()))
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert "Killed" in verdict(evidence(**here, pid=child.pid))
    assert "Killed" in verdict(evidence(**{**here, "host": "elsewhere"}, pid=os.getpid()))


def test_every_setting_has_its_row_in_words() -> None:
    run = evidence(
        plan=[step("memory_growth", True), step("threads", 4, "NO_EFFECT"), step("tf32", True)],
        outcomes={
            "memory_growth": outcome("APPLIED", "seen", phase="running"),
            "threads": outcome("LATE", "too late: the context was initialised. Move it up."),
        },
    )
    lines = printed(run).splitlines()
    rows = {line.split()[0]: line.split() for line in lines if " yes " in line or " 4 " in line}
    assert rows["memory_growth"] == ["memory_growth", "yes", "applied", "in", "devices", "applied"]
    assert rows["threads"] == ["threads", "4", "no", "effect", "no", "late"]
    assert rows["tf32"] == ["tf32", "yes", "applied", "no", "not", "reached"]
    assert any("Move it up." in line for line in lines)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_lines_fit_the_width_and_nothing_is_cut(width: int) -> None:
    message = "word " * 60 + "the-end"
    long_name = "a_rather_long_setting_name"
    run = evidence(outcomes={"memory_growth": outcome("APPLIED", message), long_name: outcome("LATE")})
    text = printed(run, width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "the-end" in text


def test_colours_only_add_to_words() -> None:
    plain, coloured = printed(evidence()), printed(evidence(), colour=True)
    assert "\x1b[" not in plain and "\x1b[32m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_brackets_in_messages_are_printed() -> None:
    assert "MatMul[float16]" in printed(evidence())


def test_paths_stay_in_one_line() -> None:
    path = "/very/long" * 20 + "/evidence.json"
    assert any(line.endswith(path) for line in printed(evidence(), path).splitlines())


def test_measurements_problems_warnings_and_errors_are_shown() -> None:
    run = evidence(
        status="failed",
        contradictions=[PROBLEM],
        warnings=["Keras dropped XLA"],
        error=ErrorRecord(type="ValueError", message="bad shape", traceback="File train.py, line 7"),
        measurements={"loss_scale": {"scale": float("inf"), "skipped_steps": None, "epochs": [{"a": 1}, {"a": 2}]}},
        fits=[{"epochs": 3}],
    )
    text = printed(run)
    for expected in (
        "remove math.tf32",
        "Keras dropped XLA",
        "ValueError: bad shape",
        "line 7",
        "Infinity",
        "epochs=3",
    ):
        assert expected in text
    for internal in ("skipped_steps", "not measured", "entries"):
        assert internal not in text, "empty, or in the file alone"


def test_an_error_that_explains_a_setting_is_said_once() -> None:
    why = "M.train_step never scales the loss."
    problem = Problem("tfvolta:default:17: mixed_precision.loss_scale", "an effect", "NO_EFFECT", why, "scale it")
    error = ErrorRecord.of(NoEffectError("1 setting without effect.", [problem]))
    outcomes = {"loss_scale": outcome("NO_EFFECT", why), "jit": outcome("NO_EFFECT", "something else")}
    run = evidence(status="failed", error=error, outcomes=outcomes)
    text = printed(run)
    assert text.count(why) == 1 and "see the error below" in text and "jit without effect: something else" in text
    stream = io.StringIO()
    print_report(run, None, Console(file=stream, width=80), at_end=True)
    assert why not in stream.getvalue() and "ended by NoEffectError" in stream.getvalue(), "printed below the report"


def test_evidence_of_a_run_that_ended_at_once_is_printed() -> None:
    text = printed(Evidence(run_id="r", started="not a time", updated="2026-01-01T00:00:00Z"))
    assert "no settings" in text


def test_long_names_are_broken_between_names_and_values_between_words() -> None:
    assert in_lines("a short/text", 34) == "a short/text"
    broken = in_lines("over /home/someone/experiments/configs/v100_16gb.yaml:10", 28)
    assert broken.split("\n")[-1].endswith("v100_16gb.yaml:10") and max(map(len, broken.split("\n"))) <= 33
    key = in_lines("float32_islands.observed.outside.layers", 34, "  ")
    assert key == "float32_islands.observed.outside.\n  layers"
    assert shown({"initial": 32768.0, "growth_steps": 2000}, 21) == "initial=32,768 ..."
    assert shown("x" * 40, 21) == "x" * 18 + "..."


def test_nothing_that_is_piped_ends_in_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(evidence())
    out = capsys.readouterr().out
    assert "memory_growth" in out and not re.search(r"[ \t]\n", out)


def test_commands_can_be_pasted() -> None:
    assert "tfvolta run 'my train.py'" in printed(evidence(command=["tfvolta", "run", "my train.py"]))
