"""Horovod's environment: how gradients are fused, how often it looks for them, and what it records."""

from __future__ import annotations

import os
import statistics
import sys
from typing import Any, Mapping, Optional

from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast
from tfvolta.knobs.environment import EnvironmentKnob
from tfvolta.knobs.horovod_timeline import Timeline, read_timeline
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment

MIB = 1024 * 1024
DEFAULT_CYCLE_MS = 1.0
_NOT_READ = (
    "Horovod reads it once and has no call that returns it; horovod.timeline: FILE makes rank 0 record what it does."
)
_EMPTY = "Nothing that Horovod has written so far shows it."
_OTHER_RANK = "Rank 0 records it; see the evidence of that rank."


def started_rank() -> Optional[int]:
    """This process's rank; None before Horovod was initialised."""
    horovod = sys.modules.get("horovod.tensorflow")
    if horovod is None or not getattr(horovod, "is_initialized", bool)():
        return None
    return int(horovod.rank())


class HorovodVariable(EnvironmentKnob):
    """Base of the knobs that are variables of Horovod's; they ask for nothing under another strategy kind."""

    closes_at = Moment.HOROVOD_STARTED
    move_to = "call tfvolta.build_strategy(config), or set the HOROVOD_ variables, before hvd.init()"
    needs_gpu = False

    def value(self, config: Any) -> Optional[Any]:
        return config.get(self.keys[0]) if config.get("strategy.kind") == "horovod" else None

    def timeline(self, context: Context) -> Optional[Timeline]:
        """What the timeline that the config asks for shows; None where there is none, or nothing in it yet."""
        path = context.config.get("horovod.timeline")
        found = Timeline() if path is None or started_rank() != 0 else read_timeline(os.path.abspath(path))
        return found if found.packs else None

    def shows(self, value: Any, config: Any) -> bool:
        """Whether something that Horovod writes on rank 0 will show this value."""
        del value
        return config.get("horovod.timeline") is not None

    def verify(self, value: Any, context: Context) -> Outcome:
        outcome = super().verify(value, context)
        if outcome.status is not Status.UNVERIFIABLE or not self.shows(value, context.config):
            return outcome
        if context.model is None or not context.bridge.is_traced(context.model):
            return Outcome(Status.PENDING, "Set in time; what Horovod writes will show it.", outcome.observed)
        return Outcome(outcome.status, _OTHER_RANK if started_rank() else _EMPTY, outcome.observed)


class HorovodFusion(HorovodVariable):
    """Lets Horovod reduce gradients together, up to a number of MiB at a time.

    Binds: when Horovod is initialised.
    """

    name = "horovod_fusion"
    keys = ("communication.pack_mb",)
    techniques = ("C6",)
    unverifiable = _NOT_READ

    def variables(self, value: Any) -> dict[str, str]:
        return {"HOROVOD_FUSION_THRESHOLD": str(int(value) * MIB)}

    def explain(self, value: Any, facts: Any, config: Any) -> str:
        return f"Gradients are reduced together in packs of up to {value} MiB."

    def probe(self, value: Any, context: Context) -> Optional[Outcome]:
        """Packs in the timeline: none may be larger than asked, unless it is a single tensor."""
        timeline = self.timeline(context)
        if timeline is None:
            return None
        largest, count = timeline.largest_bytes, len(timeline.packs)
        observed = {"packs": count, "of_several_tensors": timeline.fused, "largest_bytes": largest}
        if largest > value * MIB:
            return Outcome(
                Status.NO_EFFECT,
                f"The timeline has a pack of {largest / MIB:.2f} MiB, above the {value} MiB that were asked for.",
                observed,
            )
        what = f"the largest of several tensors has {largest / MIB:.2f} MiB" if largest else "each of a single tensor"
        return Outcome(
            Status.APPLIED, f"The timeline has {count} packs, {what}, within the {value} MiB asked for.", observed
        )


class HorovodCycle(HorovodVariable):
    """How long Horovod collects gradients before it reduces what is there.

    Binds: when Horovod is initialised.
    """

    name = "horovod_cycle"
    keys = ("communication.cycle_time_ms",)
    techniques = ("C6",)
    unverifiable = _NOT_READ

    def variables(self, value: Any) -> dict[str, str]:
        return {"HOROVOD_CYCLE_TIME": f"{value:g}", "HOROVOD_TIMELINE_MARK_CYCLES": "1"}

    def explain(self, value: Any, facts: Any, config: Any) -> str:
        return f"Horovod looks for gradients to reduce every {value:g} ms (its default is {DEFAULT_CYCLE_MS:g} ms)."

    def probe(self, value: Any, context: Context) -> Optional[Outcome]:
        """Times between the cycle marks in the timeline: a cycle never ends early, and a busy machine makes it late."""
        timeline = self.timeline(context)
        if timeline is None or len(timeline.cycles_ms) < 10:
            return None
        shortest = statistics.quantiles(timeline.cycles_ms, n=10)[0]
        observed = {
            "cycles": len(timeline.cycles_ms),
            "shortest_tenth_ms": round(shortest, 3),
            "median_ms": round(statistics.median(timeline.cycles_ms), 3),
        }
        seen = f"In the timeline a tenth of the cycles take less than {shortest:.2f} ms"
        if shortest < 0.9 * value:
            return Outcome(Status.NO_EFFECT, f"{seen}, below the {value:g} ms asked for.", observed)
        if value < DEFAULT_CYCLE_MS <= shortest:
            why = f"{seen}: a machine as busy as this shows no difference from Horovod's {DEFAULT_CYCLE_MS:g} ms."
            return Outcome(Status.UNVERIFIABLE, why, observed)
        return Outcome(Status.APPLIED, f"{seen}, none of the others less than the {value:g} ms asked for.", observed)


class HorovodHierarchy(HorovodVariable):
    """Reduces inside each machine with NCCL, then between machines with MPI.

    Binds: when Horovod is initialised.
    """

    name = "horovod_hierarchy"
    keys = ("communication.hierarchical",)
    techniques = ("C5", "C6")
    needs_gpu = True
    unverifiable = "Horovod has no call that tells which all-reduce it took, and the traced graph looks the same."
    condition = "Horovod was built with NCCL and MPI, and several machines train"

    def shows(self, value: Any, config: Any) -> bool:
        return False

    def variables(self, value: Any) -> dict[str, str]:
        return {"HOROVOD_HIERARCHICAL_ALLREDUCE": str(int(value))}

    def explain(self, value: Any, facts: Any, config: Any) -> str:
        if not value:
            return "One all-reduce over all ranks, Horovod's default."
        return "Inside each machine with NCCL, then between machines with MPI; only a build with both has it."


class HorovodTimeline(HorovodVariable):
    """Makes rank 0 record when each tensor was waited for, fused and reduced.

    Binds: when Horovod is initialised.
    """

    name = "horovod_timeline"
    keys = ("horovod.timeline",)
    techniques = ("C6",)
    unverifiable = _EMPTY

    def variables(self, value: Any) -> dict[str, str]:
        return {"HOROVOD_TIMELINE": os.path.abspath(value)}

    def explain(self, value: Any, facts: Any, config: Any) -> str:
        return (
            f"Rank 0 writes {value} (chrome://tracing reads it). The thread that writes never sleeps: it takes one "
            "core of rank 0 throughout."
        )

    def probe(self, value: Any, context: Context) -> Optional[Outcome]:
        rank = started_rank()
        if rank is None:
            return None
        if rank:
            return Outcome(Status.NOT_APPLICABLE, "Rank 0 writes the timeline.")
        timeline = self.timeline(context)
        if timeline is None:
            return None
        count = len(timeline.packs)
        return Outcome(Status.APPLIED, f"{value} has {count} all-reduces so far.", {"all_reduces": count})


class HorovodAutotune(HorovodVariable):
    """Lets Horovod search for its own fusion threshold and cycle time while training runs.

    Binds: when Horovod is initialised.
    """

    name = "horovod_autotune"
    keys = ("horovod.autotune", "horovod.autotune_log")
    techniques = ("C6",)
    unverifiable = "Horovod says what it tries only in a log: set horovod.autotune_log."

    def value(self, config: Any) -> Optional[Any]:
        if config.get("strategy.kind") != "horovod" or config.horovod is None:
            return None
        asked = {"on": config.horovod.autotune, "log": config.horovod.autotune_log}
        return {name: given for name, given in asked.items() if given is not None} or None

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        del facts, environ
        if value.get("on") or "log" not in value:
            return []
        return [
            Problem(
                where="horovod.autotune_log",
                expected="horovod.autotune: true with autotune_log",
                received=f"autotune_log: {value['log']}",
                why="the log is written by autotune only",
                fix="set horovod.autotune: true, or remove autotune_log",
            )
        ]

    def variables(self, value: Any) -> dict[str, str]:
        named = {"HOROVOD_AUTOTUNE": str(int(bool(value.get("on"))))}
        return {**named, "HOROVOD_AUTOTUNE_LOG": os.path.abspath(value["log"])} if "log" in value else named

    def shows(self, value: Any, config: Any) -> bool:
        return "log" in value

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        if not value.get("on"):
            return Forecast(Status.UNVERIFIABLE, "Horovod keeps the fusion and the cycle time that it is given.")
        fixed = [key for key in ("pack_mb", "cycle_time_ms") if config.get(f"communication.{key}") is not None]
        kept = f" communication.{' and communication.'.join(fixed)} stays as given." if fixed else ""
        return Forecast(
            Status.APPLIED if "log" in value else Status.UNVERIFIABLE,
            f"Horovod tries fusion thresholds and cycle times in the first hundreds of steps, which are slower.{kept}",
        )

    def probe(self, value: Any, context: Context) -> Optional[Outcome]:
        rank = started_rank()
        if rank is None or not value.get("on") or "log" not in value:
            return None
        if rank:
            return Outcome(Status.NOT_APPLICABLE, "Rank 0 tunes for all ranks, and writes the log.")
        try:
            with open(os.path.abspath(value["log"]), encoding="utf-8") as file:
                rows = len(file.read().splitlines())
        except OSError:
            rows = 0
        if not rows:
            return None
        return Outcome(Status.APPLIED, f"{value['log']} has {rows} lines.", {"lines": rows})
