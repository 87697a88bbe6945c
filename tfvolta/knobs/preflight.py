"""The check before training: the workers meet, compare what they are, and all go on or all end."""

from __future__ import annotations

import warnings
from typing import Any, Mapping, Optional

from tfvolta.bridge.runtime import context_initialized
from tfvolta.cluster import Cluster
from tfvolta.cluster.checks import network_problems
from tfvolta.cluster.preflight import meet
from tfvolta.cluster.verdict import Verdict
from tfvolta.errors import ClusterError, ClusterWarning, Problem
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.cluster import ALONE, cluster_of, forecast_cluster, request_of
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

_ONE = "There is one process: nobody to meet."
_LOOKER = "An evaluator looks on and meets nobody."


class Preflight(Knob):
    """Lets all workers meet before the model is built, and ends them all with one error where they do not fit.

    Binds: nothing of TensorFlow; it runs as early as the plan is applied.
    """

    name = "preflight"
    keys = ("cluster.preflight", "cluster.preflight_timeout_seconds")
    phase = Phase.ENVIRONMENT
    closes_at = Moment.NEVER
    techniques = ()
    undoable = False

    def value(self, config: Any) -> Optional[Any]:
        request = request_of(config)
        if request is None or config.get("cluster.preflight") is False:
            return None
        seconds = config.get("cluster.preflight_timeout_seconds")
        return {**request, "timeout_seconds": default_timeout() if seconds is None else seconds}

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        """Hosts, addresses and ports of a live machine; a cluster that cannot be read, the cluster knob refuses."""
        if facts.source != "live":
            return []
        try:
            cluster = cluster_of(value, facts, environ)
        except ClusterError:
            return []
        if cluster is None or cluster.world_size < 2:
            return []
        return network_problems(cluster, environ, started=context_initialized())

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        cluster = forecast_cluster(value, facts)
        if isinstance(cluster, Forecast):
            return cluster
        nobody = _nobody(cluster)
        if nobody:
            return Forecast(Status.NOT_APPLICABLE, nobody)
        return Forecast(
            Status.APPLIED,
            f"{cluster.world_size} processes meet before the model is built, wait for each other up to"
            f" {value['timeout_seconds']:g} s, and compare versions, config, devices and clocks.",
        )

    def apply(self, value: Any, context: Context) -> None:
        """Meets the others.

        Raises:
            ClusterError: A worker did not come, or workers differ.
        """
        cluster = cluster_of(value, context.facts, context.environ)
        if cluster is None or _nobody(cluster):
            return
        # A strategy of the script's own is up before its callbacks are made; its server then says nothing.
        seconds, started = value["timeout_seconds"], context_initialized()
        verdict = meet(cluster, context, seconds, started)
        context.saved[self.name] = _outcome(cluster, verdict)
        for text in verdict.warnings if verdict is not None else ():
            warnings.warn(text, ClusterWarning, stacklevel=2)

    def verify(self, value: Any, context: Context) -> Outcome:
        outcome = context.saved.get(self.name)
        if isinstance(outcome, Outcome):
            return outcome
        cluster = cluster_of(value, context.facts, context.environ)
        nobody = ALONE if cluster is None else _nobody(cluster)
        if nobody:
            return Outcome(Status.NOT_APPLICABLE, nobody)
        return Outcome(Status.NO_EFFECT, "The workers have not met: the environment phase was never entered.")


def default_timeout() -> float:
    """``cluster.preflight_timeout_seconds`` where the config has no such section."""
    from tfvolta.config.distribution import Cluster as Section

    return float(Section().preflight_timeout_seconds)


def _nobody(cluster: Cluster) -> str:
    """Why there is nobody to meet; empty where there is."""
    return _LOOKER if cluster.rank is None else _ONE if cluster.world_size < 2 else ""


def _outcome(cluster: Cluster, verdict: Optional[Verdict]) -> Outcome:
    if verdict is None:
        assert cluster.lacking is not None
        why = f"The processes know no place to meet: {cluster.lacking.why}."
        return Outcome(Status.UNVERIFIABLE, why, {"world_size": cluster.world_size})
    observed = {name: value for name, value in verdict.to_json().items() if name in ("warnings", "workers", "seconds")}
    if not verdict.workers:
        return Outcome(Status.UNVERIFIABLE, " ".join(verdict.warnings), observed)
    offsets = [abs(float(worker.get("clock_offset_seconds") or 0.0)) for worker in verdict.workers]
    sentences = [
        f"{len(verdict.workers)} processes met in {verdict.seconds:.1f} s and agree on versions and config; clocks"
        f" differ by {1000 * max(offsets):.1f} ms at most.",
        *verdict.warnings,
    ]
    return Outcome(Status.APPLIED, " ".join(sentences), observed)
