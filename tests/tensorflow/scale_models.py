"""A model whose gradients are finite or not as its data say, and what a loss scale must then be, in Python."""

from __future__ import annotations

from typing import Any, Iterable, Optional

import numpy as np

from tests.stack import keras
from tfvolta.bridge.scale_bounds import ScaleBounds

BATCH = 2


def model(optimizer: Any = None, steps_per_execution: int = 1, **compiled: Any) -> Any:
    """One weight, 1.0; the gradient of a batch of ones is 2 (1 - 0) 1 = 2."""
    made = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    optimizer = optimizer or keras.optimizers.SGD(0.0)
    made.compile(optimizer, "mse", steps_per_execution=steps_per_execution, **compiled)
    return made


def data(finite: Iterable[bool]) -> tuple[Any, Any]:
    """A batch for each entry; one that is False has an infinity in its last row."""
    x = np.ones((0, 1), "float32")
    for is_finite in finite:
        batch = np.ones((BATCH, 1), "float32")
        batch[-1] = 1.0 if is_finite else np.inf
        x = np.concatenate([x, batch])
    return x, np.zeros_like(x)


def fit(trained: Any, finite: Iterable[bool], **arguments: Any) -> Any:
    """Trains a batch for each entry, in order."""
    x, y = data(finite)
    return trained.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, **arguments)


class Expected:
    """The rules of ``tfvolta.bridge.scale_control``, in Python."""

    def __init__(self, scale: float, growth_steps: int, bounds: Optional[ScaleBounds] = None):
        self.scale, self.growth_steps, self.bounds = scale, growth_steps, bounds or ScaleBounds()
        self.good = self.overflows = self.row = self.longest = 0

    def steps(self, finite: Iterable[bool]) -> Expected:
        """Takes steps."""
        for is_finite in finite:
            if is_finite:
                self.row = 0
                self.good += 1
                if self.good == self.growth_steps:
                    self.good = self.overflows = 0
                    self.scale = self.bounds.limited(self.scale * 2)
                continue
            self.row += 1
            self.longest = max(self.longest, self.row)
            self.good = 0
            self.overflows += 1
            if self.overflows >= self.bounds.hysteresis:
                self.overflows = self.bounds.hysteresis
                self.scale = self.bounds.limited(self.scale / 2)
        return self
