"""What the chief found out, told to every worker, so that all go on or all raise the same error."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any, Callable, Optional

from tfvolta.checkpoint import disk
from tfvolta.checkpoint.agreement import Board
from tfvolta.checkpoint.store import BOARD
from tfvolta.errors import CheckpointError, Problem
from tfvolta.peers import Peers

SEEN_SECONDS = 20.0  # a network file system may show a new folder late
_LOOK_SECONDS = 0.1


def from_chief(peers: Peers, find: Callable[[], Any]) -> Any:
    """What the chief's ``find`` returns, as JSON values, on every worker.

    Raises:
        CheckpointError: The chief's ``find`` raised it; on every worker.
    """
    found: dict[str, Any] = {}
    if peers.is_chief:
        try:
            found = {"value": find()}
        except CheckpointError as error:
            if peers.size == 1:
                raise
            found = {"summary": error.summary, "problems": [dataclasses.asdict(each) for each in error.problems]}
    told = json.loads(peers.gather_bytes(json.dumps(found).encode())[0])
    if "value" not in told:
        raise CheckpointError(told["summary"], [Problem(**each) for each in told["problems"]])
    return told["value"]


def open_board(peers: Peers, directory: Path) -> Optional[Board]:
    """The place where workers tell each other when to stop; None for one process.

    Raises:
        CheckpointError: A worker does not see the chief's folder of checkpoints.
    """
    if peers.size == 1:
        return None
    name = from_chief(peers, lambda: f"{BOARD}{secrets.token_hex(8)}")
    board = Board(directory / name, peers.rank)
    if peers.is_chief:
        board.open()
    seen = peers.is_chief or _appears(directory / name)
    blind = [rank for rank, sees in enumerate(peers.gather_one(int(seen))) if not sees]
    if blind:
        if peers.is_chief:
            board.close()
        names = ", ".join(f"worker {rank}" for rank in blind)
        raise CheckpointError("The workers have different folders of checkpoints.", [_blind(directory, names)])
    return board


def _appears(folder: Path) -> bool:
    """Whether a folder that another machine made is seen here before long."""
    deadline = time.monotonic() + SEEN_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            os.listdir(folder.parent)  # makes a network file system look again
        if folder.is_dir():
            return True
        time.sleep(_LOOK_SECONDS)
    return False


def _blind(directory: Path, names: str) -> Problem:
    return Problem(
        where=disk.place(directory),
        expected="one folder that every worker sees, as on a shared file system",
        received=f"a folder made by worker 0 is not seen by {names}",
        why="a worker that cannot read the checkpoint would begin anew while the others go on",
        fix="set checkpoint.directory to the same absolute path on a shared file system, on every worker",
    )
