"""Activations that are computed a second time for the gradients instead of being kept."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from tfvolta.bridge.recompute_records import SCOPE, RecomputeRequest, RecomputeState, SegmentState, megabytes
from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.jit import replicas_of
from tfvolta.knobs.per_model import forget_all, remember
from tfvolta.knobs.precision_groups import listed
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

_EAGER = "The model runs eagerly: only a traced step can be told when to compute again."


class Recompute(Knob):
    """Drops activations of segments of a model and computes them again when their gradients are due.

    Binds: when the train step is traced. The bridge makes Keras trace anew, so a callback is in time on every fit;
    after the fit the model is as it was.
    """

    name = "recompute"
    keys = (
        "memory.recompute",
        "memory.recompute.layers",
        "memory.recompute.every",
        "memory.recompute.budget_mb",
    )
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ("M1",)

    def value(self, config: Any) -> Optional[Any]:
        asked = None if config.memory is None else config.memory.recompute
        return None if asked is None else asked.model_dump()

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        given = [f"{key}: {asked}" for key, asked in value.items() if asked is not None]
        if len(given) == 1 and value["layers"] != []:
            return []
        return [
            Problem(
                where="memory.recompute",
                expected="exactly one of layers, every and budget_mb under memory.recompute",
                received=", ".join(given) or "none of them",
                why="each of them alone says where the model is cut",
                fix="keep one, such as every: 1",
            )
        ]

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        if value["layers"]:
            what = f"Layers that match {', '.join(value['layers'])} are"
        elif value["every"]:
            what = f"Segments of {value['every']} blocks are"
        else:
            what = f"As much as activations need to stay within {value['budget_mb']} MiB is"
        return Forecast(Status.APPLIED, f"{what} computed again for the gradients, and not kept until then.")

    def apply(self, value: Any, context: Context) -> None:
        if getattr(context.model, "run_eagerly", False):
            return
        data = context.bridge.fit_data(context.model)
        batch = None if data is None or data.batch is None else -(-data.batch // replicas_of(context))
        request = RecomputeRequest(
            layers=tuple(value["layers"] or ()),
            every=value["every"],
            budget_bytes=None if value["budget_mb"] is None else value["budget_mb"] * 2**20,
            batch=batch,
            refuse=bool(context.config.run.strict),
        )
        context.bridge.recompute(context.model, request)
        remember(context, self.name, batch)

    def verify(self, value: Any, context: Context) -> Outcome:
        state = context.bridge.recompute_state(context.model)
        if state is None:
            if getattr(context.model, "run_eagerly", False):
                return Outcome(Status.NO_EFFECT, _EAGER, {}, "compile(..., run_eagerly=False)")
            return Outcome(Status.NO_EFFECT, "The model keeps all its activations: something has put its calls back.")
        observed = {
            "cut": state.said,
            "segments": [segment.name for segment in state.segments],
            "left_out": dict(state.left_out),
        }
        if not state.segments:
            return _without_segments(value, state, observed)
        graph = context.bridge.train_graph(context.model)
        if graph is None:
            return Outcome(Status.PENDING, f"{_capital(state.said)}; the first traced step shows it.", observed)
        names = [name for found in graph.products.values() for name in found]
        observed["products_again"] = sum(SCOPE in name and "gradient_tape" not in name for name in names)
        return _traced(value, state, observed, context)

    def after_fit(self, value: Any, context: Context) -> None:
        """Makes the model keep its activations again."""
        self.undo(context)

    def undo(self, context: Context) -> bool:
        models = forget_all(context, self.name)
        for changed in models:
            changed.bridge.undo_recompute(changed.model)
        return bool(models)


def _without_segments(value: Any, state: RecomputeState, observed: dict[str, Any]) -> Outcome:
    if value["budget_mb"] and not state.left_out:
        return Outcome(Status.APPLIED, f"Nothing is computed again: {state.said}.", observed)
    return Outcome(
        Status.NO_EFFECT, f"Nothing is computed again: {state.said}.{_left_out(state.left_out)}", observed, _fix()
    )


def _traced(value: Any, state: RecomputeState, observed: dict[str, Any], context: Context) -> Outcome:
    """What the last trace showed."""
    replicas = replicas_of(context)
    data = context.bridge.fit_data(context.model)
    batch = None if data is None or data.batch is None else -(-data.batch // replicas)
    done = [segment for segment in state.segments if segment.is_repeated]
    left_out = dict(state.left_out)
    left_out.update({segment.name: segment.fault for segment in state.segments if segment.fault})
    idle = [segment.name for segment in state.segments if not segment.is_repeated and not segment.fault]
    saved = sum(_sum(segment, "saved_bytes", batch, replicas) for segment in done)
    largest = max((_sum(segment, "kept_bytes", batch, replicas) for segment in done), default=0)
    observed.update(
        segments=[{"name": each.name, "saved_bytes": _sum(each, "saved_bytes", batch, replicas)} for each in done],
        left_out=left_out,
        without_gradients=idle,
        saved_bytes=saved,
        largest_segment_bytes=largest,
        batch=batch,
    )
    if not done:
        if left_out:
            return Outcome(Status.NO_EFFECT, f"Nothing is computed again.{_left_out(left_out)}", observed, _fix())
        why = "Nothing is computed again: no tape took gradients through the segments in the traced step."
        return Outcome(Status.NO_EFFECT, why, observed, "take gradients with tf.GradientTape in train_step")
    if any(sum(each.latest[0].products) for each in done) and not observed["products_again"]:
        return Outcome(Status.NO_EFFECT, "The traced step computes nothing again: it is another one.", observed)
    said = f"{_capital(state.said)}. {len(done)} segments are computed again: {listed([each.name for each in done])}."
    said += f" That frees an estimated {megabytes(saved)} between the passes"
    said += f" (batch {batch})" if batch else " for each example"
    said += f", of which at most {megabytes(largest)} come back at one time."
    if saved <= largest:
        said += " Larger segments, or more of them, would free more."
    if left_out and value["layers"]:
        return Outcome(Status.NO_EFFECT, f"{said}{_left_out(left_out)}", observed, _fix())
    return Outcome(Status.APPLIED, f"{said}{_left_out(left_out)}{_without(idle)}", observed)


def _sum(segment: SegmentState, what: str, batch: Optional[int], replicas: int) -> int:
    """Bytes of a segment's calls in one replica's step."""
    return int(sum(getattr(call, what)(batch) for call in segment.latest) // replicas)


def _left_out(left_out: Mapping[str, str]) -> str:
    if not left_out:
        return ""
    return " Left out: " + "; ".join(f"{name} ({reason})" for name, reason in left_out.items()) + "."


def _without(idle: list[str]) -> str:
    return f" No gradients go through {listed(idle)}." if idle else ""


def _fix() -> str:
    return "name layers that compute the same twice in memory.recompute.layers, or take memory.recompute out"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
