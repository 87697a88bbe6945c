"""Sizes, host data and loss-scale numbers that both sides of the comparison take; nothing but numpy."""

from __future__ import annotations

import argparse
import dataclasses
import os
from typing import Any

import numpy as np

LOSS_SCALE = {"initial": 32768.0, "growth_steps": 2000}  # what both sides start with
MODELS = ("resnet50", "bert_large", "lstm")


@dataclasses.dataclass(frozen=True)
class Workload:
    """One model's sizes.

    Attributes:
        batch: Examples of a step.
        steps: Steps of an epoch.
        classes: Classes of the labels.
        size: Pixels of an image's side, or tokens of a sequence.
        width: Channels of the first stage, or width of the hidden state.
        depth: Blocks of each stage, or layers.
        heads: Heads of attention.
        words: Rows of the embedding.
    """

    model: str
    batch: int
    steps: int
    classes: int
    size: int
    width: int
    depth: tuple[int, ...]
    heads: int = 0
    words: int = 0

    @property
    def learning_rate(self) -> float:
        """SGD with momentum 0.9 for images, Adam for sequences."""
        return 0.01 if self.model == "resnet50" else 1e-4

    def data(self) -> tuple[Any, Any]:
        """One batch from a seed: float32 images ``(batch, size, size, 3)`` or int32 tokens, and int32 labels."""
        generator = np.random.default_rng(0)
        if self.model == "resnet50":
            features = generator.standard_normal((self.batch, self.size, self.size, 3), dtype=np.float32)
        else:
            features = generator.integers(0, self.words, (self.batch, self.size)).astype("int32")
        return features, generator.integers(0, self.classes, self.batch).astype("int32")


FULL = {
    "resnet50": Workload("resnet50", 256, 30, 1000, 224, 64, (3, 4, 6, 3)),
    "bert_large": Workload("bert_large", 64, 20, 2, 128, 1024, (24,), heads=16, words=30522),
    "lstm": Workload("lstm", 256, 40, 1000, 128, 1024, (2,), words=10000),
}
TINY = {
    "resnet50": Workload("resnet50", 4, 10, 10, 32, 8, (1, 1, 1, 1)),
    "bert_large": Workload("bert_large", 4, 10, 2, 16, 32, (2,), heads=4, words=50),
    "lstm": Workload("lstm", 4, 10, 10, 8, 16, (2,), words=50),
}


def parse_arguments() -> tuple[argparse.Namespace, Workload]:
    """The command line that each side's script takes, and the workload that it names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--tiny", action="store_true", help="sizes for a CPU")
    parser.add_argument("--steps", type=int, help="steps of an epoch")
    parser.add_argument("--batch", type=int, help="examples of a step")
    parser.add_argument("--stride-first", action="store_true", help="ResNet-50 v1: the stride in the first 1x1")
    parser.add_argument("--epochs", type=int, default=3, help="without a driver of turns: epochs, the first is warm-up")
    parser.add_argument("--compile", default="default", help="PyTorch: mode of torch.compile, or off")
    parser.add_argument("--residual", choices=("half", "float"), default="half", help="PyTorch: BERT-large's residuals")
    parser.add_argument(
        "--profile", action="store_true", help="PyTorch without a driver: the longest kernels at the end"
    )
    arguments = parser.parse_args()
    chosen = (TINY if arguments.tiny else FULL)[arguments.model]
    given = {name: getattr(arguments, name) for name in ("steps", "batch") if getattr(arguments, name)}
    return arguments, dataclasses.replace(chosen, **given)


def host() -> dict[str, Any]:
    """What of this process's surroundings may move its figures."""
    return {"cores": os.cpu_count(), "load_average": round(os.getloadavg()[0], 2)}
