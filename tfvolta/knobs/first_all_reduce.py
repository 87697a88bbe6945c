"""A small all-reduce between the workers, timed before the model is built."""

from __future__ import annotations

import statistics
import time
from typing import Any, Optional

from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.cluster import ALONE, forecast_cluster, request_of
from tfvolta.knobs.preflight import default_timeout
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

KINDS = ("multi_worker_mirrored",)
_KIBIBYTES, _REPEATS, _WARM_UP = 1024, 7, 2
_NOTHING = "Parameter servers and single processes reduce nothing between workers."


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
        strategy = context.strategy
        if strategy is None or getattr(strategy, "cluster_resolver", None) is None:
            return
        if int(strategy.num_replicas_in_sync) < 2:
            return
        context.saved[self.name] = time_all_reduce(context.tensorflow, strategy, value)

    def verify(self, value: Any, context: Context) -> Outcome:
        outcome = context.saved.get(self.name)
        return outcome if isinstance(outcome, Outcome) else Outcome(Status.NOT_APPLICABLE, ALONE)


def time_all_reduce(tensorflow: Any, strategy: Any, value: Any) -> Outcome:
    """Reduces ones over all replicas, several times; to be called by all workers at once.

    Args:
        tensorflow: The tensorflow module.
        strategy: A strategy with workers.
        value: ``kibibytes``, ``repeats`` and ``timeout_seconds``.
    """
    elements = value["kibibytes"] * 256
    options = tensorflow.distribute.experimental.CommunicationOptions(timeout_seconds=value["timeout_seconds"])

    def replica() -> Any:
        ones = tensorflow.ones([elements], tensorflow.float32)
        context = tensorflow.distribute.get_replica_context()
        return tensorflow.reduce_max(context.all_reduce("sum", ones, options=options))

    step = tensorflow.function(lambda: strategy.run(replica), jit_compile=False)
    milliseconds, total = [], 0.0
    for _ in range(_WARM_UP + value["repeats"]):
        started = time.perf_counter()
        total = float(strategy.experimental_local_results(step())[0].numpy())
        milliseconds.append(1000 * (time.perf_counter() - started))
    timed = milliseconds[_WARM_UP:]
    replicas = int(strategy.num_replicas_in_sync)
    observed = {
        "bytes": 4 * elements,
        "replicas": replicas,
        "took_part": int(total),
        "median_ms": round(statistics.median(timed), 3),
        "fastest_ms": round(min(timed), 3),
        "slowest_ms": round(max(timed), 3),
        "times": len(timed),
        "first_ms": round(milliseconds[0], 3),
    }
    if int(total) != replicas:
        message = f"{total:g} replicas took part in an all-reduce, and the strategy has {replicas}."
        return Outcome(Status.NO_EFFECT, message, observed, fix="start as many workers as the cluster names")
    return Outcome(
        Status.APPLIED,
        f"All {replicas} replicas took part; an all-reduce of {value['kibibytes']} KiB took"
        f" {observed['median_ms']:.1f} ms (median of {len(timed)}, from {observed['fastest_ms']:.1f} to"
        f" {observed['slowest_ms']:.1f}).",
        observed,
    )
