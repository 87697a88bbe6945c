"""Which part of the data each worker reads."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

BY_STRATEGY = ("multi_worker_mirrored",)
BETWEEN_RANKS = ("horovod",)
_HELD = {"file", "data", "off"}
FIX = "give fit data that are divided: model.fit(tfvolta.data.shard(dataset, workers=N)[0])"


class DataSharding(Knob):
    """Divides the data given to ``fit`` between workers, and says what each of them reads.

    Under ``tfvolta run`` the data given to ``fit`` are changed; elsewhere ``tfvolta.data.shard`` and
    ``tfvolta.data.share_of_batches`` do it, and this knob says what the data set asks for.

    Binds: when fit makes its data iterator, before the first callback is called.
    """

    name = "sharding"
    keys = ("data.sharding",)
    phase = Phase.FIT
    closes_at = Moment.NEVER
    changes_results = True
    undoable = False

    def value(self, config: Any) -> Optional[Any]:
        asked = config.get("data.sharding")
        kind = config.get("strategy.kind") or "default"
        if asked is None and kind not in BY_STRATEGY:
            return None
        return {"policy": asked or "auto", "kind": kind}

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        del facts, environ
        policy, kind = value["policy"], value["kind"]
        if kind in BETWEEN_RANKS and policy == "file":
            return [
                Problem(
                    where="data.sharding",
                    expected="data, auto or off with strategy.kind: horovod",
                    received="file",
                    why="a data set that reads files already cannot be given others from outside",
                    fix="write files.shard(hvd.size(), hvd.rank()) before they are read, and set sharding: off",
                )
            ]
        if kind in (*BETWEEN_RANKS, *BY_STRATEGY) or policy == "off":
            return []
        return [
            Problem(
                where="data.sharding",
                expected="a strategy whose workers read data of their own (multi_worker_mirrored, horovod)",
                received=f"sharding: {policy} with strategy.kind: {kind}",
                why="workers of parameter_server take batches in no fixed order, each from a copy of all the data"
                if kind == "parameter_server"
                else "one process reads all the data",
                fix="remove data.sharding",
            )
        ]

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts, config
        policy, kind = value["policy"], value["kind"]
        if policy == "off":
            return Forecast(Status.APPLIED, "Each worker reads all that its own script gives to fit.")
        if kind in BETWEEN_RANKS:
            return Forecast(
                Status.APPLIED,
                "Each rank trains on its share of every batch that the script gives to fit, which so is the global "
                "batch.",
            )
        chosen = {
            "auto": "files where every worker gets equally many, and rows otherwise",
            "file": "files",
            "data": "rows",
        }[policy]
        return Forecast(Status.APPLIED, f"Workers divide {chosen}; a batch given to fit is the global batch.")

    def apply(self, value: Any, context: Context) -> None:
        """The data that fit is given carry it."""

    def verify(self, value: Any, context: Context) -> Outcome:
        made = context.saved.get(self.name)
        if made is not None:
            observed = {"policy": made.policy, "files": made.files}
            if made.policy or value["policy"] in ("auto", "off"):
                return Outcome(Status.APPLIED, made.message, observed)
            return Outcome(Status.NO_EFFECT, made.message, observed, FIX)
        found = context.bridge.data_policy(context.model) if context.model is not None else None
        if found is None:
            return Outcome(Status.PENDING, "The data that fit is given will show it.")
        observed = {"policy": found}
        if value["kind"] in BETWEEN_RANKS and value["policy"] not in ("off", "auto"):
            return Outcome(
                Status.NO_EFFECT,
                "fit was given data that nothing divided between the ranks: start the script with tfvolta run.",
                observed,
                "model.fit(tfvolta.data.share_of_batches(dataset, hvd.rank(), hvd.size())[0])",
            )
        if value["policy"] in _HELD and found != value["policy"]:
            return Outcome(Status.NO_EFFECT, f"The data set asks TensorFlow for the policy {found}.", observed, FIX)
        return Outcome(Status.APPLIED, f"The data set asks TensorFlow for the policy {found}.", observed)
