"""A small all-reduce between the workers, timed before the model is built."""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any, Callable, Mapping, NamedTuple, Optional

from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.cluster import forecast_cluster, request_of
from tfvolta.knobs.preflight import default_timeout
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

KINDS = ("multi_worker_mirrored", "horovod")
_KIBIBYTES, _REPEATS, _WARM_UP = 1024, 7, 2
_FLOATS = 256  # in a KiB
_NOTHING = "Parameter servers and single processes reduce nothing between workers."
_NOBODY = "There was no other worker to reduce with when the build phase was entered."


class FirstAllReduce(Knob):
    """Times a small all-reduce through the strategy, and sees that every replica takes part in it.

    Binds: when the strategy exists; it is the first collective of the process.
    """

    name = "first_all_reduce"
    keys = ("cluster.preflight",)
    phase = Phase.BUILD
    closes_at = Moment.NEVER
    techniques = ()
    undoable = False

    def value(self, config: Any) -> Optional[Any]:
        request = request_of(config)
        if request is None or request["kind"] not in KINDS or config.get("cluster.preflight") is False:
            return None
        seconds = config.get("cluster.preflight_timeout_seconds")
        timeout = default_timeout() if seconds is None else seconds
        return {**request, "kibibytes": _KIBIBYTES, "repeats": _REPEATS, "timeout_seconds": timeout}

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        cluster = forecast_cluster(value, facts)
        if isinstance(cluster, Forecast):
            return cluster
        if cluster.num_workers < 2 or cluster.has_parameter_servers or cluster.rank is None:
            return Forecast(Status.NOT_APPLICABLE, _NOTHING)
        return Forecast(
            Status.APPLIED,
            f"An all-reduce of {value['kibibytes']} KiB over {cluster.num_workers} workers is timed"
            f" {value['repeats']} times before the model is built.",
        )

    def apply(self, value: Any, context: Context) -> None:
        step = _horovod_step(value) if value["kind"] == "horovod" else _strategy_step(value, context)
        if step is not None:
            context.saved[self.name] = time_all_reduce(step, value)

    def verify(self, value: Any, context: Context) -> Outcome:
        outcome = context.saved.get(self.name)
        return outcome if isinstance(outcome, Outcome) else Outcome(Status.NOT_APPLICABLE, _NOBODY)


class Step(NamedTuple):
    """One all-reduce of ones.

    Attributes:
        run: Does it, and returns how many took part.
        replicas: How many there are.
    """

    run: Callable[[], float]
    replicas: int


def time_all_reduce(step: Step, value: Mapping[str, Any]) -> Outcome:
    """Reduces ones over all replicas, several times; to be called by all workers at once.

    Args:
        step: What to time.
        value: ``kibibytes`` and ``repeats``.
    """
    milliseconds, took_part = [], 0
    for _ in range(_WARM_UP + value["repeats"]):
        started = time.perf_counter()
        took_part = round(step.run())
        milliseconds.append(1000 * (time.perf_counter() - started))
    timed = milliseconds[_WARM_UP:]
    observed = {
        "bytes": 1024 * value["kibibytes"],
        "replicas": step.replicas,
        "took_part": took_part,
        "median_ms": round(statistics.median(timed), 3),
        "fastest_ms": round(min(timed), 3),
        "slowest_ms": round(max(timed), 3),
        "times": len(timed),
        "first_ms": round(milliseconds[0], 3),
    }
    if took_part != step.replicas:
        message = f"{took_part} replicas took part in an all-reduce, and there are {step.replicas}."
        return Outcome(Status.NO_EFFECT, message, observed, fix="start as many workers as the cluster names")
    return Outcome(
        Status.APPLIED,
        f"All {took_part} replicas took part; an all-reduce of {value['kibibytes']} KiB took"
        f" {observed['median_ms']:.1f} ms (median of {len(timed)}, from {observed['fastest_ms']:.1f} to"
        f" {observed['slowest_ms']:.1f}).",
        observed,
    )


def _strategy_step(value: Mapping[str, Any], context: Context) -> Optional[Step]:
    """An all-reduce through the plan's strategy; None where it has no other workers."""
    strategy = context.strategy
    if strategy is None or getattr(strategy, "cluster_resolver", None) is None:
        return None
    replicas = int(strategy.num_replicas_in_sync)
    return strategy_step(context.tensorflow, strategy, value) if replicas > 1 else None


def strategy_step(tensorflow: Any, strategy: Any, value: Mapping[str, Any]) -> Step:
    """An all-reduce of ones through a strategy, with its own communication options and a time limit.

    Args:
        tensorflow: The tensorflow module.
        strategy: A synchronous strategy.
        value: ``kibibytes`` and ``timeout_seconds``.
    """
    options = tensorflow.distribute.experimental.CommunicationOptions(timeout_seconds=value["timeout_seconds"])

    def replica() -> Any:
        ones = tensorflow.ones([value["kibibytes"] * _FLOATS], tensorflow.float32)
        total = tensorflow.distribute.get_replica_context().all_reduce("sum", ones, options=options)
        return tensorflow.reduce_max(total)

    step = tensorflow.function(lambda: strategy.run(replica), jit_compile=False)
    return Step(
        run=lambda: float(strategy.experimental_local_results(step())[0].numpy()),
        replicas=int(strategy.num_replicas_in_sync),
    )


def _horovod_step(value: Mapping[str, Any]) -> Optional[Step]:
    """An all-reduce through Horovod; None where it has not started, or there is one rank."""
    hvd = sys.modules.get("horovod.tensorflow")
    if hvd is None or not hvd.is_initialized() or hvd.size() < 2:
        return None
    import tensorflow as tf

    ones = tf.ones([value["kibibytes"] * _FLOATS], tf.float32)

    def run() -> float:
        total = hvd.allreduce(ones, op=hvd.Sum, name="tfvolta_first_all_reduce")
        return float(tf.reduce_max(total).numpy())

    return Step(run, int(hvd.size()))
