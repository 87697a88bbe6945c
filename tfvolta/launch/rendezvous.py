"""Horovod's rendezvous server in a process of its own: ``python -m tfvolta.launch.rendezvous SIZE`` prints its port.

Ranks that Gloo joins meet at an HTTP server of Horovod's. Its launcher has it in a thread, beside threads that run each
worker; here the workers are tfvolta's own processes, so that output, failures and signals are the same for all kinds.

Source: ``launch_gloo`` in ``horovod/runner/gloo_run.py``, Horovod 0.28.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from typing import Callable, Mapping, Optional

from tfvolta.errors import LaunchError, Problem
from tfvolta.launch.process import start_process

# Importing Horovod's runner takes a second or two, and longer on a busy machine.
_START_SECONDS = 120.0


class Rendezvous:
    """A running rendezvous server.

    Attributes:
        port: Where it listens.
    """

    def __init__(self, size: int, environ: Mapping[str, str], stops: Callable[[], bool] = lambda: False):
        """Starts the server, and waits until it listens.

        Args:
            size: Number of ranks.
            environ: Of the launcher.
            stops: Whether the launcher was told to end.

        Raises:
            LaunchError: It does not start, with what it said.
            KeyboardInterrupt: The launcher was told to end.
        """
        command = [sys.executable, "-m", "tfvolta.launch.rendezvous", str(size)]
        self._popen = start_process(command, environ)
        line = _first_line(self._popen, stops)
        if stops():
            self.close()
            raise KeyboardInterrupt
        if line is None or not line.strip().isdigit():
            self.close()
            raise LaunchError("Horovod's rendezvous server does not start.", [self._problem()])
        self.port = int(line)

    def close(self) -> None:
        """Ends the server."""
        if self._popen.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()

    def _problem(self) -> Problem:
        said = self._popen.stderr.read().decode("utf-8", "replace") if self._popen.stderr is not None else ""
        return Problem(
            where="horovod.runner",
            expected="a rendezvous server of Horovod 0.28",
            received=(said.strip().splitlines() or [f"nothing within {_START_SECONDS:g} s"])[-1],
            fix="check the installation: horovodrun --check-build",
        )


def _first_line(popen: subprocess.Popen[bytes], stops: Callable[[], bool]) -> Optional[bytes]:
    """What the process prints first; None where it ends or takes too long."""
    assert popen.stdout is not None
    until, text = time.monotonic() + _START_SECONDS, b""
    while b"\n" not in text:
        ready, _, _ = select.select([popen.stdout], [], [], 0.2)
        if not ready and time.monotonic() < until and not stops():
            continue
        piece = os.read(popen.stdout.fileno(), 4096) if ready else b""
        if not piece:
            return None
        text += piece
    return text.partition(b"\n")[0]


def serve(size: int) -> None:
    """Serves until it is killed.

    Args:
        size: Number of ranks, all on this machine.
    """
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousServer

    server = RendezvousServer(0)
    port = server.start()
    server.init(get_host_assignments(parse_hosts(f"localhost:{size}"), size))
    print(port, flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
