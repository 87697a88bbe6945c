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
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return Randomness(python=random.getstate())
    name, keys, position, has_gauss, gauss = numpy.random.get_state()
    words = tuple(int(key) for key in keys)
    return Randomness(python=random.getstate(), numpy=(name, words, int(position), int(has_gauss), float(gauss)))


def restore(state: Randomness) -> None:
    """Sets the generators to states that ``capture`` read."""
    if state.python is not None:
        random.setstate(state.python)
    if state.numpy is not None:
        import numpy

        name, keys, *rest = state.numpy
        numpy.random.set_state((name, numpy.array(keys, "uint32"), *rest))
