"""Several runs side by side: their speed with intervals, and what differs in their settings."""

from __future__ import annotations

import statistics
from typing import NamedTuple, Optional, Sequence

from tfvolta.evidence.schema import Evidence
from tfvolta.page.charts import Span, intervals
from tfvolta.page.markup import Markup, element, fold, joined, paragraph, table
from tfvolta.page.words import figure, items, mapping
from tfvolta.report.comparison import Difference, compare
from tfvolta.report.words import number, shown

_MOST_ROWS = 60
_MOST_VALUES = 100  # of an interval
_SECTIONS = {"config": "Config", "outcomes": "Outcomes", "facts": "Machine", "versions": "Versions"}


class Speed(NamedTuple):
    """Examples a second of a run, over its epochs.

    Attributes:
        estimate: Median over epochs, without warm-up and compilation.
        low: Lower end of the interval of the median; None with fewer than two epochs.
        high: Upper end.
        confidence: What the interval really has.
        values: What it is the median of, such as ``12 epochs``.
    """

    estimate: float
    low: Optional[float]
    high: Optional[float]
    confidence: float
    values: str


def speed(evidence: Evidence) -> Optional[Speed]:
    """The speed of a run; None where it was not measured."""
    seen = mapping(evidence.measurements.get("throughput"))
    rates = [figure(mapping(epoch).get("examples_per_second")) for epoch in items(seen.get("epochs"))]
    known = [rate for rate in rates if rate]
    if len(known) < 2:
        whole = figure(seen.get("examples_per_second"))
        return Speed(whole, None, None, 0.0, "the whole run") if whole else None
    # Of very many epochs blocks of neighbours, which are more independent of each other than epochs are.
    size = -(-len(known) // _MOST_VALUES)
    blocks = [statistics.median(known[start : start + size]) for start in range(0, len(known), size)]
    values = f"{len(known)} epochs" if size == 1 else f"{len(blocks)} blocks of {size} epochs"
    try:
        from tfvolta.measure.exact import sign_interval
    except ImportError:  # numpy is not installed; it comes with the charts
        return Speed(statistics.median(blocks), None, None, 0.0, values)
    interval = sign_interval(blocks)
    return Speed(interval.estimate, interval.low, interval.high, interval.confidence, values)


def compared(runs: Sequence[Evidence]) -> Markup:
    """Two runs or more, each against the first."""
    speeds = [speed(run) for run in runs]
    spans = [_span(run, one, place) for place, (run, one) in enumerate(zip(runs, speeds))]
    parts = [element("h3", "Runs side by side"), paragraph(sentence(runs))]
    if any(speeds):
        parts.append(intervals("runs-speed", "Throughput of each run", spans, "examples/s", None))
        parts.append(paragraph(_caution(), class_="note"))
    parts += [_differences(runs[0], run) for run in runs[1:]]
    return joined(parts)


def sentence(runs: Sequence[Evidence]) -> str:
    """How fast the last run was against the first; a gain is what runs in turns have shown, and nothing else."""
    first, last = speed(runs[0]), speed(runs[-1])
    if first is None or last is None:
        return "The speed of the first and the last run cannot be compared: one of them was not measured."
    ratio = number(last.estimate / first.estimate)
    said = f"{runs[-1].run_id} trained at {ratio} times the throughput of {runs[0].run_id}"
    if first.low is None or first.high is None or last.low is None or last.high is None:
        return f"{said}; without numpy, or with fewer than two epochs each, there is no interval."
    apart = last.low > first.high or last.high < first.low
    kept = "their intervals do not overlap" if apart else "their intervals overlap, so this shows no difference"
    return f"{said}; {kept}."


def _caution() -> str:
    return (
        "Each interval is that of the median over the epochs of one process, by the sign test. The runs did not take "
        "turns, so a change of the machine's load looks like a change of settings; tfvolta bench --against and tfvolta "
        "ladder measure in turns."
    )


def _span(run: Evidence, one: Optional[Speed], place: int) -> Span:
    if one is None:
        return Span(run.run_id, None, said="not measured")
    confidence = f"median of {one.values}" + (f", {100 * one.confidence:.0f} %" if one.confidence else "")
    return Span(run.run_id, one.estimate, one.low, one.high, "series-1" if place == 0 else "series-0", confidence)


def _differences(a: Evidence, b: Evidence) -> Markup:
    """What is not the same in the settings, outcomes and machines of two runs."""
    comparison = compare(a, b)
    rows = []
    for section, title in _SECTIONS.items():
        found = comparison.sections[section]
        if section == "outcomes":
            found = tuple(each for each in found if each.key.endswith(".status")) or found
        rows += [_row(title, difference) for difference in found]
    title = f"What differs between {a.run_id} and {b.run_id}: {len(rows)}"
    if not rows:
        return paragraph(
            f"Nothing differs in config, outcomes, machine and versions between {a.run_id} and {b.run_id}."
        )
    hidden = paragraph(f"and {len(rows) - _MOST_ROWS} more", class_="note") if len(rows) > _MOST_ROWS else Markup("")
    return fold(title, table(title, ["what", "key", a.run_id, b.run_id], rows[:_MOST_ROWS]), hidden)


def _row(title: str, difference: Difference) -> list[str]:
    return [
        title,
        element("code", difference.key),
        _cell(difference.a, difference.origin_a),
        _cell(difference.b, difference.origin_b),
    ]


def _cell(value: object, origin: str) -> str:
    return shown(value, 120) + (f" ({origin})" if origin else "")
