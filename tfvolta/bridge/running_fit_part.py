"""The part of every bridge that looks at the callbacks and the frames of the running ``fit``."""

from __future__ import annotations

from typing import Any

from tfvolta.bridge import resuming, running_fit


class RunningFitPart:
    """The same for Keras 2 and Keras 3; see ``tfvolta.bridge.base.Bridge``."""

    def rivals(self, model: Any) -> list[str]:
        """Callbacks of the running ``fit`` that tell it where to begin too, by class name."""
        return resuming.rivals(running_fit.callbacks(model))

    def add_last_callback(self, model: Any, callback: Any) -> bool:
        """Puts a callback behind all others of the running ``fit``, from ``on_train_begin``; False outside one."""
        return running_fit.add_callback(model, callback)

    def is_fit(self, model: Any, frame: Any) -> bool:
        """Whether a Python frame lies inside the running ``fit`` of a model."""
        return running_fit.is_inside(model, frame)
