"""Sections of the config about the optimiser and its learning rate."""

from __future__ import annotations

from typing import Literal, Optional

from pydantic import Field

from tfvolta.config.section import Section


class Optimizer(Section):
    """An optimiser in place of the one that the script compiles with; absent, the script's stays."""

    name: Optional[Literal["lamb", "novograd", "lazy_adam", "rectified_adam", "adamw", "sgdw"]] = Field(
        None, description="Optimiser; keras2 has them from TensorFlow Addons."
    )
    learning_rate: Optional[float] = Field(None, gt=0, description="Its learning rate; by default the script's.")
    weight_decay: Optional[float] = Field(None, ge=0, description="Decoupled weight decay.")
    average_weights: Optional[Literal["exponential", "stochastic"]] = Field(
        None, description="Keep an average of the weights: moving (EMA), or equally weighted (SWA)."
    )
    average_decay: Optional[float] = Field(None, gt=0, lt=1, description="Decay of the exponential average.")


class LearningRate(Section):
    """Learning rate for several replicas."""

    scaling: Literal["none", "linear", "square_root"] = Field(
        "none", description="Factor on the learning rate: none, the number of replicas, or its square root."
    )
    warmup_epochs: float = Field(0.0, ge=0, description="Epochs in which it rises to the scaled value.")
