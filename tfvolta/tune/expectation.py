"""What an expert expects of settings before they are measured, from the machine, the stack and the first trial.

An expectation orders trials and is never a result: what is said of a setting comes from its own measurement. Figures
are logarithms of a factor on throughput, and how far off they may be.

Sources: the measurements in ``benchmarks/`` (NVIDIA H200), and for XLA the published V100 tables, which gain less
(1.13x to 1.45x): expected is something between, with a doubt that holds both.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Callable, Mapping, Optional

from tfvolta.facts.schema import Facts
from tfvolta.tune.model_traits import ModelTraits

_SMALL_STEP_SECONDS = 0.02  # on a CPU
_CALL_SECONDS = 0.0015  # what one call of the train function costs in Python, on either Keras


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """With what a setting comes together.

    Attributes:
        facts: Machine and stack.
        traits: Of the first trial.
        compiled: Whether XLA compiles the step.
        half: Whether layers compute in 16 bits.
    """

    facts: Facts
    traits: ModelTraits
    compiled: bool
    half: bool

    @property
    def gpu(self) -> bool:
        """Whether there is one."""
        return bool(self.facts.gpus)

    @property
    def keras3(self) -> bool:
        """Which of the two Keras designs it is."""
        return self.facts.keras == "keras3"

    @property
    def data_share(self) -> float:
        """Time for making a batch over that of a step; a little where it is not known."""
        share = self.traits.data_share
        return 0.1 if share is None else min(share, 1.0)


@dataclasses.dataclass(frozen=True)
class Expectation:
    """What is expected of a setting.

    Attributes:
        gain: Logarithm of the factor on throughput.
        doubt: Its standard deviation.
        why: In words.
    """

    gain: float = 0.0
    doubt: float = 0.04
    why: str = "seldom pays"


Rule = Callable[[str, Surroundings], Expectation]


def compiled_gain(here: Surroundings) -> Expectation:
    """Of a step that XLA compiles over one that it does not."""
    traits = here.traits
    if not here.gpu:
        if traits.convolution:
            return Expectation(math.log(0.8), 0.25, "XLA's convolutions on a CPU are slower as a rule")
        return Expectation(math.log(1.15), 0.25, "XLA fuses what single kernels leave apart")
    if traits.recurrent:
        return Expectation(math.log(0.7), 0.4, "XLA does not have cuDNN's recurrent kernels")
    if traits.attention:
        return Expectation(math.log(2.0 if here.half else 1.4), 0.35, "XLA fuses what surrounds the products")
    if traits.batch_norm:
        unfused = here.keras3
        factor = (2.5 if unfused else 1.7) if here.half else (1.5 if unfused else 1.15)
        return Expectation(math.log(factor), 0.4, "XLA fuses normalisation and activations into convolutions")
    return Expectation(math.log(1.25), 0.3, "XLA fuses what single kernels leave apart")


def half_gain(here: Surroundings) -> Expectation:
    """Of layers that compute in 16 bits."""
    if not here.gpu:
        return Expectation(math.log(0.5), 0.4, "a CPU converts 16-bit numbers back and forth")
    if not all(gpu.has_float16_tensor_cores for gpu in here.facts.gpus):
        return Expectation(math.log(1.1), 0.2, "this GPU has no Tensor Cores; 16 bits save memory traffic")
    if here.traits.recurrent and here.keras3:
        return Expectation(math.log(1.15), 0.5, "Keras 3's recurrent layers gain little from 16 bits")
    factor = 2.2 if here.compiled or here.traits.recurrent else 1.5
    return Expectation(math.log(factor), 0.35, "Tensor Cores compute in 16 bits, and memory traffic halves")


def _steps(value: str, here: Surroundings) -> Expectation:
    step, count = here.traits.step_seconds or 0.05, max(1, int(value))
    saved = min(0.6, _CALL_SECONDS / step) * (1 - 1 / count)
    more = 0.03 if here.gpu and here.compiled else 0.0
    return Expectation(more - math.log(1 - saved), 0.06 + 0.5 * saved, "fewer calls from Python for each step")


def _fused_batch_norm(value: str, here: Surroundings) -> Expectation:
    wanted = value == "on" or (value == "auto" and not here.compiled and here.gpu)
    if not here.gpu or not here.keras3 or not here.traits.batch_norm:
        return Expectation(0.0, 0.05)
    if here.compiled:
        return Expectation(-0.02 if wanted else 0.0, 0.1, "XLA fuses normalisation itself")
    return Expectation(math.log(1.9) if wanted else 0.0, 0.3, "one kernel instead of eight passes")


def _cudnn_rnn(value: str, here: Surroundings) -> Expectation:
    wanted = value == "on" or (value == "auto" and here.gpu)
    if not here.gpu or not here.keras3 or not here.traits.recurrent:
        return Expectation(0.0, 0.05)
    return Expectation(math.log(2.5 if here.half else 1.2) if wanted else 0.0, 0.4, "cuDNN's own layout needs no mask")


def _data(part: float) -> Rule:
    def rule(value: str, here: Surroundings) -> Expectation:
        share = here.data_share
        return Expectation(math.log1p(part * share), 0.02 + 0.3 * share, f"data take {share:.0%} of a step's time")

    return rule


def _cache(value: str, here: Surroundings) -> Expectation:
    share = here.data_share
    return Expectation(-0.8 * math.log(1 - 0.8 * share), 0.02 + 0.4 * share, f"data take {share:.0%} of a step's time")


def _threads(value: str, here: Surroundings) -> Expectation:
    """Threads inside an operation: a gain of any size where steps are small, a loss where they are large."""
    if int(value) < 1 or int(value) >= here.facts.cpu.usable_cores:
        return Expectation(0.0, 0.05, "as many threads as cores")
    if (here.traits.step_seconds or 0.05) < _SMALL_STEP_SECONDS:
        return Expectation(0.1, 0.2, "small steps lose time handing work to threads")
    return Expectation(-0.2, 0.2, "large steps need all cores")


def _batch(value: str, here: Surroundings) -> Expectation:
    factor = 2.0 if value.endswith("x2") else 4.0
    share = 0.15 if here.gpu else 0.1
    return Expectation(share * math.log(factor), 0.15, "larger batches fill the device")


RULES: Mapping[str, Rule] = {
    "fit.steps_per_execution": _steps,
    "kernels.fused_batch_norm": _fused_batch_norm,
    "kernels.cudnn_rnn": _cudnn_rnn,
    "input.prefetch": _data(0.5),
    "input.private_threads": _data(0.1),
    "input.map_parallelization": _data(0.3),
    "input.deterministic": _data(0.1),
    "input.cache": _cache,
    "input.device_prefetch": lambda value, here: Expectation(0.01, 0.03, "copies to the GPU overlap with steps"),
    "devices.intra_op_threads": _threads,
    "devices.inter_op_threads": lambda value, here: Expectation(0.0, 0.06, "fewer threads compete for the cores"),
    "graph.layout_optimizer": lambda value, here: Expectation(-0.05, 0.06, "grappler's layouts suit Tensor Cores"),
    "fit.batch_size": _batch,
    "math.tf32": lambda value, here: Expectation(
        math.log(1.5) if value == "true" and not here.half else 0.0, 0.3, "TF32 uses Tensor Cores for float32"
    ),
    "communication.pack_mb": lambda value, here: Expectation(0.0, 0.05, "packs overlap with the backward pass"),
    "communication.implementation": lambda value, here: Expectation(0.0, 0.1, "links decide which is faster"),
    "communication.compression": lambda value, here: Expectation(0.05, 0.1, "half the bytes travel"),
    "communication.reduce_every": lambda value, here: Expectation(0.1, 0.15, "fewer all-reduces"),
}


def expected(key: str, value: Optional[str], here: Surroundings) -> Expectation:
    """What is expected of an option over the state that nothing was given.

    Args:
        key: Its axis.
        value: As it stands in words; None where nothing is given.
        here: With what it comes together.
    """
    if key == "xla.jit":
        kind = compiled_gain(here) if here.compiled else Expectation(0.0, 0.02, "single kernels")
        if value == "clustering":
            return dataclasses.replace(kind, gain=0.75 * compiled_gain(dataclasses.replace(here, compiled=True)).gain)
        return kind
    if key == "mixed_precision.policy":
        return half_gain(here) if here.half else Expectation(0.0, 0.02, "32 bits")
    rule = RULES.get(key)
    if rule is None or value is None or not value:
        return Expectation()
    return rule(value, here)
