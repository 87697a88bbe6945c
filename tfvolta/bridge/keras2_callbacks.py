"""A CallbackList for Keras 2's ``fit`` that forces no device synchronisation, and what callbacks ask of a model."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, Optional

import tensorflow as tf

from tfvolta.bridge import running_fit
from tfvolta.bridge.keras2_logs import LazyLogs
from tfvolta.bridge.keras2_package import Package


@functools.cache
def lazy_list_class(package: Package) -> Any:
    """Keras's CallbackList with batch logs converted on access, instead of for every batch and all callbacks.

    Stock Keras 2 converts each batch's logs, which waits for the device, as soon as one callback with batch hooks lacks
    ``_supports_tf_logs``. Here such a callback gets a dict that converts itself when it is read.
    """

    class LazyCallbackList(package.callbacks.CallbackList):  # type: ignore[name-defined,misc]
        def on_train_begin(self, logs: Optional[Mapping[str, Any]] = None) -> None:
            # A list that was made outside of ``fit`` does not know yet how many batches ``fit`` found.
            if self.params and self.params.get("steps") is None:
                handler = (running_fit.local_variables(self.model) or {}).get("data_handler")
                steps = getattr(handler, "inferred_steps", None)
                if steps is not None:
                    self.set_params({**self.params, "steps": int(steps)})
            super().on_train_begin(logs)

        def _call_batch_hook_helper(self, hook_name: str, batch: int, logs: Optional[Mapping[str, Any]]) -> None:
            raw: Any = {} if logs is None else dict(logs) if isinstance(logs, Mapping) else logs
            lazy: Any = None
            started = package.callbacks.time.time()
            for callback in self.callbacks:
                if getattr(callback, "_supports_tf_logs", False) or not raw:
                    getattr(callback, hook_name)(batch, raw)
                    continue
                if lazy is None:
                    lazy = _lazy(package, raw)
                getattr(callback, hook_name)(batch, lazy)
            if self._check_timing:  # Keras warns of slow hooks after the first batches
                self._hook_times.setdefault(hook_name, []).append(package.callbacks.time.time() - started)

    return LazyCallbackList


def _lazy(package: Package, raw: Any) -> Any:
    convert = package.tf_utils.sync_to_numpy_or_python_type
    return LazyLogs(raw, convert, raw) if isinstance(raw, dict) else convert(raw)


class CallbackPart:
    """The part of the bridge that concerns callbacks.

    Attributes:
        package: The Keras that it serves.
    """

    package: Package

    def callback_list(self, callbacks: Any, model: Any, **arguments: Any) -> Any:
        """A CallbackList for ``fit`` that converts logs to numbers only when a callback looks at them.

        Args:
            callbacks: A callback, a list of them or None; a CallbackList is returned as it is.
            model: The model that will be trained; each callback's ``set_model`` is called at once.
            arguments: The other arguments of the ``fit`` call. ``verbose``, ``epochs`` and the number of steps are
                taken from them, as ``fit`` leaves a ready list alone; ``steps`` may be given outright.
        """
        if isinstance(callbacks, self.package.callbacks.CallbackList):
            return callbacks
        verbose = self.package.training._get_verbosity(arguments.get("verbose", "auto"), model.distribute_strategy)
        steps = arguments["steps"] if "steps" in arguments else steps_of(self.package, arguments)
        with model.distribute_strategy.scope():
            return lazy_list_class(self.package)(
                callbacks,
                add_history=True,
                add_progbar=verbose != 0,
                model=model,
                verbose=verbose,
                epochs=arguments.get("epochs", 1),
                steps=steps,
            )

    def examples_seen(self, model: Any) -> Optional[int]:
        """Examples of the running epoch, from the loss tracker's weight; one device read. None where it is not kept."""
        losses = getattr(model, "compiled_loss", None)
        tracker = getattr(losses, "_total_loss_mean", None)
        if tracker is None:
            return None
        seen = int(tracker.count.numpy())
        own_step = getattr(model.train_step, "__func__", None) is not self.package.model.train_step
        return None if seen == 0 and own_step else seen


def steps_of(package: Package, arguments: Mapping[str, Any]) -> Optional[int]:
    """Batches per epoch, as ``fit`` will find them; None where the data do not say."""
    if arguments.get("steps_per_epoch"):
        return int(arguments["steps_per_epoch"])
    data = arguments.get("x")
    if isinstance(data, tf.data.Dataset):
        cardinality = int(data.cardinality().numpy())
        return cardinality if cardinality >= 0 else None
    if isinstance(data, package.keras.utils.Sequence):
        return len(data)
    leaves = [leaf for leaf in tf.nest.flatten(data) if getattr(leaf, "shape", None)] if data is not None else []
    if not leaves:
        return None
    examples = int(leaves[0].shape[0])
    split = arguments.get("validation_split") or 0.0
    if split and not arguments.get("validation_data"):
        examples = math.floor(examples * (1.0 - split))
    return math.ceil(examples / (arguments.get("batch_size") or 32))
