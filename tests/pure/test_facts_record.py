"""Recording, replaying, the machines that come with the package, and the command."""

from __future__ import annotations

import argparse
import json
import pathlib

import pytest

from tfvolta.cli.facts import add_parser
from tfvolta.errors import FactsError
from tfvolta.facts.probe import probe
from tfvolta.facts.record import load, record, recorded_machines, replay
from tfvolta.facts.support import unsupported_gpus


def command(*words: str) -> int:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    arguments = parser.parse_args(["facts", *words])
    return int(arguments.run(arguments))


def test_what_is_recorded_is_what_is_replayed(tmp_path: pathlib.Path) -> None:
    facts = probe({"PATH": ""}, path=[])
    file = record(facts, tmp_path / "new/folder/facts.json")
    again = replay(file)
    assert again.source.startswith("recorded live on 20")
    assert again.model_copy(update={"source": "live"}) == facts
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("name", ["v100_16gb", "dgx1", "dgx2", "h200_x2", "cpu"])
def test_recorded_machines_load_fit_their_stack_and_say_where_they_are_from(name: str, tmp_path: pathlib.Path) -> None:
    assert name in recorded_machines()
    facts = load(name)
    assert facts.source != "live" and len(facts.source) > 20
    assert unsupported_gpus(facts) == []
    assert replay(record(facts, tmp_path / "copy.json")) == facts


@pytest.mark.parametrize(
    ("name", "count", "memory_mb", "capability", "stack", "tensorflow"),
    [
        ("v100_16gb", 1, 16160, (7, 0), "keras3", "2.21.0"),
        ("dgx1", 8, 32510, (7, 0), "keras2", "2.15.1"),
        ("dgx2", 16, 32510, (7, 0), "tf_keras", "2.21.0"),
        ("h200_x2", 2, 143771, (9, 0), "keras3", "2.21.0"),
    ],
)
def test_the_machines_are_the_ones_their_names_say(
    name: str, count: int, memory_mb: int, capability: tuple[int, int], stack: str, tensorflow: str
) -> None:
    facts = load(name)
    assert [(gpu.memory_mb, gpu.compute_capability) for gpu in facts.gpus] == [(memory_mb, capability)] * count
    assert len(facts.links) == count * (count - 1) // 2
    assert facts.stack == stack and facts.tensorflow is not None and facts.tensorflow.version == tensorflow


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no file at this path"),
        ("{", ":1"),
        ("[]", "a list"),
        ('{"schema_version": 2}', "pip install --upgrade tfvolta"),
        ('{"schema_version": 1}', "cpu"),
        ('{"cpu": {"cores": 0, "memory_mb": 1}, "gpuss": [], "stack": "keras4"}', "gpuss"),
    ],
)
def test_unusable_files_name_file_fault_and_fix(tmp_path: pathlib.Path, content: str | None, words: str) -> None:
    file = tmp_path / "facts.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(FactsError) as caught:
        load(file)
    text = str(caught.value)
    assert words in text and str(file) in text
    assert all(problem.expected and problem.received and problem.fix for problem in caught.value.problems)


def test_all_faults_of_a_file_are_reported_at_once(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "facts.json"
    file.write_text('{"cpu": {"cores": 0, "memory_mb": 1}, "gpuss": [], "stack": "keras4"}')
    with pytest.raises(FactsError) as caught:
        replay(file)
    assert [problem.where.rsplit(": ", 1)[1] for problem in caught.value.problems] == ["stack", "cpu.cores", "gpuss"]


def test_a_folder_and_bytes_are_no_facts(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FactsError, match="Is a directory"):
        replay(tmp_path)
    (tmp_path / "facts.json").write_bytes(b"\xff\xfe")
    with pytest.raises(FactsError, match="no UTF-8"):
        replay(tmp_path / "facts.json")


def test_a_wrong_name_gets_a_did_you_mean() -> None:
    with pytest.raises(FactsError, match="did you mean dgx1"):
        load("DGX-1")
    with pytest.raises(FactsError, match="v100_16gb"):
        load("")


def test_a_file_that_cannot_be_written(tmp_path: pathlib.Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(FactsError, match="cannot be recorded"):
        record(load("cpu"), tmp_path / "taken/facts.json")


def test_the_command_prints_records_and_replays(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "facts.json"
    assert command("--replay", "dgx1", "--record", str(file)) == 0
    out = capsys.readouterr().out
    assert "8 x Tesla V100-SXM2-32GB" in out and f"recorded {file}" in out
    assert command("--replay", str(file), "--stack", "keras3", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["stack"] == "keras3" and len(printed["gpus"]) == 8


def test_the_command_refuses_what_it_cannot_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--replay", "dgx3") == 2
    assert "did you mean dgx" in capsys.readouterr().err
    assert command("--stack", "pytorch") == 2
    assert "Traceback" not in capsys.readouterr().err
