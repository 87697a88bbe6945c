"""Makes a Keras ready for a strategy of several workers, before there is a model."""

from __future__ import annotations


def serve_workers(stack: str) -> bool:
    """Corrects what the Keras of a stack cannot do with several workers; False where there is nothing to correct.

    Keras 2 and tf_keras train with several workers as they are. Keras 3 does not, and fails in ``fit`` before a
    callback is called, so that its classes are corrected; under other strategies they do what they did.
    """
    if stack != "keras3":
        return False
    from tfvolta.bridge import keras3_workers

    return keras3_workers.install()
