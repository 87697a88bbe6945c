"""What every page has to keep, read off its source with the standard library's parser."""

from __future__ import annotations

import html.parser
from typing import Optional

_VOID = {"meta", "br", "hr", "link", "col", "img", "input"}
_LOADING = {"src", "srcset", "poster", "background", "action", "data"}


class PageCheck(html.parser.HTMLParser):
    """Collects what is wrong with a page.

    Attributes:
        faults: In words.
        headings: Level and text, in order.
        tags: How often each tag occurs.
    """

    def __init__(self, page: str):
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.headings: list[tuple[int, str]] = []
        self.tags: dict[str, int] = {}
        self._open: list[str] = []
        self._ids: list[str] = []
        self._named: list[str] = []
        self.feed(page)
        self.close()
        self._conclude()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Optional[str]]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        known = dict(attrs)
        if len(known) != len(attrs):
            self.faults.append(f"<{tag}> has an attribute twice: {attrs}")
        self._references(tag, known)
        self._rules(tag, known)
        if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self.headings.append((int(tag[1]), ""))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, Optional[str]]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> closes something else, at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][:1] == "h" and self._open[-1][1:].isdigit():
            level, text = self.headings[-1]
            self.headings[-1] = (level, text + data)

    def _references(self, tag: str, known: dict[str, Optional[str]]) -> None:
        self._ids += [known["id"] or ""] if "id" in known else []
        for key in ("aria-labelledby", "aria-describedby"):
            self._named += (known.get(key) or "").split()
        target = known.get("href")
        if target is not None and target.startswith("#"):
            self._named.append(target[1:])
        elif target is not None:
            self.faults.append(f"<{tag}> leads out of the page: {target}")
        self.faults += [f"<{tag}> loads {known[key]}" for key in _LOADING & set(known)]
        self.faults += [f"<{tag}> has a handler {key}" for key in known if key.startswith("on")]

    def _rules(self, tag: str, known: dict[str, Optional[str]]) -> None:
        if tag in ("script", "link", "iframe", "object", "embed", "base", "form", "image"):
            self.faults.append(f"there is a <{tag}>")
        if tag == "th" and known.get("scope") not in ("col", "row"):
            self.faults.append("a <th> has no scope")
        if tag == "svg" and (known.get("role") != "img" or not known.get("aria-labelledby")):
            self.faults.append("an <svg> has no name")
        if tag == "img" and not known.get("alt"):
            self.faults.append("an <img> has no text")

    def _conclude(self) -> None:
        twice = {name for name in self._ids if self._ids.count(name) > 1}
        self.faults += [f"the id {name} is there twice" for name in sorted(twice)]
        self.faults += [f"nothing has the id {name}" for name in sorted(set(self._named) - set(self._ids))]
        self.faults += [f"<{tag}> is not closed" for tag in self._open]
        levels = [level for level, _ in self.headings]
        if levels.count(1) != 1 or levels[:1] != [1]:
            self.faults.append(f"expected one h1, first: {levels}")
        self.faults += [f"h{b} follows h{a}" for a, b in zip(levels, levels[1:]) if b > a + 1]
        self.faults += ["a heading is empty" for _, text in self.headings if not text.strip()]
        self.faults += [
            f"{self.tags.get(tag, 0)} <{tag}>"
            for tag in ("html", "head", "body", "main", "nav")
            if self.tags.get(tag) != 1
        ]
        if self.tags.get("caption", 0) != self.tags.get("table", 0):
            self.faults.append("a table has no caption")
