"""The part of every bridge that keeps batches and looks into a bad step."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Protocol, Sequence

import tensorflow as tf

from tfvolta.bridge import reduction_part, replay
from tfvolta.bridge.gradient_path import GradientPath
from tfvolta.bridge.kept_batches import BatchKeeper
from tfvolta.bridge.reduction import ReductionSettings
from tfvolta.bridge.reduction_part import Adapter
from tfvolta.bridge.replay_records import NOTHING, Culprit
from tfvolta.bridge.resuming_records import Named
from tfvolta.bridge.window import key_of


class _Host(Protocol):
    """What the part needs of the bridge that it belongs to."""

    reduction_adapter: Adapter

    def layers(self, model: Any) -> list[tuple[str, Any]]:
        """Every layer below the model by path."""

    def own_variables(self, layer: Any) -> list[Any]:
        """Variables that a layer holds itself."""

    def training_variables(self, model: Any) -> dict[str, list[Named]]:
        """Variables that training changes, by group."""

    def called_classes(self) -> Sequence[Any]:
        """What calls of layers are calls of, the most special first."""

    def scale_variable(self, optimizer: Any) -> Optional[Any]:
        """The variable of a loss scale."""


class ReplayPart:
    """The same for Keras 2 and Keras 3; see ``tfvolta.bridge.base.Bridge``."""

    def keep_batches(self: _Host, model: Any, number: Optional[int]) -> bool:
        """Keeps the last batches that a compiled model is trained with; None: no longer."""
        path = reduction_part.path_of(model)
        present = None if path is None or path.keeper is None else path.keeper.number
        if present != number:
            keeper = None if number is None else BatchKeeper(number)
            reduction_part.observe(self.reduction_adapter, model, keeper=keeper)
        return present != number

    def start_keeping(self, model: Any, active: bool = True) -> None:
        """Begins a fit whose batches are kept, or lets go of them."""
        path = reduction_part.path_of(model)
        if path is not None and path.keeper is not None:
            path.keeper.restart(active)

    def bad_weights(self: _Host, model: Any, trainable: bool = True) -> list[str]:
        """What of a model's trainable weights, or of its others, is not finite, a sentence each."""
        return [text for _, _, text in replay.bad_weights(_subject(self, model), trainable)]

    def remembered_weights(self, model: Any) -> list[Any]:
        """The weights in the memory of the host, for ``find_culprit``."""
        copies = model.distribute_strategy.experimental_local_results
        return [[copy.numpy() for copy in copies(variable)] for variable in _trainable(model)]

    def find_culprit(
        self: _Host, model: Any, remembered: Optional[list[Any]] = None, together: bool = False
    ) -> Culprit:
        """What was not finite first in the batches that are kept; see ``tfvolta.bridge.base.Bridge``."""
        subject = _subject(self, model)
        batches = [] if subject.path.keeper is None else subject.path.keeper.batches()
        damaged = replay.bad_weights(subject, trainable=True)
        if damaged and (remembered is None or not batches):
            path, name, text = damaged[0]
            return Culprit("weights", path, name, text)
        if not batches:
            return Culprit(NOTHING, detail="no batch is kept to run again: calls of several batches hand none out")
        found, last = Culprit(NOTHING), Culprit(NOTHING)
        scale = self.scale_variable(model.optimizer)
        with replay.as_it_was(subject):
            if damaged and remembered is not None:
                _put_back(model, remembered)
            # The step that was skipped had twice the present scale, where that has fallen since.
            for factor in (1.0,) if scale is None else (1.0, 2.0):
                value = _scaled(subject, scale, factor)
                for number, batch in enumerate(batches):
                    last = replay.run_again(subject, batch, together)
                    if last.kind != NOTHING and found.kind == NOTHING:
                        found = dataclasses.replace(last, loss_scale=value, batches_ago=len(batches) - 1 - number)
                    if found.kind != NOTHING and not together:
                        return dataclasses.replace(found, remembered_weights=bool(damaged))
        if found.kind != NOTHING:
            return dataclasses.replace(found, remembered_weights=bool(damaged))
        if damaged:
            path, name, text = damaged[0]
            return Culprit("weights", path, name, f"{text}; {last.detail} with the weights of the start of the epoch")
        return last


def _subject(bridge: _Host, model: Any) -> replay.Subject:
    layers = bridge.layers(model)
    owners = {
        key_of(variable): (path, type(layer).__name__)
        for path, layer in [("", model), *layers]
        for variable in bridge.own_variables(layer)
    }
    groups = bridge.training_variables(model)
    changing = [variable for name in ("model", "counters", "metrics") for _, variable in groups[name]]
    scale = bridge.scale_variable(model.optimizer)
    changing += [] if scale is None else [scale]
    path = reduction_part.path_of(model)
    if path is None:
        path = GradientPath(ReductionSettings())
    return replay.Subject(model, path, layers, owners, bridge.called_classes(), changing)


def _trainable(model: Any) -> list[Any]:
    """TensorFlow's own variables of the trainable weights."""
    return [each if isinstance(each, tf.Variable) else each.value for each in model.trainable_variables]


def _put_back(model: Any, remembered: list[Any]) -> None:
    copies = model.distribute_strategy.experimental_local_results
    for variable, values in zip(_trainable(model), remembered):
        for copy, value in zip(copies(variable), values):
            copy.assign(value)


def _scaled(subject: replay.Subject, variable: Any, factor: float) -> Optional[float]:
    """Multiplies the loss scale for the time being; what it is then."""
    if variable is None:
        return None
    copies = subject.copies(variable)
    value = float(copies[0].numpy()) * factor
    for copy in copies:
        copy.assign(value)
    return value
