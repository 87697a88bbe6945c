"""A prediction of scaling over GPUs, as ``tfvolta estimate scaling`` makes it."""

from __future__ import annotations

from typing import Any, Mapping

from tfvolta.page.charts import Curve, course
from tfvolta.page.markup import Markup, bullets, element, joined, paragraph, table
from tfvolta.page.words import figure, items, mapping
from tfvolta.report.words import number


def scaling(estimate: Mapping[str, Any], name: str, source: str) -> Markup:
    """One estimate.

    Args:
        estimate: As it is printed with ``--json``.
        name: Unique in the page, for ids.
        source: From which file or run it is.
    """
    points = [mapping(point) for point in items(estimate.get("points"))]
    title = str(mapping(estimate.get("gradients")).get("title", "a model"))
    parts = [
        element("h3", f"{title} on {estimate.get('machine', 'a machine')}"),
        paragraph(f"Predicted, not measured; from {source}.", class_="note"),
    ]
    places = [figure(point.get("gpus")) or 0.0 for point in points]
    shares = [figure(point.get("efficiency_percent")) for point in points]
    if points:
        looks = {"caption": "Predicted efficiency: throughput over that of as many GPUs that never wait."}
        curve = Curve("efficiency, %", places, shares)
        parts.append(course(f"{name}-efficiency", "Predicted scaling", [curve], ("GPUs", "%"), **looks))
        keys = ("step_ms", "communication_ms", "exposed_communication_ms", "waiting_ms", "efficiency_percent")
        rows = [
            [number(gpus), *(_cell(point.get(key)) for key in (*keys, "examples_per_second"))]
            for gpus, point in zip(places, points)
        ]
        columns = ["GPUs", "step ms", "reduce ms", "exposed ms", "waiting ms", "efficiency %", "examples/s"]
        parts.append(table("Predicted steps", columns, rows, tuple(range(7))))
    helps = [mapping(change) for change in items(estimate.get("what_if"))]
    lines = [f"{each.get('setting')}: +{_cell(each.get('gain_points'))} points" for each in helps]
    parts += [joined([element("h4", "What would help"), bullets(lines)]) if lines else Markup("")]
    parts += [paragraph(str(estimate["error"]), class_="note") if estimate.get("error") else Markup("")]
    return joined(parts)


def _cell(value: Any) -> str:
    known = figure(value)
    return "-" if known is None else number(known)
