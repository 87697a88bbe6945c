"""The result of a search as text for a terminal."""

from __future__ import annotations

from typing import Optional

from rich.console import Console
from rich.text import Text

from tfvolta.report.style import fields, heading, make_console, new_table
from tfvolta.tune.result import Measured, TuneResult
from tfvolta.tune.verdict import ratio_text

_MOST_RULES = 12


def print_result(result: TuneResult, console: Optional[Console] = None) -> None:
    """Prints verdict, trials, what each setting buys, and what cost no trial."""
    console = make_console(console)
    console.print(Text(result.sentence, style="bold"), soft_wrap=True)
    fields(console, _figures(result))
    _print_trials(result, console)
    if result.ablation:
        heading(console, "What each setting buys")
        table = new_table("setting", "best over without it", "verdict")
        for row in result.ablation:
            ratio = ratio_text(row.ratio) if row.ratio is not None else row.note
            table.add_row(str(row.value), ratio, row.verdict)
        console.print(table)
    if result.pruned:
        _print_pruned(result, console)
    for note in result.notes:
        console.print(Text(f"note: {note}", style="dim"), soft_wrap=True)


def _figures(result: TuneResult) -> list[tuple[str, str]]:
    overhead, band = result.overhead, result.loss_band
    pairs = [("baseline", _rate(result.baseline))]
    if result.gain is not None:
        pairs.append(("confidence", f"{result.gain.confidence:.0%}, {result.gain.method}, seeds {_seeds(result)}"))
    if band is not None:
        pairs.append(("loss band", f"{band.low:.4g} to {band.high:.4g} over {band.examples:,} examples; {band.method}"))
    reused = f", {result.reused} from history" if result.reused else ""
    pairs.append(("trials", f"{len(result.trials)}{reused}; ended because {result.stopped}"))
    spent = f"{overhead.tuner_seconds:.1f} s beside {overhead.trial_seconds:.1f} s of trials"
    pairs.append(("overhead", f"{overhead.share:.1%}: {spent}"))
    return pairs


def _seeds(result: TuneResult) -> str:
    return ", ".join(map(str, result.seeds))


def _rate(measured: Measured) -> str:
    spread = f", spread {measured.spread:.1%}" if measured.spread is not None else ""
    if measured.examples_per_second is not None:
        return f"{measured.examples_per_second:,.1f} examples/s{spread}"
    return f"{measured.steps_per_second or 0.0:,.2f} steps/s{spread}"


def _print_trials(result: TuneResult, console: Console) -> None:
    heading(console, "Trials")
    table = new_table("nr", "settings", "ending", "rate", "expected", "seen")
    counted = result.baseline.examples_per_second is not None
    base = (result.baseline.examples_per_second if counted else result.baseline.steps_per_second) or 0.0
    for trial in result.trials:
        rate = trial.examples_per_second if counted else trial.steps_per_second
        words = " ".join(f"{key}={value}" for key, value in trial.settings.items()) or "as it is"
        expected = f"{trial.expected_ratio:.2f}x" if trial.expected_ratio is not None else ""
        table.add_row(
            str(trial.number),
            words,
            trial.ending if trial.ending in ("measured", "stopped") else f"{trial.ending}: {_first(trial.reason)}",
            f"{rate:,.1f}" if rate else "",
            expected,
            f"{rate / base:.2f}x" if rate and base else "",
        )
    console.print(table)


def _print_pruned(result: TuneResult, console: Console) -> None:
    total = sum(each.combinations for each in result.pruned)
    heading(console, f"Without a trial: {total:,} of {result.combinations:,} combinations")
    table = new_table("combinations", "kind", "rule")
    ranked = sorted(result.pruned, key=lambda each: -each.combinations)
    for each in ranked[:_MOST_RULES]:
        table.add_row(f"{each.combinations:,}", each.kind, each.rule)
    console.print(table)
    if len(ranked) > _MOST_RULES:
        console.print(Text(f"and {len(ranked) - _MOST_RULES} rules more, in the result's file", style="dim"))


def _first(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
