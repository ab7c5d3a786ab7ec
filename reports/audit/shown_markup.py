"""A page taken apart: its tables, its other texts, and what could hide or replace them."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import reports.html

STYLES = frozenset(
    (
        "dfe325a70f117e187b6e43d7690d0e73ed9808c3366d4ea169f896ad391ab079",
        "7f516ae10a997e85fb29ef06a1e22c17f42482ee9c34b0a5c3b246282f96208c",
        "36c179b961047cfe13bb1f150d75459785ba3ce5a10ba1498280bcd30ef9cdf7",
        "86d30646e1575f4d4308a4242dbb93018f2ea4572638f42e935f0c224ad13b40",
        "f26748ea0625e081b32c0512f9e5163a5dd848a92493717031448a5a34831e14",
        "9ce13f0fe2a953493224014ecf16797ff4722dd99b83da8ed96f70b0e883d8c6",
    )
)
"""SHA-256 of each page.css that was ever committed, without blanks around it."""

SCRIPTS = frozenset(("e35de82d4e024e78df8302956de423994cf3084830d5aaaf463d0f9ee3ec33d3",))
"""The same of each page.js."""

_ELEMENTS = frozenset(
    (
        *("html", "head", "meta", "title", "style", "script", "body", "header", "nav", "main", "section"),
        *("h1", "h2", "h3", "h4", "p", "span", "b", "ul", "ol", "li", "dl", "div", "dt", "dd", "a", "pre"),
        *("table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary", "figure", "figcaption"),
        *("svg", "symbol", "defs", "g", "path", "use", "text", "clippath", "rect"),
    )
)
"""Elements that pages consist of."""

_ATTRIBUTES = frozenset(
    (
        *("lang", "content", "charset", "name", "http-equiv", "class", "id", "href", "role", "tabindex", "scope"),
        *("data-v", "title", "type", "open", "aria-hidden", "aria-label", "aria-labelledby"),
    )
)

_OF_PICTURES = frozenset(
    (
        *("class", "id", "aria-hidden", "aria-label", "viewbox", "version", "focusable", "role", "xmlns", "href"),
        *("d", "x", "y", "width", "height", "transform", "clip-path", "style"),
    )
)

_STYLE_NAMES = frozenset(
    (
        *(
            "fill",
            "fill-opacity",
            "font",
            "font-family",
            "font-size",
            "font-stretch",
            "font-style",
            "font-variant",
            "font-weight",
            "opacity",
            "stroke",
            "stroke-dasharray",
            "stroke-dashoffset",
        ),
        *("stroke-linecap", "stroke-linejoin", "stroke-miterlimit", "stroke-opacity", "stroke-width", "text-anchor"),
    )
)
"""What styles of pictures' parts set."""

_HIDDEN = {"unseen": ("caption",), "defs": ("svg",)}
"""Classes that take a text out of sight, with the elements that have them."""

_VOID = frozenset({"meta"})


@dataclass(slots=True)
class Grid:
    """A table as it is shown: the texts of its cells, by row; the first row is its head. heading: its caption."""

    rows: list[tuple[str, ...]] = field(default_factory=list)
    heading: str = ""


class Markup(HTMLParser):
    """The tables of a page, its other texts with those of its pictures, and what no page of ours has."""

    def __init__(self) -> None:
        super().__init__()
        self.grids: list[Grid] = []
        self.texts: list[str] = []
        self.odd: list[str] = []
        self.kicker = self.title = self.heading = self.generator = ""
        self._open: Counter[str] = Counter()
        self._within = ""
        self._classes = self._type = ""
        self._row: list[str] | None = None
        self._cell: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self._look_at(tag, attrs)
        if tag in _VOID:
            self.generator = values["content"] if values.get("name") == "generator" else self.generator
            return
        self._open[tag] += 1
        self._within, self._classes, self._type = tag, values.get("class", ""), values.get("type", "")
        if tag == "table":
            self.grids.append(Grid())
        elif tag == "tr":
            self._row = []
        elif tag in ("td", "th"):
            self._cell = []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._look_at(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        self._open[tag] -= 1
        self._within = ""
        if tag in ("td", "th") and self._cell is not None and self._row is not None:
            self._row.append(" ".join("".join(self._cell).split()))
            self._cell = None
        elif tag == "tr" and self._row and self.grids:
            self.grids[-1].rows.append(tuple(self._row))
            self._row = None

    @property
    def open(self) -> Counter[str]:
        """The number of elements of each name that are not closed."""
        return self._open

    def handle_comment(self, data: str) -> None:
        if data.startswith((">", "->")) or "--" in data:  # browsers end it there, and show the rest
            self.odd.append(f"it has a comment that ends early: {data[:40]!r}")

    def handle_pi(self, data: str) -> None:
        self.odd.append(f"it has an instruction <?{data[:40]}>")

    def unknown_decl(self, data: str) -> None:
        self.odd.append(f"it has a part <![{data[:40]}]>")

    def handle_data(self, data: str) -> None:
        text = " ".join(data.split())
        if not text:
            return
        if self._open["style"] > 0 or self._open["script"] > 0:
            self._look_at_code(data.strip())
        elif self._cell is not None:
            self._cell.append(data)
        elif self._open["title"] > 0:
            self.title = text
        elif self._within == "h1":
            self.heading = text
        elif self._within == "p" and self._classes == "kicker":
            self.kicker = text
        else:
            if self._within == "caption" and self.grids:
                self.grids[-1].heading = text
            self.texts.append(text)

    def _look_at_code(self, text: str) -> None:
        is_style = self._open["style"] > 0
        if not is_style and self._type == "application/json":  # the figures: data, which nothing runs
            return
        today = Path(reports.html.__file__).with_name("page.css" if is_style else "page.js")
        known = STYLES if is_style else SCRIPTS
        if text != today.read_text(encoding="utf-8").strip() and content_digest(text) not in known:
            self.odd.append(f"its {'style' if is_style else 'script'} is none that symlab writes")

    def _look_at(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if len(values) < len(attrs):  # browsers take the first one
            self.odd.append(f"<{tag}> has an attribute twice")
        is_picture = self._open["svg"] > 0 or tag == "svg"
        if tag not in _ELEMENTS:
            self.odd.append(f"it has an element <{tag}>")
        allowed = _OF_PICTURES if is_picture else _ATTRIBUTES
        self.odd += [f"<{tag}> has an attribute {name}" for name in values if name not in allowed]
        for name in re.findall(r"([\w-]+)\s*:", values.get("style", "")):
            if name.lower() not in _STYLE_NAMES:
                self.odd.append(f"<{tag}> has a style of its own, {name}")
        for name in values.get("class", "").split():
            if tag not in _HIDDEN.get(name, (tag,)):
                self.odd.append(f"<{tag}> is out of sight ({name})")
        if tag == "meta" and values.get("http-equiv", "content-security-policy").lower() != "content-security-policy":
            self.odd.append(f"it has <meta http-equiv={values['http-equiv']}>")
        is_outside = is_picture and not values.get("href", "#").startswith("#")
        if is_outside or re.match(r"\s*[A-Za-z]+:", values.get("href", "")):
            self.odd.append(f"<{tag}> leads to {values['href'][:40]}")


def taken_apart(text: str) -> Markup:
    """Return the parts of an HTML page."""
    found = Markup()
    found.feed(text)
    found.close()
    found.grids = [grid for grid in found.grids if grid.rows]
    return found


def odd_in_a_section(text: str) -> list[str]:
    """Return what a section of a page may not have: what no page of ours has, what belongs to the head of a page, and
    elements or comments that are left open, for these hide what follows."""
    found = taken_apart(text)
    left = sorted(tag for tag, number in found.open.items() if number)
    more = re.findall(r"<(!|(?:title|style|script|meta|h1)\b)", text, re.IGNORECASE)
    odd = [f"it leaves <{tag}> open, or closes what is not open" for tag in left]
    return [*found.odd, *odd, *(f"a section of it has <{one}" for one in dict.fromkeys(more))]


def content_digest(text: str) -> str:
    """Return the digest that STYLES and SCRIPTS have of a text."""
    return hashlib.sha256(text.strip().encode()).hexdigest()
