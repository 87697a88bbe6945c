"""The strategies that were built in this process, because the second one may break the first one's collectives.

TensorFlow numbers collective instances from the same start in every strategy object. Two strategies then share
numbers, and a step of the second with gradients of another shape, or over other devices, fails when it runs:
``Shape mismatch in the collective instance 100``. One strategy object counts on and serves any number of models.
"""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any, Optional

from tfvolta.errors import PlanError, Problem


@dataclasses.dataclass(frozen=True)
class Build:
    """What a strategy was built with.

    Attributes:
        devices: Its replicas in this process, ``GPU:0`` and so on.
        implementation: The config's name of the all-reduce.
        num_packs: Packs, where the all-reduce counts them.
        pack_mb: Size of a pack, where it has one.
        workers: Processes with such replicas.
    """

    devices: tuple[str, ...]
    implementation: str
    num_packs: Optional[int] = None
    pack_mb: Optional[int] = None
    workers: int = 1

    @property
    def collective(self) -> bool:
        """Whether it reduces with TensorFlow's collective operations, whose numbers are shared by the process."""
        return self.workers > 1 or (self.implementation == "auto" and len(self.devices) > 1)

    def __str__(self) -> str:
        packs = "" if self.num_packs is None else f", num_packs {self.num_packs}"
        packs += "" if self.pack_mb is None else f", pack_mb {self.pack_mb}"
        kind = "mirrored" if self.workers == 1 else f"{self.workers} workers"
        return f"{kind} over {', '.join(self.devices)} with {self.implementation}{packs}"


_built: dict[Build, Any] = {}
_reducers: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def recall(build: Build) -> Optional[Any]:
    """The strategy that was built like this before: handing it out again keeps collective numbers unique."""
    return _built.get(build)


def check(build: Build, place: str) -> None:
    """Refuses a strategy whose collectives would clash with an earlier one's.

    Args:
        build: What is to be built now.
        place: Where the config asks for it, for the message.

    Raises:
        PlanError: An earlier strategy of this process reduces with collectives over other devices.
    """
    earlier = [other for other in _built if other.collective and other != build]
    if build.collective and earlier:
        problem = Problem(
            where=place,
            expected="one configuration of collectives in a process",
            received=f"{build}, after {earlier[0]}",
            why="every strategy numbers its collectives from the same start, so the second one's steps "
            "fail with a shape mismatch in the collective instance",
            fix="run each configuration in a process of its own",
        )
        raise PlanError("This process has built another strategy already.", [problem])


def remember(build: Build, strategy: Any, reducer: Any = None) -> None:
    """Notes a strategy that was built, and the all-reduce that was made for it."""
    _built[build] = strategy
    if reducer is not None:
        _reducers[strategy] = reducer


def reducer_of(strategy: Any) -> Optional[Any]:
    """The recording all-reduce that a strategy was built with, or None: TensorFlow's default, or not built here."""
    return _reducers.get(strategy)
