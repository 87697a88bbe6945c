"""Workers with different numbers of batches."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

KINDS = ("multi_worker_mirrored", "horovod")


class Uneven(Knob):
    """Compares the number of batches of all workers before the first step, and refuses or cuts what differs.

    A worker with a batch more than the others would wait for them for ever.

    Binds: when fit begins.
    """

    name = "uneven"
    keys = ("data.uneven",)
    phase = Phase.RUNNING
    closes_at = Moment.NEVER
    changes_results = True
    undoable = False

    def value(self, config: Any) -> Optional[Any]:
        asked = config.get("data.uneven")
        kind = config.get("strategy.kind") or "default"
        if asked is None and kind not in KINDS:
            return None
        return {"asked": asked or "error", "kind": kind}

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        del facts, environ
        if value["kind"] in KINDS:
            return []
        return [
            Problem(
                where="data.uneven",
                expected=f"a strategy whose workers step together ({', '.join(KINDS)})",
                received=f"uneven: {value['asked']} with strategy.kind: {value['kind']}",
                why="nobody waits for another's batch there",
                fix="remove data.uneven",
            )
        ]

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts, config
        then = "training is refused on all of them" if value["asked"] == "error" else "all train the smallest number"
        return Forecast(Status.APPLIED, f"Workers compare their batches an epoch before the first step; {then}.")

    def apply(self, value: Any, context: Context) -> None:
        """A callback compares them."""

    def verify(self, value: Any, context: Context) -> Outcome:
        steps = context.saved.get(self.name)
        if steps is not None:
            observed = {"batches": steps}
            if None in steps:
                return Outcome(
                    Status.UNVERIFIABLE, "Data of some worker do not say how many batches they have.", observed
                )
            return Outcome(Status.APPLIED, f"Batches an epoch of the workers: {steps}.", observed)
        beginning = bool(getattr(context, "in_fit", False))
        if beginning or context.model is None or context.bridge.train_graph(context.model) is None:
            return Outcome(Status.PENDING, "Workers compare their batches when fit begins.")
        return Outcome(
            Status.NO_EFFECT,
            "Nothing compared the workers' batches: write fit(callbacks=tfvolta.build_callbacks(config, model)).",
        )
