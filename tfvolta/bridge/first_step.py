"""Something to do right before a model's train function runs next, with the iterator that it is given."""

from __future__ import annotations

from typing import Any, Callable


class FirstCall:
    """Stands in for a model's train function until it is called once.

    Tools that look for ``tf.function`` objects find them through ``__wrapped__``.

    Attributes:
        actions: What to do, in order; each is given the iterator.
    """

    def __init__(self, model: Any, action: Callable[[Any], None]):
        self.__wrapped__ = model.train_function
        self._model = model
        self.actions = [action]

    def __call__(self, iterator: Any) -> Any:
        """Puts the train function back, acts, and runs the train function that the model has then."""
        if self._model.train_function is self:
            self._model.train_function = self.__wrapped__
        for action in self.actions:
            action(iterator)
        return self._model.train_function(iterator)


def before_first_step(model: Any, action: Callable[[Any], None]) -> None:
    """See ``tfvolta.bridge.base.Bridge.before_first_step``."""
    former = getattr(model, "train_function", None)
    if isinstance(former, FirstCall):
        former.actions.append(action)
    elif former is not None:
        model.train_function = FirstCall(model, action)
