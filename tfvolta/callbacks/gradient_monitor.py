"""Norms of the gradients by group of layers, and what float16 would lose of them."""

from __future__ import annotations

import collections
import warnings
from typing import TYPE_CHECKING, Any, Optional, Sequence

from tfvolta.bridge.gradient_records import GradientFigures, GradientSample, together
from tfvolta.bridge.layer_patterns import Pattern, patterns_of
from tfvolta.callbacks.base import Callback, Logs
from tfvolta.callbacks.gradient_scalars import GradientScalars
from tfvolta.errors import BridgeError, ConfigError, EvidenceWarning, Problem
from tfvolta.knobs import gradient_monitor as knob

if TYPE_CHECKING:
    from tfvolta.session import Session

_REST = "other layers"
_OWN = "the model's own"


class GradientMonitor(Callback):
    """Records the gradients of some steps, in their true size, whatever the loss scale.

    The first step of a fit and every so many after it are looked at: of a call of several batches
    (``steps_per_execution``) its last step, of a window of batches its update. Those steps run a train function of
    their own and are waited for; the others run one that has nothing of it. Gradients are summed over replicas and
    ranks, and come before clipping, weight decay and averages of the weights.

    Example:
        ``gradients = tfvolta.callbacks.GradientMonitor(every_steps=100, groups=["block1*", "Dense"])``, then
        ``model.fit(dataset, callbacks=[gradients])`` and ``gradients.rows[-1]["groups"]["Dense"]["norm"]``.

    Args:
        every_steps: Steps from one that is looked at to the next.
        groups: Layer classes, names or paths (shell patterns); each is a group, and a layer belongs to the first that
            it matches. By default each layer directly below the model is one.
        session: Takes the rows into the evidence of a run.
        capacity: Rows that are kept; the latest count.
        tensorboard: Folder that takes the figures as scalars too; the first worker alone writes.

    Attributes:
        rows: One mapping for each step: ``step`` of this fit, ``epoch``, ``loss_scale``, ``groups`` by name, and
            ``all`` of them together. Figures: ``norm`` and ``largest`` of finite numbers, ``elements``,
            ``zero_share``, ``underflow_share`` (not zero, and nothing in float16 at this loss scale),
            ``subnormal_share`` (part of its precision), ``overflow`` (finite, and infinite in float16) and
            ``non_finite``.
    """

    def __init__(
        self,
        every_steps: int = 100,
        groups: Sequence[str] = (),
        session: Optional[Session] = None,
        capacity: int = 1000,
        tensorboard: Optional[str] = None,
    ):
        super().__init__()
        groups = [groups] if isinstance(groups, str) else list(groups)
        if isinstance(every_steps, bool) or not isinstance(every_steps, int) or every_steps < 1:
            problem = Problem("every_steps", "a whole number above 0", repr(every_steps), fix="every_steps=100")
            raise ConfigError("The gradient monitor cannot be made: 1 problem.", [problem])
        self.rows: collections.deque[dict[str, Any]] = collections.deque(maxlen=capacity)
        self.samples = 0
        self._every, self._patterns, self._session = every_steps, groups, session
        self._groups: dict[str, str] = {}
        self._epoch = self._before = 0
        writes = tensorboard is not None and (session is None or session.place.is_chief)
        self._scalars = GradientScalars(str(tensorboard)) if writes else None

    def summary(self) -> dict[str, Any]:
        """What was seen in the present or last fit as JSON values; ``rows`` are the latest of ``samples``."""
        last = self.rows[-1] if self.rows else {}
        return {
            "every_steps": self._every,
            "samples": self.samples,
            "norm": last.get("all", {}).get("norm"),
            "non_finite": sum(row["all"]["non_finite"] for row in self.rows),
            "most_underflow": _most(self.rows),
            "rows": list(self.rows),
        }

    def set_model(self, model: Any) -> None:
        """Takes the model, whose train function is made for both kinds of steps.

        Raises:
            BridgeError: Its steps have no gradient of their own.
        """
        super().set_model(model)
        if type(model.distribute_strategy).__name__.startswith("ParameterServer"):
            if self._session is None:
                raise BridgeError("Gradients cannot be looked at.", [_no_step()])
            return  # the plan has said so
        self.bridge.watch_gradients(model, self._every)
        self._groups = {}

    def on_train_begin(self, logs: Logs = None) -> None:
        """Starts the rows of a fit."""
        self.rows.clear()
        self.samples = 0
        counts = self.bridge.step_counts(self.model)
        self._before = 0 if counts is None else counts.applied + (counts.skipped or 0)
        self.bridge.start_watch(self.model)
        if self._session is not None:
            self._session.context.saved[knob.GradientMonitor.name] = knob.Seen()

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Remembers the epoch."""
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Records a step that was looked at; in other steps this is one comparison."""
        sample = self.bridge.gradient_sample(self.model)
        if sample is None:
            return
        first = not self._groups
        if first:
            self._groups = self._grouping([path for path, _ in sample.gradients])
        self.rows.append(self._row(sample))
        self.samples += 1
        if self._scalars is not None:
            self._write(self._scalars)
        if first and self._session is not None:
            self._session.context.saved[knob.GradientMonitor.name] = _seen(self._groups, self._scalars)
            knob.settle(self._session.context)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Puts the rows into the evidence."""
        self._report()

    def on_train_end(self, logs: Logs = None) -> None:
        """Puts the rows into the evidence, also of an epoch that was cut short; later fits are not looked at."""
        self.bridge.start_watch(self.model, active=False)
        self._report()
        if self._scalars is not None:
            self._scalars.close()

    def _write(self, scalars: GradientScalars) -> None:
        """Writes the last row as scalars; a disk that refuses is no reason to stop training, and is said once."""
        well = not scalars.fault
        scalars.write(self.rows[-1], self._before + self.rows[-1]["step"])
        if scalars.fault and well and (self._session is None or self.samples > 1):
            text = f"No scalars for TensorBoard in {scalars.directory}: {scalars.fault}"
            if self._session is not None:
                self._session.recorder.warned(text)
            warnings.warn(text, EvidenceWarning, stacklevel=4)

    def _report(self) -> None:
        if self._session is not None:
            self._session.measured("gradients", self.summary())

    def _row(self, sample: GradientSample) -> dict[str, Any]:
        groups: dict[str, list[GradientFigures]] = {}
        for path, figures in sample.gradients:
            groups.setdefault(self._groups.get(path, _REST), []).append(figures)
        return {
            "step": sample.step,
            "epoch": self._epoch,
            "loss_scale": sample.loss_scale,
            "groups": {name: together(held).to_json() for name, held in groups.items()},
            "all": together(figures for _, figures in sample.gradients).to_json(),
        }

    def _grouping(self, owners: list[str]) -> dict[str, str]:
        """The group of each layer that has a gradient.

        Raises:
            ConfigError: A pattern matches no layer, and no plan is there to say so.
        """
        if not self._patterns:
            return {path: path.split("/")[0] or _OWN for path in owners}
        patterns = patterns_of(self._patterns, self.bridge.layers(self.model))
        unmatched = [each for each in patterns if not each.paths]
        if unmatched and self._session is None:
            raise ConfigError("Groups without a layer.", [_unmatched(each) for each in unmatched])
        return {path: _group(path, patterns) for path in owners}


def _seen(groups: dict[str, str], scalars: Optional[GradientScalars]) -> knob.Seen:
    """What the setting is told of the first step that was looked at."""
    names = tuple(dict.fromkeys(groups.values()))
    if scalars is None:
        return knob.Seen(1, names)
    return knob.Seen(1, names, scalars.directory, scalars.written, scalars.fault)


def _group(path: str, patterns: list[Pattern]) -> str:
    """The first pattern that matches a layer, or one that it lies in."""
    parts = path.split("/")
    around = {"/".join(parts[:number]) for number in range(1, len(parts) + 1)}
    return next((each.pattern for each in patterns if around & set(each.paths)), _REST)


def _most(rows: Any) -> Optional[dict[str, Any]]:
    """The group and step that would have lost the largest share of its gradient in float16."""
    found = [
        {"group": name, "step": row["step"], "share": figures["underflow_share"]}
        for row in rows
        for name, figures in row["groups"].items()
    ]
    return max(found, key=lambda each: each["share"], default=None)


def _unmatched(pattern: Pattern) -> Problem:
    return Problem("groups", "patterns that match a layer", pattern.pattern, fix=pattern.suggestion())


def _no_step() -> Problem:
    return Problem(
        where="GradientMonitor",
        expected="a model whose replicas train in step",
        received="ParameterServerStrategy",
        why="workers of parameter servers take their steps each at its own pace, so no step has one gradient",
        fix="leave the gradient monitor out, or try the model with strategy.kind: mirrored",
    )
