"""A whole search: the space, the trials, the repeats at the end, and the result."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import os
import shlex
import time
from typing import Any, Callable, Optional, Sequence

from tfvolta.facts.probe import probe
from tfvolta.script.source import check_script, layers_named_in
from tfvolta.tune.candidates import CANDIDATES, Situation, Words
from tfvolta.tune.confirmation import Confirmed, Part, Rounds, confirm, confirm_lean, without_idle
from tfvolta.tune.fingerprint import fingerprint, machine_of, versions_of
from tfvolta.tune.history import History
from tfvolta.tune.loss_guard import common_examples
from tfvolta.tune.one_process import refuse_several
from tfvolta.tune.plan_rules import PlanRules, resolved
from tfvolta.tune.progress import Progress
from tfvolta.tune.result import Overhead, TuneResult
from tfvolta.tune.search import Search, Tried
from tfvolta.tune.space import Space, axes_for
from tfvolta.tune.speed_process import Decide, SpeedProcess
from tfvolta.tune.speed_request import SpeedRequest
from tfvolta.tune.speed_trial import SpeedTrial
from tfvolta.tune.tune_request import TuneRequest
from tfvolta.tune.verdict import sentence_of

BLOCKS = 16
_KEPT = "input.cache pays from the second epoch on; the first, which fills it, is not timed"
_MOST_CONFIRMED = 2  # configs whose repeats are made: the next best follows one whose loss leaves the band


class Tuner:
    """Makes one search.

    Attributes:
        request: What is searched.
        search: The search itself, once it runs.
    """

    def __init__(
        self, request: TuneRequest, told_to_end: Callable[[], bool], progress: Progress, age_seconds: float = 0.0
    ):
        """Prepares; nothing is started yet.

        Args:
            request: What to search.
            told_to_end: Whether somebody wants the search to end.
            progress: Shows how far it is.
            age_seconds: What this process took so far, its imports; counted as overhead.

        Raises:
            TfvoltaError: The config cannot work here, or the script cannot be read.
        """
        self._began = time.monotonic() - age_seconds
        check_script(request.script)
        self.request, self._progress = request, progress
        self._facts = probe()
        layers = layers_named_in(request.script)
        self._rules = PlanRules(request.config, request.overrides, self._facts, os.environ, layers)
        self._config = self._rules.load()
        refuse_several(
            self._config,
            "Several processes cannot be tried from here.",
            "a trial is one process; what its workers do together cannot be measured from here",
            "tune one worker: tfvolta tune --set strategy.kind=default train.py",
        )
        self._rules.plan().check()
        self._seed = self._config.run.seed or 0
        self._process = SpeedProcess(request.limits, told_to_end, progress.tick)
        self._space = Space(() if request.tries else axes_for(self._situation, request.allowed))
        self._rules.apply(self._space)
        self.search: Optional[Search] = None

    @property
    def _situation(self) -> Situation:
        return Situation(self._config, self._facts)

    @property
    def fingerprint(self) -> str:
        """Equal for searches that may share trials."""
        request = self.request
        how: dict[str, Any] = {"blocks": BLOCKS, "seconds": request.measure_seconds, "fit": request.fit}
        if request.fresh:
            how["fresh"] = time.time_ns()
        return fingerprint(request.script, request.arguments, self._config, self._facts, how)

    def run(self) -> TuneResult:
        """Searches.

        Raises:
            TuneError: The script cannot be measured, or the history not be read or written.
            InterruptedTrialError: The search was told to end; what was measured is kept.
        """
        history = History(self.request.directory)
        try:
            return self._run(history)
        finally:
            history.close()

    def _run(self, history: History) -> TuneResult:
        given = {each.key: each.given(self._config) for each in CANDIDATES}
        search = self.search = Search(self._space, history, self._facts, given, self._seed)
        name = self.fingerprint
        search.open(name)
        budget = self.request.budget if not self.request.tries else dataclasses.replace(self.request.budget, trials=1)
        if search.tried:
            self._progress.line(f"{len(search.tried)} trials are known from history; the search goes on after them")
        self._progress.begin("trials", budget.trials)
        search.run(self._measure, budget, lambda tried, proposal: self._progress.trial(tried, budget.trials))
        best, confirmed = self._confirm(search, history)
        return self._result(search, name, best, confirmed)

    def _measure(self, words: Words, seed: int, describe: bool, is_slow: Decide) -> SpeedTrial:
        request = self.request
        traits = self.search.traits.to_json() if self.search is not None else {}
        asked = SpeedRequest(
            request.config,
            (*request.overrides, *resolved(words, traits)),
            request.script,
            request.arguments,
            seed=seed,
            fit=request.fit,
            blocks=BLOCKS,
            block_seconds=request.measure_seconds / BLOCKS,
            warmup_epochs=int(_keeps_batches(words, self._config)),
            describe=describe,
        )
        return self._process.run(asked, is_slow)

    def _confirm(self, search: Search, history: History) -> tuple[Optional[Tried], Optional[Confirmed]]:
        """The best config with its repeats; of one whose loss leaves the band the next best takes the place."""
        seeds = [self._seed + number for number in range(self.request.repeats)]
        best, confirmed = None, None
        for best in self._finalists(search):
            parts = self._parts(search, best)
            self._progress.begin("repeats", len(seeds) * (2 + sum(1 for part in parts if part.rest)))
            rounds = Rounds(self._measure, history, seeds, self._progress.round)
            given = {part.key: self._config.get(part.key) for part in parts}
            confirmed = confirm(rounds, best.words, parts, given, seeds)
            if self.request.tries:  # which no trial of a search has measured
                best = dataclasses.replace(best, trial=rounds.results[best.words][0])
            if confirmed.verdict == "gain":
                best, confirmed = self._lean(history, best, confirmed, parts)
            if confirmed.verdict != "loss left the band":
                break
            self._progress.line(f"{' '.join(best.words)}: {confirmed.reason}")
        return best, confirmed

    def _lean(self, history: History, best: Tried, found: Confirmed, parts: Sequence[Part]) -> tuple[Tried, Confirmed]:
        """The best without settings that buy nothing, where that is as fast."""
        lean = None if self.request.tries else without_idle(found, best.words, parts)
        if lean is None or self._rules.ruling(lean) is not None:
            return best, found
        seeds = [self._seed + self.request.repeats + number for number in range(self.request.repeats)]
        self._progress.begin("repeats without what buys nothing", 3 * len(seeds))
        rounds = Rounds(self._measure, history, seeds, self._progress.round)
        confirmed = confirm_lean(rounds, found, best.words, lean, seeds)
        if confirmed is None:
            return best, found
        trial = rounds.results[lean][0]
        return dataclasses.replace(best, words=lean, trial=trial, why="the best without what buys nothing"), confirmed

    def _finalists(self, search: Search) -> list[Tried]:
        if self.request.tries:
            baseline = search.tried[0]
            return [dataclasses.replace(baseline, words=self.request.tries, why="given with --try")]
        ahead = itertools.takewhile(lambda each: each.words, search.ranking())  # of the config as it is
        return list(ahead)[:_MOST_CONFIRMED]

    def _parts(self, search: Search, best: Tried) -> list[Part]:
        """The settings of the best config, each with what is left without it."""
        words = best.words
        rests: list[tuple[str, Words, Words]] = []
        if self.request.tries:
            rests = [(word.partition("=")[0], (word,), tuple(w for w in words if w != word)) for word in words]
        else:
            for number, axis in enumerate(self._space.axes):
                if best.point[number]:
                    other = tuple(0 if place == number else option for place, option in enumerate(best.point))
                    rests.append((axis.key, axis.options[best.point[number]], self._space.words(other)))
        found = []
        for key, own, rest in rests:
            ruling = self._rules.ruling(rest)
            found.append(Part(key, own, rest, "" if ruling is None else f"the others need it: {ruling.rule}"))
        return found

    def _result(self, search: Search, name: str, best: Optional[Tried], confirmed: Optional[Confirmed]) -> TuneResult:
        request, baseline = self.request, search.baseline
        assert baseline is not None  # the search has raised otherwise
        verdict = confirmed.verdict if confirmed is not None else "no gain"
        is_won = verdict == "gain"
        band = confirmed.band if confirmed is not None else None
        examples = band.examples if band is not None else common_examples([baseline])
        spent = time.monotonic() - self._began
        words = () if best is None else resolved(best.words, search.traits.to_json())
        return TuneResult(
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            command=request.command,
            reproduce=self._reproduce(words) if best is not None else shlex.join(request.command),
            script=request.script,
            arguments=request.arguments,
            config=request.config,
            overrides=request.overrides,
            fingerprint=name,
            machine=machine_of(self._facts),
            versions=versions_of(self._facts),
            seeds=self._seeds(confirmed),
            allowed=request.allowed,
            space=tuple(axis.to_record() for axis in self._space.axes),
            combinations=self._space.combinations,
            pruned=tuple(self._space.pruned),
            baseline=baseline.measured({}, self._seed, examples),
            best=best.to_record(self._seed) if best is not None and is_won else None,
            trials=tuple(each.to_record(self._seed) for each in search.tried),
            gain=confirmed.gain if confirmed is not None else None,
            verdict=verdict,
            sentence=sentence_of(confirmed, words, len(search.tried)),
            loss_band=band,
            repeats=confirmed.repeats if confirmed is not None else (),
            ablation=confirmed.ablation if confirmed is not None else (),
            overhead=_overhead(self._process.seconds, spent, time.process_time()),
            reused=sum(each.reused for each in search.tried),
            stopped=search.stopped,
            notes=(*baseline.notes, *([_KEPT] if _keeps_batches(words, self._config) else [])),
        )

    def _seeds(self, confirmed: Optional[Confirmed]) -> tuple[int, ...]:
        """Of the search and of all repeats."""
        repeats = () if confirmed is None else confirmed.repeats
        return tuple(sorted({self._seed, *(each.seed for each in repeats if each.seed is not None)}))

    def _reproduce(self, words: Sequence[str]) -> str:
        request = self.request
        command = ["tfvolta", "tune", *(["--config", request.config] if request.config else [])]
        command += [part for word in request.overrides for part in ("--set", word)]
        command += [part for word in words for part in ("--try", word)]
        command += ["--repeats", str(request.repeats), "--measure-seconds", f"{request.measure_seconds:g}", "--fresh"]
        return shlex.join([*command, request.script, *request.arguments])


def _keeps_batches(words: Words, config: Any) -> bool:
    """Whether batches of the first epoch are kept, which is then unlike all others."""
    return any(word.startswith("input.cache=") for word in words) or config.get("input.cache") is not None


def _overhead(trials: float, spent: float, processor: float) -> Overhead:
    rest = max(0.0, spent - trials)
    return Overhead(
        trial_seconds=trials,
        tuner_seconds=rest,
        tuner_cpu_seconds=processor,
        share=rest / trials if trials else 0.0,
    )
