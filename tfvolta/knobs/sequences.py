"""Sequences in batches of few shapes."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

FIX = "give fit such batches: model.fit(tfvolta.data.sequence_batches(dataset, max_tokens=512)[0])"
APART = ("multi_worker_mirrored", "parameter_server")


class SequenceBatches(Knob):
    """Splits long sequences, puts like lengths together and pads them to few lengths, each compiled once.

    Under ``tfvolta run`` the data given to ``fit`` are changed; elsewhere ``tfvolta.data.sequence_batches`` does it,
    and this knob looks whether it was done.

    Binds: when fit makes its data iterator, before the first callback is called.
    """

    name = "sequences"
    keys = (
        "sequences.buckets",
        "sequences.max_tokens",
        "sequences.multiple",
        "sequences.tokens_per_batch",
        "sequences.labels",
        "sequences.padding_value",
        "sequences.sample",
    )
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ("M4",)
    changes_results = True
    undoable = False

    def value(self, config: Any) -> Optional[Any]:
        section = config.get("sequences")
        if section is None:
            return None
        return {**section.model_dump(), "kind": config.get("strategy.kind") or "default", "remainder": _cut(config)}

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        del facts, environ
        found = []
        if value["kind"] in APART:
            found.append(
                Problem(
                    where="sequences",
                    expected="a strategy whose batches are made in one process, or horovod",
                    received=f"sequences with strategy.kind: {value['kind']}",
                    why="each worker would fill its buckets from its own rows and have another number of batches",
                    fix="remove the section, and batch sequences in the script before they are divided",
                )
            )
        if value["remainder"]:
            found.append(
                Problem(
                    where=value["remainder"],
                    expected="the section sequences, or a setting for the last batch",
                    received=f"{value['remainder']} with sequences",
                    why="every batch of a bucket has the same number of rows already, filled with rows of no weight",
                    fix=f"remove {value['remainder']}",
                )
            )
        longest = max(value["buckets"]) if isinstance(value["buckets"], list) else None
        if longest is not None and value["max_tokens"] is not None and value["max_tokens"] > longest:
            found.append(
                Problem(
                    where="sequences.buckets",
                    expected=f"a bucket for pieces of {value['max_tokens']} tokens (max_tokens)",
                    received=f"buckets: {value['buckets']}",
                    why="a piece has to fit into a bucket",
                    fix=f"add {value['max_tokens']} to buckets, or set max_tokens: {longest}",
                )
            )
        return found

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts, config
        split = f"split into pieces of {value['max_tokens']} tokens, " if value["max_tokens"] else ""
        buckets = value["buckets"]
        lengths = f"one of {buckets} tokens" if isinstance(buckets, list) else f"one of {buckets} lengths of the data's"
        return Forecast(Status.APPLIED, f"Under tfvolta run sequences are {split}put together and padded to {lengths}.")

    def apply(self, value: Any, context: Context) -> None:
        """The data that fit is given carry it."""

    def verify(self, value: Any, context: Context) -> Outcome:
        change = context.saved.get(self.name)
        if change is not None and not change.static:
            return Outcome(Status.NO_EFFECT, f"Nothing was changed. {change.message}", {}, FIX)
        report = None if context.model is None else context.bridge.sequence_report(context.model)
        if report is not None:
            return Outcome(Status.APPLIED, report.sentence(), report.to_json())
        if context.model is None or context.bridge.fit_data(context.model) is None:
            return Outcome(Status.PENDING, "The data that fit is given will show it.")
        return Outcome(Status.NO_EFFECT, "fit was given data that were not batched by their lengths.", {}, FIX)


def _cut(config: Any) -> str:
    """The key that asks for something else to be done with the last batch; empty where there is none."""
    if config.get("xla.drop_remainder"):
        return "xla.drop_remainder"
    return "xla.remainder" if config.get("xla.remainder") in ("drop", "pad") else ""
