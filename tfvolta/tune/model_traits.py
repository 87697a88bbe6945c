"""What a model and its data are like, as far as it says which settings may pay: read from the first trial."""

from __future__ import annotations

import collections
import dataclasses
import time
from typing import Any, Mapping, Optional

_RECURRENT = frozenset({"LSTM", "GRU", "SimpleRNN", "RNN", "CuDNNLSTM", "CuDNNGRU"})
_ATTENTION = frozenset({"MultiHeadAttention", "GroupedQueryAttention", "Attention", "AdditiveAttention"})
_LOOK_SECONDS = 0.5
_LOOK_BATCHES = 32


@dataclasses.dataclass(frozen=True)
class ModelTraits:
    """What is known of a model.

    Attributes:
        kinds: Layers by class.
        shares: Multiply-adds by class, as shares of all; empty where they cannot be counted.
        batch: Rows of a batch; None where the data do not say.
        step_seconds: A step of the first trial.
        batches_per_call: Batches in one call of the train function.
        data_seconds: Making one batch, when nothing but data are made; None where it cannot be told.
        compiled: Whether XLA compiles the step.
        half: Whether layers compute in 16 bits.
    """

    kinds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)
    batch: Optional[int] = None
    step_seconds: Optional[float] = None
    batches_per_call: int = 1
    data_seconds: Optional[float] = None
    compiled: Optional[bool] = None
    half: Optional[bool] = None

    def has(self, *words: str) -> bool:
        """Whether a layer's class has one of these words in its name."""
        return any(word in kind for kind in self.kinds for word in words)

    @property
    def recurrent(self) -> bool:
        """Whether it has recurrent layers."""
        return bool(_RECURRENT & set(self.kinds))

    @property
    def attention(self) -> bool:
        """Whether it attends."""
        return bool(_ATTENTION & set(self.kinds)) or self.has("Attention")

    @property
    def convolution(self) -> bool:
        """Whether it convolves, and spends a part of its work on it where that was counted."""
        share = sum(part for kind, part in self.shares.items() if "Conv" in kind)
        return self.has("Conv") and (share > 0.1 or not self.shares)

    @property
    def batch_norm(self) -> bool:
        """Whether it normalises over batches."""
        return self.has("BatchNormalization")

    @property
    def data_share(self) -> Optional[float]:
        """Time for making a batch over time for a step; near 1 or above, training waits for data."""
        if self.data_seconds is None or not self.step_seconds:
            return None
        return self.data_seconds / self.step_seconds

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> ModelTraits:
        """From JSON values; what is not known here is passed over."""
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in content.items() if name in names})


def describe(model: Any) -> dict[str, Any]:
    """Traits of the model of the running fit, from inside its process; what fails is left out."""
    from tfvolta.bridge import bridge_for

    bridge = bridge_for(model)
    found: dict[str, Any] = {
        "kinds": dict(collections.Counter(type(layer).__name__ for _, layer in bridge.layers(model)))
    }
    for name, look in (("batch", _batch), ("compiled", _compiled), ("half", _half), ("shares", _shares)):
        try:
            found[name] = look(bridge, model)
        except Exception:  # a trait is no reason to lose a trial that was timed
            continue
    found["batches_per_call"] = bridge.steps_per_execution(model)
    found["data_seconds"] = data_seconds(model)
    return found


def _batch(bridge: Any, model: Any) -> Optional[int]:
    data = bridge.fit_data(model)
    return None if data is None else data.batch


def _compiled(bridge: Any, model: Any) -> bool:
    return bool(bridge.jit(model).effective)


def _half(bridge: Any, model: Any) -> bool:
    return any(dtype in ("float16", "bfloat16") for dtype in bridge.compute_dtypes(model).values())


def _shares(bridge: Any, model: Any) -> dict[str, float]:
    work: collections.Counter[str] = collections.Counter()
    for row in bridge.layer_figures(model, _batch(bridge, model) or 8):
        work[row.kind] += row.multiply_adds or 0
    total = sum(work.values())
    return {kind: amount / total for kind, amount in work.items() if amount} if total else {}


def data_seconds(model: Any) -> Optional[float]:
    """Seconds that the data of the running fit take for a batch when nothing trains; None where they cannot be read."""
    from tfvolta.bridge import fit_input

    try:
        found, _ = fit_input.of_fit(model)
        if found is None:
            return None
        iterator = iter(found.dataset)
        next(iterator)  # starts threads and fills buffers
        count, began = 0, time.perf_counter()
        for _ in iterator:
            count += 1
            if count >= _LOOK_BATCHES or time.perf_counter() - began > _LOOK_SECONDS:
                break
        return (time.perf_counter() - began) / count if count else None
    except Exception:  # data of any kind may refuse a second reader
        return None
