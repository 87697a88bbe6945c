"""The search: the baseline first, then one trial after another, while improvement is to be expected."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any, Callable, Mapping, Optional, Protocol

import optuna
from optuna.trial import TrialState

from tfvolta.errors import Problem, TuneError
from tfvolta.facts.schema import Facts
from tfvolta.tune.belief import Belief
from tfvolta.tune.candidates import Words
from tfvolta.tune.history import EXPECTED, POINT, RECORD, WHY, History, distributions
from tfvolta.tune.loss_guard import leaves
from tfvolta.tune.model_traits import ModelTraits
from tfvolta.tune.plan_rules import rule_by_traits
from tfvolta.tune.result import TrialRecord
from tfvolta.tune.sampler import ExpertSampler, Proposal
from tfvolta.tune.space import Point, Ruling, Space
from tfvolta.tune.speed_process import Decide
from tfvolta.tune.speed_trial import SpeedTrial

FIRST_RUNG, HALVING = 4, 2  # blocks of the first rung, and by how much each rung has more blocks and fewer trials
LEAST_GAIN = 0.004  # a share; less is not to be told from noise
_NEAR = 0.02  # what is so near the best is timed to its end, for of two that are alike the simpler one wins
_PARSIMONY = 0.01  # of two combinations so near, the one with fewer settings


class Measure(Protocol):
    """Measures settings: a process of the script, or a look into a recorded grid."""

    def __call__(self, words: Words, seed: int, describe: bool, is_slow: Decide) -> SpeedTrial:
        """One trial."""


@dataclasses.dataclass(frozen=True)
class Budget:
    """How long a search may go on.

    Attributes:
        trials: Most trials, the baseline among them.
        seconds: No trial begins after so long.
        least_gain: Expected improvement below which nothing more is tried.
    """

    trials: int = 24
    seconds: float = math.inf
    least_gain: float = LEAST_GAIN


@dataclasses.dataclass(frozen=True)
class Tried:
    """One trial of a search.

    Attributes:
        number: From 0 on.
        point: The combination.
        words: Its settings.
        trial: How it went.
        why: Why it was tried.
        expected: Throughput over the baseline's that was expected.
        reused: Whether it comes from history.
    """

    number: int
    point: Point
    words: Words
    trial: SpeedTrial
    why: str = ""
    expected: Optional[float] = None
    reused: bool = False

    def to_record(self, seed: int) -> TrialRecord:
        """The row of a result."""
        row = self.trial.measured(dict(word.partition("=")[::2] for word in self.words), seed)
        content = {**row.model_dump(), "number": self.number, "why": self.why, "expected_ratio": self.expected}
        return TrialRecord(**{**content, "from_history": self.reused})


class Search:
    """Searches a space.

    Attributes:
        tried: All trials so far, those of a search that was interrupted among them.
        traits: What the baseline has shown of the model.
        stopped: Why the search has ended.
    """

    def __init__(self, space: Space, history: History, facts: Facts, given: Mapping[str, str], seed: int = 0):
        """Prepares.

        Args:
            space: What is searched.
            history: Open, but without a study.
            facts: Machine and stack.
            given: What the user's config has, by axis.
            seed: Of the trials, and of chance in the search.
        """
        self.tried: list[Tried] = []
        self.traits = ModelTraits()
        self.stopped = ""
        self._space, self._history, self._facts, self._given, self._seed = space, history, facts, given, seed
        self._sampler = ExpertSampler(space, seed)

    def open(self, fingerprint: str) -> None:
        """Opens the study, and takes in what it holds of an earlier run of the same search."""
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=FIRST_RUNG, reduction_factor=HALVING)
        self._history.open(fingerprint, self._space.axes, self._sampler, pruner)
        for each in self._history.trials():
            point = self._space.point_of(each.params)
            if point is not None:
                trial = SpeedTrial.of(each.user_attrs[RECORD])
                attributes = each.user_attrs
                self._take(
                    Tried(
                        len(self.tried), point, tuple(attributes[POINT]), trial, attributes[WHY], attributes[EXPECTED],
                        reused=True,
                    )
                )  # fmt: skip

    @property
    def baseline(self) -> Optional[SpeedTrial]:
        """The trial of the config as it is."""
        return next((each.trial for each in self.tried if each.point == self._space.baseline), None)

    @property
    def best(self) -> Optional[Tried]:
        """The one that is believed to be fastest; of those that are nearly as fast, the one that changes least."""
        ranked = self.ranking()
        return ranked[0] if ranked else None

    def ranking(self) -> list[Tried]:
        """Trials that were measured to their end, the best first.

        What is believed of a trial takes in what others say of its settings: of many noisy figures the largest is too
        large as a rule.
        """
        rated = [each for each in self.tried if each.trial.ending == "measured" and each.trial.rate]
        if not rated:
            return []
        rates = self._sampler.believed(self._history.study, [each.point for each in rated])
        ordered = sorted(zip(rates, rated), key=lambda pair: -pair[0])
        near = [each for rate, each in ordered if rate >= (1 - _PARSIMONY) * ordered[0][0]]
        best = min(near, key=lambda each: len(each.words))
        return [best, *(each for _, each in ordered if each is not best)]

    def run(self, measure: Measure, budget: Budget, told: Callable[[Tried, Proposal], None]) -> None:
        """Searches.

        Args:
            measure: Makes a trial.
            budget: How long.
            told: Called after each trial.

        Raises:
            TuneError: The script cannot be measured as it is.
        """
        began = time.monotonic()
        while not self.stopped:
            proposal = self._sampler.propose(self._history.study)
            if proposal is None:
                self.stopped = "every combination that is left was tried"
            elif len(self.tried) >= budget.trials:
                self.stopped = f"{budget.trials} trials were made"
            elif time.monotonic() - began > budget.seconds:
                self.stopped = f"{budget.seconds:g} s were over"
            elif proposal.gain < budget.least_gain:
                self.stopped = f"no other combination is expected to gain more than {100 * budget.least_gain:g} %"
            else:
                told(self._one(proposal, measure), proposal)

    def _one(self, proposal: Proposal, measure: Measure) -> Tried:
        study, point = self._history.study, proposal.point
        is_baseline = point == self._space.baseline
        words = self._space.words(point)
        trial = study.ask(distributions(self._space))
        earlier = self._history.find(words)
        rates = [each.trial.rate for each in self.tried if each.trial.ending == "measured"]
        rungs = _Rungs(trial, (1 - _NEAR) * max(rates, default=0.0))
        made = earlier or measure(words, self._seed, is_baseline, rungs)
        if earlier is not None or is_baseline:
            rungs.replay(made)
        made = self._guarded(made, is_baseline)
        trial.set_user_attr(POINT, list(words))
        trial.set_user_attr(WHY, proposal.why)
        trial.set_user_attr(EXPECTED, None if is_baseline else proposal.ratio)
        trial.set_user_attr(RECORD, made.to_json())
        _tell(study, trial, made)
        expected = None if is_baseline else proposal.ratio
        tried = Tried(len(self.tried), point, words, made, proposal.why, expected, earlier is not None)
        self._take(tried)
        return tried

    def _guarded(self, made: SpeedTrial, is_baseline: bool) -> SpeedTrial:
        """A trial whose loss is not that of the baseline cannot win, however fast it is."""
        reference = self.baseline
        if is_baseline or reference is None or made.ending != "measured":
            return made
        why = leaves(made, reference)
        return dataclasses.replace(made, ending="loss left the band", reason=why) if why else made

    def _take(self, tried: Tried) -> None:
        self.tried.append(tried)
        if tried.point == self._space.baseline:
            self._begin(tried.trial)
        elif tried.trial.ending == "compile timeout":
            self._rule_out_jit(tried)

    def _begin(self, trial: SpeedTrial) -> None:
        """The baseline shows what the model is like; from there on the expert has something to say.

        Raises:
            TuneError: It did not train.
        """
        if not trial.fits:
            raise _unmeasurable(trial)
        step = 1 / trial.steps_per_second if trial.steps_per_second else None
        self.traits = dataclasses.replace(ModelTraits.of(trial.traits), step_seconds=step)
        rule_by_traits(self._space, self.traits)
        self._sampler.belief = Belief(self._space.axes, self._facts, self.traits, self._given)

    def _rule_out_jit(self, tried: Tried) -> None:
        """A step that did not compile in time will not with other settings either."""
        for number, axis in enumerate(self._space.axes):
            if axis.key == "xla.jit" and tried.point[number]:
                label = axis.labels[tried.point[number]]
                self._space.rule_out({number: tried.point[number]}, Ruling("failed", f"{label}: {tried.trial.reason}"))


class _Rungs:
    """Asks Optuna's pruner at the blocks where a rung ends."""

    def __init__(self, trial: Any, near: float):
        self._trial, self._near, self._asked = trial, near, 0

    def __call__(self, blocks: Any) -> bool:
        rung = FIRST_RUNG
        while rung <= len(blocks):
            if rung > self._asked:
                self._asked = rung
                rate = SpeedTrial("stopped", blocks=tuple(blocks[:rung])).rate
                self._trial.report(rate, rung)
                if self._trial.should_prune() and rate < self._near:
                    return True
            rung *= HALVING
        return False

    def replay(self, made: SpeedTrial) -> None:
        """Lets later trials be compared with one that is not watched."""
        for count in range(1, len(made.blocks) + 1):
            self(made.blocks[:count])


def _tell(study: Any, trial: Any, made: SpeedTrial) -> None:
    if made.ending == "measured" and made.rate:
        study.tell(trial, made.rate)
    elif made.ending == "stopped":
        study.tell(trial, state=TrialState.PRUNED)
    else:
        study.tell(trial, state=TrialState.FAIL)


def _unmeasurable(trial: SpeedTrial) -> TuneError:
    lines = trial.reason.splitlines() or ["no step was timed"]
    fixes = {
        "crash": "see that it trains by itself: tfvolta run, with the same config and arguments; a script's own "
        "arguments come behind its name",
        "hang": "raise --trial-seconds, or give the script less to do before model.fit",
        "compile timeout": "raise --compile-seconds, or set xla.jit: auto or off",
        "out of memory": "find a batch that fits: tfvolta batch-size",
    }
    problem = Problem(
        where="the baseline",
        expected="a script that trains with the config as it is",
        received=f"{trial.ending}: {lines[0]}",
        why=" ".join(lines[1:6]),
        fix=fixes.get(trial.ending, "trials time what Keras's model.fit trains; a loop of one's own cannot be tuned"),
    )
    return TuneError("The script cannot be measured as it is, so nothing can be compared with it.", [problem])
