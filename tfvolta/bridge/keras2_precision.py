"""Mixed precision in Keras 2 models that exist already."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from tfvolta.bridge import float32_construction
from tfvolta.bridge.base import Retrofit
from tfvolta.bridge.keras2_conversion import Conversion
from tfvolta.bridge.keras2_functions import reset_functions
from tfvolta.bridge.keras2_journal import Journal
from tfvolta.bridge.keras2_layers import compute_dtypes, nodes, own_variables
from tfvolta.bridge.keras2_outputs import output_makers
from tfvolta.bridge.keras2_package import Package
from tfvolta.bridge.keras2_refusals import CONVERTIBLE_POLICIES
from tfvolta.bridge.keras2_trials import correct
from tfvolta.errors import BridgeError, Problem


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

    def own_variables(self, layer: Any) -> list[Any]:
        """Variables that a layer holds itself, not through a layer below it."""
        return own_variables(layer)

    def keep_float32_constructed(self, patterns: Sequence[str]) -> Callable[[], None]:
        """Makes layers that are constructed from now on and match compute in float32; the result ends that."""

        def to_float32(layer: Any) -> None:
            layer._set_dtype_policy("float32")

        return float32_construction.keep(self.package.layer, patterns, to_float32)

    def float32_constructed(self) -> tuple[str, ...]:
        """The patterns by which layers are constructed in float32 at present."""
        return float32_construction.in_force(self.package.layer)

    def called_classes(self) -> Sequence[Any]:
        """What calls of layers are calls of."""
        return [self.package.layer]

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
            correct(conversion, float32_output)
            conversion.keep_loadable()
        if len(conversion.journal):
            reset_functions(model)
        return conversion.result()

    def undo_retrofit(self, model: Any, retrofit: Retrofit) -> None:
        """Restores every layer's former policy and variables' casting."""
        journal: Journal = retrofit.undo_token
        if len(journal):
            journal.undo()
            reset_functions(model)


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
