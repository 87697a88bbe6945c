"""Evidence on disk: whole at every moment, unique, and clear about what it cannot do."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tfvolta.errors import EvidenceError
from tfvolta.evidence import reading
from tfvolta.evidence.clock import now
from tfvolta.evidence.reading import latest, read, run_directories
from tfvolta.evidence.schema import Evidence
from tfvolta.evidence.store import EvidenceStore


def make_run(directory: pathlib.Path, run_id: str | None = None, **fields: object) -> EvidenceStore:
    store = EvidenceStore.create(directory, run_id)
    store.write(Evidence.model_validate({"run_id": store.run_id, "started": now(), **fields}))
    return store


def test_read_by_folder_file_and_run_id(tmp_path: pathlib.Path) -> None:
    store = make_run(tmp_path / "deep" / "runs", measurements={"a": 1})
    for run in (store.directory, store.path, str(store.path)):
        assert read(run).measurements == {"a": 1}
    assert read(store.run_id, tmp_path / "deep" / "runs").run_id == store.run_id


def test_written_evidence_says_when_and_leaves_nothing_else(tmp_path: pathlib.Path) -> None:
    store = make_run(tmp_path)
    assert read(store.path).updated is not None
    assert [file.name for file in store.directory.iterdir()] == ["evidence.json"]


def test_two_runs_in_the_same_second_have_two_folders(tmp_path: pathlib.Path) -> None:
    stores = [make_run(tmp_path) for _ in range(20)]
    assert len({store.run_id for store in stores}) == 20
    assert all(read(store.directory).run_id == store.run_id for store in stores)


def test_a_taken_run_id_is_refused_and_its_evidence_kept(tmp_path: pathlib.Path) -> None:
    make_run(tmp_path, "mine", measurements={"kept": True})
    with pytest.raises(EvidenceError, match="exists already") as caught:
        EvidenceStore.create(tmp_path, "mine")
    assert caught.value.problems[0].fix
    assert read("mine", tmp_path).measurements == {"kept": True}


@pytest.mark.parametrize("run_id", ["", "a/b", "../up", ".hidden", "nul\0"])
def test_a_run_id_that_is_no_folder_name_is_refused(tmp_path: pathlib.Path, run_id: str) -> None:
    with pytest.raises(EvidenceError, match="run id"):
        EvidenceStore.create(tmp_path, run_id)


def test_latest_is_the_run_written_last(tmp_path: pathlib.Path) -> None:
    first, second = make_run(tmp_path, "b"), make_run(tmp_path, "a")
    os.utime(first.path, ns=(2, 2))
    os.utime(second.path, ns=(1, 1))
    assert latest(tmp_path) == first.path
    assert [folder.name for folder in run_directories(tmp_path)] == ["a", "b"]
    assert read(tmp_path).run_id == "b"


def test_a_file_in_the_way(tmp_path: pathlib.Path) -> None:
    (tmp_path / "runs").write_text("not a folder")
    for directory in (tmp_path / "runs", tmp_path / "runs" / "below"):
        with pytest.raises(EvidenceError) as caught:
            EvidenceStore.create(directory)
        problem = caught.value.problems[0]
        assert "a file is in the way" in problem.why
        assert "run.directory" in problem.fix


def test_a_folder_in_which_nobody_can_write() -> None:
    with pytest.raises(EvidenceError) as caught:
        EvidenceStore.create("/proc/tfvolta-runs")
    assert caught.value.problems[0].why and caught.value.problems[0].fix


FULL_DISK = """
import resource, signal, sys
from tfvolta.errors import EvidenceError
from tfvolta.evidence.schema import Evidence
from tfvolta.evidence.store import EvidenceStore
store = EvidenceStore.create(sys.argv[1], "run")
evidence = Evidence(run_id="run", started="2026-01-01T00:00:00Z", measurements={"version": 1})
store.write(evidence)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    store.write(evidence.updated_with(measurements={"version": 2, "long": "x" * 5000}))
except EvidenceError as error:
    print(error)
"""


def test_a_write_that_fails_half_way_keeps_the_former_evidence(tmp_path: pathlib.Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK, tmp_path], capture_output=True, text=True, check=True)
    assert "File too large" in done.stdout and "fix:" in done.stdout
    assert read("run", tmp_path).measurements == {"version": 1}
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["evidence.json"]


def test_a_folder_removed_during_the_run_is_made_again(tmp_path: pathlib.Path) -> None:
    store = make_run(tmp_path)
    store.path.unlink()
    store.directory.rmdir()
    store.write(Evidence(run_id=store.run_id, started=now(), status="completed"))
    assert read(store.directory).status == "completed"


WRITE_FOR_EVER = """
import sys
from tfvolta.evidence.schema import Evidence
from tfvolta.evidence.store import EvidenceStore
store = EvidenceStore.create(sys.argv[1], "run")
evidence = Evidence(run_id="run", started="2026-01-01T00:00:00Z")
number = 0
while True:
    number += 1
    store.write(evidence.updated_with(measurements={"number": number, "same": [number] * 20000}))
    if number == 3:
        print("writing", flush=True)
"""


@pytest.mark.parametrize("delay_seconds", [0.0, 0.013, 0.031, 0.057])
def test_a_killed_process_leaves_whole_evidence(tmp_path: pathlib.Path, delay_seconds: float) -> None:
    command = [sys.executable, "-c", WRITE_FOR_EVER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "writing\n"
        time.sleep(delay_seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
    measured = read("run", tmp_path).measurements
    assert measured["number"] >= 3
    assert measured["same"] == [measured["number"]] * 20000


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "JSON"),
        (b'{"schema_version": 1, "run', "line 1"),
        (b"[]", "a JSON list"),
        (b"\xff\xfe", "UTF-8"),
        (b"{}", "schema_version None"),
        (b'{"schema_version": true}', "schema_version True"),
        (b'{"schema_version": "1"}', "schema_version '1'"),
        (b'{"schema_version": 0}', "no tfvolta ever wrote"),
        (b'{"schema_version": 2}', "newer tfvolta"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_unusable_evidence_says_what_it_is(tmp_path: pathlib.Path, content: bytes, expected: str) -> None:
    file = tmp_path / "evidence.json"
    file.write_bytes(content)
    with pytest.raises(EvidenceError) as caught:
        read(tmp_path)
    assert expected in str(caught.value)
    assert caught.value.problems[0].fix


def test_all_faults_of_malformed_evidence_are_named_at_once(tmp_path: pathlib.Path) -> None:
    store = make_run(tmp_path)
    content = json.loads(store.path.read_text())
    del content["started"]
    content.update(status="done", stray=1, outcomes={"xla": {"status": "GOOD"}})
    store.path.write_text(json.dumps(content))
    with pytest.raises(EvidenceError) as caught:
        read(store.path)
    places = {problem.where.rsplit(": ", 1)[1] for problem in caught.value.problems}
    assert places == {"started", "status", "stray", "outcomes.xla.status"}


def test_a_run_that_does_not_exist(tmp_path: pathlib.Path) -> None:
    with pytest.raises(EvidenceError, match="tfvolta run"):
        read("nothing", tmp_path)
    make_run(tmp_path, "20260101T000000Z-ab12")
    with pytest.raises(EvidenceError, match="did you mean 20260101T000000Z-ab12"):
        read("20260101T000000Z-ab13", tmp_path)
    with pytest.raises(EvidenceError, match="There is no run yet"):
        latest(tmp_path / "empty")


def test_a_run_folder_without_evidence(tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(EvidenceError, match="ended before it wrote anything"):
        read("empty", tmp_path)


def test_the_default_folder_of_runs_is_the_one_of_the_config() -> None:
    from tfvolta.config.schema import Run

    assert Run().directory == reading.DEFAULT_DIRECTORY
