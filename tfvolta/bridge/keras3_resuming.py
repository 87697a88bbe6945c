"""Keras 3: going on from a checkpoint inside ``fit``.

``fit`` begins at ``model._initial_epoch`` where that is set, which is how Keras's own BackupAndRestore tells it; that
one begins the epoch anew. Here the epoch's enumeration, which makes the iterator, begins behind what was trained.
Source: keras/src/backend/tensorflow/trainer.py and keras/src/trainers/epoch_iterator.py of Keras 3.15.
"""

from __future__ import annotations

from typing import Any, Iterator, Optional

import tensorflow as tf

from tfvolta.bridge import data_order, keras3_loss_scale, resuming, running_fit
from tfvolta.bridge.resuming_records import FitStart, FitStream, Named
from tfvolta.bridge.running_fit_part import RunningFitPart

_ENUMERATE = "_enumerate_iterator"
_Steps = Iterator[tuple[int, int, Any]]


class ResumingPart(RunningFitPart):
    """The part of the bridge that concerns going on from a checkpoint; see ``tfvolta.bridge.base.Bridge``."""

    def training_variables(self, model: Any) -> dict[str, list[Named]]:
        """Every variable that training changes, by group; see ``tfvolta.bridge.resuming_records``."""
        optimizer = model.optimizer
        return {
            "model": resuming.named(model.variables),
            "optimizer": [] if optimizer is None else resuming.named(optimizer.variables),
            "counters": resuming.generators(model),
            "loss_scale": keras3_loss_scale.hysteresis_state(optimizer),
            "metrics": resuming.named(variable for metric in model.metrics for variable in metric.variables),
        }

    def create_training_variables(self, model: Any) -> bool:
        """Makes the optimiser's variables, as its first step would; False where the model has no variables yet."""
        if not model.built or not model.variables:
            return False
        if model.optimizer is not None and not model.optimizer.built:
            with model.distribute_strategy.scope():
                model.optimizer.build(model.trainable_variables)
        return True

    def trace_step(self, model: Any, iterator: Any) -> None:
        """Traces the train function for an iterator, after which every variable of the training exists."""
        resuming.trace_step(model, iterator)

    def start_fit(self, model: Any, start: FitStart) -> None:
        """Makes the running ``fit`` begin at a checkpoint's place; to be called when it begins."""
        variables = running_fit.local_variables(model) or {}
        epochs = variables["epoch_iterator"]
        first = variables["initial_epoch"]
        model._initial_epoch = start.epoch
        if resuming.is_remote(model):
            return
        before = _pass_epochs(epochs, start.epoch - first)
        original = epochs._enumerate_iterator

        def begin() -> _Steps:
            del epochs.__dict__[_ENUMERATE]
            return _rest_of_epoch(epochs, original(), start, before)

        epochs.__dict__[_ENUMERATE] = begin

    def advance_data(self, model: Any) -> None:
        """Nothing: the enumeration of the first epoch does it."""

    def end_fit(self, model: Any) -> None:
        """Lets a later fit of this model begin where it is told to."""
        model._initial_epoch = None

    def unsaved_random(self, model: Any) -> list[str]:
        """None: the seeds of Keras 3 are variables."""
        return []

    def fit_stream(self, model: Any) -> Optional[FitStream]:
        """How the running ``fit`` reads its data; None outside one."""
        variables = running_fit.local_variables(model) or {}
        epochs = variables.get("epoch_iterator")
        if epochs is None:
            return None
        if resuming.is_remote(model):
            return FitStream("remote", True, data_order.UNKNOWN, epochs.num_batches)
        iterator = variables.get("iterator")
        whole = bool(epochs.steps_per_epoch) and epochs.steps_per_epoch != epochs._num_batches
        if whole:
            iterator = epochs._current_iterator or iterator
        kind, order = _kind_and_order(epochs.data_adapter)
        return FitStream(kind, whole, order, epochs.num_batches, iterator)


def _rest_of_epoch(epochs: Any, steps: _Steps, start: FitStart, before: int) -> _Steps:
    """The calls of an epoch that are left, on an iterator that has passed over what was trained."""
    number = epochs.steps_per_epoch or epochs._num_batches
    per_call = epochs.steps_per_execution
    calls = start.batch // per_call if not number else -(-number // per_call) - -(-(number - start.batch) // per_call)
    advanced = False
    for begin, end, iterator in steps:
        if not advanced:
            advanced = True
            epochs._steps_seen += before
            start.advance(iterator, start.batch + before)
        if calls:
            calls -= 1
            continue
        yield begin, end, iterator


def _pass_epochs(epochs: Any, number: int) -> int:
    """Does what the epochs before did to the data's order: iterators of their own, where they had one, and hooks.

    Returns:
        Batches that they took from the iterator that the next epoch goes on with.
    """
    adapter = epochs.data_adapter
    sequence = getattr(adapter, "py_dataset", None)
    original = getattr(adapter, "_dataset", None)
    original = original if isinstance(original, tf.data.Dataset) else None
    length, taken = epochs._num_batches, 0
    for _ in range(number):
        if sequence is not None:
            sequence.on_epoch_begin()
            data_order.pass_sequence(length, adapter.shuffle)
            sequence.on_epoch_end()
            continue
        # Without steps_per_epoch an epoch makes an iterator at its start, and one more at an end that was foreseen.
        if not epochs.steps_per_epoch:
            data_order.pass_epoch(epochs._get_iterator(), original)
        taken += epochs.steps_per_epoch or length or 0
        if length and taken >= length:
            taken = 0
            iter(epochs._get_iterator())
    return taken if epochs.steps_per_epoch else 0


def _kind_and_order(adapter: Any) -> tuple[str, str]:
    dataset = getattr(adapter, "_dataset", None)
    if isinstance(dataset, tf.data.Dataset):
        return "dataset", data_order.of_dataset(dataset)
    if running_fit.holds_arrays(adapter):
        return "arrays", data_order.of_arrays(adapter._shuffle)
    return type(adapter).__name__, data_order.UNKNOWN
