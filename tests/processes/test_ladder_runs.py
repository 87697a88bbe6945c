"""A ladder of real trainings: the rungs, their evidence, and the report that repeats what was found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes.test_examples import tfvolta_on

pytestmark = pytest.mark.timeout(600)


def test_a_ladder_says_what_each_section_did_and_the_next_report_repeats_it(tmp_path: Path) -> None:
    words = (
        "--set",
        "kernels=null",
        "--set",
        "xla=null",
        "examples/lstm.py",
        "--rows",
        "40",
        "--epochs",
        "2",
        "--width",
        "8",
    )
    done = tfvolta_on(tmp_path, "ladder", "--json", "--repeats", "1", "--steps", "3", *words)
    assert done.returncode == 0, done.stderr[-3000:]
    ladder = json.loads(done.stdout)
    rungs = {rung["rung"]: rung for rung in ladder["rungs"]}
    assert list(rungs) == ["plain", "precision"] and "GPU" in ladder["skipped"]["memory"]
    assert [run["repeat"] for run in rungs["plain"]["runs"]] == [1]
    for rung in rungs.values():
        for run in rung["runs"]:
            assert run["examples_per_second"] > 0 and run["first_step_seconds"] > 0 and run["peak_bytes"] > 2**27
            assert run["loss"] == pytest.approx(rungs["plain"]["runs"][0]["loss"], rel=0.05)
            assert json.loads(Path(run["evidence"]).read_text())["status"] == "completed"
            assert run["steps"] == 3  # each of its fits was ended after so many
    gain = rungs["precision"]["gain"]
    assert gain["pairs"] == 1 and gain["verdict"] == "too few repeats"
    assert {each["knob"] for each in rungs["precision"]["settings"]} >= {"policy", "retrofit", "loss_scale"}
    plain = json.loads(Path(rungs["plain"]["runs"][0]["evidence"]).read_text())
    assert plain["plan"] == [] and plain["config"]["values"]["mixed_precision"] is None
    again = tfvolta_on(tmp_path, "run", *words)
    assert again.returncode == 0 and gain["text"] in " ".join(again.stderr.split())


def test_a_rung_that_fails_is_named_and_the_others_stand(tmp_path: Path) -> None:
    script = tmp_path / "odd.py"
    script.write_text(
        "import sys\nimport tensorflow as tf\n"
        "model = tf.keras.Sequential([tf.keras.layers.Dense(4), tf.keras.layers.Dense(1)])\n"
        "model.compile('sgd', 'mse')\nmodel.fit(tf.ones((8, 2)), tf.ones((8, 1)), verbose=0)\n"
        "if 'float16' in model.layers[0].compute_dtype:\n"
        "    sys.exit('no half today')\n"
    )
    sections = ("--set", "kernels=null", "--set", "xla=null", "--set", "devices=null", "--repeats", "1", "--json")
    failed = tfvolta_on(tmp_path / "runs", "ladder", *sections, str(script))
    assert failed.returncode == 1
    plain, half = json.loads(failed.stdout)["rungs"]
    assert not plain["runs"][0]["reason"] and "no half today" in half["runs"][0]["reason"]
    assert half["gain"]["verdict"] == "not measured" and half["faults"]
