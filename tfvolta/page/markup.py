"""HTML from Python values: every string is escaped, unless it was made here."""

from __future__ import annotations

import html
import re
from typing import Iterable, Optional, Sequence, Union

_VOID = ("meta", "br", "hr", "link", "col")
# What HTML cannot hold even escaped: control characters, and halves of surrogate pairs.
_UNUSABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Markup(str):
    """HTML that is safe to put into a page as it is."""


Content = Union[str, Markup]


def escaped(value: object) -> Markup:
    """A value as text of a page, or of an attribute."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(_UNUSABLE.sub("\N{REPLACEMENT CHARACTER}", str(value)), quote=True))


def joined(parts: Iterable[Content], between: str = "\n") -> Markup:
    """Parts one after another; strings are escaped."""
    return Markup(between.join(escaped(part) for part in parts if part))


def element(name: str, /, *content: Content, **attributes: Optional[object]) -> Markup:
    """One element.

    Args:
        name: Of the tag.
        content: Strings, which are escaped, and markup.
        attributes: ``class_`` is ``class``, ``aria_label`` is ``aria-label``; None leaves one out, True is a bare one.
    """
    words = [name]
    for key, value in attributes.items():
        attribute = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(attribute)
        elif value is not None:
            words.append(f'{attribute}="{escaped(str(value))}"')
    start = f"<{' '.join(words)}>"
    return Markup(start if name in _VOID else f"{start}{joined(content, '')}</{name}>")


def paragraph(*content: Content, class_: Optional[str] = None) -> Markup:
    """A paragraph."""
    return element("p", *content, class_=class_)


def bullets(items: Iterable[Content], class_: Optional[str] = None) -> Markup:
    """A list; nothing where there are no items."""
    rows = [element("li", item) for item in items]
    return element("ul", *rows, class_=class_) if rows else Markup("")


def pairs(items: Iterable[tuple[Content, Content]]) -> Markup:
    """Names and values; nothing where there are none."""
    rows = [element("div", element("dt", name), element("dd", value)) for name, value in items]
    return element("dl", *rows) if rows else Markup("")


def table(
    caption: Content, columns: Sequence[Content], rows: Iterable[Sequence[Content]], numbers: Sequence[int] = ()
) -> Markup:
    """A table that scrolls sideways in a box of its own where it does not fit.

    Args:
        caption: What it shows.
        columns: Headers.
        rows: Cells; the first of each is the header of its row.
        numbers: Columns, from 0, that hold figures and are set flush right.
    """
    kinds = ["number" if place in numbers else None for place in range(len(columns))]
    head = [element("th", text, scope="col", class_=kind) for text, kind in zip(columns, kinds)]
    body = []
    for row in rows:
        cells = [element("th", row[0], scope="row", class_=kinds[0])]
        cells += [element("td", cell, class_=kind) for cell, kind in zip(row[1:], kinds[1:])]
        body.append(element("tr", *cells))
    whole = element(
        "table", element("caption", caption), element("thead", element("tr", *head)), element("tbody", *body)
    )
    # The keyboard scrolls only what it can reach.
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=plain(caption))


def prose_table(caption: Content, columns: Sequence[str], rows: Iterable[Sequence[Content]]) -> Markup:
    """A table of sentences, whose cells stand below each other on a phone.

    The roles keep it a table for screen readers where the style makes blocks of its cells.

    Args:
        caption: What it shows.
        columns: Headers.
        rows: Cells; the first of each is the header of its row.
    """
    head = [element("th", text, scope="col", role="columnheader") for text in columns]
    body = []
    for row in rows:
        cells = [element("th", row[0], scope="row", role="rowheader")]
        cells += [element("td", cell, role="cell", data_label=label) for cell, label in zip(row[1:], columns[1:])]
        body.append(element("tr", *cells, role="row"))
    top = element("thead", element("tr", *head, role="row"), role="rowgroup")
    return element(
        "table",
        element("caption", caption),
        top,
        element("tbody", *body, role="rowgroup"),
        class_="prose",
        role="table",
    )


def fold(summary: Content, *content: Content, opened: bool = False, class_: Optional[str] = None) -> Markup:
    """What a reader may open, without a script."""
    return element("details", element("summary", summary), *content, open=opened or None, class_=class_)


def plain(content: Content) -> str:
    """The text of markup, for an attribute."""
    return html.unescape(re.sub(r"<[^>]*>", "", content)) if isinstance(content, Markup) else content
