"""Correcting a conversion of a Keras 2 model by trial runs: what does not compute is refused, layer by layer."""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow as tf

from tfvolta.bridge.keras2_casts import cast_floating, cast_results
from tfvolta.bridge.keras2_conversion import Conversion
from tfvolta.bridge.keras2_layers import input_spec, is_input, is_predictable, nodes
from tfvolta.bridge.keras2_outputs import output_makers
from tfvolta.bridge.keras2_probe import try_out

_WAITING = "_tfvolta_waits_for_first_call"


def needs_trial(conversion: Conversion) -> bool:
    """Whether a layer of unknown behaviour is about to compute under the policy."""
    computing = conversion.computing()
    layers = [conversion.model, *(node.layer for node in computing)]
    unknown = [layer for layer in layers if not is_predictable(conversion.package, layer)]
    # Code that gets the results of layers in both precisions may mix them.
    kept = conversion.islands | set(conversion.refused)
    unknown += [node.parent for node in computing if id(node.layer) in kept and id(node.parent) not in kept]
    symbolic = (conversion.package.functional, conversion.package.sequential)  # run no code of their own
    return any(id(layer) not in conversion.refused and not isinstance(layer, symbolic) for layer in unknown)


def settle(
    conversion: Conversion, spec: tuple[Sequence[Any], dict[str, Any]], modes: Sequence[bool] = (True, False)
) -> None:
    """Tries the model out and refuses one layer after the other until it computes.

    Args:
        conversion: A conversion that was carried out.
        spec: What the model is called with.
        modes: Values of ``training`` to try.
    """
    for training in modes:
        for _ in range(len(nodes(conversion.model)) + 1):
            trial = try_out(conversion.package, conversion.model, spec, training)
            if trial.culprit is None:
                break
            if id(trial.culprit) in conversion.refused or id(trial.culprit) in conversion.islands:
                refuse_unpredictable(conversion, f"could not be tried out: {trial.reason}")
                return
            conversion.refuse(trial.culprit, trial.reason)


def refuse_unpredictable(conversion: Conversion, reason: str) -> None:
    """Refuses every layer whose behaviour is not known; used where no trial run is possible."""
    for node in nodes(conversion.model):
        known = is_predictable(conversion.package, node.layer) or is_input(node.layer)
        if not known and id(node.layer) not in conversion.refused and id(node.layer) not in conversion.islands:
            conversion.refuse(node.layer, reason)


def correct(conversion: Conversion, float32_output: bool) -> None:
    """Sees to layers of unknown behaviour and to outputs that no graph shows, now or at the first call."""
    model, package = conversion.model, conversion.package
    symbolic = isinstance(model, (package.functional, package.sequential))
    if type(model).call is package.model.call:  # never called itself: its train step calls models that it holds
        _correct_parts(conversion, float32_output)
        return
    spec = input_spec(model)
    if symbolic and not needs_trial(conversion):
        return
    if spec is None:
        _correct_at_first_call(conversion, float32_output and not symbolic)
        return
    if len(conversion.journal) and needs_trial(conversion):
        settle(conversion, spec, _modes(model))
    if float32_output and not symbolic:
        _float32_results(conversion, spec)


def _correct_parts(conversion: Conversion, float32_output: bool) -> None:
    """Each built model that a never-called model holds is settled as a model of its own."""
    for part in conversion.model._flatten_layers(recursive=False, include_self=False):
        spec = input_spec(part)
        if spec is None:
            continue
        inner = Conversion(conversion.package, part, conversion.policy)
        inner.journal, inner.refused, inner.islands = conversion.journal, conversion.refused, conversion.islands
        if float32_output and isinstance(part, conversion.package.model):
            for maker in output_makers(conversion.package, part):
                for layer in maker._flatten_layers():
                    inner.keep_float32(layer)
        if needs_trial(inner):
            settle(inner, spec, _modes(part))


def _modes(model: Any) -> tuple[bool, ...]:
    """Training modes to try; with several replicas batch statistics can only be updated inside ``strategy.run``."""
    return (True, False) if model.distribute_strategy.num_replicas_in_sync == 1 else (False,)


def _float32_results(conversion: Conversion, spec: Any) -> None:
    """Keeps the layers before a subclassed model's outputs in float32; casts what its own code leaves in float16."""
    model, package = conversion.model, conversion.package
    trial = try_out(package, model, spec, training=False)
    for maker in trial.makers:
        for layer in maker._flatten_layers():
            if not is_input(layer) and id(layer) not in conversion.refused:
                conversion.keep_float32(layer)
    trial = try_out(package, model, spec, training=False)
    if trial.culprit is not None:
        settle(conversion, spec, _modes(model))
    if any(dtype != "float32" for dtype in trial.floating):
        cast_results(conversion.journal, model, tf.float32)


def _correct_at_first_call(conversion: Conversion, float32_output: bool) -> None:
    """Puts a trial run in front of a model's first call, when its inputs and all its layers are known."""
    model = conversion.model
    inner = model.call
    settled: list[bool] = []

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def first(args: Any, kwargs: Any) -> None:
        settled.append(True)
        spec = (args, {key: value for key, value in kwargs.items() if key != "training"})
        settle(conversion, spec, _modes(model))
        if float32_output:
            _float32_results(conversion, spec)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not settled:
            first(args, kwargs)
        results = inner(*args, **kwargs)
        return cast_floating(results, tf.float32) if float32_output else results

    if not model.__dict__.get(_WAITING):
        conversion.journal.set_attribute(model, _WAITING, True)
        conversion.journal.set_call(model, call)
