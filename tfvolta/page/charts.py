"""The kinds of charts of a page, each with the table of what it shows."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Sequence

from tfvolta.page.markup import Markup, element, fold, table
from tfvolta.page.svg import INKS, Chart, can_draw, drawing
from tfvolta.report.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 256  # of a curve: more than one a pixel of a phone
_MOST_ROWS = 24  # of the table beside a curve
_MOST_BINS = 40
_LOG_RATIO = 20.0  # a range wider than this is drawn on a logarithmic axis


class Span(NamedTuple):
    """A row of a chart of intervals.

    Attributes:
        label: In words.
        estimate: The middle; None where there is none, and the row is in the table alone.
        low: Lower end of its interval.
        high: Upper end.
        colour: Name of a colour of the page.
        said: What to think of it.
    """

    label: str
    estimate: Optional[float]
    low: Optional[float] = None
    high: Optional[float] = None
    colour: str = "series-0"
    said: str = ""


class Curve(NamedTuple):
    """One line of a course: as many places as values, of which None ones are gaps."""

    label: str
    places: Sequence[float]
    values: Sequence[Optional[float]]


def shown(chart: Chart, figures: Markup, caption: str) -> Markup:
    """The figure: the chart with its caption, and what it shows as a table below, open where nothing can be drawn."""
    return element(
        "figure",
        drawing(chart),
        element("figcaption", caption),
        fold("The figures as a table", figures, opened=not can_draw()),
    )


def intervals(name: str, title: str, spans: Sequence[Span], unit: str, reference: Optional[float] = 1.0) -> Markup:
    """Estimates with their intervals, one below the other, and a line at the value that means no change.

    Args:
        name: Of the chart, unique in the page.
        title: Of the chart.
        spans: The rows.
        unit: Of the axis.
        reference: Where the line is; None for none.
    """
    drawn = [span for span in spans if span.estimate is not None]
    figures = table(title, ["", unit, "from", "to", "verdict"], [_span_row(span) for span in spans], (1, 2, 3))
    if not drawn:
        return figures
    words = "; ".join(f"{span.label}: {_span_words(span)}" for span in drawn)
    chart = Chart(
        name,
        title,
        f"{unit}. {words}.",
        lambda axes, narrow: _draw_intervals(axes, narrow, drawn, unit, reference),
        0.9 + 0.42 * len(drawn),
    )
    return shown(chart, figures, f"{title}. Dots are estimates, bars their intervals.")


def _span_words(span: Span) -> str:
    ends = "" if span.low is None or span.high is None else f" ({number(span.low)} to {number(span.high)})"
    return f"{number(span.estimate or 0.0)}{ends}"


def _span_row(span: Span) -> list[str]:
    return [span.label, *("-" if each is None else number(each) for each in span[1:4]), span.said]


def _draw_intervals(axes: Axes, narrow: bool, spans: Sequence[Span], unit: str, reference: Optional[float]) -> None:
    ends = [end for span in spans for end in (span.low, span.high, span.estimate) if end is not None]
    ends += [] if reference is None else [reference]
    if min(ends) > 0 and max(ends) / min(ends) > _LOG_RATIO:
        axes.set_xscale("log")
    if reference is not None:
        axes.axvline(reference, color=INKS["quiet"], linewidth=1, linestyle=(0, (4, 3)))
    for place, span in enumerate(spans):
        colour = INKS[span.colour]
        if span.low is not None and span.high is not None:
            axes.plot([span.low, span.high], [place, place], color=colour, linewidth=3, solid_capstyle="butt")
        axes.plot([span.estimate], [place], marker="o", markersize=8, color=colour, linestyle="none")
    labels = ["\n".join(textwrap.wrap(span.label, 18 if narrow else 34)[:2]) for span in spans]
    axes.set_yticks(range(len(spans)), labels=labels)
    axes.set_ylim(len(spans) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    _plain_ticks(axes.xaxis, narrow)
    axes.grid(axis="x")
    axes.set_xlabel("\n".join(textwrap.wrap(unit, 24)) if narrow else unit)


def distribution(name: str, title: str, milliseconds: Sequence[float], caption: str) -> Markup:
    """How often step times of each length were seen, with a line at their median."""
    ordered = sorted(milliseconds)
    top = _quantile(ordered, 0.99)
    marks = [
        (f"{100 * share:g} % are below", _quantile(ordered, share)) for share in (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
    ]
    rows = [["shortest", number(ordered[0])], *[[text, number(value)] for text, value in marks]]
    figures = table(f"{title}, in ms", ["", "ms"], [*rows, ["longest", number(ordered[-1])]], (1,))
    beyond = sum(value > top for value in ordered)
    said = f"Half of the steps take less than {number(marks[2][1])} ms, 95 % less than {number(marks[4][1])} ms"
    chart = Chart(
        name, title, f"{said}; the longest takes {number(ordered[-1])} ms.", _Histogram(ordered, top, marks).draw
    )
    rest = f" {beyond} longer than {number(top)} ms are in the table alone." if beyond else ""
    return shown(chart, figures, f"{caption} The dashed line is the median.{rest}")


class _Histogram(NamedTuple):
    """Draws a distribution."""

    ordered: Sequence[float]
    top: float
    marks: Sequence[tuple[str, float]]

    def draw(self, axes: Axes, narrow: bool) -> None:
        seen = [value for value in self.ordered if value <= self.top]
        bins = max(5, min(_MOST_BINS // (2 if narrow else 1), round(math.sqrt(len(seen)) * 1.5)))
        axes.hist(seen, bins=bins, color=INKS["series-0"], edgecolor="none", rwidth=0.9)
        axes.axvline(self.marks[2][1], color=INKS["series-1"], linewidth=1.6, linestyle=(0, (5, 3)))
        axes.set_xlabel("ms a step")
        axes.set_ylabel("steps")
        axes.grid(axis="y")


def course(name: str, title: str, curves: Sequence[Curve], units: tuple[str, str], **looks: Any) -> Markup:
    """Values over places, a line each.

    Args:
        name: Of the chart, unique in the page.
        title: Of the chart.
        curves: At most four are told apart by colour.
        units: Of the places and of the values.
        looks: ``dots`` draws dots, ``steps`` holds each value up to the next, ``powers`` has an axis of powers of 2,
            ``caption`` is the caption.
    """
    thin = [_thinned(curve, MOST_POINTS) for curve in curves]
    rows = _rows(curves)
    left_out = f" ({len(rows)} of {len(curves[0].places)} places)" if len(rows) < len(curves[0].places) else ""
    columns = [units[0], *(curve.label for curve in curves)]
    figures = table(f"{title}, in {units[1]}{left_out}", columns, rows, tuple(range(len(columns))))
    said = "; ".join(f"{curve.label}: {_extent(curve)}" for curve in curves)
    chart = Chart(name, title, f"{units[1]} by {units[0]}. {said}.", _Course(thin, units, looks).draw, 2.4)
    return shown(chart, figures, looks.get("caption") or f"{title}.")


class _Course(NamedTuple):
    """Draws curves."""

    curves: Sequence[Curve]
    units: tuple[str, str]
    looks: dict[str, Any]

    def draw(self, axes: Axes, narrow: bool) -> None:
        dashes: list[Any] = ["-", (0, (6, 2)), (0, (2, 2)), (0, (6, 2, 2, 2))]
        style: dict[str, Any] = {"linewidth": 1.8}
        if self.looks.get("steps"):
            style["drawstyle"] = "steps-post"
        if max(len(curve.places) for curve in self.curves) <= 16:
            style["marker"] = "o"
        for place, curve in enumerate(self.curves):
            values = [math.nan if value is None else value for value in curve.values]
            places = list(curve.places)
            own = {**style, "linestyle": dashes[place % 4]}
            if self.looks.get("dots"):  # a line to where it starts has a round end and few bytes; a marker has many
                places = [each for x in places for each in (x, x, math.nan)]
                values = [each for y in values for each in (y, y, math.nan)]
                own = {"linewidth": 3.0, "solid_capstyle": "round"}
            axes.plot(places, values, color=INKS[f"series-{place % 4}"], label=curve.label, **own)
        if self.looks.get("powers"):
            axes.set_yscale("log", base=2)
        else:
            axes.set_ylim(bottom=0)
            axes.locator_params(axis="y", nbins=5)
        _plain_ticks(axes.yaxis, narrow=False)
        axes.locator_params(axis="x", integer=True, nbins=5 if narrow else 9)
        axes.set_xlabel(self.units[0])
        axes.set_ylabel(self.units[1])
        axes.grid(axis="y")
        if len(self.curves) > 1:
            axes.legend(frameon=False, fontsize=9)


def _plain_ticks(axis: Any, narrow: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: number(float(f"{value:.6g}"))))
    axis.set_minor_formatter(NullFormatter())
    locator = axis.get_major_locator()
    if isinstance(locator, LogLocator):
        locator.set_params(numticks=4 if narrow else 7)
    else:
        locator.set_params(nbins=4 if narrow else 7)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """With linear interpolation between values."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _chosen(number_of: int, most: int) -> list[int]:
    """Places at even distances, the first and the last among them."""
    if number_of <= most:
        return list(range(number_of))
    return sorted({round(place * (number_of - 1) / (most - 1)) for place in range(most)})


def _thinned(curve: Curve, most: int) -> Curve:
    kept = _chosen(len(curve.places), most)
    return Curve(curve.label, [curve.places[place] for place in kept], [curve.values[place] for place in kept])


def _rows(curves: Sequence[Curve]) -> list[list[str]]:
    """The table of curves over the places of the first, thinned."""
    kept = _chosen(len(curves[0].places), _MOST_ROWS)
    by_place = [dict(zip(curve.places, curve.values)) for curve in curves]
    rows = []
    for place in (curves[0].places[each] for each in kept):
        found = [values.get(place) for values in by_place]
        rows.append([number(place), *("-" if value is None else number(value) for value in found)])
    return rows


def _extent(curve: Curve) -> str:
    known = [value for value in curve.values if value is not None]
    if not known:
        return "none"
    return f"from {number(known[0])} to {number(known[-1])}, at most {number(max(known))}"
