"""Loss scaling for float16 gradients."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.bridge.base import LossScaleSettings, LossScaleState
from tfvolta.bridge.own_step import leaves_loss_unscaled
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.per_model import forget_all, recall, remember
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

_UNSCALED = (
    "{}.train_step takes its gradients itself and never scales the loss. Take them from"
    " tfvolta.precision.scale_loss(self.optimizer, loss), then use unscale_gradients and apply_gradients from there;"
    " on Keras 3 self.optimizer.scale_loss(loss) before tape.gradient is enough"
)


class LossScale(Knob):
    """Multiplies the loss, and divides the gradients, so that small gradients survive float16.

    Binds: when the train step is traced. The wrapper goes around the compiled model's optimizer and keeps its state.
    """

    name = "loss_scale"
    keys = (
        "mixed_precision.loss_scale",
        "mixed_precision.loss_scale.initial",
        "mixed_precision.loss_scale.growth_steps",
        "mixed_precision.loss_scale.fixed",
    )
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ("P2", "P3")
    changes_results = True

    def value(self, config: Any) -> Optional[Any]:
        settings = config.mixed_precision
        if settings is None or (settings.policy != "mixed_float16" and not self._given(config)):
            return None
        scale = settings.loss_scale
        return {"initial": scale.initial, "growth_steps": scale.growth_steps, "fixed": scale.fixed}

    def _given(self, config: Any) -> bool:
        """Whether the config says anything about the scale, its defaults apart."""
        return any(key in config.provenance for key in self.keys)

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts
        policy = config.mixed_precision.policy
        if policy != "mixed_float16":
            # bfloat16 and float32 have the same exponents: only float16 gradients underflow.
            return Forecast(Status.NOT_APPLICABLE, f"Gradients under {policy} do not underflow, so no loss is scaled.")
        if value["fixed"] is not None:
            return Forecast(
                Status.APPLIED,
                f"The loss is multiplied by {value['fixed']:g} throughout.",
            )
        return Forecast(
            Status.APPLIED,
            f"The loss scale starts at {value['initial']:g}, doubles after {value['growth_steps']} finite steps in a"
            " row and halves on a non-finite gradient, whose step is skipped.",
        )

    def apply(self, value: Any, context: Context) -> None:
        if leaves_loss_unscaled(context.model):
            return  # the wrapper would divide gradients that nothing multiplied
        former = context.bridge.loss_scale(_optimizer(context))
        installed = context.bridge.install_loss_scale(context.model, LossScaleSettings(**value))
        if recall(context, self.name) is None:
            remember(context, self.name, installed and former is None)

    def verify(self, value: Any, context: Context) -> Outcome:
        if leaves_loss_unscaled(context.model):
            return Outcome(Status.NO_EFFECT, _UNSCALED.format(type(context.model).__name__), {"own_train_step": True})
        state = context.bridge.loss_scale(_optimizer(context))
        if state is None:
            return Outcome(
                Status.NO_EFFECT, f"The optimizer ({type(_optimizer(context)).__name__}) scales no loss.", {}
            )
        observed: dict[str, Any] = {"scale": state.scale, "dynamic": state.dynamic, "good_steps": state.good_steps}
        if state.dynamic is (value["fixed"] is not None) or (
            value["fixed"] is not None and state.scale != value["fixed"]
        ):
            return Outcome(
                Status.NO_EFFECT,
                f"The loss scale is {state.scale:g}, {'dynamic' if state.dynamic else 'fixed'}, which was not asked"
                " for.",
                observed,
            )
        graph = context.bridge.train_graph(context.model)
        if graph is None:
            return _without_a_graph(value, state, context, observed)
        observed["finiteness_checks"] = graph.count("IsFinite")
        if state.dynamic and not observed["finiteness_checks"]:
            return Outcome(
                Status.NO_EFFECT,
                "The traced step does not look for non-finite gradients, so the optimizer is not the one that scales.",
                observed,
            )
        return Outcome(
            Status.APPLIED, f"The loss scale is {state.scale:g}, {'dynamic' if state.dynamic else 'fixed'}.", observed
        )

    def undo(self, context: Context) -> bool:
        """Takes the wrapper off every model; a script's own wrapper stays, with the settings that it was given."""
        models = forget_all(context, self.name)
        for changed in models:
            if changed.value:
                changed.bridge.remove_loss_scale(changed.model)
        return bool(models) and all(changed.value for changed in models)


def _without_a_graph(value: Any, state: LossScaleState, context: Context, observed: dict[str, Any]) -> Outcome:
    """Before the first trace; an eager model never has one, so there the optimizer's own counts are looked at."""
    said = f"The loss scale is {state.scale:g}"
    if not getattr(context.model, "run_eagerly", False):
        return Outcome(Status.PENDING, f"{said}; the first traced step shows that it is used.", observed)
    if not state.dynamic:
        return Outcome(Status.APPLIED, f"{said}, fixed. The model runs eagerly.", observed)
    if state.good_steps or state.scale != value["initial"]:
        return Outcome(Status.APPLIED, f"{said}, dynamic, and follows the steps. The model runs eagerly.", observed)
    return Outcome(Status.PENDING, f"{said}; the first steps show that it is used.", observed)


def _optimizer(context: Context) -> Any:
    """The compiled model's optimizer; None before compile."""
    return getattr(context.model, "optimizer", None)
