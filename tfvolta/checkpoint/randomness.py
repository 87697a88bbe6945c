"""The global random generators of Python and NumPy, read and set as JSON values.

TensorFlow's own are variables and travel with the model's state; the random kernels of a traced step that keep their
state to themselves (Keras 2's dropout) cannot be saved by anyone.
"""

from __future__ import annotations

import random
import sys

from tfvolta.checkpoint.manifest import Randomness


def capture() -> Randomness:
    """The present states; NumPy's only where something imported it."""
    version, words, gauss = random.getstate()
    numpy = sys.modules.get("numpy")
    found: tuple[object, ...] = ()
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        found = (name, tuple(int(key) for key in keys), *(float(value) for value in rest))
    return Randomness(python=(version, tuple(words), gauss), numpy=found)


def restore(state: Randomness) -> None:
    """Sets the generators to states that ``capture`` read."""
    if state.python:
        version, words, gauss = state.python
        random.setstate((version, tuple(words), gauss))
    if state.numpy:
        import numpy

        name, keys, position, has_gauss, cached = state.numpy
        numpy.random.set_state((name, numpy.array(keys, "uint32"), int(position), int(has_gauss), cached))
