"""What belongs to a batch size: the learning rate, a warm-up, and how many batches make one update.

Rules:

- SGD, with momentum or not: the learning rate grows in proportion to the batch, after a warm-up of 5 epochs.
  Source: P. Goyal et al., Accurate, Large Minibatch SGD, arXiv:1706.02677.
- Adam and its kin, which divide by the size of the gradient: with the square root of the batch.
  Source: A. Krizhevsky, One weird trick, arXiv:1404.5997; S. Malladi et al., On the SDEs and Scaling Rules for Adaptive
  Gradient Algorithms, arXiv:2205.10287; Y. You et al., LAMB, arXiv:1904.00962.

Both are rules of thumb that hold up to a batch which the task decides; the loss has the last word.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Optional

from tfvolta.tune.trial import Trained

WARMUP_EPOCHS = 5.0
_MOST_OF_TRAINING = 0.25  # the rate is meant for the rest
_LINEAR = frozenset({"SGD", "SGDW", "ConditionalGradient"})
_ROOT = frozenset(
    {"Adam", "AdamW", "Adamax", "Nadam", "RMSprop", "Adagrad", "Adadelta", "LAMB", "Lamb", "LazyAdam", "RectifiedAdam"}
    | {"NovoGrad", "Ftrl", "Lion", "AdaBelief", "Adafactor"}
)


@dataclasses.dataclass(frozen=True)
class BatchAdvice:
    """What to set with a batch size.

    Attributes:
        batch: Rows of a batch.
        reduce_every: Batches that make one update.
        learning_rate: The rate to reach; None where it stays or is not known.
        warmup_epochs: Epochs in which it rises.
        reasons: Why, in sentences.
    """

    batch: int
    reduce_every: int = 1
    learning_rate: Optional[float] = None
    warmup_epochs: float = 0.0
    reasons: tuple[str, ...] = ()


def holding(largest: int, whole: int, multiple: int) -> Optional[tuple[int, int]]:
    """A batch that fits and a number of batches that together make a given batch exactly.

    Args:
        largest: Largest batch that fits.
        whole: Rows that one update shall have.
        multiple: What a batch is a multiple of, where it can be.

    Returns:
        Batch and number of batches; None where no batch but that of one row divides ``whole``.
    """
    for step in (multiple, 1):
        for batch in range(min(largest, whole) // step * step, 0, -step):
            if whole % batch == 0 and (batch > 1 or whole == 1):
                return batch, whole // batch
    return None


def advise(batch: int, trained: Optional[Trained], reduce_every: int = 1) -> BatchAdvice:
    """What belongs to a batch size.

    Args:
        batch: Rows of a batch.
        trained: What the script trains; None where no trial came so far.
        reduce_every: Batches that make one update.
    """
    if trained is None or not trained.batch:
        return BatchAdvice(batch, reduce_every, reasons=("The script's own batch is not known, nor what to compare.",))
    factor = batch * reduce_every / trained.batch
    if math.isclose(factor, 1.0):
        return BatchAdvice(
            batch, reduce_every, reasons=("An update has as many rows as the script's: nothing changes.",)
        )
    rule, power = _rule(trained.optimizer)
    if power is None:
        return BatchAdvice(batch, reduce_every, reasons=(rule,))
    times = factor**power
    if trained.has_schedule or trained.learning_rate is None:
        text = f"{rule} Multiply every rate of the script's schedule by {times:.3g}."
        return BatchAdvice(batch, reduce_every, reasons=(text,))
    rate = trained.learning_rate * times
    text = f"{rule} From {trained.learning_rate:g} at a batch of {trained.batch} to {rate:.4g}."
    warmup, said = _warmup(trained.epochs) if factor > 1 else (0.0, "")
    return BatchAdvice(batch, reduce_every, float(f"{rate:.6g}"), warmup, tuple(filter(None, (text, said))))


def _warmup(epochs: Optional[int]) -> tuple[float, str]:
    """Epochs in which the rate rises, and why so many: a short training would end before the rate is reached."""
    if epochs is None or _MOST_OF_TRAINING * epochs >= WARMUP_EPOCHS:
        return WARMUP_EPOCHS, f"It rises over {WARMUP_EPOCHS:g} epochs."
    warmup = _MOST_OF_TRAINING * epochs
    return warmup, (
        f"It rises over {warmup:g} epochs, a quarter of the script's {epochs}; with more of them over up to "
        f"{WARMUP_EPOCHS:g}."
    )


def _rule(optimizer: str) -> tuple[str, Optional[float]]:
    if optimizer in _LINEAR:
        return f"{optimizer}: the learning rate grows in proportion to the rows of an update.", 1.0
    if optimizer in _ROOT:
        return f"{optimizer}: the learning rate grows with the square root of the rows of an update.", 0.5
    return f"{optimizer or 'This optimiser'}: no rule is known for its learning rate; measure the loss.", None
