"""What a search for settings has found: before and after, its ablation, its trials, and what they cost."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Optional

from tfvolta.page.charts import Span, intervals
from tfvolta.page.markup import Markup, bullets, element, fold, joined, pairs, paragraph, table
from tfvolta.page.words import mark, mebibytes
from tfvolta.report.words import number, shown
from tfvolta.tune.result import AblationRow, Measured, TuneResult

TONES = {"gain": "good", "no gain": "doubt", "loss left the band": "bad", "not measured": "doubt"}
_MOST_TRIALS = 100


def search(result: TuneResult, name: str) -> Markup:
    """A search.

    Args:
        result: Of ``tfvolta tune``.
        name: Unique in the page, for ids.
    """
    parts = [
        element("h3", f"Search on {Path(result.script).name}"),
        paragraph(mark(result.verdict, TONES[result.verdict]), f" {result.sentence}"),
        _before_after(result, name),
        _ablation(result, name),
        _trials(result),
        _rules(result),
        pairs(_about(result)),
        bullets(result.notes, class_="note"),
    ]
    return joined(parts)


def _before_after(result: TuneResult, name: str) -> Markup:
    parts = []
    gain = result.gain
    if gain is not None:
        tone = TONES[result.verdict]
        said = f"{result.verdict}; {gain.pairs} pairs, {100 * gain.confidence:.0f} %"
        span = Span("best over baseline", gain.estimate, gain.low, gain.high, tone, said)
        parts.append(intervals(f"{name}-gain", "Throughput, best over baseline", [span], "times the baseline"))
        parts.append(paragraph(f"Interval: {gain.method}. Pairs of processes ran next to each other.", class_="note"))
    columns = ["", "before", "after"]
    best = result.best
    rows = [
        ["settings", "as given", "no better ones found" if best is None else _settings(best.settings)],
        ["examples a second", _rate(result.baseline), "-" if best is None else _rate(best)],
        ["first step, s", _cell(result.baseline.first_step_seconds), _cell(best.first_step_seconds if best else None)],
        ["memory at its peak", _peaks(result.baseline), "-" if best is None else _peaks(best)],
        ["loss", _cell(result.baseline.loss), _cell(best.loss if best else None)],
    ]
    parts.append(table("One process each; the interval above comes from repeats", columns, rows))
    band = result.loss_band
    if band is not None:
        said = f"The loss has to stay between {number(band.low)} and {number(band.high)}: {band.method}."
        parts.append(paragraph(said, class_="note"))
    return joined(parts)


def _ablation(result: TuneResult, name: str) -> Markup:
    if not result.ablation:
        return Markup("")
    spans = [_bought(row) for row in result.ablation]
    chart = intervals(f"{name}-ablation", "What each setting buys", spans, "times the throughput without it")
    head = element("h4", "What each setting buys")
    return joined([head, chart])


def _bought(row: AblationRow) -> Span:
    value = shown(row.value)
    label = value if value.startswith(row.setting) else f"{row.setting}={value}"
    said = row.verdict + (f": {row.note}" if row.note else "")
    if row.ratio is None:
        return Span(label, None, said=said)
    return Span(label, row.ratio.estimate, row.ratio.low, row.ratio.high, TONES[row.verdict], said)


def _trials(result: TuneResult) -> Markup:
    rows = []
    for trial in result.trials[:_MOST_TRIALS]:
        ending = (
            trial.ending
            + (f": {trial.reason}" if trial.reason else "")
            + (" (from history)" if trial.from_history else "")
        )
        rows.append(
            [str(trial.number), _settings(trial.settings), _rate(trial), _cell(trial.expected_ratio), ending, trial.why]
        )
    columns = ["trial", "settings", "examples/s", "expected, times", "ended", "why it was tried"]
    title = f"Trials: {len(result.trials)} of {result.combinations:,} combinations"
    return fold(title, table(title, columns, rows, (0, 2, 3))) if rows else Markup("")


def _rules(result: TuneResult) -> Markup:
    rows = [[each.rule, each.kind.replace("_", " "), f"{each.combinations:,}"] for each in result.pruned]
    title = "Combinations that cost no trial"
    return fold(title, table(title, ["rule", "kind", "combinations"], rows, (2,))) if rows else Markup("")


def _about(result: TuneResult) -> list[tuple[str, str]]:
    machine, cost = result.machine, result.overhead
    gpus = ", ".join(machine.gpus) or "no GPU"
    said = [
        ("script", shlex.join([result.script, *result.arguments])),
        ("machine", f"{machine.host or 'unnamed'}: {gpus}, {machine.cores:g} CPU cores, {machine.stack}"),
        ("seeds", ", ".join(map(str, result.seeds))),
        ("ended", result.stopped),
        ("cost", f"{cost.trial_seconds:,.0f} s in trials, {100 * cost.share:.1f} % more in the search itself"),
        ("written", result.tuned_config or ""),
    ]
    commands = [("search again", element("code", result.reproduce))] if result.reproduce else []
    return [(key, text) for key, text in said if text] + commands


def _settings(settings: dict[str, Any]) -> str:
    return " ".join(f"{key}={shown(value)}" for key, value in settings.items()) or "as given"


def _rate(row: Measured) -> str:
    if row.examples_per_second is not None:
        return number(row.examples_per_second)
    return "-" if row.steps_per_second is None else f"{number(row.steps_per_second)} steps/s"


def _peaks(row: Measured) -> str:
    return ", ".join(f"{device} {mebibytes(size)}" for device, size in row.peak_bytes.items()) or "-"


def _cell(value: Optional[float]) -> str:
    return "-" if value is None else number(value)
