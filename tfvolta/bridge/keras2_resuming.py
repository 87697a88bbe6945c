"""Keras 2: going on from a checkpoint inside ``fit``.

``fit`` asks ``model._training_state`` where to begin, which is how Keras's own BackupAndRestore tells it; that one
begins in mid-epoch with the epoch's first batches all the same. Here the iterator passes over what was trained.
Source: keras/src/engine/training.py and data_adapter.py of Keras 2.15.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import tensorflow as tf

from tfvolta.bridge import data_order, resuming, running_fit
from tfvolta.bridge.keras2_package import Package
from tfvolta.bridge.keras2_scale_state import hysteresis_state
from tfvolta.bridge.resuming_records import FitStart, FitStream, Named
from tfvolta.bridge.running_fit_part import RunningFitPart


class ResumingPart(RunningFitPart):
    """The part of the bridge that concerns going on from a checkpoint.

    Attributes:
        package: The Keras that it serves.
    """

    package: Package

    def training_variables(self, model: Any) -> dict[str, list[Named]]:
        """Every variable that training changes, by group; see ``tfvolta.bridge.resuming_records``."""
        weights = resuming.named(model.weights)
        known = {id(variable) for _, variable in weights}
        optimizer = [each for each in _optimizer_variables(model.optimizer) if id(each[1]) not in known]
        counters = [("train_counter", model._train_counter), *resuming.generators(model), *_hidden_generators(model)]
        metrics = resuming.named(variable for metric in model.metrics for variable in metric.variables)
        scale = hysteresis_state(self.package, model.optimizer)
        return {
            "model": weights,
            "optimizer": optimizer,
            "counters": counters,
            "loss_scale": scale,
            "metrics": metrics,
        }

    def create_training_variables(self, model: Any) -> bool:
        """Makes the optimiser's variables, as its first step would; False where the model has no variables yet."""
        if not model.built or not model.weights:
            return False
        optimizer = model.optimizer
        create = getattr(optimizer, "_create_all_weights", None) or getattr(optimizer, "build", None)
        if create is not None:
            with model.distribute_strategy.scope():
                create(model.trainable_variables)
        return True

    def trace_step(self, model: Any, iterator: Any) -> None:
        """Traces the train function for an iterator, after which every variable of the training exists."""
        resuming.trace_step(model, iterator)

    def start_fit(self, model: Any, start: FitStart) -> None:
        """Makes the running ``fit`` begin at a checkpoint's place; to be called when it begins."""
        variables = running_fit.local_variables(model) or {}
        handler, first = variables["data_handler"], variables["initial_epoch"]
        if handler._inferred_steps is None and start.epoch_batches:
            handler._inferred_steps = start.epoch_batches
        if not resuming.is_remote(model):
            _pass_epochs(handler, start.epoch - first)
        model._training_state = _Begin(model, start, (start.epoch - first) * (handler._inferred_steps or 0))

    def advance_data(self, model: Any) -> None:
        """Passes over what was trained already; to be called when the first epoch begins."""
        begin = model.__dict__.get(_BEGIN)
        if begin is not None:
            del model.__dict__[_BEGIN]
            begin.advance(running_fit.local_variables(model) or {})

    def end_fit(self, model: Any) -> None:
        """Lets a later fit of this model begin where it is told to."""
        model._training_state = None
        model.__dict__.pop(_BEGIN, None)

    def unsaved_random(self, model: Any) -> list[str]:
        """Layers that draw from kernels whose state nobody can save, by name."""
        own = [(layer, getattr(layer, "_random_generator", None)) for layer in model._flatten_layers()]
        return [layer.name for layer, random in own if getattr(random, "_rng_type", "") == "legacy_stateful"]

    def fit_stream(self, model: Any) -> Optional[FitStream]:
        """How the running ``fit`` reads its data; None outside one."""
        variables = running_fit.local_variables(model) or {}
        handler = variables.get("data_handler")
        if handler is None:
            return None
        if resuming.is_remote(model):
            return FitStream("remote", True, data_order.UNKNOWN, handler._inferred_steps)
        adapter = handler._adapter
        whole = not adapter.should_recreate_iterator()
        kind, order = _kind_and_order(adapter, variables)
        return FitStream(kind, whole, order, handler._inferred_steps, variables.get("iterator"))


_BEGIN = "_tfvolta_begin"


class _Begin:
    """Stands in for Keras's training state for one question: where the fit begins."""

    def __init__(self, model: Any, start: FitStart, before: int):
        self._model, self._start, self._before = model, start, before

    def maybe_load_initial_counters_from_ckpt(self, *_: Any, **__: Any) -> tuple[int, int]:
        """The epoch and the batch; Keras asks once."""
        self._model._training_state = None
        self._model.__dict__[_BEGIN] = self
        return self._start.epoch, self._start.batch

    def advance(self, variables: Any) -> None:
        """Advances the iterator of the first epoch."""
        handler, iterator = variables["data_handler"], variables["iterator"]
        if resuming.is_remote(self._model):
            return
        whole = not handler._adapter.should_recreate_iterator()
        self._start.advance(iterator, self._start.batch + (self._before if whole else 0))
        if handler._inferred_steps is None and self._start.batch:
            _let_end_at_once(self._model, handler, self._start.batch)


def _pass_epochs(handler: Any, epochs: int) -> None:
    """Does what the epochs before did to the data's order: a new iterator each, where there was one, and the hook."""
    adapter = handler._adapter
    for _ in range(epochs):
        if hasattr(adapter, "_keras_sequence"):
            data_order.pass_sequence(adapter.get_size(), adapter._shuffle_sequence)
        elif adapter.should_recreate_iterator():
            data_order.pass_epoch(handler._dataset, _dataset_of(adapter))
        adapter.on_epoch_end()


def _let_end_at_once(model: Any, handler: Any, batch: int) -> None:
    """Lets an epoch of unknown length end without another batch: the checkpoint may be that of its last one.

    Keras 2 takes an epoch without a batch for missing data and raises.
    """
    train: Callable[[Any], Any] = model.train_function

    def first_call(iterator: Any) -> Any:
        model.train_function = train
        try:
            return model.train_function(iterator)
        except tf.errors.OutOfRangeError:
            handler._inferred_steps = batch
            return {metric.name: metric.result() for metric in model.metrics}

    first_call.__wrapped__ = train  # type: ignore[attr-defined]
    model.train_function = first_call


def _dataset_of(adapter: Any) -> Optional[Any]:
    dataset = getattr(adapter, "_dataset", None)
    return dataset if isinstance(dataset, tf.data.Dataset) else None


def _kind_and_order(adapter: Any, variables: Any) -> tuple[str, str]:
    name = type(adapter).__name__
    if name == "DatasetAdapter":
        dataset = _dataset_of(adapter)
        return "dataset", data_order.UNKNOWN if dataset is None else data_order.of_dataset(dataset)
    if running_fit.holds_arrays(adapter):
        return "arrays", data_order.of_arrays(variables.get("shuffle", True))
    return name, data_order.UNKNOWN


def _hidden_generators(model: Any) -> list[Named]:
    """States of generators that Keras hides from checkpoints; its random layers have them where it is told so."""
    own = [(layer, getattr(layer, "_random_generator", None)) for layer in model._flatten_layers()]
    made = [(layer.name, getattr(random, "_generator", None)) for layer, random in own]
    return [(f"{name}/generator", generator.state) for name, generator in made if generator is not None]


def _optimizer_variables(optimizer: Any) -> list[Named]:
    """Slots, counts, rates and the loss scale: those that the optimiser lists, and those that it tracks."""
    if optimizer is None:
        return []
    listed = optimizer.variables
    listed = listed() if callable(listed) else listed
    tracked = [item for item in tf.train.TrackableView(optimizer).descendants() if isinstance(item, tf.Variable)]
    return resuming.named([*listed, *tracked])
