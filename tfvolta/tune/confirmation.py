"""The end of a search: the best config against the baseline, and against itself without each of its settings.

Every round runs all of them once, with one seed, in an order that differs from round to round; ratios are taken within
rounds, so that what drifts on the machine is in both parts.
"""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any, Callable, Mapping, Optional, Sequence

from tfvolta.tune.candidates import Words
from tfvolta.tune.history import History
from tfvolta.tune.loss_guard import band_of, common_examples
from tfvolta.tune.ratio import paired
from tfvolta.tune.result import AblationRow, LossBand, Measured, Ratio, Verdict
from tfvolta.tune.search import Measure
from tfvolta.tune.speed_trial import SpeedTrial

_AS_FAST = 0.98  # of the best config, from which one with fewer settings is preferred


@dataclasses.dataclass(frozen=True)
class Part:
    """One setting of the best config.

    Attributes:
        key: Its axis.
        words: What it sets.
        rest: Words of the best config without it.
        refused: Why the best config cannot do without it; empty where it can.
    """

    key: str
    words: Words
    rest: Words
    refused: str = ""


@dataclasses.dataclass(frozen=True)
class Confirmed:
    """What the rounds say.

    Attributes:
        gain: Best over baseline; None where one of them failed.
        verdict: gain, or why not.
        band: Of the loss; None where the script reports none.
        ablation: A row for each setting.
        repeats: Every process, in order.
    """

    gain: Optional[Ratio]
    verdict: Verdict
    band: Optional[LossBand]
    ablation: tuple[AblationRow, ...]
    repeats: tuple[Measured, ...]
    reason: str = ""


class Rounds:
    """Measures configs in rounds.

    Attributes:
        results: Trials by config, one a round.
    """

    def __init__(self, measure: Measure, history: History, seeds: Sequence[int], told: Callable[[int, int], None]):
        """Prepares.

        Args:
            measure: Makes a process.
            history: Keeps each, so that an interrupted search goes on.
            seeds: One for each round.
            told: Called after each process with their number so far and in all.
        """
        self.results: dict[Words, list[SpeedTrial]] = {}
        self._order: list[tuple[Words, int, SpeedTrial]] = []
        self._measure, self._history, self._seeds, self._told = measure, history, seeds, told

    def run(self, configs: Sequence[Words]) -> None:
        """Runs all rounds."""
        configs = list(dict.fromkeys(configs))
        self.results = {words: [] for words in configs}
        count, total = 0, len(configs) * len(self._seeds)
        for number, seed in enumerate(self._seeds):
            turned = configs[number % len(configs) :] + configs[: number % len(configs)]
            for words in turned if number % 2 == 0 else reversed(turned):
                trial = self._one(words, seed)
                self.results[words].append(trial)
                self._order.append((words, seed, trial))
                count += 1
                self._told(count, total)

    def _one(self, words: Words, seed: int) -> SpeedTrial:
        known = self._history.repeat(words, seed)
        if known is not None:
            return known
        trial = self._measure(words, seed, False, lambda blocks: False)
        self._history.keep_repeat(words, seed, trial)
        return trial

    def ratio(self, treated: Words, reference: Words) -> Optional[Ratio]:
        """Of two configs, from the rounds in which both were measured."""
        pairs = [
            (own.rate, other.rate)
            for own, other in zip(self.results[treated], self.results[reference])
            if own.ending == other.ending == "measured" and own.counts_examples == other.counts_examples
        ]
        return paired([own for own, _ in pairs], [other for _, other in pairs])

    def failure(self, words: Words) -> str:
        """How a config failed in one of the rounds; empty where it did not."""
        failed = next((trial for trial in self.results[words] if trial.ending != "measured"), None)
        return "" if failed is None else f"{failed.ending}: {failed.reason.splitlines()[0] if failed.reason else ''}"

    def rows(self, examples: Optional[int]) -> tuple[Measured, ...]:
        """Every process as a row."""
        return tuple(
            trial.measured(dict(word.partition("=")[::2] for word in words), seed, examples)
            for words, seed, trial in self._order
        )


def confirm(
    rounds: Rounds, best: Words, parts: Sequence[Part], given: Mapping[str, Any], seeds: Sequence[int]
) -> Confirmed:
    """Measures the best config against the baseline and without each of its settings.

    Args:
        rounds: Measures.
        best: Its words.
        parts: Its settings.
        given: What the user's config has, by key.
        seeds: Of the rounds.
    """
    rounds.run([(), best, *(part.rest for part in parts if not part.refused)])
    examples = common_examples(
        [trial for words in ((), best) for trial in rounds.results[words] if trial.ending == "measured"]
    )
    band = None if examples is None else band_of(rounds.results[()], seeds, examples)
    gain = rounds.ratio(best, ())
    verdict, reason = _verdict(rounds, best, gain, band)
    rows = tuple(_row(rounds, best, part, given) for part in parts)
    return Confirmed(gain, verdict, band, rows, rounds.rows(examples), reason)


def without_idle(found: Confirmed, best: Words, parts: Sequence[Part]) -> Optional[Words]:
    """The best config without the settings that buy nothing; None where there are none, or nothing is left.

    Args:
        found: From ``confirm``.
        best: Its words.
        parts: Its settings.
    """
    idle = {row.setting for row in found.ablation if row.verdict == "no gain"}
    dropped = {word for part in parts if part.key in idle for word in part.words}
    lean = tuple(word for word in best if word not in dropped)
    return lean if lean and len(lean) < len(best) else None


def confirm_lean(
    rounds: Rounds, found: Confirmed, best: Words, lean: Words, seeds: Sequence[int]
) -> Optional[Confirmed]:
    """Compares the best config with the same without its idle settings, and both with the baseline.

    Args:
        rounds: Measures.
        found: From ``confirm``.
        best: The best config's words.
        lean: Those that are left.
        seeds: Of these rounds; others than before.

    Returns:
        What holds for the lean config; None where it is slower, or no gain by itself.
    """
    rounds.run([(), best, lean])
    examples = common_examples([trial for words in ((), lean) for trial in rounds.results[words] if trial.fits])
    band = None if examples is None else band_of(rounds.results[()], seeds, examples)
    gain, against = rounds.ratio(lean, ()), rounds.ratio(lean, best)
    verdict, _ = _verdict(rounds, lean, gain, band)
    if verdict != "gain" or against is None or against.estimate < _AS_FAST:
        return None
    said = f"dropped: without this and the others that buy nothing {against.estimate:.2f}x of the best was measured"
    rows = tuple(row.model_copy(update={"note": said}) if row.verdict == "no gain" else row for row in found.ablation)
    return Confirmed(gain, verdict, band, rows, found.repeats + rounds.rows(examples))


def _verdict(rounds: Rounds, best: Words, gain: Optional[Ratio], band: Optional[LossBand]) -> tuple[Verdict, str]:
    if gain is None:
        return "not measured", rounds.failure(best) or rounds.failure(()) or "fewer than two rounds"
    if band is not None:
        losses = [loss for loss in (trial.loss_at(band.examples) for trial in rounds.results[best]) if loss is not None]
        mean = statistics.fmean(losses) if losses else None
        if mean is None or not band.low <= mean <= band.high:
            said = "is not known" if mean is None else f"is {mean:.4g}"
            return "loss left the band", f"its loss {said}; the band is {band.low:.4g} to {band.high:.4g}"
    return ("gain", "") if gain.low > 1 else ("no gain", "the interval holds no gain")


def _row(rounds: Rounds, best: Words, part: Part, given: Mapping[str, Any]) -> AblationRow:
    value, without = " ".join(part.words), given.get(part.key)
    if part.refused:
        return AblationRow(setting=part.key, value=value, without=without, verdict="not measured", note=part.refused)
    ratio = rounds.ratio(best, part.rest)
    if ratio is None:
        note = rounds.failure(part.rest) or rounds.failure(best) or "fewer than two rounds"
        return AblationRow(setting=part.key, value=value, without=without, verdict="not measured", note=note)
    verdict: Verdict = "gain" if ratio.low > 1 else "no gain"
    return AblationRow(setting=part.key, value=value, without=without, ratio=ratio, verdict=verdict)
