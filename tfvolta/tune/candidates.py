"""Values worth trying, by config key. What a value does to results is the knob's to say, not this file's."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Optional, Sequence

from tfvolta.config.scalars import write_flow
from tfvolta.facts.schema import Facts
from tfvolta.knobs.base import Knob
from tfvolta.knobs.registry import knobs
from tfvolta.strategy.knobs import STRATEGY_KNOBS
from tfvolta.tune.model_traits import ModelTraits

Words = tuple[str, ...]  # KEY=VALUE
TIMES = "x"  # fit.batch_size=x2: twice the script's own


@dataclasses.dataclass(frozen=True)
class Situation:
    """What values depend on.

    Attributes:
        config: The user's.
        facts: The machine and stack.
    """

    config: Any
    facts: Facts

    @property
    def cores(self) -> int:
        """Cores that one process can keep busy."""
        return max(1, int(self.facts.cpu.usable_cores))

    @property
    def several(self) -> bool:
        """Whether the config trains on several devices of one process."""
        return bool(self.config.get("strategy.kind") == "mirrored")

    @property
    def gpus(self) -> int:
        """GPUs of the machine."""
        return len(self.facts.gpus)


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One thing to search.

    Attributes:
        key: Its main config key.
        values: Words for each value, given a situation; none where it is not worth a trial there.
        group: By which word ``--allow`` lets it change results; empty where it needs no leave.
        lacks: Why it is idle with a model, once traits are known; None where it is not.
        absent: What a config means that does not give the key, as it stands in words.
    """

    key: str
    values: Callable[[Situation], Sequence[Words]]
    group: str = ""
    lacks: Optional[Callable[[ModelTraits], Optional[str]]] = None
    absent: str = ""

    def given(self, config: Any) -> str:
        """What a config has for its key, as it stands in words."""
        value = config.get(self.key)
        return self.absent if value is None else write_flow(value)

    @property
    def knob(self) -> Knob:
        """The knob that carries its key."""
        return carriers(self.key)[0]


def carriers(key: str) -> list[Knob]:
    """The knobs that carry a config key; the last word about it is theirs."""
    return [each for each in (*knobs(), *STRATEGY_KNOBS) if key in each.keys]


def changes_results(words: Words) -> bool:
    """Whether a knob says of one of these keys that results can change by it."""
    keys = [word.partition("=")[0] for word in words]
    return any(knob.changes_results_by(key) for key in keys for knob in carriers(key))


def _each(key: str, *values: Any) -> Callable[[Situation], Sequence[Words]]:
    return lambda situation: [(f"{key}={value}",) for value in values]


def _steps_per_execution(situation: Situation) -> Sequence[Words]:
    return [("fit.steps_per_execution=10",), ("fit.steps_per_execution=32",)]


def _launch_threads(situation: Situation) -> Sequence[Words]:
    return [("devices.gpu_thread_mode=gpu_private", "devices.gpu_threads=2")]


def _allocator(situation: Situation) -> Sequence[Words]:
    growth = situation.config.get("devices.memory_growth")
    return [("devices.allocator=cuda_malloc_async", *(("devices.memory_growth=null",) if growth else ()))]


def _xla_flags(situation: Situation) -> Sequence[Words]:
    """Collectives that overlap with computing, with several GPUs; cuBLASLt's fused epilogues with one."""
    if not situation.gpus:
        return []
    flag = "latency_hiding_scheduler" if situation.several and situation.gpus > 1 else "cublaslt"
    return [(f"xla.flags=[--xla_gpu_enable_{flag}=true]",)]


def _intra_op(situation: Situation) -> Sequence[Words]:
    sizes = sorted({1, max(1, situation.cores // 2)} - {situation.cores})
    return [] if situation.gpus else [(f"devices.intra_op_threads={size}",) for size in sizes]


def _inter_op(situation: Situation) -> Sequence[Words]:
    sizes = sorted({1, 2} - {situation.cores})
    return [] if situation.gpus else [(f"devices.inter_op_threads={size}",) for size in sizes]


def _input_threads(situation: Situation) -> Sequence[Words]:
    return [(f"input.private_threads={situation.cores}",)]


def _packs(situation: Situation) -> Sequence[Words]:
    return [(f"communication.pack_mb={size}",) for size in (8, 64)] if situation.several else []


def _implementation(situation: Situation) -> Sequence[Words]:
    ways = ("nccl", "hierarchical_copy")
    return [(f"communication.implementation={way}",) for way in ways] if situation.several else []


def _nccl_protocol(situation: Situation) -> Sequence[Words]:
    return [("nccl.protocol=Simple",)] if situation.several and situation.gpus > 1 else []


def _batch(situation: Situation) -> Sequence[Words]:
    own = situation.config.get("fit.batch_size")
    return [(f"fit.batch_size={own * times if own else f'{TIMES}{times}'}",) for times in (2, 4)]


def _reduce_every(situation: Situation) -> Sequence[Words]:
    return [("communication.reduce_every=2",), ("communication.reduce_every=4",)] if situation.several else []


def _compression(situation: Situation) -> Sequence[Words]:
    return [("communication.compression=fp16",)] if situation.several else []


def _no_batch_norm(traits: ModelTraits) -> Optional[str]:
    return None if traits.batch_norm else "the model has no batch normalisation"


def _no_recurrence(traits: ModelTraits) -> Optional[str]:
    return None if traits.has("LSTM", "GRU") else "the model has no LSTM and no GRU"


def _no_convolution(traits: ModelTraits) -> Optional[str]:
    return None if traits.has("Conv") else "the model has no convolution"


def _cheap_data(traits: ModelTraits) -> Optional[str]:
    share = traits.data_share
    if share is None or share >= 0.1:
        return None
    return "making a batch takes less than a tenth of a step"


CANDIDATES: tuple[Candidate, ...] = (
    Candidate("xla.jit", _each("xla.jit", "model", "off", "clustering")),
    Candidate("mixed_precision.policy", _each("mixed_precision.policy", "mixed_float16", "mixed_bfloat16", "float32"),
              "precision", absent="float32"),
    Candidate("math.tf32", _each("math.tf32", "true"), "precision", absent="true"),
    Candidate("fit.steps_per_execution", _steps_per_execution, absent="1"),
    Candidate("kernels.fused_batch_norm", _each("kernels.fused_batch_norm", "on", "off"), lacks=_no_batch_norm,
              absent="off"),
    Candidate("kernels.cudnn_rnn", _each("kernels.cudnn_rnn", "on", "off"), lacks=_no_recurrence, absent="off"),
    Candidate("graph.layout_optimizer", _each("graph.layout_optimizer", "false"), lacks=_no_convolution,
              absent="true"),
    Candidate("cudnn.workspace_limit_mb", _each("cudnn.workspace_limit_mb", 1024), lacks=_no_convolution),
    Candidate("devices.gpu_thread_mode", _launch_threads),
    Candidate("devices.allocator", _allocator),
    Candidate("xla.flags", _xla_flags),
    Candidate("devices.intra_op_threads", _intra_op),
    Candidate("devices.inter_op_threads", _inter_op),
    Candidate("input.prefetch", _each("input.prefetch", "auto"), lacks=_cheap_data),
    Candidate("input.device_prefetch", _each("input.device_prefetch", 2)),
    Candidate("input.private_threads", _input_threads, lacks=_cheap_data),
    Candidate("input.map_parallelization", _each("input.map_parallelization", "true"), lacks=_cheap_data),
    Candidate("input.cache", _each("input.cache", "memory"), lacks=_cheap_data),
    Candidate("input.deterministic", _each("input.deterministic", "false"), "input_order", _cheap_data),
    Candidate("communication.pack_mb", _packs),
    Candidate("communication.implementation", _implementation),
    Candidate("nccl.protocol", _nccl_protocol),
    Candidate("communication.reduce_every", _reduce_every, "reduce_every"),
    Candidate("communication.compression", _compression, "compression"),
    Candidate("fit.batch_size", _batch, "batch"),
)  # fmt: skip


def groups() -> tuple[str, ...]:
    """Words that ``--allow`` takes."""
    return tuple(dict.fromkeys(each.group for each in CANDIDATES if each.group))
