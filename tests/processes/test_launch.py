"""``tfvolta launch`` around tiny workers that need no TensorFlow: output, failures, signals, restarts, no orphans."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.processes.launched import (
    LIMIT_SECONDS,
    Launched,
    assert_gone,
    clean_environment,
    elapsed,
    launch,
    once,
    summary,
)
from tfvolta.launch.process import start_process

pytestmark = once  # what differs between stacks is in test_launch_training


def test_lines_are_whole_prefixed_and_in_their_stream(tmp_path: Path) -> None:
    body = """
    for number in range(200):
        sys.stdout.write(f"out {number} "); sys.stdout.flush()
        sys.stdout.write("x" * 100 + "\\n")
    print("err", file=sys.stderr)
    sys.stdout.write("no end")
    """
    done = launch(tmp_path, body, "--workers", "3", "--log-directory", "logs")
    assert done.code == 0
    for index in range(3):
        own = [line for line in done.out if line.startswith(f"[worker {index}] ")]
        numbers = [line.split()[3] for line in own if " out " in line]
        assert numbers == [str(number) for number in range(200)] and own[-1].endswith("no end")
        assert f"[worker {index}] err" in done.err
        assert (tmp_path / "logs" / f"worker-{index}.log").read_text().count("\n") == 203
    assert all(line.startswith("[worker ") for line in done.out)
    assert [line.split(": ")[1] for line in done.said] == ["worker 0", "worker 1", "worker 2", "no config"]


def test_each_worker_is_told_who_it_is_and_where_the_others_are(tmp_path: Path) -> None:
    body = """
    print("CONFIG", os.environ["TF_CONFIG"], os.environ["TFVOLTA_RESTART"], *sys.argv[1:])
    """
    done = launch(tmp_path, body, "--workers", "2", "--quiet", arguments=("--its", "own flags"))
    configs = [line.split("CONFIG ")[1] for line in done.out if "CONFIG" in line]
    assert len(configs) == 2 and len({text.split('"task"')[0] for text in configs}) == 1
    assert all(text.endswith(" 0 --its own flags") and '"worker": ["127.0.0.1:' in text for text in configs)
    assert done.said == []


def test_a_worker_runs_on_its_processors_alone(tmp_path: Path) -> None:
    """Processors are given out only where there are two for each worker, so the parts are tried by themselves."""
    allowed = sorted(os.sched_getaffinity(0))
    command = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]
    for cpus in ([allowed[0]], allowed):
        with start_process(command, clean_environment(), cpus) as popen:
            assert popen.stdout is not None and popen.stderr is not None
            assert popen.stdout.read().decode().strip() == str(cpus), popen.stderr.read()


def test_the_first_failure_ends_the_others_and_gives_the_code(tmp_path: Path) -> None:
    body = """
    if index == 1:
        print("Traceback\\nValueError: mine", file=sys.stderr)
        sys.exit(9)
    block()
    """
    started = time.monotonic()
    done = launch(tmp_path, body, "--workers", "3", "--grace-seconds", "1", "--json")
    assert done.code == 9 and elapsed(started) < LIMIT_SECONDS / 2
    assert "tfvolta: worker 1 exited with code 9; the others get 1 s to end" in done.said
    assert "tfvolta: worker 1's last lines of error:" in done.said
    assert "    ValueError: mine" in done.err
    assert "after that: worker 0 was ended by SIGTERM; worker 2 was ended by SIGTERM" in done.said[-2]
    assert done.said[-1] == "tfvolta: cause: worker 1 exited with code 9", "last, below all that it has led to"
    assert summary(done)["failed"] == "worker 1 exited with code 9"
    assert [worker["returncode"] for worker in summary(done)["workers"]] == [-15, 9, -15]


def test_a_worker_that_is_killed_is_reported_by_the_signal(tmp_path: Path) -> None:
    body = "os.kill(os.getpid(), signal.SIGSEGV) if index == 0 else block()"
    done = launch(tmp_path, body, "--workers", "2", "--grace-seconds", "0")
    assert done.code == 128 + signal.SIGSEGV
    assert any("worker 0 was ended by SIGSEGV" in line for line in done.said)
    assert any("Fatal Python error: Segmentation fault" in line for line in done.err)


def test_a_fast_worker_that_ends_well_is_no_failure(tmp_path: Path) -> None:
    body = """
    if index == 0:
        sys.exit(0)
    print("WAITS", flush=True)
    open("go").read()
    print("DONE")
    """
    os.mkfifo(tmp_path / "go")
    with Launched(tmp_path, body, "--workers", "2") as launched:
        launched.wait_for("WAITS")
        launched.wait_for("PID", 2)
        fast = next(int(line.split()[-1]) for line in launched.out if line.startswith("[worker 0] PID"))
        assert_gone([fast])
        (tmp_path / "go").write_text("")
        assert launched.wait() == 0
    assert "[worker 1] DONE" in launched.out


def test_who_ignores_sigterm_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    body = """
    import subprocess
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"])
    print("PID", child.pid, flush=True)
    print("READY", flush=True)
    block()
    """
    with Launched(tmp_path, body, "--workers", "2", "--grace-seconds", "0.5") as launched:
        launched.wait_for("READY", 2)
        launched.signal(signal.SIGTERM)
        assert launched.wait() == 128 + signal.SIGTERM
    assert len(launched.pids) == 4
    assert any("SIGKILL to worker 0, worker 1" in line for line in launched.said)


def test_what_a_worker_leaves_behind_is_ended(tmp_path: Path) -> None:
    body = """
    import subprocess
    for own_session in (False, True):
        pause = [sys.executable, "-c", "import signal; signal.pause()"]
        print("PID", subprocess.Popen(pause, start_new_session=own_session).pid, flush=True)
    """
    done = launch(tmp_path, body, "--workers", "2")
    assert done.code == 0 and len(done.pids) == 6


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_are_passed_on(tmp_path: Path, number: int, code: int) -> None:
    body = """
    print("READY", flush=True)
    print("GOT", signal.sigwait([signal.SIGINT, signal.SIGTERM, signal.SIGHUP]).name, flush=True)
    """
    body = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])\n" + body.replace(
        "    ", ""
    )
    with Launched(tmp_path, body, "--workers", "2") as launched:
        launched.wait_for("READY", 2)
        launched.signal(number)
        assert launched.wait() == code
    assert sum(f"GOT {signal.Signals(number).name}" in line for line in launched.out) == 2


def test_a_worker_may_choose_the_code_with_which_it_ends_on_a_signal(tmp_path: Path) -> None:
    body = """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    print("READY", flush=True)
    signal.sigwait([signal.SIGTERM])
    sys.exit(42)
    """
    with Launched(tmp_path, body, "--workers", "2", "--max-restarts", "3") as launched:
        launched.wait_for("READY", 2)
        launched.signal(signal.SIGTERM)
        assert launched.wait() == 42
    assert len(launched.pids) == 2, "told to end, it starts nothing again"


def test_the_second_signal_does_not_wait_for_the_grace_time(tmp_path: Path) -> None:
    body = """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    print("READY", flush=True)
    block()
    """
    started = time.monotonic()
    with Launched(tmp_path, body, "--workers", "2", "--grace-seconds", "1000") as launched:
        launched.wait_for("READY", 2)
        for count in range(1, 4):
            launched.signal(signal.SIGINT)
            launched.wait_for("SIGINT: passed on", count)
        assert launched.wait() == 130
    assert elapsed(started) < LIMIT_SECONDS


def test_workers_end_when_the_launcher_is_killed(tmp_path: Path) -> None:
    body = """
    import subprocess
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for own_session in (False, True):
        pause = [sys.executable, "-c", "import signal; signal.pause()"]
        print("PID", subprocess.Popen(pause, start_new_session=own_session).pid, flush=True)
    print("READY", flush=True)
    block()
    """
    with Launched(tmp_path, body, "--workers", "2") as launched:
        launched.wait_for("READY", 2)
        launched.signal(signal.SIGKILL)
        assert launched.wait() == -signal.SIGKILL
    assert len(launched.pids) == 6


def test_all_workers_are_started_again_on_new_ports(tmp_path: Path) -> None:
    body = """
    print("PORTS", os.environ["TF_CONFIG"].split("task")[0], flush=True)
    if index == 1 and os.environ["TFVOLTA_RESTART"] != "2":
        os._exit(7)
    if os.environ["TFVOLTA_RESTART"] != "2":
        block()
    """
    done = launch(tmp_path, body, "--workers", "2", "--max-restarts", "5", "--grace-seconds", "0.2", "--json")
    assert done.code == 0 and len(done.pids) == 6
    assert [line for line in done.said if "starting all workers again" in line] == [
        "tfvolta: starting all workers again (1 of 5)",
        "tfvolta: starting all workers again (2 of 5)",
    ]
    runs = summary(done)["runs"]
    assert runs[1:] == [f"{runs[0]}-restart-1", f"{runs[0]}-restart-2"]


def test_restarts_end_with_the_last_failure(tmp_path: Path) -> None:
    done = launch(tmp_path, "sys.exit(5)", "--workers", "2", "--max-restarts", "1")
    assert done.code == 5 and len(done.pids) == 4
    assert "exited with code 5" in done.said[-2] and "--max-restarts 1 is used up" in done.said[-1]


def test_a_refused_config_is_not_started_again(tmp_path: Path) -> None:
    done = launch(tmp_path, "sys.exit(2)", "--workers", "2", "--max-restarts", "4")
    assert done.code == 2 and len(done.pids) == 2


def test_servers_end_when_the_chief_has_ended(tmp_path: Path) -> None:
    body = """
    print("IS", task["type"], task["index"], sorted(json.loads(os.environ["TF_CONFIG"])["cluster"]), flush=True)
    if task["type"] != "chief":
        signal.pause()
    """
    options = ("--workers", "2", "--ps", "1", "--kind", "parameter_server", "--grace-seconds", "1", "--json")
    done = launch(tmp_path, body, *options)
    assert done.code == 0 and summary(done)["failed"] is None
    assert [worker["name"] for worker in summary(done)["workers"]] == ["chief 0", "worker 0", "worker 1", "ps 0"]
    assert "[ps 0] IS ps 0 ['chief', 'ps', 'worker']" in done.out


def test_a_server_that_dies_ends_the_run(tmp_path: Path) -> None:
    body = "os._exit(3) if task['type'] == 'ps' else block()"
    done = launch(tmp_path, body, "--workers", "1", "--kind", "parameter_server", "--grace-seconds", "0.2")
    assert done.code == 3 and any("ps 0 exited with code 3" in line for line in done.said)


# In a worker: its number for the others, and a wait until one of them is in a state of proc(5), Z for gone too.
OTHERS = """
me = f"{task.get('type')}-{index}"
with open(f".{me}", "w") as file:
    file.write(str(os.getpid()))
os.replace(f".{me}", me)
def until(name, wanted):
    while not os.path.exists(name):
        os.sched_yield()
    pid, state = open(name).read(), ""
    while state != wanted:
        try:
            state = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
        except OSError:
            state = "Z"
        os.sched_yield()
"""


def test_a_chief_that_fails_is_named_though_its_servers_end_first(tmp_path: Path) -> None:
    body = """
    if task["type"] != "chief":
        os._exit(75)
    until("worker-0", "Z")
    until("ps-0", "Z")
    sys.exit(3)
    """
    options = ("--workers", "1", "--ps", "1", "--kind", "parameter_server", "--json")
    done = launch(tmp_path, OTHERS + textwrap.dedent(body), *options)
    assert done.code == 3 and summary(done)["failed"] == "chief 0 exited with code 3", done.said


def test_servers_that_lost_a_chief_that_does_not_end_are_named(tmp_path: Path) -> None:
    body = "os._exit(75) if task['type'] == 'ps' else block()"
    done = launch(tmp_path, body, "--workers", "1", "--kind", "parameter_server", "--grace-seconds", "0.2", "--json")
    assert done.code == 75
    assert summary(done)["failed"] == "ps 0 exited with code 75: it had lost another process of the cluster"


def test_a_stopped_worker_and_one_that_left_are_the_cause(tmp_path: Path) -> None:
    body = """
    if index == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    if index == 2:
        sys.exit(0)
    until("worker-1", "T")
    until("worker-2", "Z")
    os._exit(1)
    """
    done = launch(tmp_path, OTHERS + textwrap.dedent(body), "--workers", "3", "--grace-seconds", "0.2")
    assert done.code == 1
    said = [line for line in done.said if "worker 0 exited with code 1: " in line]
    assert said and "worker 1 is stopped" in said[0] and "worker 2 had ended before that, with code 0" in said[0]


def test_a_worker_killed_at_a_random_moment_never_hangs_the_launch(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**31)
    body = """
    import random
    chosen = random.Random(int(sys.argv[1]))
    victim, lines = chosen.randrange(3), chosen.randrange(300)
    for number in range(1000000000):
        if index == victim and number == lines:
            os.kill(os.getpid(), signal.SIGKILL)
        print("line", number)
    """
    done = launch(tmp_path, body, "--workers", "3", "--grace-seconds", "0.2", arguments=(str(seed),))
    assert done.code == 128 + signal.SIGKILL, f"seed {seed}"


def test_a_reader_that_has_seen_enough_ends_the_run(tmp_path: Path) -> None:
    script = tmp_path / "work.py"
    script.write_text("import os\nprint('PID', os.getpid(), flush=True)\nwhile True:\n    print('line', flush=True)\n")
    command = [sys.executable, "-m", "tfvolta", "launch", "--workers", "2", "--grace-seconds", "1", script.name]
    with subprocess.Popen(
        command, cwd=tmp_path, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as popen:
        assert popen.stdout is not None
        pids: list[int] = []
        while len(pids) < 2:
            line = popen.stdout.readline()
            pids += [int(line.split()[-1])] if "PID" in line else []
        popen.stdout.close()
        assert popen.wait(LIMIT_SECONDS) == 141
    assert_gone(pids)


def test_a_full_disk_behind_a_log_or_the_output_is_said(tmp_path: Path) -> None:
    body = "print('x' * 100, flush=True)"
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker-0.log").symlink_to("/dev/full")
    done = launch(tmp_path, body, "--workers", "2", "--log-directory", "logs")
    assert done.code == 0 and "tfvolta: the log of worker 0 ends here: No space left on device" in done.err
    command = f"{sys.executable} -m tfvolta launch --workers 2 work.py"
    for stream, code, words in (("/dev/full", 141, "No space left on device"), ("&-", 0, "")):
        ended = subprocess.run(
            ["sh", "-c", f"{command} >{stream}"],
            cwd=tmp_path,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        assert ended.returncode == code and words in ended.stderr and "Traceback" not in ended.stderr, ended.stderr


def test_a_reader_that_does_not_read_keeps_nobody_from_ending(tmp_path: Path) -> None:
    script = tmp_path / "work.py"
    script.write_text("import os\nprint('PID', os.getpid(), flush=True)\nwhile True:\n    print('x' * 1000)\n")
    command = [sys.executable, "-m", "tfvolta", "launch", "--workers", "2", "--grace-seconds", "0.5", script.name]
    with subprocess.Popen(
        command, cwd=tmp_path, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as popen:
        assert popen.stdout is not None and popen.stderr is not None
        pids = [int(popen.stdout.readline().split()[-1])]
        popen.send_signal(signal.SIGTERM)
        assert popen.wait(LIMIT_SECONDS) == 143
        popen.stdout.close()
    assert_gone(pids)


@pytest.mark.parametrize("name", ["TF_CONFIG", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"])
def test_inside_a_job_that_has_its_workers_nothing_is_started(tmp_path: Path, name: str) -> None:
    done = launch(tmp_path, "", "--workers", "2", environ={name: "0"})
    text = "\n".join(done.err)
    assert done.code == 2 and name in text and "tfvolta run" in text and not done.pids


def test_what_cannot_be_started_is_said_all_at_once(tmp_path: Path) -> None:
    done = launch(tmp_path, "", "--workers", "0", "--max-restarts", "-1", "--ps", "2")
    text = "\n".join(done.err)
    assert done.code == 2 and "3 problems" in text
    assert all(word in text for word in ("--workers", "--max-restarts", "--ps")) and not done.pids


def test_a_config_of_one_process_is_refused(tmp_path: Path) -> None:
    done = launch(tmp_path, "", "--workers", "2", "--config", "tfvolta:default")
    text = "\n".join(done.err)
    assert done.code == 2 and "--kind multi_worker_mirrored" in text and not done.pids
