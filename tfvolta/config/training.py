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
    average_decay: Optional[float] = Field(
        None, gt=0, lt=1, description="Decay of the exponential average; 0.99 where nothing is given."
    )
    average_every_steps: Optional[int] = Field(
        None, gt=0, description="Steps between two weights that the stochastic average takes in; 10 by default."
    )


class Addons(Section):
    """Callbacks of TensorFlow Addons (keras2)."""

    time_limit_seconds: Optional[int] = Field(
        None, gt=0, description="End training after the epoch in which this time is over."
    )
    progress_bar: Optional[bool] = Field(None, description="Show tqdm's progress bar.")
    average_checkpoint: Optional[str] = Field(
        None, min_length=1, description="File that gets the averaged weights after each epoch."
    )


class LearningRate(Section):
    """Learning rate for several replicas; the value that it reaches after the warm-up is called the target."""

    target: Optional[float] = Field(
        None, gt=0, description="The target itself; otherwise what the script compiles with, times the factor."
    )
    scaling: Literal["none", "linear", "square_root"] = Field(
        "none", description="Factor on what the script compiles with: 1, the number of replicas, or its square root."
    )
    warmup_epochs: float = Field(
        0.0, ge=0, description="Epochs in which it rises to the target, from the value before scaling."
    )
