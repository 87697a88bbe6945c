"""One conversion of a Keras 2 model to a policy: who converts, who stays, who is refused."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import tensorflow as tf

from tfvolta.bridge.base import RefusedLayer, Retrofit
from tfvolta.bridge.keras2_casts import (
    cast_arguments,
    cast_results,
    casts_arguments,
    leave_arguments,
    save_as_float32,
    set_spec,
)
from tfvolta.bridge.keras2_journal import Journal
from tfvolta.bridge.keras2_layers import (
    Node,
    is_container,
    is_input,
    is_operation,
    matches,
    nodes,
    policy_name,
)
from tfvolta.bridge.keras2_outputs import output_makers
from tfvolta.bridge.keras2_package import Package
from tfvolta.bridge.keras2_refusals import CONVERTIBLE_POLICIES, refusal
from tfvolta.bridge.keras2_variables import VariableCasts

# Layers that create their variables with experimental_autocast=False and deal with float32 variables themselves.
OWN_CASTING = frozenset({"BatchNormalization", "SyncBatchNormalization", "LayerNormalization", "Embedding"})
_REASON = "_tfvolta_refused"
_NOT_SAVED = (
    "a config has no place for the casts around it, so a .keras or .h5 file describes a float32 model, "
    "with all its state, and a SavedModel of it does not load in plain Keras"
)


class Conversion:
    """A conversion under way. ``journal`` can take it back.

    Attributes:
        policy: The policy to compute under.
        journal: What was changed.
        refused: Layers left as they are, by id, with the reason.
        islands: Ids of layers kept in float32 on purpose.
    """

    def __init__(self, package: Package, model: Any, policy: str) -> None:
        self.package, self.model, self.policy = package, model, policy
        self.journal = Journal()
        self.refused: dict[int, str] = {}
        self.islands: set[int] = set()
        self._changed: set[int] = set()

    def choose(self, float32_layers: Sequence[str], float32_output: bool) -> None:
        """Decides by pattern, place in the graph, class and policy who stays in float32; changes nothing yet."""
        makers = output_makers(self.package, self.model) if float32_output else []
        kept = {id(maker) for maker in makers}
        for node in nodes(self.model):
            if matches(node, float32_layers):
                kept.add(id(node.layer))
            reason = refusal(self.package, node.layer)
            if reason and not is_input(node.layer):
                self.refused[id(node.layer)] = reason
        known = [layer for layer in (self.model, *(n.layer for n in nodes(self.model))) if _REASON in layer.__dict__]
        self.islands |= self._with_inner(kept)
        inner = self._with_inner(set(self.refused))
        self.refused.update(dict.fromkeys(inner - set(self.refused), "part of a layer that was refused"))
        self.refused.update({id(layer): layer.__dict__[_REASON] for layer in known})
        self.islands -= set(self.refused)

    def convert(self) -> None:
        """Sets policies and makes variables cast, apart from islands and refused layers."""
        if policy_name(self.model) in CONVERTIBLE_POLICIES and id(self.model) not in self.refused:
            self._convert_layer(self.model)
        for node in nodes(self.model):
            if is_input(node.layer):
                continue
            if id(node.layer) in self.refused:
                self._shield(node.layer)
            elif id(node.layer) in self.islands:
                self.keep_float32(node.layer)
            else:
                self._convert_layer(node.layer)

    def keep_float32(self, layer: Any) -> None:
        """Makes a layer an island of float32."""
        self.islands.add(id(layer))
        self.journal.revert(layer)
        self.journal.set_policy(layer, "float32")
        self._shield(layer)

    def refuse(self, layer: Any, reason: str) -> None:
        """Puts a layer back into float32; the layers that it calls go on converting, and hand it float32."""
        self.journal.revert(layer)
        if layer is self.model or is_container(layer):
            for child in layer._flatten_layers(recursive=False, include_self=False):
                cast_results(self.journal, child, tf.float32)
        self.refused[id(layer)] = reason
        self.journal.set_attribute(layer, _REASON, reason)  # a later retrofit need not try again
        if policy_name(layer) in CONVERTIBLE_POLICIES:
            self.journal.set_policy(layer, "float32")
        self._shield(layer)

    def keep_loadable(self) -> None:
        """Lets a saved config describe a float32 model where a mixed one could not be built from it.

        A bare operation that gets float16 and float32 needs casts, which a config cannot express: plain Keras would
        fail to load it. The weights, the optimiser and the loss scale are saved all the same.
        """
        computing = self.computing()
        mixed = [node.layer for node in computing if is_operation(node.layer) and casts_arguments(node.layer)]
        for layer in mixed:
            if id(layer) in self.refused:
                self.refused[id(layer)] = f"{layer.__dict__.get(_REASON, self.refused[id(layer)])}; {_NOT_SAVED}"
        for node in computing if mixed else ():
            if policy_name(node.layer) == self.policy:
                save_as_float32(self.journal, node.layer)

    def result(self) -> Retrofit:
        """What was changed; converted are the layers that compute in the policy now and did not before."""
        computing = self.computing()
        converted = [node for node in computing if id(node.layer) in self._changed]
        refused = [
            RefusedLayer(path, type(layer).__name__, self.refused[id(layer)])
            for path, layer in [(self.model.name, self.model), *((node.path, node.layer) for node in nodes(self.model))]
            if id(layer) in self.refused
        ]
        return Retrofit(
            policy=self.policy,
            converted=tuple(node.path for node in converted if policy_name(node.layer) == self.policy),
            islands=tuple(node.path for node in computing if id(node.layer) in self.islands),
            refused=tuple(refused),
            undo_token=self.journal,
        )

    def computing(self) -> list[Node]:
        """Layers other than those that mark inputs."""
        return [node for node in nodes(self.model) if not is_input(node.layer)]

    def _with_inner(self, kept: set[int]) -> set[int]:
        """The ids, and those of all layers inside."""
        return {
            id(node.layer)
            for node in nodes(self.model)
            if id(node.layer) in kept or any(id(outer) in kept for outer in node.ancestors)
        }

    def _convert_layer(self, layer: Any) -> None:
        if policy_name(layer) != self.policy:
            self._changed.add(id(layer))
        self.journal.set_policy(layer, self.policy)
        set_spec(self.journal, layer)
        leave_arguments(self.journal, layer)
        if self.policy != "float32" and not any(base.__name__ in OWN_CASTING for base in type(layer).__mro__):
            VariableCasts(self.package, self.journal, layer).apply()

    def _shield(self, layer: Any) -> None:
        """Makes a float32 layer get float32 in all its arguments, where Keras would not see to that."""
        dtype: Optional[Any] = layer._compute_dtype_object
        plain = self.package.is_own(layer) and not is_operation(layer) and layer._autocast
        if self.policy == "float32" or plain or dtype is None or not dtype.is_floating:
            return
        if isinstance(layer, (self.package.functional, self.package.sequential)):
            return  # casts its inputs to those of its own input layers
        cast_arguments(self.journal, layer, dtype)
