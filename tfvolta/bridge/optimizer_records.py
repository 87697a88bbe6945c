"""What the bridges take and hand out about optimisers."""

from __future__ import annotations

import dataclasses
from typing import Optional


@dataclasses.dataclass(frozen=True)
class OptimizerChoice:
    """An optimiser as the config asks for it.

    Attributes:
        name: Such as ``lamb``; None keeps the class that the script compiled with.
        learning_rate: None takes that of the script's optimiser, schedules included.
        weight_decay: None takes the class's default.
        average: ``exponential`` or ``stochastic`` average of the weights; None for neither.
        average_decay: Of the exponential average.
        average_every_steps: Steps between two weights that the stochastic average takes in.
    """

    name: Optional[str] = None
    learning_rate: Optional[float] = None
    weight_decay: Optional[float] = None
    average: Optional[str] = None
    average_decay: float = 0.99
    average_every_steps: int = 10


@dataclasses.dataclass(frozen=True)
class OptimizerState:
    """What a compiled model's optimiser is, inside any loss-scale wrapper.

    Attributes:
        class_name: Such as ``LAMB``; of the optimiser inside an averaging wrapper.
        package: ``keras``, ``tf_keras``, ``tensorflow_addons`` or another's name.
        family: ``new`` (Keras 2.11 on, and Keras 3) or ``legacy`` (``keras.optimizers.legacy``, TensorFlow Addons).
        iterations: Steps that it has taken; one device read.
        slots: Variables that it keeps beside the weights, such as moments; 0 before it is built.
        average: ``exponential``, ``stochastic`` or None.
    """

    class_name: str
    package: str
    family: str
    iterations: int
    slots: int
    average: Optional[str]


@dataclasses.dataclass(frozen=True)
class LearningRateState:
    """The learning rate of a compiled model's optimiser.

    Attributes:
        value: Present value; None where a schedule makes it.
        schedule: Class of the schedule; empty where there is none.
    """

    value: Optional[float]
    schedule: str = ""
