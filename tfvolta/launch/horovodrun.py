"""The command of Horovod's own launcher, for those who want it in place of tfvolta's."""

from __future__ import annotations

import shlex
from typing import Sequence

from tfvolta.errors import LaunchError, Problem
from tfvolta.launch.environment import INTERFACE
from tfvolta.launch.request import Request


def check_kind(request: Request) -> None:
    """Refuses what horovodrun does not start.

    Raises:
        LaunchError: The kind is not Horovod's.
    """
    if request.kind != "horovod":
        problem = Problem(
            where="--print horovodrun",
            expected="strategy.kind: horovod",
            received=request.kind,
            why="horovodrun tells a process its rank only; TensorFlow's own strategies need the addresses of all",
            fix="--kind horovod, or --print slurm",
        )
        raise LaunchError("There is no such command.", [problem])


def horovodrun_words(request: Request, *where: str) -> tuple[str, ...]:
    """The words of the command line, shell syntax in ``where`` left as it is."""
    words: Sequence[str] = [shlex.quote(word) for word in request.command]
    return ("horovodrun", "-np", str(request.workers), *where, "--gloo", *words)


def horovodrun_command(request: Request) -> str:
    """One line that starts the ranks on this machine.

    Raises:
        LaunchError: The kind is not Horovod's.
    """
    check_kind(request)
    return " ".join(horovodrun_words(request, "-H", f"localhost:{request.workers}", "--network-interface", INTERFACE))
