"""A chart as inline SVG, whose colours are the page's and whose text is text."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import io
import re
from typing import TYPE_CHECKING, Callable

from tfvolta.page.markup import Markup, element, escaped
from tfvolta.page.style import LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What is drawn in one of these colours has the page's colour of that name, light or dark.
INKS = {name: f"#0a0b{number:02x}" for number, name in enumerate(LIGHT)}
WIDE, NARROW = 6.6, 3.3  # inches; matplotlib's SVG has 72 points an inch
_DROPPED = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", re.DOTALL)
_FAMILY = re.compile(r"font: ([\d.]+)px [^;\"]*")
_DIGITS = re.compile(r"(\d\.\d\d)\d+")  # a hundredth of a point is finer than any screen
_HEAD = re.compile(r"<svg[^>]*>")
_BOX = re.compile(r'viewBox="([^"]*)"')
_NAME = re.compile(r'(\bid="|href="#|url\(#)([^")]+)')


@dataclasses.dataclass(frozen=True)
class Chart:
    """What is drawn.

    Attributes:
        name: Unique in the page, for the ids of its parts.
        title: In some words.
        description: What it shows, with its main figures, for who does not see it.
        draw: Draws it; given the axes and whether there is little room.
        height: In inches.
    """

    name: str
    title: str
    description: str
    draw: Callable[[Axes, bool], None]
    height: float = 2.6


@functools.cache
def can_draw() -> bool:
    """Whether matplotlib is there, which draws all charts."""
    return importlib.util.find_spec("matplotlib") is not None


def drawing(chart: Chart) -> Markup:
    """The chart for a wide and for a narrow window, of which the style shows one; empty without matplotlib."""
    if not can_draw():
        return Markup("")
    return Markup(_one(chart, WIDE, "wide") + _one(chart, NARROW, "narrow"))


def _one(chart: Chart, width: float, kind: str) -> str:
    source = _DROPPED.sub("", _drawn(chart, width))
    for name, ink in INKS.items():
        source = source.replace(ink, f"var(--{name})")
    source = _FAMILY.sub(r"font-size: \1px", source).replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    prefix = f"{chart.name}-{kind}"
    source = _NAME.sub(lambda found: f"{found[1]}{prefix}-{found[2]}", source.replace("xlink:href", "href"))
    source = _DIGITS.sub(r"\1", re.sub(r"\s*\n\s*", " ", source))
    box = _BOX.search(source)
    labels = f"{prefix}-title {prefix}-description"
    head = (
        f'<svg viewBox="{box[1] if box else ""}" class="{kind}" role="img" aria-labelledby="{escaped(labels)}">'
        f"{element('title', chart.title, id=f'{prefix}-title')}"
        f"{element('desc', chart.description, id=f'{prefix}-description')}"
    )
    return _HEAD.sub(lambda _: head, source, count=1)


def _drawn(chart: Chart, width: float) -> str:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    looks = {
        "svg.fonttype": "none",
        "svg.hashsalt": chart.name,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib; it is what room is reserved by
        "font.size": 10.0,
        "text.parse_math": False,
        "axes.edgecolor": INKS["rule"],
        "axes.labelcolor": INKS["ink"],
        "axes.spines.top": False,
        "axes.spines.right": False,
        "text.color": INKS["ink"],
        "xtick.color": INKS["rule"],
        "ytick.color": INKS["rule"],
        "xtick.labelcolor": INKS["ink"],
        "ytick.labelcolor": INKS["ink"],
        "grid.color": INKS["rule"],
        "grid.linewidth": 0.6,
        "path.simplify": False,  # dots are lines without length; curves are thinned before they are drawn
    }
    with matplotlib.rc_context(looks):
        figure = Figure(figsize=(width, chart.height), layout="constrained")
        figure.patch.set_visible(False)
        canvas = FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.patch.set_visible(False)
        axes.set_axisbelow(True)
        chart.draw(axes, width == NARROW)
        stream = io.StringIO()
        canvas.print_svg(stream, metadata={"Date": None})
    return stream.getvalue()
