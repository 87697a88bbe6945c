"""What a run measured: step times, memory, loss scale and compilations, each with its chart."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from tfvolta.evidence.schema import Evidence
from tfvolta.page.charts import Curve, course, distribution
from tfvolta.page.markup import Markup, element, fold, joined, pairs, paragraph, table
from tfvolta.page.words import figure, items, mapping, mark, mebibytes, milliseconds, rate_text
from tfvolta.report.terminal import measured as in_lines
from tfvolta.report.words import number

_SHOWN = ("throughput", "memory", "loss_scale", "compilations")
_DISPATCH = (
    "The calls returned before the device had finished, so single times say how fast the host is; "
    "figures of epochs come from their wall time."
)


def measurements(evidence: Evidence, name: str) -> Markup:
    """All that a run measured.

    Args:
        evidence: Of the run.
        name: Unique in the page, for ids.
    """
    seen = evidence.measurements
    parts = [
        _steps(mapping(seen.get("throughput")), name),
        _memory(mapping(seen.get("memory")), name),
        _loss_scale(mapping(seen.get("loss_scale")), name),
        _compilations(mapping(seen.get("compilations"))),
    ]
    others = [(key, in_lines(values)) for key, values in seen.items() if key not in _SHOWN]
    folds = [fold(key.replace("_", " "), pairs(rows)) for key, rows in others if rows]
    if folds:
        parts.append(joined([element("h3", "Also measured"), *folds]))
    return joined(parts)


def _steps(seen: Mapping[str, Any], name: str) -> Markup:
    if not seen:
        return _missing(
            "Step times", "Nothing timed the steps of this run: monitor.throughput is off, or it ended before."
        )
    parts = [element("h3", "Step times"), paragraph(_spread(seen))]
    if seen.get("step_times") == "dispatch":
        parts.append(paragraph(_DISPATCH, class_="note"))
    sample = mapping(seen.get("step_sample"))
    values = [1e3 * value for value in (figure(each) for each in items(sample.get("seconds"))) if value is not None]
    if len(values) > 1:
        of = int(figure(sample.get("of")) or len(values))
        kept = f"All {of} timed steps." if of == len(values) else f"{len(values)} of {of} timed steps, drawn at random."
        parts.append(distribution(f"{name}-spread", "Distribution of step times", values, kept))
        places = [place for place in map(figure, items(sample.get("places"))) if place is not None]
        if len(places) == len(values):
            curve = Curve("ms a step", places, values)
            caption = f"Step times in the order of training. {kept} Warm-up and compilation are left out."
            looks = {"dots": True, "caption": caption}
            parts.append(
                fold(
                    "In the order of training", course(f"{name}-course", "Step times", [curve], ("step", "ms"), **looks)
                )
            )
    elif figure(seen.get("step_seconds_median")) is not None:
        parts.append(paragraph("This evidence keeps no single step times, so there is no distribution.", class_="note"))
    return joined([*parts, _epochs(seen)])


def _spread(seen: Mapping[str, Any]) -> str:
    middle = figure(seen.get("step_seconds_median"))
    if middle is None:
        return "No step was timed apart from warm-up and compilation."
    spread, rate = figure(seen.get("step_seconds_mad")), figure(seen.get("examples_per_second"))
    rest = "" if rate is None else f" Training went at {rate_text(rate)} examples a second."
    around = "" if spread is None else f", with a scaled median absolute deviation of {milliseconds(spread)}"
    said = f"A step took {milliseconds(middle)} in the median of {seen.get('n')}"
    return f"{said}{around}.{rest}"


def _epochs(seen: Mapping[str, Any]) -> Markup:
    rows = [mapping(epoch) for epoch in items(seen.get("epochs"))]
    if not rows:
        return Markup("")
    kept = rows if len(rows) <= 50 else [*rows[:25], *rows[-25:]]
    cells = [
        [
            str(row.get("epoch")),
            *(_cell(row.get(key)) for key in ("steps", "seconds", "examples_per_second")),
            _cell(_thousand(row.get("step_seconds_median"))),
        ]
        for row in kept
    ]
    title = "Epochs" if len(kept) == len(rows) else f"Epochs: the first and last 25 of {len(rows)}"
    columns = ["epoch", "steps", "seconds", "examples/s", "median ms a step"]
    return fold(title, table(title, columns, cells, (0, 1, 2, 3, 4)))


def _cell(value: Any) -> str:
    known = figure(value)
    return "-" if known is None else number(known)


def _thousand(value: Any) -> Optional[float]:
    known = figure(value)
    return None if known is None else 1e3 * known


def _memory(seen: Mapping[str, Any], name: str) -> Markup:
    if not seen:
        return _missing("Memory", "Nothing measured the memory of this run: monitor.memory is off, or it ended before.")
    peaks = mapping(seen.get("peak_bytes"))
    records = [mapping(record) for record in items(seen.get("records"))]
    curves = []
    for device in peaks:
        for key, word in (("peak_bytes", "peak"), ("current_bytes", "in use")):
            found = [figure(mapping(mapping(record.get("devices")).get(device)).get(key)) for record in records]
            if any(value is not None for value in found):
                places = [figure(record.get("epoch")) or 0.0 for record in records]
                values = [None if value is None else value / 2**20 for value in found]
                curves.append(Curve(f"{device} {word}", places, values))
    parts = [element("h3", "Memory")]
    if peaks:
        parts.append(pairs((device, f"{mebibytes(figure(value))} at its peak") for device, value in peaks.items()))
    parts += [
        paragraph(f"Not measured ({device}): {why}.", class_="note")
        for device, why in mapping(seen.get("unavailable")).items()
    ]
    # Four curves can be told apart; of more devices the peaks stand above.
    if curves:
        caption = "Memory at the end of each epoch, as TensorFlow's allocator counts it."
        looks = {"caption": caption}
        parts.append(course(f"{name}-memory", "GPU memory over time", curves[:4], ("epoch", "MiB"), **looks))
    return joined(parts)


def _loss_scale(seen: Mapping[str, Any], name: str) -> Markup:
    records = [mapping(record) for record in items(seen.get("records"))]
    if not records:
        return Markup("")
    scales = [figure(record.get("scale")) for record in records]
    parts = [element("h3", "Loss scale")]
    attempted, skipped = seen.get("attempted"), seen.get("skipped")
    if attempted is not None:
        kind = "doubt" if skipped else "good"
        said = "not counted" if skipped is None else f"{skipped} of {attempted} optimiser steps skipped"
        parts.append(paragraph(mark(said, kind)))
    if any(scale is not None for scale in scales):
        looks = {"steps": True, "powers": True, "caption": "The loss scale at each record, on an axis of powers of 2."}
        curve = Curve("loss scale", [float(place) for place in range(len(scales))], scales)
        parts.append(course(f"{name}-scale", "Loss scale over time", [curve], ("record", "scale"), **looks))
    else:
        parts.append(paragraph("This run has no loss scale.", class_="note"))
    return joined(parts)


def _compilations(seen: Mapping[str, Any]) -> Markup:
    entries = [mapping(entry) for entry in items(seen.get("entries"))]
    if not seen:
        return Markup("")
    parts = [element("h3", "Compile ledger")]
    if seen.get("not_compiled"):
        parts.append(paragraph(str(seen["not_compiled"])))
    else:
        seconds = figure(seen.get("compile_seconds")) or 0.0
        parts.append(paragraph(f"{seen.get('compilations', 0)} compilations by XLA took {number(seconds)} s."))
    pays = mapping(seen.get("pays_off"))
    if pays:
        parts.append(pairs((key.replace("_", " "), text) for key, text in in_lines(dict(pays))))
    rows = [
        [
            str(entry.get("function", "")),
            _cell(entry.get("epoch")),
            _cell(entry.get("step")),
            _cell(entry.get("seconds")),
            " and ".join(word for word in ("traced", "compiled") if entry.get(word)),
            ", ".join(map(str, items(entry.get("shapes")))) or "-",
        ]
        for entry in entries[:50]
    ]
    if rows:
        title = "Traces and compilations" + (f": the first 50 of {len(entries)}" if len(entries) > 50 else "")
        parts.append(table(title, ["function", "epoch", "step", "seconds", "what", "shapes"], rows, (1, 2, 3)))
    return joined(parts)


def _missing(title: str, why: str) -> Markup:
    return joined([element("h3", title), paragraph(why, class_="note")])
