"""Reports as people see them: a page is drawn again from the records that it names, and its lines are compared.

A page names the code that drew it. Another version lays pages out otherwise: of such a page only the names and digests
of its records, and the figures embedded for programs, are compared.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any

from cases.record.record import Record
from reports.audit.items import Ground, Outcome, Point, listed, verified_or
from reports.audit.shown_pictures import SVG, far_apart
from reports.drawn_by import PREFIX, drawn_by
from reports.record import bundle
from reports.table import table
from reports.table.text import counted

SAME_POINTS = 0.01
"""Maximum distance, in points, of two drawings of one curve by the same code on two machines."""

_AUDIT = re.compile(r'<section id="audit".*?</section>\n?', re.DOTALL)
_AUDIT_ENTRY = re.compile(r'<li><a href="#audit">.*?</li>\n?', re.DOTALL)
_FIGURES = re.compile(r'<script type="application/json" id="figures">.*?</script>', re.DOTALL)
_PICTURES = re.compile(r"this page has ([0-9]{1,4}) axes at most")
_TITLE = re.compile('<p class="kicker">symlab report: (.*?)</p>')
_HISTORY = '<p class="kicker">symlab history'
_COMMAND = re.compile('<tr><th scope="row">([^<]*)</th><td[^>]*>([0-9,]+)</td><td[^>]*>(sha256:[0-9a-f]{64})</td></tr>')
_FOLDER = re.compile('<tr><th scope="row">([^<]*)</th><td[^>]*>(sha256:[0-9a-f]{64})</td></tr>')
_TAG = re.compile(r"<[^>]*>")

NAMES = frozenset(
    (
        *("op", "dtype", "reduction", "world_size", "size_bytes", "root", "offset", "counts", "stress", "accumulator"),
        *("inputs", "algorithm", "placement", "library", "fabric", "device", "mode", "window", "l2", "section"),
        *("worlds", "status"),
    )
)
"""Keys that identify a line of figures; all others are figures."""

_CASE = ("op", "algorithm", "dtype", "size_bytes", "world_size")
"""Those that all versions name alike."""


@dataclass(frozen=True, slots=True)
class _Page:
    """A page as it was found, without an audit's part. title: the one that was given. audit: that part, "" for none."""

    name: str
    text: str
    title: str
    audit: str

    @property
    def commands(self) -> dict[str, tuple[str, str]]:
        """The number of records and their digest of each command, as the page has them."""
        return {unescape(name): (count, digest) for name, count, digest in _COMMAND.findall(self.text)}

    @property
    def sealed(self) -> dict[str, str]:
        """The digests of manifests by folder, as the page has them."""
        return {unescape(name): digest for name, digest in _FOLDER.findall(self.text)}


def page_points(
    name: str, text: str, records: Sequence[Record], manifests: Mapping[str, str] | None = None
) -> Iterator[Point]:
    """Yield what comes of a report beside these records, by the points of an item. manifests: digests of the manifests
    there by folder; None: unknown."""
    audit = _AUDIT.search(text)
    if audit:
        text = _AUDIT_ENTRY.sub("", _AUDIT.sub("", text, count=1), count=1)
    title = _TITLE.search(text)
    page = _Page(name, text, unescape(title[1]) if title else "", audit[0] if audit else "")
    if _HISTORY in text and 'id="figures"' not in text:
        yield Point(Outcome.NOT_COMPARABLE, f"{name}: a history; not looked at")
        return
    if not (page.commands or page.sealed or 'id="figures"' in text or PREFIX in text):
        yield Point(Outcome.NOT_COMPARABLE, f"{name}: not a report; not looked at")
        return
    members, others, odd = _members(page, records)
    odd += _other_manifests(page, manifests or {})
    if odd:
        yield verified_or([f"{name}: {one}" for one in odd], "", len(odd), "names differ", Ground.RECOMPUTED)
    if others or not members:
        says = f"{name}: a report of other records, too: of the command {listed(others)}; not drawn again"
        yield Point(Outcome.NOT_COMPARABLE, says)
        return
    yield from _said_besides(page)
    yield from _figures(page, members)
    if drawn_by() in page.text:
        yield _drawn_again(page, members)
    else:
        drawn = "another version drew it" if PREFIX in page.text else "it does not say what code drew it"
        says = f"{name}: {drawn}; its texts, tables and pictures are not compared, symlab html draws them again"
        yield Point(Outcome.NOT_COMPARABLE, says)


def _members(page: _Page, records: Sequence[Record]) -> tuple[list[Record], list[str], list[str]]:
    """Return the records that a page names (all, if it names none), the commands that are not here, and a sentence
    for each command that has other records here."""
    commands: dict[str, list[Record]] = {}
    for record in records:
        commands.setdefault(record.request.command or "(no name)", []).append(record)
    named = page.commands
    if not named:
        return list(records), [], []
    odd = []
    for command, (count, digest) in named.items():
        own = commands.get(command)
        if own is not None and (count, digest) != (f"{len(own):,}", bundle.digest(own)):
            odd.append(f"it is of {count} records of {command} with the digest {digest[:19]}.., here are {len(own):,} "
                       f"with {bundle.digest(own)[:19]}..: drawn from others, or changed")  # fmt: skip
    members = [record for record in records if (record.request.command or "(no name)") in named]
    return members, [command for command in named if command not in commands], odd


def _other_manifests(page: _Page, manifests: Mapping[str, str]) -> list[str]:
    return [
        f"the manifest of {folder} has the digest {manifests[folder][:19]}.., not {digest[:19]}.."
        for folder, digest in page.sealed.items()
        if folder in manifests and manifests[folder] != digest
    ]


def _said_besides(page: _Page) -> Iterator[Point]:
    """Yield what a page says that is not from records: a title, and an audit's part."""
    if page.title:
        yield Point(
            Outcome.NOT_COMPARABLE, f"{page.name}: its title was given, and no record has it: '{page.title[:80]}'"
        )
    if page.audit:
        said = f"'{_seen(page.audit)}'"
        yield Point(
            Outcome.NOT_COMPARABLE, f"{page.name}: has what an audit said when it was drawn: {said}; not compared"
        )


def _figures(page: _Page, members: Sequence[Record]) -> Iterator[Point]:
    """Compare the figures embedded for programs."""
    from reports.html import figures_of

    try:
        embedded = figures_of(page.text)
    except ValueError as error:
        yield verified_or([f"{page.name}: {error}"], "", 1, "figures", Ground.RECOMPUTED)
        return
    made = json.loads(json.dumps(table.values(members)))
    cases = [Counter(tuple(str(line.get(key)) for key in _CASE) for line in lines) for lines in (embedded, made)]
    if cases[0] != cases[1]:
        more = [" ".join(one) for one in (cases[0] - cases[1]) + (cases[1] - cases[0])]
        odd = [f"{page.name}: the embedded figures are of other cases: {listed(more)}"]
        yield verified_or(odd, "", len(made), "cases", Ground.RECOMPUTED)
        return
    of = f"{counted(sum(map(len, embedded)), 'figure')} of {counted(len(embedded), 'case')}"
    good = f"{page.name}: {of} computed again, those embedded for programs; 0 differ"
    sides = [{_which(line): line for line in lines} for lines in (embedded, made)]
    if embedded == made:
        sides = [{}, {}]
    elif set(sides[0]) != set(sides[1]) or len(sides[0]) != len(embedded):
        says = f"{page.name}: the embedded figures name their cases otherwise than today's; not compared"
        yield Point(Outcome.NOT_COMPARABLE, says)
        return
    odd = [
        f"{page.name}, {line['algorithm']} {line['size_bytes']} B: {name} is {line.get(name)}, the samples give {value}"
        for key, line in sides[0].items()
        for name, value in sides[1][key].items()
        if line.get(name) != value
    ]
    yield verified_or(odd, good, sum(map(len, embedded)), "figures differ", Ground.RECOMPUTED)


def _which(line: Mapping[str, Any]) -> str:
    """Return a line's identifying values as one text."""
    return json.dumps({key: value for key, value in line.items() if key in NAMES}, sort_keys=True)


def _drawn_again(page: _Page, members: Sequence[Record]) -> Point:
    """Compare a page that today's code drew: all of it, but for an audit's part and the embedded figures."""
    from reports.html import page as draw
    from reports.html.pictures import MOST, MOST_TRACKED

    asked = _PICTURES.search(page.text)
    most = MOST_TRACKED if asked and int(asked[1]) == MOST_TRACKED else MOST
    again = draw(members, page.title, most_pictures=most, sealed=page.sealed)
    lines, wanted = (_FIGURES.sub("", SVG.sub("<svg>", text)).splitlines() for text in (page.text, again))
    pictures, drawn = SVG.findall(page.text), SVG.findall(again)
    odd = [] if lines == wanted else [f"{page.name}: {one}" for one in _other_lines(lines, wanted)]
    if len(pictures) != len(drawn):
        odd.append(f"{page.name} has {counted(len(pictures), 'picture')}, these records give {len(drawn)}")
    for number, (one, other) in enumerate(zip(pictures, drawn, strict=False), start=1):
        distance = 0.0 if one == other else far_apart(one, other)
        if distance is None:
            odd.append(f"picture {number} of {page.name} has other lines, texts or colours than these records draw")
        elif distance > SAME_POINTS:
            odd.append(f"picture {number} of {page.name} is {distance:.1f} points from what these records draw")
    says = f"{counted(len(lines), 'line')} and {counted(len(pictures), 'picture')}"
    good = f"{page.name}: drawn again by the same code: {says}; 0 differ"
    return verified_or(odd, good, len(lines), "lines and pictures differ", Ground.RECOMPUTED)


def _other_lines(lines: Sequence[str], wanted: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each line that is more, or where none is, for what is missing or moved."""
    more, less = Counter(lines) - Counter(wanted), Counter(wanted) - Counter(lines)
    for line in more.elements():
        yield f"it says '{_seen(line)}', which these records do not give"
    if not more:
        gone = [f"'{_seen(line)}'" for line in less.elements()]
        yield f"it lacks {listed(gone)}" if gone else "its lines are in another order"


def _seen(line: str) -> str:
    """Return what is seen of a line of a page, the line itself if that is nothing."""
    return (" ".join(unescape(_TAG.sub(" ", line)).split()) or line.strip())[:80]
