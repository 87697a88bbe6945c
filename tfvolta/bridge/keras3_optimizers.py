"""Keras 3: choosing a compiled model's optimiser, and its learning rate."""

from __future__ import annotations

from typing import Any, Optional

import keras
from keras.src.utils.tracking import DotNotTrackScope

from tfvolta.bridge import keras3_functions, keras3_loss_scale, keras3_saving, schedules
from tfvolta.bridge.base import LossScaleSettings
from tfvolta.bridge.keras3_replicas import innermost
from tfvolta.bridge.optimizer_records import LearningRateState, OptimizerChoice, OptimizerState

_Wrapper = keras.optimizers.LossScaleOptimizer
_CLASSES = {"lamb": "Lamb", "adamw": "AdamW", "sgdw": "SGD"}
_KEPT = ("clipnorm", "clipvalue", "global_clipnorm", "gradient_accumulation_steps")


class OptimizerPart:
    """The part of the bridge that chooses optimisers."""

    def choose_optimizer(self, model: Any, choice: OptimizerChoice) -> None:
        """See ``tfvolta.bridge.base.Bridge.choose_optimizer``."""
        present = innermost(model.optimizer)
        config = _config(present, choice)
        cls = type(present) if choice.name is None else getattr(keras.optimizers, _CLASSES[choice.name])
        with model.distribute_strategy.scope():
            made = cls.from_config(config)
            scale = keras3_loss_scale.loss_scale(model.optimizer)
            if isinstance(model.optimizer, _Wrapper) and scale is not None:
                fixed = None if scale.dynamic else scale.scale
                growth = model.optimizer.dynamic_growth_steps or LossScaleSettings.growth_steps
                made = keras3_loss_scale.scale_optimizer(made, LossScaleSettings(scale.scale, growth, fixed))
            if model.built and model.trainable_variables:
                made.build(model.trainable_variables)
        with DotNotTrackScope():
            model.optimizer = made
        keras3_saving.refresh(model, optimizer=made)
        keras3_functions.reset(model)

    def optimizer_state(self, model: Any) -> Optional[OptimizerState]:
        """See ``tfvolta.bridge.base.Bridge.optimizer_state``."""
        optimizer = innermost(getattr(model, "optimizer", None))
        if optimizer is None:
            return None
        return OptimizerState(
            class_name=type(optimizer).__name__,
            package=type(optimizer).__module__.split(".")[0],
            family="new",
            iterations=int(keras.ops.convert_to_numpy(optimizer.iterations)),
            slots=max(0, len(optimizer.variables) - 2) if optimizer.built else 0,  # less iterations and learning rate
            average="exponential" if optimizer.use_ema else None,
        )

    def prepare_optimizer(self, model: Any) -> None:
        """Keras 3 makes every slot when fit begins."""

    def assign_average(self, model: Any) -> bool:
        """Keras itself gives the weights their average at the end of fit."""
        return False

    def learning_rate(self, model: Any) -> Optional[LearningRateState]:
        """See ``tfvolta.bridge.base.Bridge.learning_rate``."""
        optimizer = innermost(getattr(model, "optimizer", None))
        if optimizer is None:
            return None
        rate = _rate(optimizer)
        if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
            return LearningRateState(None, type(rate).__name__)
        if callable(rate):
            return LearningRateState(None, "a function")
        return LearningRateState(float(keras.ops.convert_to_numpy(optimizer.learning_rate)))

    def set_learning_rate(self, model: Any, value: float) -> None:
        """See ``tfvolta.bridge.base.Bridge.set_learning_rate``."""
        innermost(model.optimizer).learning_rate = value

    def scale_schedule(self, model: Any, factor: float) -> bool:
        """See ``tfvolta.bridge.base.Bridge.scale_schedule``."""
        optimizer = innermost(model.optimizer)
        made = schedules.scaled(_rate(optimizer), factor)
        if made is None:
            return False
        optimizer.learning_rate = made
        keras3_functions.reset(model)
        return True


def _rate(optimizer: Any) -> Any:
    """The schedule, function or variable that the learning rate comes from."""
    return optimizer._learning_rate


def _config(present: Any, choice: OptimizerChoice) -> dict[str, Any]:
    config = dict(present.get_config())
    if choice.name is not None:
        kept = {key: config[key] for key in _KEPT if config.get(key) is not None}
        if choice.name == "sgdw":
            kept.update({key: config[key] for key in ("momentum", "nesterov") if key in config})
        config = {**kept, "learning_rate": config["learning_rate"]}
    if choice.learning_rate is not None:
        config["learning_rate"] = choice.learning_rate
    if choice.weight_decay is not None:
        config["weight_decay"] = choice.weight_decay
    if choice.average == "exponential":
        config.update(use_ema=True, ema_momentum=choice.average_decay)
    return config
