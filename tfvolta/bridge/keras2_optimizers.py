"""Keras 2: choosing a compiled model's optimiser of either family, and its learning rate.

Keras 2 has two families of optimisers. ``Optimizer`` (2.11 on) is what ``keras.optimizers.Adam`` means today;
``OptimizerV2``, in ``keras.optimizers.legacy``, is the older one, to which all of TensorFlow Addons belongs. Each has
its own loss-scale wrapper, variables and arguments; a wrapper of Addons around a new optimiser does not work.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

from tfvolta.bridge import schedules
from tfvolta.bridge.base import LossScaleSettings
from tfvolta.bridge.keras2_functions import reset_functions
from tfvolta.bridge.keras2_loss_scale import inside, wrap
from tfvolta.bridge.keras2_package import Package
from tfvolta.bridge.keras2_saving import remember_optimizer
from tfvolta.bridge.optimizer_records import LearningRateState, OptimizerChoice, OptimizerState
from tfvolta.errors import BridgeError, Problem

_ADDONS = {
    "lamb": "LAMB",
    "novograd": "NovoGrad",
    "lazy_adam": "LazyAdam",
    "rectified_adam": "RectifiedAdam",
    "sgdw": "SGDW",
}
_CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")
_AVERAGES = {"MovingAverage": "exponential", "SWA": "stochastic"}


class OptimizerPart:
    """The part of the bridge that chooses optimisers.

    Attributes:
        package: The Keras that it serves.
        stack: Its name.
    """

    package: Package
    stack: str

    def choose_optimizer(self, model: Any, choice: OptimizerChoice) -> None:
        """See ``tfvolta.bridge.base.Bridge.choose_optimizer``."""
        wrapped = isinstance(model.optimizer, self.package.scaler)
        present = _without_average(inside(self.package, model.optimizer))
        with model.distribute_strategy.scope():
            made = present if choice.name is None else self._make(choice, present)
            made = self._averaged(made, choice)
            if wrapped:
                scale = float(model.optimizer.loss_scale.numpy())
                fixed = None if model.optimizer.dynamic else scale
                growth = getattr(model.optimizer, "dynamic_growth_steps", None) or LossScaleSettings.growth_steps
                made = wrap(self.package, made, LossScaleSettings(scale, growth, fixed))
            model.optimizer = made
        remember_optimizer(model)
        reset_functions(model)

    def optimizer_state(self, model: Any) -> Optional[OptimizerState]:
        """See ``tfvolta.bridge.base.Bridge.optimizer_state``."""
        optimizer = inside(self.package, getattr(model, "optimizer", None))
        if optimizer is None:
            return None
        kept = _without_average(optimizer)
        legacy = isinstance(optimizer, self.package.legacy_optimizer)
        ema = bool(getattr(optimizer, "use_ema", False))
        return OptimizerState(
            class_name=type(kept).__name__,
            package=type(kept).__module__.split(".")[0],
            family="legacy" if legacy else "new",
            iterations=int(model.optimizer.iterations.numpy()),
            slots=_slots(optimizer, legacy),
            average=_AVERAGES.get(type(optimizer).__name__, "exponential" if ema else None),
        )

    def prepare_optimizer(self, model: Any) -> None:
        """See ``tfvolta.bridge.base.Bridge.prepare_optimizer``."""
        optimizer = inside(self.package, model.optimizer)
        if type(optimizer).__name__ in _AVERAGES and model.built:
            # Made while the step is traced on several replicas, the slots would need placeholders that nothing feeds.
            with model.distribute_strategy.scope():
                optimizer._create_all_weights(model.trainable_variables)

    def assign_average(self, model: Any) -> bool:
        """See ``tfvolta.bridge.base.Bridge.assign_average``."""
        optimizer = inside(self.package, model.optimizer)
        if type(optimizer).__name__ not in _AVERAGES:
            return False
        optimizer.assign_average_vars(model.trainable_variables)
        return True

    def learning_rate(self, model: Any) -> Optional[LearningRateState]:
        """See ``tfvolta.bridge.base.Bridge.learning_rate``."""
        optimizer = inside(self.package, getattr(model, "optimizer", None))
        if optimizer is None:
            return None
        rate = self._rate(optimizer)
        if isinstance(rate, self.package.keras.optimizers.schedules.LearningRateSchedule):
            return LearningRateState(None, type(rate).__name__)
        return LearningRateState(float(self.package.keras.backend.get_value(rate)))

    def set_learning_rate(self, model: Any, value: float) -> None:
        """See ``tfvolta.bridge.base.Bridge.set_learning_rate``."""
        inside(self.package, model.optimizer).learning_rate = value

    def scale_schedule(self, model: Any, factor: float) -> bool:
        """See ``tfvolta.bridge.base.Bridge.scale_schedule``."""
        optimizer = inside(self.package, model.optimizer)
        made = schedules.scaled(self._rate(optimizer), factor)
        if made is None:
            return False
        optimizer.learning_rate = made
        reset_functions(model)
        return True

    def _rate(self, optimizer: Any) -> Any:
        """The schedule or value that the learning rate comes from."""
        if isinstance(optimizer, self.package.legacy_optimizer):
            return _without_average(optimizer)._hyper["learning_rate"]
        return optimizer._learning_rate

    def _make(self, choice: OptimizerChoice, present: Any) -> Any:
        """An optimiser by its name, with the learning rate and clipping of the present one."""
        config = present.get_config()
        keywords: dict[str, Any] = {key: config[key] for key in _CLIPPING if config.get(key) is not None}
        rate = self._rate(present)
        if choice.learning_rate is not None:
            rate = choice.learning_rate
        elif not isinstance(rate, self.package.keras.optimizers.schedules.LearningRateSchedule):
            rate = float(self.package.keras.backend.get_value(rate))
        keywords["learning_rate"] = rate
        if choice.weight_decay is not None:
            keywords["weight_decay"] = choice.weight_decay
        if choice.name in ("adamw", "sgdw") and (choice.name == "adamw" or self.stack == "tf_keras"):
            cls = self.package.keras.optimizers.AdamW if choice.name == "adamw" else self.package.keras.optimizers.SGD
        else:
            cls = getattr(_addons(), _ADDONS[str(choice.name)])
        if choice.name == "sgdw":
            keywords.update(_momentum(config))
            if cls is not self.package.keras.optimizers.SGD:
                keywords.setdefault("weight_decay", 0.0)
        return cls(**keywords)

    def _averaged(self, optimizer: Any, choice: OptimizerChoice) -> Any:
        """The optimiser with the average of the weights that was asked for."""
        if choice.average is None:
            return optimizer
        legacy = isinstance(optimizer, self.package.legacy_optimizer)
        if not legacy and choice.average == "exponential":
            config = {**optimizer.get_config(), "use_ema": True, "ema_momentum": choice.average_decay}
            return type(optimizer).from_config(config)
        if not legacy or self.stack == "tf_keras":
            raise BridgeError("This average of the weights cannot be kept.", [_wrong_family(optimizer, choice, legacy)])
        addons = _addons()
        if choice.average == "exponential":
            return addons.MovingAverage(optimizer, average_decay=choice.average_decay)
        return addons.SWA(optimizer, start_averaging=0, average_period=choice.average_every_steps)


def _addons() -> Any:
    import tensorflow_addons as tfa

    return tfa.optimizers


def _without_average(optimizer: Any) -> Any:
    """The optimiser inside an averaging wrapper of TensorFlow Addons; any other one itself."""
    return optimizer._optimizer if type(optimizer).__name__ in _AVERAGES else optimizer


def _slots(optimizer: Any, legacy: bool) -> int:
    if legacy:
        return sum(len(slots) for slots in optimizer._slots.values()) + (
            sum(len(slots) for slots in optimizer._optimizer._slots.values())
            if type(optimizer).__name__ in _AVERAGES
            else 0
        )
    built = getattr(optimizer, "_built", False)
    return max(0, len(optimizer.variables) - 1) if built else 0  # less iterations; the learning rate is not among them


def _momentum(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: config[key] for key in ("momentum", "nesterov") if key in config}


def _wrong_family(optimizer: Any, choice: OptimizerChoice, legacy: bool) -> Problem:
    received = f"{type(optimizer).__name__}, of the {'legacy' if legacy else 'new'} family"
    if legacy:
        return Problem(
            where="optimizer.average_weights",
            expected="an optimizer of the new family on tf_keras (tf_keras.optimizers.Adam and so on)",
            received=received,
            why="legacy optimizers keep an average only in TensorFlow Addons, which works on the keras2 stack",
            fix="compile with tf_keras.optimizers, not their legacy ones; then average_weights: exponential works",
        )
    return Problem(
        where="optimizer.average_weights",
        expected="an optimizer of the legacy family for the stochastic average",
        received=received,
        why="TensorFlow Addons wraps optimizers of Keras's legacy family only",
        fix="set optimizer.name (lamb, novograd, lazy_adam, rectified_adam, sgdw), or compile with "
        "keras.optimizers.legacy, or take average_weights: exponential, which new optimizers keep themselves",
    )
