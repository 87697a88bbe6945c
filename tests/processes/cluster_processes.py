"""A cluster of real processes on loopback: started with TF_CONFIG, read line by line, killed, and always ended."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Iterator, Mapping, Optional, Sequence

ROOT = Path(__file__).resolve().parents[2]


def free_ports(count: int) -> list[int]:
    """Ports that are free at this moment, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class ClusterProcesses:
    """The processes of one cluster.

    Attributes:
        addresses: ``host:port`` by job.
        processes: By name, such as ``ps 1``.
    """

    def __init__(self, jobs: Mapping[str, int], folder: Path) -> None:
        """Chooses addresses.

        Args:
            jobs: How many tasks of each job, such as ``{"chief": 1, "worker": 2, "ps": 1}``.
            folder: Where the processes run and their errors go.
        """
        ports = iter(free_ports(sum(jobs.values())))
        self.addresses = {job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in jobs.items()}
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self._lines: dict[str, queue.Queue[Optional[str]]] = {}

    def start(self, command: Sequence[str], names: Optional[Sequence[str]] = None) -> None:
        """Starts the same command for every task, or for those named."""
        for job, tasks in self.addresses.items():
            for index in range(len(tasks)):
                if names is None or f"{job} {index}" in names:
                    self._start(f"{job} {index}", command)

    def _start(self, name: str, command: Sequence[str]) -> None:
        job, index = name.split(" ")
        task = {"cluster": self.addresses, "task": {"type": job, "index": int(index)}}
        environ = {
            **os.environ,
            "TF_CONFIG": json.dumps(task),
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "",
        }
        with open(self.folder / f"{job}{index}.err", "w", encoding="utf-8") as errors:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=self.folder,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.processes[name] = process
        self._lines[name] = queue.Queue()
        threading.Thread(target=self._read, args=(name, process), daemon=True).start()

    def _read(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines[name].put(line.rstrip("\n"))
        self._lines[name].put(None)

    def lines(self, name: str, seconds: float) -> Iterator[str]:
        """What a process prints, until it closes its output; an error where that takes too long."""
        until = time.monotonic() + seconds
        while True:
            try:
                line = self._lines[name].get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"{name} did not end in {seconds:g} s: {self.errors(name)[-3000:]}") from None
            if line is None:
                return
            yield line

    def errors(self, name: str) -> str:
        """Standard error of a process so far."""
        return (self.folder / f"{name.replace(' ', '')}.err").read_text(encoding="utf-8")

    def codes(self, seconds: float) -> dict[str, Optional[int]]:
        """Exit codes of all processes; None for one that has not ended in time, which is killed."""
        until = time.monotonic() + seconds
        codes: dict[str, Optional[int]] = {}
        for name, process in self.processes.items():
            try:
                codes[name] = process.wait(timeout=max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                codes[name] = None
        self.close()
        return codes

    def kill(self, name: str) -> None:
        """Kills a process as the kernel does when memory runs out."""
        self.processes[name].kill()

    def close(self) -> None:
        """Leaves no process behind."""
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
