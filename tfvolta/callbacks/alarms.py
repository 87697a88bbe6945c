"""Alarms when training goes wrong numerically, which name the first layer that was not finite."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import TYPE_CHECKING, Any, Optional

from tfvolta.bridge.replay_records import Culprit
from tfvolta.callbacks.base import Callback, Logs
from tfvolta.callbacks.weight_growth import largest, said_of
from tfvolta.errors import ConfigError, NumericsError, NumericsWarning, Problem
from tfvolta.knobs import alarms as knob
from tfvolta.peers import Alone, Peers, StrategyPeers, peers_of

if TYPE_CHECKING:
    from tfvolta.session import Session

ACTIONS = ("report", "stop", "raise")
_MOST_REMEMBERED_BYTES = 4 * 2**30


@dataclasses.dataclass(frozen=True)
class Alarm:
    """One alarm.

    Attributes:
        kind: ``min_loss_scale``, ``max_skipped_in_row`` or ``nan_loss``.
        what: What was seen, in a sentence.
        action: What is done.
    """

    kind: str
    what: str
    action: str


class Alarms(Callback):
    """Reports, stops or raises when the loss scale is too low, steps are skipped in a row, or the loss is not finite.

    An alarm says which layer was the first whose outputs or gradients were not finite, or whether it was the weights or
    the data, by running the last batches again, layer by layer. Until there is an alarm that costs nothing: batches
    are kept where the data pipeline has put them. Looking waits for the device; ``every_steps`` says how often.

    Example:
        ``model.fit(dataset, callbacks=[tfvolta.callbacks.Alarms(nan_loss="raise", max_skipped_in_row=20)])``

    Args:
        min_loss_scale: Alarm below this loss scale.
        max_skipped_in_row: Alarm when so many steps in a row were skipped.
        nan_loss: What to do when the loss is not finite: ``report``, ``stop`` or ``raise``; None: do not look at it.
        action: What to do at the two alarms of the loss scale.
        every_steps: Look so often; so many batches are kept for the search.
        session: Takes the alarms into the evidence of a run.

    Attributes:
        records: One mapping for each alarm, with ``kind``, ``epoch``, ``batch``, ``what``, ``culprit``, ``weights``.
    """

    def __init__(
        self,
        min_loss_scale: Optional[float] = None,
        max_skipped_in_row: Optional[int] = None,
        nan_loss: Optional[str] = "stop",
        action: str = "stop",
        every_steps: int = 1,
        session: Optional[Session] = None,
    ):
        super().__init__()
        limits = {"min_loss_scale": min_loss_scale, "max_skipped_in_row": max_skipped_in_row}
        _check({**limits, "every_steps": every_steps}, {"nan_loss": nan_loss, "action": action})
        self.records: list[dict[str, Any]] = []
        self._min_scale, self._max_row = min_loss_scale, max_skipped_in_row
        self._nan_loss, self._action, self._every = nan_loss, action, every_steps
        self._session = session
        self._peers: Peers = Alone()
        self._remembered: Optional[list[Any]] = None
        self._said: set[str] = set()
        self._looks = self._unseen = self._epoch = 0

    def set_model(self, model: Any) -> None:
        """Takes the model, has its skipped steps counted and its last batches kept."""
        super().set_model(model)
        if not type(model.distribute_strategy).__name__.startswith("ParameterServer"):
            self.bridge.count_steps(model)
            self.bridge.keep_batches(model, self._every)

    def on_train_begin(self, logs: Logs = None) -> None:
        """Starts the records of a fit."""
        self.records, self._said = [], set()
        self._looks = self._unseen = 0
        self._peers = peers_of(self.model)
        self.bridge.start_keeping(self.model)
        if self._session is not None:
            self._session.context.saved[knob.Alarms.name] = knob.Looks()

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Remembers the weights where nothing scales the loss: a bad step then damages all of them at once."""
        self._epoch = epoch
        self._said.discard("nan_loss")
        scaled = self.bridge.loss_scale(self.model.optimizer) is not None
        size = sum(4 * math.prod(variable.shape) for variable in self.model.trainable_variables)
        if self._nan_loss is not None and not scaled and self.model.built and size <= _MOST_REMEMBERED_BYTES:
            self._remembered = self.bridge.remembered_weights(self.model)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Looks, where it is time to.

        Raises:
            NumericsError: There is an alarm, and that is what it is to do.
        """
        self._unseen += self.bridge.steps_per_execution(self.model)
        if self._unseen < self._every:
            return
        self._unseen = 0
        self._looks += 1
        alarms = self._alarms(logs)
        if self._session is not None and (alarms or self._looks == 1):
            said = tuple(each.what for each in alarms)
            self._session.context.saved[knob.Alarms.name] = knob.Looks(self._looks, said)
            knob.settle(self._session.context)
        if alarms:
            self._raise(alarms, batch)

    def on_train_end(self, logs: Logs = None) -> None:
        """Lets go of the batches, and puts what was seen into the evidence."""
        self.bridge.start_keeping(self.model, active=False)
        self._remembered = None
        self._report()

    def _alarms(self, logs: Logs) -> list[Alarm]:
        """The alarms that are new."""
        found = self._scale_alarms()
        if self._nan_loss is not None:
            loss = _loss(logs)
            bad = loss is not None and not math.isfinite(loss)
            if self._peers.size > 1:  # a rank that stops alone leaves the others waiting
                bad = any(self._peers.gather_one(int(bad)))
            if self._new("nan_loss", bad):
                found.append(Alarm("nan_loss", f"the loss is {_in_words(loss)}", self._nan_loss))
        return found

    def _scale_alarms(self) -> list[Alarm]:
        found, optimizer = [], self.model.optimizer
        limit, most = self._min_scale, self._max_row
        state = None if limit is None else self.bridge.loss_scale(optimizer)
        if state is not None and limit is not None and self._new("min_loss_scale", state.scale < limit):
            what = f"the loss scale is {state.scale:g}, below {limit:g}"
            found.append(Alarm("min_loss_scale", what, self._action))
        row = None if most is None else self.bridge.skipped_row(optimizer)
        if row is not None and most is not None and self._new("max_skipped_in_row", row.longest >= most):
            found.append(Alarm("max_skipped_in_row", f"{row.longest} steps in a row were skipped", self._action))
        return found

    def _new(self, kind: str, is_so: bool) -> bool:
        """Whether something has begun to be so; a loss that was not finite stays so until the epoch ends."""
        if not is_so:
            if kind != "nan_loss":
                self._said.discard(kind)
            return False
        new = kind not in self._said
        self._said.add(kind)
        return new

    def _raise(self, alarms: list[Alarm], batch: int) -> None:
        together = isinstance(self._peers, StrategyPeers)
        culprit = self.bridge.find_culprit(self.model, self._remembered, together)
        said, fix = self._growth()
        weights = " ".join(filter(None, (self._weights(), said)))
        place = {"epoch": self._epoch, "batch": batch}
        for alarm in alarms:
            values = {**dataclasses.asdict(alarm), **place, "culprit": culprit.to_json(), "weights": weights}
            self.records.append(values)
        self._report()
        text = _text(alarms, batch, self._epoch, culprit, weights) + (f" Fix: {fix}." if fix else "")
        if self._session is not None:
            self._session.recorder.warned(text)
        strongest = max((alarm.action for alarm in alarms), key=ACTIONS.index)
        if strongest == "raise":
            raise NumericsError(
                "Training has gone wrong numerically.", [_problem(alarms, place, culprit, weights, fix)]
            )
        if strongest == "stop":
            self.model.stop_training = True
        warnings.warn(f"{text}{' Training stops.' if strongest == 'stop' else ''}", NumericsWarning, stacklevel=2)

    def _weights(self) -> str:
        """What state the weights are in, in a sentence or two."""
        bad = self.bridge.bad_weights(self.model)
        row = self.bridge.skipped_row(self.model.optimizer)
        if bad:
            scaled = "" if row is not None else " Nothing scales the loss, so nothing skips such a step."
            said = f"The weights are damaged: {_listed(bad)}.{scaled}"
        elif row is not None and row.now:
            said = "The weights are those before the bad step, which loss scaling has skipped."
        elif row is not None:
            said = "The weights are finite; steps after the bad one, which loss scaling has skipped, were applied."
        else:
            said = "The weights are finite."
        statistics = self.bridge.bad_weights(self.model, trainable=False)
        if statistics:
            said += (
                f" Other variables are damaged, which a forward pass changes whether its step is skipped or not:"
                f" {_listed(statistics)}."
            )
        return said

    def _growth(self) -> tuple[str, str]:
        """What is said of weights that are enormous, now or at the start of the epoch, and what mends that."""
        kept = [copy for copies in self._remembered or [] for copy in copies]
        rate = self.bridge.learning_rate(self.model)
        return said_of(largest([*self.model.get_weights(), *kept]), None if rate is None else rate.value)

    def _report(self) -> None:
        if self._session is not None:
            values = {"looks": self._looks, "every_steps": self._every, "alarms": list(self.records)}
            self._session.measured("alarms", values)


def _loss(logs: Logs) -> Optional[float]:
    """The loss in the logs of a batch, or one of several losses that is not finite; None where there is none."""
    held = logs or {}
    names = [name for name in held if str(name) == "loss"] or [name for name in held if str(name).endswith("loss")]
    values = []
    for name in names:
        try:
            values.append(float(held[name]))
        except (TypeError, ValueError):  # not a number of one batch
            continue
    return next((value for value in values if not math.isfinite(value)), values[0] if values else None)


def _in_words(loss: Optional[float]) -> str:
    if loss is None or math.isfinite(loss):
        return "not finite on another worker"
    return "NaN" if math.isnan(loss) else "infinite"


def _listed(findings: list[str]) -> str:
    return "; ".join(findings[:3]) + (f" and {len(findings) - 3} more" if len(findings) > 3 else "")


def _text(alarms: list[Alarm], batch: int, epoch: int, culprit: Culprit, weights: str) -> str:
    what = "; ".join(alarm.what for alarm in alarms)
    return f"Batch {batch} of epoch {epoch}: {what}. In that step, {culprit}. {weights}"


def _problem(alarms: list[Alarm], place: dict[str, int], culprit: Culprit, weights: str, fix: str) -> Problem:
    return Problem(
        where=f"epoch {place['epoch']}, batch {place['batch']}",
        expected="numbers that are finite",
        received="; ".join(alarm.what for alarm in alarms),
        why=f"{culprit}. {weights}",
        fix=fix or _FIXES.get(culprit.kind, "lower the learning rate, or look at the gradients with gradient_monitor"),
    )


_FIXES = {
    "activations": "keep that layer in float32 (mixed_precision.float32_layers), or keep its values small",
    "gradients": "keep that layer in float32 (mixed_precision.float32_layers), or clip gradients, or lower the learning"
    " rate",
    "inputs": "take such rows out of the data",
    "targets": "take such rows out of the data",
    "weights": "go on from a checkpoint, with loss scaling or a lower learning rate",
    "loss": "write the loss so that it is finite, such as from logits instead of probabilities",
}


def _check(numbers: dict[str, Any], words: dict[str, Any]) -> None:
    """Refuses arguments that mean nothing.

    Raises:
        ConfigError: All that is wrong at once.
    """
    problems = [
        Problem(name, "a number above 0", repr(value), fix=f"{name}=1")
        for name, value in numbers.items()
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0)
    ]
    problems += [
        Problem(name, f"one of {', '.join(ACTIONS)}", repr(value), fix=f'{name}="stop"')
        for name, value in words.items()
        if value not in ACTIONS and not (name == "nan_loss" and value is None)
    ]
    if words["nan_loss"] is None and numbers["min_loss_scale"] is None and numbers["max_skipped_in_row"] is None:
        problems.append(Problem("nan_loss", "an alarm", "none", "nothing would be looked at", 'nan_loss="stop"'))
    if problems:
        raise ConfigError(f"Alarms cannot be made: {len(problems)} problem{'s' * (len(problems) > 1)}.", problems)
