"""Item "figures": reports, tables and figures beside the records, which are made again from them and compared.

A page and a picture name the code that drew them. Today's code draws a page again, whose lines and pictures are
compared; of another version's page only names, digests and the figures embedded for programs are. Other files are named
as not looked at, but for those that commands write.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any

from cases.record.reading import contents, leaves
from cases.record.record import WHOLE_SINCE, Record
from reports.drawn_by import PREFIX, drawn_by
from reports.record import bundle
from reports.record.seal import MANIFEST, digests_under
from reports.record.writing import SIGNATURES, SIGNED
from reports.table import table
from reports.table.text import counted
from symlab.evidence import published
from symlab.evidence.audit.items import Named, Outcome, Point, contradicted, listed, recomputed
from symlab.evidence.audit.material import Material

MOST_SHOWN_BYTES = 1 << 26
"""Maximum size of a page or a picture that is read: 10,000 records give 30 MB."""

SAME_POINTS, POINTS_APART = 0.01, 0.75
"""Maximum distance, in points of 1/72 inch, of two drawings of one curve: by the same code on two machines, and by two
versions of matplotlib."""

_PAGES = (".html", ".htm", ".xhtml")
_TABLES = (".md", ".csv", ".tsv", ".txt")

_OF_COMMANDS = (
    *("*.json", "*.json.xz", "configuration.yaml", "[0-9][0-9]*-configuration.yaml", "source*.diff"),
    *(f"*{bundle.SUFFIX}", MANIFEST, SIGNED, SIGNATURES, ".*.tmp", "*.set_aside"),
)
"""Names of files that commands write, beside what people see, PTX and users' code."""

_HEADS = ("size ", "algorithm ", "world ")
"""How the heads of plain tables begin."""

_AUDIT = re.compile(r'<section id="audit".*?</section>\n?', re.DOTALL)
_AUDIT_ENTRY = re.compile(r'<li><a href="#audit">.*?</li>\n?', re.DOTALL)
_FIGURES = re.compile(r'<script type="application/json" id="figures">.*?</script>', re.DOTALL)
_PICTURES = re.compile(r"this page has ([0-9]{1,4}) axes at most")
_TITLE = re.compile('<p class="kicker">symlab report: (.*?)</p>')
_COMMAND = re.compile('<tr><th scope="row">([^<]*)</th><td[^>]*>([0-9,]+)</td><td[^>]*>(sha256:[0-9a-f]{64})</td></tr>')
_FOLDER = re.compile('<tr><th scope="row">([^<]*)</th><td[^>]*>(sha256:[0-9a-f]{64})</td></tr>')
_TAG = re.compile(r"<[^>]*>")
_SVG = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_SHAPE = re.compile(r'\s(?:d|x|y|points|transform|width|height|viewBox)="([^"]*)"')
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAMED = re.compile(r'(\b(?:id|class)="|href="#|url\(#)([^")]*)')


def figures(material: Material) -> Iterator[Point]:
    """What lies beside the records, and whether predictions are there just where they were asked for; the worker makes
    predictions again."""
    for place in material.places:
        machine = _published(place)
        if place.is_dir():
            records = material.records if len(material.places) == 1 else bundle.read([place])
            yield from beside(place, records, is_published=machine is not None)
        if machine is not None:
            yield from _published_again(*machine)
    yield from contradicted(text for record in material.timed for text in _predictions(record))


def _predictions(record: Record) -> Iterator[str]:
    timing = (record.request.configuration or {}).get("timing")
    is_asked = isinstance(timing, dict) and timing.get("predict") is True
    if is_asked and record.prediction is None:
        yield f"{record.id}: the configuration asked for predictions, and this timing has none, nor a reason"
    if record.schema >= WHOLE_SINCE and record.prediction is not None and not is_asked:
        yield f"{record.id}: it has a prediction, and the configuration asked for none"


def _published(place: Path) -> tuple[Path, str] | None:
    """Return the project's folder and the machine's name if a place is a folder of reports/published/, else None."""
    place = place.resolve()
    root = place.parents[2] if len(place.parents) > 2 else None
    if root is None or place.parent != root / published.PLACE or not (root / "README.md").is_file():
        return None
    return (root, place.name) if any(place.glob(f"*{bundle.SUFFIX}")) else None


def _published_again(root: Path, machine: str) -> Iterator[Point]:
    """Compare a published machine's texts with those that its records give, and draw its figure again."""
    records = bundle.read([root / published.PLACE / machine])
    texts = published.machine_texts(root, machine, records)
    odd = [(name, "it is not what the records give") for name, (there, wanted) in texts.items() if there != wanted]
    yield from recomputed(len(texts) - len(odd), odd, (), "texts made again from the samples that are stated")
    pictures = published.figures(root, {machine: records})
    outdated = published.outdated(pictures)
    yield from contradicted(f"{path.name} was not drawn from these records" for path in outdated)
    for path, some in pictures.items():
        yield from _picture(path.name, text_of(path), some) if path not in outdated else ()


def beside(place: Path, records: Sequence[Record], is_published: bool = False) -> Iterator[Point]:
    """Yield what comes of all that people see in a folder of records and below, and of the report beside it that has
    its name. is_published: the tables and figures there are compared elsewhere."""
    from reports.html.page_path import page_beside

    named = page_beside(place.resolve())
    paths = [*([named] if named.is_file() else []), *_files(place, records)]
    manifests = digests_under([place]) if any(path.suffix.lower() in _PAGES for path in paths) else {}
    others = []
    for path in paths:
        suffix = path.suffix.lower()
        if suffix not in (*_PAGES, *_TABLES, ".svg"):
            others.append(path.relative_to(place).as_posix())
        elif suffix in _PAGES:
            yield from page(path.name, text_of(path), records, manifests)
        elif not is_published:
            yield from (_picture if suffix == ".svg" else _table)(path.name, text_of(path), records)
    if others:
        says = f"{counted(len(others), 'file')} that symlab does not write, not looked at: {listed(others)}"
        yield Point(Outcome.NOT_COMPARABLE, says)


def _files(place: Path, records: Sequence[Record]) -> Iterator[Path]:
    """Yield the files of a folder and below, without those that commands write."""
    ptx = {f"{one.kernel.ptx_digest.removeprefix('sha256:')}.ptx" for one in records if one.kernel}
    brought = {id(one.request.brought): one.request.brought for one in records if one.request.brought}
    kept = {name for entry in brought.values() for name in _kept(entry)}
    for root, folders, names in os.walk(place):
        folders.sort()
        for path in (Path(root) / name for name in sorted(names)):
            is_odd = not path.is_file() or (path.is_symlink() and leaves(path, place))
            is_known = "/".join(path.parts[-3:]) in kept or (path.parent.name == "ptx" and path.name in ptx)
            if not (is_odd or is_known or any(fnmatch.fnmatchcase(path.name, pattern) for pattern in _OF_COMMANDS)):
                yield path


def _kept(value: object) -> Iterator[str]:
    """Yield the names of kept texts in what a request says of brought code."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from [item] if key == "kept" and isinstance(item, str) else _kept(item)
    elif isinstance(value, list):
        for item in value:
            yield from _kept(item)


def text_of(path: Path) -> str:
    """Return the text of a page, a table or a picture. Raises ValueError if it can't be read."""
    return contents(path, MOST_SHOWN_BYTES).decode("utf-8", "replace")


# Tables.

Rows = Counter[tuple[str, str]]
"""Rows of tables, each with the head of its table."""


def _table(name: str, text: str, records: Sequence[Record]) -> Iterator[Point]:
    """Yield what comes of a table that is a file, compared with the form of ours that it is nearest to."""
    suffix = Path(name).suffix.lower()
    shown, said = _rows(text, suffix)
    forms = [_rows(form, suffix) for form in _forms(suffix, records)]
    made, wanted = max(forms, key=lambda form: (sum((shown & form[0]).values()), -sum((form[0] - shown).values())))
    heads = {head for head, _ in made}
    if not heads & {head for head, _ in shown}:
        yield Point(Outcome.NOT_COMPARABLE, f"{name}: no table of it is one that these records give")
        return
    more, less = shown - made, made - shown
    odd: Named = [(name, f"'{row[:60]}' is no row that the records give") for head, row in more if head in heads]
    numbers = {re.sub("[0-9]+", "#", line) for line in wanted - said}
    odd = [*odd, *((name, f"it says '{one[:60]}'") for one in said - wanted if re.sub("[0-9]+", "#", one) in numbers)]
    if not odd and not wanted - said:  # a form of ours with all that it says, and no excerpt
        odd = [(name, f"it lacks the row '{row[:60]}'") for _, row in less]
    if not odd and not more and not less and list(shown) != list(made):
        odd = [(name, "its rows are in another order")]
    yield from recomputed(sum((shown & made).values()), odd, (), f"rows of {name} made again")
    besides = [row for head, row in more if head not in heads] + [one for one in said - wanted]
    besides += [f"without {row}" for _, row in less]
    if besides and not odd:
        says = f"{name}: {counted(len(besides), 'part')} that these records do not give so"
        yield Point(Outcome.NOT_COMPARABLE, f"{says}: {listed(f'{one[:60]!r}' for one in besides)}")


def _rows(text: str, suffix: str) -> tuple[Rows, Counter[str]]:
    """Return the rows of the tables of a text, and its other lines, with single blanks."""
    rows, others, head = Rows(), Counter[str](), ""
    for line in text.splitlines():
        words = " ".join(line.split())
        if suffix == ".md":
            is_row = words.startswith("|")
        else:
            is_row = bool(words) and (suffix != ".txt" or bool(head) or words.startswith(_HEADS))
        head = (words if suffix != ".csv" and words.startswith(_HEADS) else head or words) if is_row else ""
        if is_row:
            rows[head, words] += 1
        elif words:
            others[words] += 1
    return rows, others


def _forms(suffix: str, records: Sequence[Record]) -> Iterator[str]:
    """Yield the texts that records give in a form: long and wide, and as MLflow has it, with the errors over ranks."""
    from reports.numerics.study import markdown, studied

    if suffix == ".md":
        long = table.markdown(records)
        curves = studied(records)
        yield from [long, table.markdown(records, is_wide=True)]
        yield from ["\n".join([long, markdown(curves)]), markdown(curves)] if curves else []
    elif suffix == ".txt":
        yield from [table.plain(records), table.plain(records, is_wide=True)]
    else:
        yield table.csv_text(records)


# Pictures.


def far_apart(shown: str, made: str) -> float | None:
    """Return the largest distance of two drawings' shapes, in points; None if anything but numbers of shapes and ids
    differs."""
    sides = [[number for shape in _SHAPE.findall(svg) for number in _NUMBER.findall(shape)] for svg in (shown, made)]
    if _outline(shown) != _outline(made) or len(sides[0]) != len(sides[1]):
        return None
    pairs = zip(*sides, strict=True)
    return max((abs(float(one) - float(other)) for one, other in pairs), default=0.0)


def _outline(svg: str) -> str:
    """Return a drawing without the numbers of its shapes and what drew it, with ids in order of appearance."""
    names: dict[str, str] = {}
    text = _SHAPE.sub(lambda match: _NUMBER.sub("#", match[0]), re.sub(f"{PREFIX}{_DIGEST.pattern}", "", svg))
    return _NAMED.sub(lambda match: f"{match[1]}{names.setdefault(match[2], str(len(names)))}", text)


def _picture(name: str, text: str, records: Sequence[Record]) -> Iterator[Point]:
    """Yield what comes of a figure when it is drawn again from the records that it names: all of these, or those of one
    of their commands."""
    from reports.figures import KINDS, drawing, study_drawing
    from reports.numerics.study import studied

    named = _DIGEST.findall(text)
    sets = [records, *_by_command(records).values()]
    drawn = next((some for some in sets if named and bundle.digest(some) in named), None)
    if drawn is None:
        yield Point(Outcome.NOT_COMPARABLE, f"{name}: drawn from other records than those beside it")
        return
    made = []
    for kind in KINDS:
        try:
            made.append(drawing(drawn, "svg", kind).decode("utf-8"))
        except ValueError:  # these records give no such figure
            continue
    if curves := studied(drawn, least=2):
        made.append(study_drawing(curves, drawn, "svg").decode("utf-8"))
    distances = [one for svg in made if (one := far_apart(text, svg)) is not None]
    if distances or drawn_by() in text:
        how = f"it is {min(distances):.1f} points from" if distances else "it has other lines, texts or colours than"
        odd = [] if distances and min(distances) <= POINTS_APART else [(name, f"{how} what these records draw")]
        yield from recomputed(1 - len(odd), odd, (), f"pictures drawn again, {name}")
    else:
        says = f"{name}: another version's, of other shapes, texts or colours than are drawn today; not compared"
        yield Point(Outcome.NOT_COMPARABLE, says)


def _by_command(records: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.request.command or "(no name)", []).append(record)
    return found


# Pages.


def page(name: str, text: str, records: Sequence[Record], manifests: Mapping[str, str]) -> Iterator[Point]:
    """Yield what comes of a report beside these records. manifests: digests of the manifests there by folder."""
    audit, title = _AUDIT.search(text), _TITLE.search(text)
    if audit:
        text = _AUDIT_ENTRY.sub("", _AUDIT.sub("", text, count=1), count=1)
    named = {unescape(one): (count, digest) for one, count, digest in _COMMAND.findall(text)}
    sealed = {unescape(folder): digest for folder, digest in _FOLDER.findall(text)}
    is_report = named or sealed or 'id="figures"' in text or (PREFIX in text and "symlab history" not in text)
    if not is_report:
        yield Point(Outcome.NOT_COMPARABLE, f"{name}: not a report; not looked at")
        return
    here = _by_command(records)
    odd = [
        f"it is of {count} records of {command} with the digest {digest[:19]}.., which are others here"
        for command, (count, digest) in named.items()
        if command in here and (count, digest) != (f"{len(here[command]):,}", bundle.digest(here[command]))
    ]
    odd += [
        f"the manifest of {folder} has the digest {manifests[folder][:19]}.., not {digest[:19]}.."
        for folder, digest in sealed.items()
        if manifests.get(folder, digest) != digest
    ]
    yield from contradicted(odd, f"{name}: ")
    members = [one for one in records if not named or (one.request.command or "(no name)") in named]
    if others := [command for command in named if command not in here]:
        says = f"{name}: a report of other records, too: of the command {listed(others)}; not drawn again"
        yield Point(Outcome.NOT_COMPARABLE, says)
        return
    if title:
        says = f"{name}: its title was given, and no record has it: '{unescape(title[1])[:80]}'"
        yield Point(Outcome.NOT_COMPARABLE, says)
    if audit:
        says = f"{name}: has what an audit said when it was drawn: '{_seen(audit[0])}'; not compared"
        yield Point(Outcome.NOT_COMPARABLE, says)
    yield from _embedded(name, text, members)
    if drawn_by() in text:
        yield from _drawn_again(name, text, unescape(title[1]) if title else "", members, sealed)
    else:
        says = "another version drew it; its texts, tables and pictures are not compared, symlab html draws them again"
        yield Point(Outcome.NOT_COMPARABLE, f"{name}: {says}")


_CASE = ("op", "algorithm", "dtype", "size_bytes", "world_size")
"""Keys of a line of figures that all versions name alike."""


def _embedded(name: str, text: str, members: Sequence[Record]) -> Iterator[Point]:
    """Compare the figures embedded for programs, case by case: those that both have, by their names."""
    from reports.html import figures_of

    made: list[dict[str, Any]] = json.loads(json.dumps(table.values(members)))
    try:
        lines = figures_of(text)
    except ValueError as error:
        yield from recomputed(0, [(name, str(error))], (), "figures embedded for programs")
        return
    cases, wanted = (sorted([str(one.get(key)) for key in _CASE] for one in some) for some in (lines, made))
    if cases != wanted:
        yield from recomputed(0, [(name, "the embedded figures are of other cases")], (), "figures")
        return
    odd = []
    left: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for one in made:
        left.setdefault(tuple(str(one.get(key)) for key in _CASE), []).append(one)
    for line in lines:
        alike = left[tuple(str(line.get(key)) for key in _CASE)]
        nearest = max(alike, key=lambda one: sum(one.get(key) == value for key, value in line.items()))
        alike.remove(nearest)
        odd += [
            (f"{name}, {line['algorithm']} {line['size_bytes']} B", f"{key} is {line[key]}, the samples give {value}")
            for key, value in nearest.items()
            if key in line and line[key] != value
        ]
    yield from recomputed(len(lines) - len(odd), odd, (), f"lines of figures embedded in {name}, computed again")


def _drawn_again(
    name: str, text: str, title: str, members: Sequence[Record], sealed: Mapping[str, str]
) -> Iterator[Point]:
    """Compare a page that today's code drew: all of it, but for an audit's part and the embedded figures."""
    from reports.html import page as draw
    from reports.html.pictures import MOST, MOST_TRACKED

    asked = _PICTURES.search(text)
    most = MOST_TRACKED if asked and int(asked[1]) == MOST_TRACKED else MOST
    again = draw(members, title, most_pictures=most, sealed=sealed)
    lines, wanted = (_FIGURES.sub("", _SVG.sub("<svg>", one)).splitlines() for one in (text, again))
    odd = [] if lines == wanted else list(_other_lines(lines, wanted))
    pictures, drawn = _SVG.findall(text), _SVG.findall(again)
    if len(pictures) != len(drawn):
        odd.append(f"it has {counted(len(pictures), 'picture')}, these records give {len(drawn)}")
    for number, (one, other) in enumerate(zip(pictures, drawn, strict=False), start=1):
        distance = 0.0 if one == other else far_apart(one, other)
        if distance is None:
            odd.append(f"picture {number} has other lines, texts or colours than these records draw")
        elif distance > SAME_POINTS:
            odd.append(f"picture {number} is {distance:.1f} points from what these records draw")
    total = len(lines) + len(pictures)
    what = f"lines and pictures of {name}, drawn again by the same code"
    yield from recomputed(max(total - len(odd), 0), [(name, one) for one in odd], (), what)


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
