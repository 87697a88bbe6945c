"""Phases in which settings bind, and the moments in a process that close them.

A phase says where in a training script a setting belongs; a moment says what in the live process
makes it too late. The two differ: ``TF_XLA_FLAGS`` and ``XLA_FLAGS`` are both environment settings,
but the first is read when the eager context starts and the second at the first XLA compilation.
``tfvolta.bridge.runtime`` looks at the process and says which moments have passed.

Source: the binding points were established by experiment and from TensorFlow's source; each knob's
card names the file that reads it.
"""

from __future__ import annotations

import dataclasses
import enum


class Phase(enum.IntEnum):
    """Where in a training script a setting belongs, in the order in which scripts pass them."""

    ENVIRONMENT = 0
    DEVICES = 1
    STRATEGY = 2
    BUILD = 3
    COMPILE = 4
    FIT = 5
    RUNNING = 6

    @property
    def label(self) -> str:
        """The word used in config, cards and reports."""
        return self.name.lower()


class Moment(enum.Enum):
    """What can happen in a process after which some settings are too late; the value reads well in a sentence."""

    TENSORFLOW_IMPORTED = "TensorFlow was imported"
    DEVICES_LISTED = "the physical devices were listed, which starts the CUDA driver"
    CONTEXT_INITIALIZED = "the eager context was initialised, which creates devices and allocators"
    STRATEGY_CREATED = "the distribution strategy was created"
    MODEL_BUILT = "the model's layers were constructed"
    MODEL_COMPILED = "model.compile was called"
    FIT_STARTED = "model.fit had already made its data iterator"
    TRAIN_STEP_TRACED = "the train step was traced"
    XLA_COMPILED = "XLA compiled something in this process"
    KERNEL_EXECUTED = "a kernel that caches the setting was executed"
    COLLECTIVE_EXECUTED = "a collective was executed, which starts NCCL"
    HOROVOD_STARTED = "Horovod was initialised, which reads its environment"
    NEVER = "nothing closes it"


@dataclasses.dataclass(frozen=True)
class Closure:
    """Why a setting is too late in this process.

    Attributes:
        moment: What has happened.
        seen: How it was seen, such as ``tensorflow.python.eager.context holds an initialised context``.
        move_to: Where the line belongs instead, as an instruction.
    """

    moment: Moment
    seen: str
    move_to: str = ""

    def __str__(self) -> str:
        return f"{self.moment.value} ({self.seen})"
