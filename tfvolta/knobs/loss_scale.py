"""Loss scaling for float16 gradients."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.bridge.base import LossScaleSettings, LossScaleState
from tfvolta.bridge.own_step import leaves_loss_unscaled
from tfvolta.bridge.scale_bounds import KERAS_BOUNDS, ScaleBounds
from tfvolta.knobs.base import Context, Forecast, Journal, Knob
from tfvolta.knobs.per_model import forget_all, recall, remember
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

_UNSCALED = "{}.train_step takes its gradients itself and never scales the loss."
_SCALE_IT = (
    "in train_step take gradients of tfvolta.precision.scale_loss(self.optimizer, loss), then use unscale_gradients and"
    " apply_gradients from there (on Keras 3 self.optimizer.scale_loss(loss) before tape.gradient is enough); without"
    " touching the script: --set mixed_precision.policy=float32, or --no-strict to train in float16 with the loss"
    " unscaled"
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
        "mixed_precision.loss_scale.floor",
        "mixed_precision.loss_scale.ceiling",
        "mixed_precision.loss_scale.hysteresis",
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
        if scale.fixed is not None:
            return {"initial": scale.initial, "growth_steps": scale.growth_steps, "fixed": scale.fixed}
        value = {"initial": scale.first(), "growth_steps": scale.growth_steps, "fixed": None}
        return {**value, "floor": scale.lowest(), "ceiling": scale.ceiling, "hysteresis": scale.hysteresis}

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
            f" row{_ceiling(value)} and halves on {_overflow(value)}{_floor(value)}; such steps are skipped.",
        )

    def apply(self, value: Any, context: Context) -> None:
        if leaves_loss_unscaled(context.model):
            return  # the wrapper would divide gradients that nothing multiplied
        former = context.bridge.loss_scale(_optimizer(context))
        installed = context.bridge.install_loss_scale(context.model, _settings(value))
        if recall(context, self.name) is None:
            remember(context, self.name, installed and former is None)

    def before_first_step(self, value: Any, context: Context, journal: Journal) -> None:
        """Brings a scale that a checkpoint has restored within the bounds."""
        del journal
        bridge, model = context.bridge, context.model
        if value["fixed"] is None and bridge.loss_scale(_optimizer(context)) is not None:
            bridge.before_first_step(model, lambda _: bridge.limit_loss_scale(model))

    def verify(self, value: Any, context: Context) -> Outcome:
        if leaves_loss_unscaled(context.model):
            said = _UNSCALED.format(type(context.model).__name__)
            return Outcome(Status.NO_EFFECT, said, {"own_train_step": True}, fix=_SCALE_IT)
        state = context.bridge.loss_scale(_optimizer(context))
        if state is None:
            return Outcome(
                Status.NO_EFFECT, f"The optimizer ({type(_optimizer(context)).__name__}) scales no loss.", {}
            )
        observed: dict[str, Any] = {"scale": state.scale, "dynamic": state.dynamic, "good_steps": state.good_steps}
        if state.overflows is not None:
            observed["tolerated_overflows"] = state.overflows
        if state.dynamic is (value["fixed"] is not None) or (
            value["fixed"] is not None and state.scale != value["fixed"]
        ):
            return Outcome(
                Status.NO_EFFECT,
                f"The loss scale is {state.scale:g}, {'dynamic' if state.dynamic else 'fixed'}, which was not asked"
                " for.",
                observed,
            )
        outside = _outside(value, state)
        if outside:
            return Outcome(Status.NO_EFFECT, outside, observed)
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


def _settings(value: Any) -> LossScaleSettings:
    bounds = KERAS_BOUNDS
    if value["fixed"] is None:
        bounds = ScaleBounds(value["floor"], value["ceiling"], value["hysteresis"])
    return LossScaleSettings(value["initial"], value["growth_steps"], value["fixed"], bounds)


def _outside(value: Any, state: LossScaleState) -> str:
    """Why a dynamic scale does not keep to its bounds; empty where it does."""
    if not state.dynamic:
        return ""
    wanted = _settings(value).bounds
    if state.bounds is not None and state.bounds != wanted:
        return f"The optimizer keeps the loss scale to {state.bounds}, not to {wanted}: something set it after tfvolta."
    if wanted.limited(state.scale) != state.scale:
        return f"The loss scale is {state.scale:g}, outside of its bounds."
    return ""


def _ceiling(value: Any) -> str:
    return "" if value["ceiling"] is None else f" up to {value['ceiling']:g}"


def _floor(value: Any) -> str:
    return "" if value["floor"] == 1.0 else f", down to {value['floor']:g}"


def _overflow(value: Any) -> str:
    tolerated = value["hysteresis"] - 1
    more = f" after the first {'one' if tolerated == 1 else tolerated} since it last grew" if tolerated else ""
    return f"a non-finite gradient{more}"


def _optimizer(context: Context) -> Any:
    """The compiled model's optimizer; None before compile."""
    return getattr(context.model, "optimizer", None)
