"""Signs of life: files of one worker, the standing of all, and who is missing."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import timeit
from pathlib import Path

import pytest

from tfvolta.evidence.heartbeat import BEGUN, ENDED, EPOCH, OTHER, Heartbeat, HeartbeatFile, read_heartbeats
from tfvolta.evidence.missing import standstill
from tfvolta.launch.standing import Standing


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = HeartbeatFile(tmp_path / "new" / "folder", "worker 1", 1)
    file.write("training", 5.0, 60.0, answers=True, ends=True)
    file.counts[BEGUN], file.counts[ENDED], file.counts[EPOCH] = 13, 12, 3
    (beat,) = read_heartbeats(tmp_path / "new" / "folder")
    assert (beat.worker, beat.rank, beat.pid, beat.state) == ("worker 1", 1, os.getpid(), "training")
    assert (beat.begun, beat.ended, beat.epoch) == (13, 12, 3), "newer than the JSON beside it"
    assert (beat.progressed, beat.limit_seconds, beat.answers, beat.ends) == (5.0, 60.0, True, True)
    assert sorted(path.name for path in file.path.parent.iterdir()) == ["worker-1.json", "worker-1.steps"]


def _count_and_die(folder: str) -> None:
    file = HeartbeatFile(folder, "worker 0", 0)
    file.write("training", 1.0)
    for step in range(1, 1001):
        file.counts[BEGUN] = step
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_last_step_outlives_a_killed_process(tmp_path: Path) -> None:
    child = multiprocessing.get_context("spawn").Process(target=_count_and_die, args=(str(tmp_path),))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    assert [beat.begun for beat in read_heartbeats(tmp_path)] == [1000]


def test_a_folder_of_several_machines_gets_no_shared_memory(tmp_path: Path) -> None:
    file = HeartbeatFile(tmp_path, "worker 0", 0, shared=True)
    file.counts[BEGUN] = 7
    file.write("training", 1.0)
    assert [path.name for path in tmp_path.iterdir()] == ["worker-0.json"]
    assert read_heartbeats(tmp_path)[0].begun == 7


@pytest.mark.parametrize("content", ["", "{", "[]", '{"worker": 1}', "null"])
def test_files_of_others_are_left_out(tmp_path: Path, content: str) -> None:
    (tmp_path / "other.json").write_text(content)
    (tmp_path / "newer.json").write_text(json.dumps({"worker": "worker 3", "a field of": "tomorrow"}))
    assert [beat.worker for beat in read_heartbeats(tmp_path)] == ["worker 3"]
    assert read_heartbeats(tmp_path / "missing") == ()


def test_a_disk_that_fails_does_not_stop_training(tmp_path: Path) -> None:
    file = HeartbeatFile(tmp_path / "gone", "worker 0", 0)
    for path in list(file.path.parent.iterdir()):
        path.unlink()
    file.path.parent.rmdir()
    file.write("training", 1.0)
    file.counts[BEGUN] = 1


def test_a_batch_costs_less_than_two_microseconds(tmp_path: Path) -> None:
    """Both hooks of a batch, on a busy machine too: the best of many short runs."""
    from tfvolta.callbacks.progress import Progress

    progress = Progress.__new__(Progress)
    progress._counts, progress._before = HeartbeatFile(tmp_path, "worker 0", 0).counts, 0
    progress._first_batch = False

    def batch() -> None:
        progress.on_train_batch_begin(3, None)
        progress.on_train_batch_end(3, None)

    seconds = min(timeit.repeat(batch, number=2000, repeat=20)) / 2000
    assert seconds < 2e-6, f"{seconds * 1e6:.2f} us"
    assert progress._counts[BEGUN] == progress._counts[ENDED] == 4 and progress._counts[OTHER] == 0


def test_an_epoch_that_goes_on_in_its_middle_counts_on_from_the_optimizer(tmp_path: Path) -> None:
    """Thirty steps were trained before, of which six in the epoch that goes on with its batch 6."""
    from tfvolta.callbacks.progress import Progress

    progress = Progress.__new__(Progress)
    progress._counts = HeartbeatFile(tmp_path, "worker 0", 0).counts
    progress._counts[BEGUN] = progress._counts[ENDED] = 30
    progress._first_epoch = False
    seen = []
    for epoch, batches in ((2, range(6, 8)), (3, range(2))):
        progress.on_epoch_begin(epoch)
        for batch in batches:
            progress.on_train_batch_begin(batch)
            seen.append(progress._counts[BEGUN])
            progress.on_train_batch_end(batch)
    assert seen == [31, 32, 33, 34] and progress._counts[ENDED] == 34


NOW = 1000.0


def beat(worker: str, begun: int, ago: float = 40.0, silent: float = 0.5, state: str = "training") -> Heartbeat:
    rank = int(worker.rsplit(" ", 1)[1])
    return Heartbeat(
        worker, rank, state=state, begun=begun, ended=begun - 1, progressed=NOW - ago, written=NOW - silent
    )


@pytest.mark.parametrize(
    ("beats", "expected", "missing", "sentence"),
    [
        (
            [beat("worker 0", 14), beat("worker 1", 12), beat("worker 2", 14)],
            (),
            ("worker 1",),
            "worker 1 was last seen at step 12, 40 s ago; workers 0 and 2 wait in step 14",
        ),
        (
            [beat("worker 0", 14), beat("worker 1", 14, silent=38.0)],
            (),
            ("worker 1",),
            "worker 1 was last seen at step 14, 40 s ago; worker 0 waits in step 14",
        ),
        (
            [beat("worker 0", 14), beat("worker 2", 14)],
            ("worker 0", "worker 1", "worker 2", "worker 3"),
            ("worker 1", "worker 3"),
            "workers 1 and 3 are not there yet; workers 0 and 2 wait in step 14",
        ),
        (
            [beat("worker 0", 3), beat("worker 1", 0, state="starting")],
            (),
            ("worker 1",),
            "worker 1 is not in fit (starting); worker 0 waits in step 3",
        ),
        (
            [beat("worker 0", 1, state="first step"), beat("worker 1", 0, state="first step")],
            (),
            ("worker 1",),
            "worker 1 was last seen before its first step, 40 s ago; worker 0 waits in step 1",
        ),
        (
            [beat("worker 0", 7), beat("worker 1", 7, ago=38.0)],
            (),
            (),
            "workers 0 and 1 have all been in step 7 for 38 s; their stacks tell who hangs",
        ),
        ([beat("worker 0", 7, silent=99.0)], (), (), "worker 0 has been in step 7 for 40 s"),
    ],
)
def test_who_is_missing(
    beats: list[Heartbeat], expected: tuple[str, ...], missing: tuple[str, ...], sentence: str
) -> None:
    found = standstill(beats, NOW, expected)
    assert found.missing == missing and found.sentence == sentence


def test_a_run_stands_still_only_when_all_are_beyond_their_limit(tmp_path: Path) -> None:
    files = [HeartbeatFile(tmp_path, f"worker {index}", index) for index in range(2)]
    standing = Standing(str(tmp_path), clock=lambda: NOW)
    names = ["worker 0", "worker 1"]
    assert standing.stalled(names) is None, "nobody has spoken"
    files[0].write("training", NOW - 31.0, 20.0, ends=True)
    assert standing.stalled(names) is None and standing.stalled(names[:1]) is not None
    files[1].write("training", NOW - 25.0, 20.0)
    assert standing.stalled(names) is None, "its own watchdog acts at its limit, the launcher after that"
    files[1].write("training", NOW - 32.0, 20.0)
    stalled = standing.stalled(names)
    assert stalled is not None and [beat.ends for beat in stalled] == [True, False]
    files[1].write("between fits", NOW - 3000.0)
    assert standing.stalled(names) is None, "what comes between two fits is not watched"
    files[1].counts[BEGUN] = 5
    assert standing.step("worker 1") == 5 and standing.step("worker 0") is None and standing.step("ps 0") is None
