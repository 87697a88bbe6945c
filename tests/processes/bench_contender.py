"""Stands in for a contender's process: speaks as one does, without TensorFlow, and ends as its name says."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tfvolta.bench.turns import Turns


def epoch(turns: Turns, number: int, seconds: float) -> None:
    turns.say(
        "epoch", epoch=number, seconds=2 * seconds, train_seconds=seconds, steps=4, loss=1.0 / (number + 1), joules=None
    )


def main() -> None:
    name = os.environ["TFVOLTA_BENCH_CONTENDER"]
    arguments = sys.argv[1:]
    rounds, warmup = (int(arguments[arguments.index(word) + 1]) for word in ("--rounds", "--warmup-epochs"))
    if name == "refused":
        print(
            "tfvolta: This config cannot be applied here: 1 problem.\nxla.jit\n  expected: something else", flush=True
        )
        sys.exit(2)
    if name == "crashes":
        sys.exit("ValueError: no such column")
    turns = Turns.of(os.environ)
    assert turns is not None
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    print(f"PIDS {os.getpid()} {child.pid}", flush=True)
    if name == "hangs":
        time.sleep(600)
    turns.say("built", seconds=0.1, parameters=3)
    for number in range(warmup + rounds):
        epoch(turns, number, 0.2 if name == "slow" else 0.1)
        if number + 1 >= warmup:
            turns.wait()
        if name == "dies" and number == warmup:
            os.abort()
        if name == "stalls" and number == warmup:
            time.sleep(600)
    turns.say("figures", replicas=1, host_peak_bytes=2**20, device_peak_bytes={}, devices=[], multiply_adds=5)
    child.kill()


main()
