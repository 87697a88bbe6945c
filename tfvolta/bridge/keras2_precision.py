"""Mixed precision in Keras 2 models that exist already."""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow as tf

from tfvolta.bridge.base import Retrofit
from tfvolta.bridge.keras2_autocast import Journal, cast_floating
from tfvolta.bridge.keras2_conversion import Conversion
from tfvolta.bridge.keras2_functions import reset_functions
from tfvolta.bridge.keras2_layers import compute_dtypes, input_spec, is_input, nodes
from tfvolta.bridge.keras2_outputs import output_makers
from tfvolta.bridge.keras2_package import Package
from tfvolta.bridge.keras2_probe import try_out
from tfvolta.bridge.keras2_refusals import CONVERTIBLE_POLICIES
from tfvolta.errors import BridgeError, Problem

_WAITING = "_tfvolta_waits_for_first_call"


class PrecisionPart:
    """The part of the bridge that concerns layers and precision.

    Attributes:
        package: The Keras that it serves.
    """

    package: Package

    def layers(self, model: Any) -> list[tuple[str, Any]]:
        """Every layer below the model, each once, with a unique path; containers and cells included."""
        return [(node.path, node.layer) for node in nodes(model)]

    def compute_dtypes(self, model: Any) -> dict[str, str]:
        """Compute dtype of every layer that has variables or casts its inputs, by path."""
        return compute_dtypes(self.package, model)

    def output_layers(self, model: Any) -> list[str]:
        """Paths of the layers that make the model's outputs; empty where they cannot be known before a trace."""
        makers = {id(maker) for maker in output_makers(self.package, model)}
        return [node.path for node in nodes(model) if id(node.layer) in makers]

    def global_policy(self) -> str:
        """Name of Keras's global dtype policy."""
        return str(self.package.keras.mixed_precision.global_policy().name)

    def set_global_policy(self, policy: str) -> None:
        """Sets Keras's global dtype policy; binds to layers constructed afterwards."""
        self.package.keras.mixed_precision.set_global_policy(policy)

    def retrofit(
        self, model: Any, policy: str, float32_layers: Sequence[str] = (), float32_output: bool = True
    ) -> Retrofit:
        """Makes a built, perhaps compiled and traced, model compute under a policy; variables stay float32.

        A model that was never called is converted too: its variables are made to cast when they are built, and layers
        of unknown behaviour and the output layers are settled at its first call. Until then they are not in the result.

        Args:
            model: Any Keras 2 model.
            policy: ``mixed_float16``, ``mixed_bfloat16`` or ``float32``.
            float32_layers: Class names or layer names or paths, shell patterns, kept in float32.
            float32_output: Keep the layers that make the outputs in float32.

        Raises:
            BridgeError: The policy is not one of the three.
        """
        _check_policy(policy)
        conversion = Conversion(self.package, model, policy)
        conversion.choose(float32_layers, float32_output)
        conversion.convert()
        if policy != "float32":
            self._settle(conversion, float32_output)
            conversion.keep_loadable()
        if len(conversion.journal):
            reset_functions(model)
        return Retrofit(
            policy=policy,
            converted=conversion.converted_paths(),
            islands=conversion.island_paths(),
            refused=conversion.refused_layers(),
            undo_token=conversion.journal,
        )

    def undo_retrofit(self, model: Any, retrofit: Retrofit) -> None:
        """Restores every layer's former policy and variables' casting."""
        journal: Journal = retrofit.undo_token
        if len(journal):
            journal.undo()
            reset_functions(model)

    def _settle(self, conversion: Conversion, float32_output: bool) -> None:
        """Sees to layers of unknown behaviour and to outputs that no graph shows, now or at the first call."""
        model, package = conversion.model, self.package
        symbolic = isinstance(model, (package.functional, package.sequential))
        if type(model).call is package.model.call:  # never called itself: its train step calls models that it holds
            self._settle_parts(conversion, float32_output)
            return
        spec = input_spec(model)
        if symbolic and not conversion.needs_trial():
            return
        if spec is None:
            _settle_at_first_call(self.package, conversion, float32_output and not symbolic)
            return
        if len(conversion.journal) and conversion.needs_trial():
            conversion.settle(spec, _modes(model))
        if float32_output and not symbolic:
            _float32_results(package, conversion, spec)

    def _settle_parts(self, conversion: Conversion, float32_output: bool) -> None:
        """Each built model that a never-called model holds is settled as a model of its own."""
        for part in conversion.model._flatten_layers(recursive=False, include_self=False):
            spec = input_spec(part)
            if spec is None:
                continue
            inner = Conversion(self.package, part, conversion.policy)
            inner.journal, inner.refused, inner.islands = conversion.journal, conversion.refused, conversion.islands
            if float32_output and isinstance(part, self.package.model):
                for maker in output_makers(self.package, part):
                    for layer in maker._flatten_layers():
                        inner.keep_float32(layer)
            if inner.needs_trial():
                inner.settle(spec, _modes(part))


def _check_policy(policy: str) -> None:
    if policy not in CONVERTIBLE_POLICIES:
        raise BridgeError(
            "Unknown precision policy.",
            [
                Problem(
                    where="mixed_precision.policy",
                    expected="one of " + ", ".join(sorted(CONVERTIBLE_POLICIES)),
                    received=repr(policy),
                    why="a retrofit keeps variables in float32, which other policies do not",
                    fix="mixed_precision: {policy: mixed_float16}",
                )
            ],
        )


def _modes(model: Any) -> tuple[bool, ...]:
    """Training modes to try; with several replicas batch statistics can only be updated inside ``strategy.run``."""
    return (True, False) if model.distribute_strategy.num_replicas_in_sync == 1 else (False,)


def _float32_results(package: Package, conversion: Conversion, spec: Any) -> None:
    """Keeps the layers before a subclassed model's outputs in float32; casts what its own code leaves in float16."""
    model = conversion.model
    trial = try_out(package, model, spec, training=False)
    for maker in trial.makers:
        for layer in maker._flatten_layers():
            if not is_input(layer) and id(layer) not in conversion.refused:
                conversion.keep_float32(layer)
    trial = try_out(package, model, spec, training=False)
    if trial.culprit is not None:
        conversion.settle(spec, _modes(model))
    if any(dtype != "float32" for dtype in trial.floating):
        conversion.journal.cast_results(model, tf.float32)


def _settle_at_first_call(package: Package, conversion: Conversion, float32_output: bool) -> None:
    """Puts a trial run in front of a model's first call, when its inputs and all its layers are known."""
    model = conversion.model
    inner = model.call
    settled: list[bool] = []

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def settle(args: Any, kwargs: Any) -> None:
        settled.append(True)
        spec = (args, {key: value for key, value in kwargs.items() if key != "training"})
        conversion.settle(spec, _modes(model))
        if float32_output:
            _float32_results(package, conversion, spec)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not settled:
            settle(args, kwargs)
        results = inner(*args, **kwargs)
        return cast_floating(results, tf.float32) if float32_output else results

    if not model.__dict__.get(_WAITING):
        conversion.journal.set_attribute(model, _WAITING, True)
        conversion.journal.set_call(model, call)
