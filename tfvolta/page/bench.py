"""A bench and a ladder: contenders that took turns, with intervals and gates."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Mapping, Optional

from tfvolta.page.charts import Span, intervals
from tfvolta.page.markup import Markup, bullets, element, fold, joined, pairs, paragraph, table
from tfvolta.page.words import figure, items, mapping, mark, mebibytes, milliseconds
from tfvolta.report.words import number

if TYPE_CHECKING:  # they need numpy, and a page of runs needs none
    from tfvolta.bench.judged import Comparison, Gate
    from tfvolta.bench.measured import Entry
    from tfvolta.bench.result import BenchResult


def comparisons(result: BenchResult) -> list[Comparison]:
    """All comparisons of a bench, those of its gates among them."""
    return [*result.comparisons, *(gate.comparison for gate in result.gates if gate.comparison is not None)]


def bench_sentence(result: BenchResult) -> str:
    """What a bench has shown."""
    found = comparisons(result)
    if not found:
        measured = [entry for entry in result.entries if entry.figures is not None]
        if not measured:
            return f"{result.model}: nothing could be measured."
        rates = [f"{entry.name} at {number(_rate(entry) or 0.0)} {_unit(entry)}/s" for entry in measured]
        return f"{result.model}: {', '.join(rates)}; nothing was compared."
    won = [one for one in found if one.wins]
    if not won:
        return f"{result.model}: no win shown in {len(found)} comparison{'s' * (len(found) > 1)}."
    return (
        f"{result.model}: " + "; ".join(f"{one.treated} wins over {one.reference}: {one.why[0]}" for one in won) + "."
    )


def bench(result: BenchResult, name: str) -> Markup:
    """A bench.

    Args:
        result: Of ``tfvolta bench``.
        name: Unique in the page, for ids.
    """
    found = comparisons(result)
    parts = [element("h3", f"Bench of {result.model}"), paragraph(bench_sentence(result))]
    if found:
        spans = [_span(one) for one in found]
        unit = "times the throughput of the reference"
        parts.append(intervals(f"{name}-ratios", "Throughput over the reference", spans, unit))
    parts += [_gates(result.gates), _entries(result)]
    parts += [joined([element("h4", f"{one.treated} against {one.reference}"), bullets(one.why)]) for one in found]
    parts += [
        fold("How it was measured", bullets(result.method)),
        pairs([("measured", result.created), ("to do it again", element("code", shlex.join(result.command)))]),
    ]
    return joined(parts)


def _span(one: Comparison) -> Span:
    ratio = one.throughput
    said = ("win" if one.wins else "no win") + f"; {one.n} pairs, {100 * ratio.confidence:.0f} %"
    tone = "good" if one.wins else "bad" if ratio.high < 1 else "doubt"
    return Span(f"{one.treated} over {one.reference}", ratio.estimate, ratio.low, ratio.high, tone, said)


def _gates(gates: tuple[Gate, ...]) -> Markup:
    rows = []
    for gate in gates:
        word, tone = {True: ("passed", "good"), False: ("not passed", "bad"), None: ("not on this machine", "quiet")}[
            gate.passes
        ]
        efficiency = "-" if gate.efficiency is None else f"{100 * gate.efficiency:.0f} %"
        rows.append([gate.stage, mark(word, tone), efficiency, gate.reason or "-"])
    title = "Stage gates"
    return table(title, ["stage", "gate", "efficiency", "why"], rows, (2,)) if rows else Markup("")


def _entries(result: BenchResult) -> Markup:
    columns = [
        "contender",
        "per second",
        "from",
        "to",
        "ms a step",
        "device peak",
        "host peak",
        "compilation, s",
        "MFU",
    ]
    rows = []
    for entry in result.entries:
        shown = entry.figures
        if shown is None:
            rows.append([entry.name, f"{entry.ending.value}: {entry.reason}", *["-"] * 7])
            continue
        rate = shown.examples_per_second
        rows.append(
            [
                entry.name,
                *(number(value) for value in (rate.estimate, rate.low, rate.high)),
                milliseconds(shown.step_seconds.estimate),
                mebibytes(shown.device_peak_bytes),
                mebibytes(shown.host_peak_bytes),
                "-" if shown.compile_seconds is None else number(shown.compile_seconds),
                f"{100 * shown.mfu:.1f} %" if shown.mfu is not None else f"none: {shown.mfu_unknown}",
            ]
        )
    title = f"Contenders; {result.rounds} rounds in turns, seeds {', '.join(map(str, result.seeds))}"
    return table(title, columns, rows, (2, 3, 4))


def _rate(entry: Entry) -> Optional[float]:
    return None if entry.figures is None else entry.figures.examples_per_second.estimate


def _unit(entry: Entry) -> str:
    return "examples" if entry.figures is None else entry.figures.unit


def ladder_sentence(content: Mapping[str, Any]) -> str:
    """What a ladder has shown of the whole config."""
    whole = mapping(content.get("whole"))
    text = whole.get("text") or "nothing is shown of the whole config"
    return f"{content.get('script', 'the script')}, section by section: {text}"


def ladder(content: Mapping[str, Any], name: str) -> Markup:
    """A ladder.

    Args:
        content: What ``tfvolta ladder`` wrote.
        name: Unique in the page, for ids.
    """
    rungs = [mapping(rung) for rung in items(content.get("rungs"))]
    spans = [_rung(str(rung.get("rung")), mapping(rung.get("gain"))) for rung in rungs if rung.get("gain")]
    whole = mapping(content.get("whole"))
    spans += [_rung("altogether", whole)] if whole else []
    skipped = [(str(key), f"adds nothing here: {why}") for key, why in mapping(content.get("skipped")).items()]
    skipped += [(str(rung.get("rung")), f"adds nothing here: {rung['idle']}") for rung in rungs if rung.get("idle")]
    faults = [f"{rung.get('rung')}: {text}" for rung in rungs for text in mapping(rung.get("faults"))]
    unit = "times the throughput of the rung below"
    parts = [
        element("h3", f"Ladder of {content.get('script', 'a script')}"),
        paragraph(ladder_sentence(content)),
        intervals(f"{name}-rungs", "What each section gains", spans, unit) if spans else "",
        bullets([f"{span.label}: {span.said}" for span in spans]),
        pairs(skipped),
        fold("What went wrong in its runs", bullets(faults)) if faults else "",
    ]
    return joined(parts)


def _rung(label: str, gain: Mapping[str, Any]) -> Span:
    ratio, said = mapping(gain.get("ratio")), str(gain.get("verdict", ""))
    tone = {"faster": "good", "slower": "bad"}.get(said, "doubt")
    ends = [figure(ratio.get(key)) for key in ("estimate", "low", "high")]
    return Span(label, ends[0], ends[1], ends[2], tone, str(gain.get("text") or said))
