"""Looking into a bad step: the batch is run again, eagerly and layer by layer, and what was not finite first is named.

The model's own train step is run, with its loss scaling, so that a step of one's own is served; gradients end in front
of the optimiser. Variables that a step changes (batch statistics, seeds, metrics) get their values back.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Iterator, Optional, Sequence

import tensorflow as tf

from tfvolta.bridge.eager_calls import LayerCall, LayerCalls, unfit
from tfvolta.bridge.gradient_path import REPLAY, Arrival, GradientPath
from tfvolta.bridge.replay_records import NOTHING, Culprit
from tfvolta.bridge.window import key_of

_PARTS = ("inputs", "targets", "sample weights")


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model whose step is run again.

    Attributes:
        model: The model.
        path: The way of its gradients.
        layers: Its layers by path.
        owners: Path and class of the layer that owns each variable, by ``window.key_of``.
        classes: What calls of layers are calls of, the most special first.
        changing: Variables that a step changes, or that are replaced to run one.
    """

    model: Any
    path: GradientPath
    layers: Sequence[tuple[str, Any]]
    owners: dict[Any, tuple[str, str]]
    classes: Sequence[Any]
    changing: Sequence[Any]

    def copies(self, variable: Any) -> Sequence[Any]:
        """The copies of a variable in this process; reading them takes no other."""
        found: Sequence[Any] = self.model.distribute_strategy.experimental_local_results(variable)
        return found


def bad_weights(subject: Subject, trainable: bool) -> list[tuple[str, str, str]]:
    """Layer, class and finding of each variable that is not finite.

    Args:
        trainable: Whether to look at the trainable ones, or at the others: a forward pass changes moving statistics
            whether its step is skipped or not, so they are no cause of what went wrong in training mode.
    """
    found = []
    for variable in subject.model.trainable_variables if trainable else subject.model.non_trainable_variables:
        held = getattr(variable, "value", variable)
        text = unfit(tf.convert_to_tensor(subject.copies(variable if callable(held) else held)[0]))
        if text:
            path, name = subject.owners.get(key_of(variable), ("", type(subject.model).__name__))
            found.append((path, name, f"{getattr(variable, 'path', variable.name)} has {text}"))
    return found


def bad_data(subject: Subject, batch: Any) -> Optional[Culprit]:
    """What of a batch is not finite."""
    parts = batch if isinstance(batch, tuple) else (batch,)
    for name, part in zip(_PARTS, parts):
        for tensor in tf.nest.flatten(part, expand_composites=True):
            text = unfit(tensor)
            if text:
                return Culprit(name if name != "sample weights" else "targets", detail=f"the {name} have {text}")
    return None


def run_again(subject: Subject, batch: Any, together: bool = False) -> Culprit:
    """Runs a batch again and says what was not finite first; nothing of the model is changed by it.

    Args:
        together: Whether other workers do the same now, and the step may wait for them: it is then run in any case.
    """
    found = bad_data(subject, batch)
    if found is not None and not together:
        return found
    names = {id(layer): path for path, layer in subject.layers}
    calls = LayerCalls(subject.model, names)
    subject.path.arrived.clear()
    try:
        with as_it_was(subject), _eagerly(), subject.path.mode(REPLAY), calls.watching(subject.classes):
            subject.model.reset_metrics()
            logs = subject.model.distribute_strategy.run(subject.model.train_step, args=(_without_optionals(batch),))
            losses = [unfit(tf.convert_to_tensor(each)) for each in _losses(subject, logs)]
        for thread in calls.threads.values():
            found = found or _forwards(subject, thread)
        if found is None and any(losses):
            whose, here = ("of all workers ", " here") if together else ("", "")
            seen = next(filter(None, losses))
            found = Culprit("loss", detail=f"the loss {whose}has {seen} although all layers are finite{here}")
        arrivals = list(subject.path.arrived)
        for thread in calls.threads.values():
            found = found or _backwards(subject, thread, arrivals)
        return found or Culprit(NOTHING, detail="all of the step was finite when it was run again")
    except Exception as error:  # whatever a script's step raises: the alarm itself must come through
        line = (str(error).splitlines() or [""])[0]
        return Culprit(NOTHING, detail=f"the step could not be run again eagerly: {type(error).__name__}: {line}")
    finally:
        subject.path.arrived.clear()


def _forwards(subject: Subject, calls: Sequence[LayerCall]) -> Optional[Culprit]:
    own = {path: text for path, _, text in bad_weights(subject, trainable=False)}
    for call in calls:
        if call.bad_inputs:
            text = f"its inputs have {call.bad_inputs}, which the code of the model before it has made"
            return Culprit("activations", call.path, type(call.layer).__name__, text)
        if call.bad_outputs:
            if call.path in own:
                return Culprit("weights", call.path, type(call.layer).__name__, own[call.path])
            text = f"its inputs are finite and its outputs ({call.dtype}) have {call.bad_outputs}"
            return Culprit("activations", call.path, type(call.layer).__name__, text)
    return None


def _backwards(subject: Subject, calls: Sequence[LayerCall], arrivals: Sequence[Arrival]) -> Optional[Culprit]:
    """The layer in which gradients cease to be finite: what comes to it is, and what it gives is not."""
    bad: dict[str, str] = {}
    for arrival in arrivals:
        for gradient, variable in zip(arrival.gradients, arrival.variables):
            text = "" if gradient is None else unfit(gradient)
            if text:
                path = subject.owners.get(key_of(variable), ("", ""))[0]
                bad.setdefault(path, f"the gradient of {getattr(variable, 'path', variable.name)} has {text}")
    after: Optional[LayerCall] = None
    for call in reversed([each for each in calls if not each.holds_calls]):
        name = type(call.layer).__name__
        if call.gradient_in is False:
            where = f"between it and {after.path}" if after is not None else "between it and the loss"
            text = f"the gradient of its outputs is not finite when it comes to it: it arose {where}"
            return Culprit("gradients", call.path, name, text)
        if call.gradient_out is False or call.path in bad:
            text = bad.get(call.path, "the gradient of its inputs is not finite")
            return Culprit("gradients", call.path, name, f"{text}; what came to the layer was finite")
        after = call
    for path, text in bad.items():
        layer = dict(subject.layers).get(path)
        return Culprit("gradients", path, type(layer if layer is not None else subject.model).__name__, text)
    return None


def _losses(subject: Subject, logs: Any) -> list[Any]:
    """The logs of a step that are losses, of every replica here."""
    if not isinstance(logs, dict):
        return []
    found = [value for name, value in logs.items() if "loss" in str(name)]
    return [copy for value in found for copy in subject.model.distribute_strategy.experimental_local_results(value)]


@contextlib.contextmanager
def as_it_was(subject: Subject) -> Iterator[None]:
    """Gives variables their values back at the end; meanwhile the values lie in the memory of the host."""
    held = [(copy, copy.numpy()) for variable in subject.changing for copy in subject.copies(variable)]
    try:
        yield
    finally:
        for copy, value in held:
            copy.assign(value)


@contextlib.contextmanager
def _eagerly() -> Iterator[None]:
    former = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(former)


def _without_optionals(batch: Any) -> Any:
    """A batch in which Keras 3's empty places are None, as its train step is given them."""
    return tf.nest.map_structure(lambda each: None if isinstance(each, tf.experimental.Optional) else each, batch)
