"""What is published: records of real machines, committed as bundles, and what is made from them.

reports/published/<machine>/ holds bundles and README.md, which `symlab publish` or a person wrote: the machine and the
commands. A machine measured on another day has a further folder, <machine>-<day>; the first one stays as it is.

From the bundles `python -m reports published` makes table.md, one figure (FEATURED_OP in FEATURED_DTYPE: time and bus
bandwidth over bytes), the machine's section of reports/published/README.md (between `<!-- published: <machine> -->`
and `<!-- end -->`; a machine without these lines gets them at the page's end), three rows of it in the project's README
if that has a place for them (between `<!-- excerpt: <machine> -->` and `<!-- end -->`), and the manifest's digest
between `<!-- manifest -->` and `<!-- end -->` there. `symlab figure` draws other figures on demand, which are not
committed. A manifest, written last, holds the digest of every file of reports/published/. --check names the files that
differ from what the bundles give or from the manifest. The sections of a machine without bundles are empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from cases.gathered import gathered
from cases.record.record import Record
from reports.record.bundle import PUBLISHED, SUFFIX, digest, published_sets, read
from reports.record.seal import MANIFEST, SIGNATURE, broken, digest_of, seal, sealed
from reports.record.writing import write_file
from reports.table import sheet, table, timed_table
from reports.table.compare import Row, Section, device_text, rows, setup_text, split
from reports.table.sheet import Line, Sheet
from reports.table.text import counted, size_text
from reports.table.timed_table import time_text

FEATURED_DTYPE, FEATURED_OP = "bfloat16", "all_reduce"
"""READMEs and the figure show this dtype and this op, if present, at the largest world size; table.md shows all."""

PLACE = PUBLISHED
FIGURE = "figure.svg"
"""The one figure of a machine."""

_MADE_BY = "<!-- made from the bundles here by `python -m reports published`: do not edit -->"
_SECTION = re.compile(r"(<!-- published: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_EXCERPT = re.compile(r"(<!-- excerpt: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_DIGEST = re.compile(r"(<!-- manifest -->)(.*?)(<!-- end -->)")
_EXCERPT_COLUMNS = ("size", "ours", "ours: time (busbw)", "library", "library: time (busbw)", "ours / library")
_EXCERPT_CAPTIONS = ("in place:", "libraries:", "set in the environment:")
"""How the captions begin that belong to three rows of a table, too: what they compare."""

_EXCERPT_NUMERIC = frozenset({"size", "ours: time (busbw)", "library: time (busbw)", "ours / library"})
_IDENTIFIER = re.compile(r"sha256:[0-9a-f]{64}")
_DATED = re.compile(r"(?P<machine>.+)-(?P<day>\d{4}-\d\d-\d\d)")


_Make = Callable[[str, dict[str, list[Record]]], str]
"""What makes a machine's section of a README, from the machine's name and the records of all machines."""


def machines(root: Path) -> dict[str, list[Record]]:
    """Return all records of each machine that has bundles, by its name.

    Raises ValueError for a bundle that can't be read, a machine without README.md, and bundles below a machine's
    folder, where no machine is looked for.
    """
    folders = [root / PLACE / name for name in published_sets(root)]
    if deeper := sorted({path.parent for path in (root / PLACE).glob(f"*/*/**/*{SUFFIX}")}):
        raise ValueError(
            f"{deeper[0]}: a set lies below another folder; a machine measured again lies beside its first set, as "
            f"{PLACE.as_posix()}/MACHINE-DAY, such as {PLACE.as_posix()}/h200-x2-2026-11-24"
        )
    for folder in folders:
        if not _read(folder / "README.md").strip():
            raise ValueError(f"{folder / 'README.md'}: missing; it says by which commands the bundles were made")
    return {folder.name: read(sorted(folder.glob(f"*{SUFFIX}"))) for folder in folders}


def machine_and_day(name: str) -> tuple[str, str]:
    """Return a folder's machine, and the day that its name ends with: "" of a machine's first set."""
    found = _DATED.fullmatch(name)
    return (found["machine"], found["day"]) if found else (name, "")


def refresh(root: Path, is_check: bool = False) -> dict[str, list[Record]]:
    """Write each file that differs from what the bundles give, then the manifest, and print the names. Returns the
    records of all machines, by name.

    With is_check, write nothing and raise ValueError naming the files. Raises ValueError if root has no README.md, so
    that it can't be the project's folder, and for a bundle that is not as the manifest has it: records never change,
    and what is made from others must not be sealed. Texts are compared exactly. A figure is up to date if it names the
    digest of its records, because its bytes depend on the version of matplotlib.
    """
    if not (root / "README.md").is_file():
        raise ValueError(f"{root}: no README.md here; --root is the project's folder")
    _refuse_other_records(root)
    published = machines(root)
    wanted = texts(root, published)
    late_texts = [path for path, text in wanted.items() if _read(path) != text]
    late_figures = outdated(figures(root, published))
    if is_check:
        _refuse_changes(root, [*late_texts, *late_figures])
        return published
    made = {path: wanted[path].encode() for path in late_texts}
    if late_figures:
        from reports.figures import picture

        made |= {path: picture(records) for path, records in late_figures.items()}
    for path, data in made.items():
        write_file(path, data)
        print(f"{path.relative_to(root)}: written")
    reseal(root)
    says = f", manifest {digest_of(root / PLACE)}" if (root / PLACE / MANIFEST).is_file() else ""
    print(f"published machines: {len(published)}, files written: {len(made)}{says}")
    return published


def reseal(root: Path) -> None:
    """Write the manifest of everything published, and its digest in the project's README, and print what changed."""
    if (root / PLACE).is_dir() and not _is_sealed(root / PLACE):
        print(f"{seal(root / PLACE).relative_to(root)}: written")
        signature = root / PLACE / SIGNATURE
        if signature.exists():
            signature.unlink()
            print(f"{SIGNATURE}: of other content, and removed; sign again: symlab sign {PLACE.as_posix()} --key KEY")
    readme, text = root / "README.md", _read(root / "README.md")
    if (filled := _with_digest(root, text)) != text:
        write_file(readme, filled.encode())
        print("README.md: the manifest's digest written")


def _with_digest(root: Path, text: str) -> str:
    """Return the project's README with the digest of the manifest of everything published, where it has a place."""
    digest = f"`{digest_of(root / PLACE)}`" if (root / PLACE / MANIFEST).is_file() else "none"
    return _DIGEST.sub(lambda match: f"{match[1]}{digest}{match[3]}", text)


def _is_sealed(folder: Path) -> bool:
    path = folder / MANIFEST
    return path.is_file() and path.read_bytes() == sealed(folder)


def changes(root: Path) -> list[str]:
    """Return a sentence for each published file that differs from the manifest. ValueError without a manifest."""
    folder = root / PLACE
    return [f"{PLACE.as_posix()}/{fault}" for fault in broken(folder)] if folder.is_dir() else []


def _refuse_other_records(root: Path) -> None:
    """Raise ValueError if a bundle that the manifest lists was changed or is gone. New ones are in no manifest yet."""
    faults = changes(root) if (root / PLACE / MANIFEST).is_file() else []
    if odd := [fault for fault in faults if f"{SUFFIX}: " in fault and not fault.endswith(f"not in {MANIFEST}")]:
        place = PLACE.as_posix()
        raise ValueError(
            f"not as the manifest has it: {', '.join(odd)}; records never change: put them back (git restore {place}), "
            f"or, to seal what is there after all, remove {place}/{MANIFEST} and run python -m reports published"
        )


def _refuse_changes(root: Path, late: Sequence[Path]) -> None:
    """Raise ValueError if a file differs from what the bundles give (late) or from the manifest."""
    names = [path.relative_to(root).as_posix() for path in late]
    text = _read(root / "README.md")
    if "README.md" not in names and _with_digest(root, text) != text:
        names.append("README.md")
    parts = [f"not as the bundles have it: {', '.join(names)}"] if names else []
    if changed := [fault for fault in changes(root) if fault.partition(":")[0] not in names]:
        parts.append(f"not as the manifest has it: {', '.join(changed)}")
    if parts:
        first = f"if git diff {PLACE.as_posix()} shows what you meant, " if changed else ""
        raise ValueError(f"{'; '.join(parts)}; {first}run python -m reports published")


def outdated(wanted: Mapping[Path, list[Record]]) -> dict[Path, list[Record]]:
    """Return the figures that are missing or don't name the digest of the records they should show."""
    return {path: records for path, records in wanted.items() if not _is_of(path, records)}


def texts(root: Path, published: dict[str, list[Record]]) -> dict[Path, str]:
    """Return the texts that the bundles give, by path: each machine's table, and both READMEs with their sections."""
    found = {root / PLACE / name / "table.md": machine_table(name, records) for name, records in published.items()}
    for readme, place, make in _readmes(root):
        text = _read(readme)
        if place is _SECTION:
            text += "".join(_place(name, published) for name in _without_place(text, published))
        if place.search(text):
            found[readme] = _filled(text, place, make, published)
    return found


def _without_place(text: str, published: Iterable[str]) -> list[str]:
    """Return the machines without a section in a README's text."""
    return sorted(set(published) - {match[2] for match in _SECTION.finditer(text)})


def _place(name: str, published: Mapping[str, Sequence[Record]]) -> str:
    """Return an empty section for a machine, with its heading, such as "2 x NVIDIA H200, 2026-11-24"."""
    section = featured(published[name])
    first = next(record for record in section.records if record.timing is not None)
    title = ", ".join(filter(None, (f"{first.case.world_size} x {device_text(first)}", machine_and_day(name)[1])))
    return f"\n## {title}\n\n<!-- published: {name} -->\n<!-- end -->\n"


def _filled(text: str, place: re.Pattern[str], make: _Make, published: dict[str, list[Record]]) -> str:
    """Return a README's text with each of its places filled."""
    return place.sub(lambda match: f"{match[1]}{make(match[2], published)}{match[4]}", text)


def _readmes(root: Path) -> tuple[tuple[Path, re.Pattern[str], _Make], ...]:
    """Return each README that has sections made here: its path, the pattern of a section, and what makes its text."""
    return (root / PLACE / "README.md", _SECTION, _section), (root / "README.md", _EXCERPT, _excerpt)


def figures(root: Path, published: dict[str, list[Record]]) -> dict[Path, list[Record]]:
    """Return the figure of each machine, by path, with the records that it shows."""
    return {root / PLACE / name / FIGURE: list(featured(records).records) for name, records in published.items()}


def featured(records: Sequence[Record]) -> Section:
    """Return the section that READMEs show. Raises ValueError if no record has a timing."""
    sections, _ = split(records)
    if not sections:
        raise ValueError("what is published has no timing; only real hardware gives one")

    def rank(section: Section) -> tuple[bool, int, bool]:
        case = section.records[0].case
        return case.dtype == FEATURED_DTYPE, case.world_size, case.op == FEATURED_OP

    return max(sections, key=rank)


def machine_table(name: str, records: Sequence[Record]) -> str:
    """Return the text of a machine's table.md: every op, dtype and size of its records."""
    hint = f"Percentiles, bandwidths and all else: `symlab table {PLACE.as_posix()}/{name}`."
    return f"{_MADE_BY}\n\n# {name}\n\n{hint}\n\n{table.markdown(records, is_wide=True)}"


def _section(name: str, published: dict[str, list[Record]]) -> str:
    """Return a machine's section of reports/published/README.md, empty if it has no bundles."""
    if name not in published:
        return ""
    own, _ = machine_and_day(name)
    others = [one for one in sorted(published) if one != name and machine_and_day(one)[0] == own]
    links = ", ".join(f"[{one}]({one}/table.md)" for one in others)
    side = f"On other days: {links}; all of them: `symlab history {PLACE.as_posix()}/{own}*`.\n\n" if others else ""
    return (
        f"\n{_picture(name)}\n\nAll sizes, ops, dtypes and world sizes: [{name}/table.md]({name}/table.md); "
        f"the commands that made them: [{name}/README.md]({name}/README.md).\n\n{side}"
    )


def _excerpt(name: str, published: dict[str, list[Record]]) -> str:
    """Return a machine's section of the project's README: its figure and three rows of its table; empty if it has no
    bundles."""
    if name not in published:
        return ""
    section = featured(published[name])
    groups = gathered((row.size_bytes, row) for row in rows(section) if row.timings)
    sizes = sorted(groups)
    shown = dict.fromkeys((sizes[0], sizes[len(sizes) // 2], sizes[-1]))
    lines = tuple(_excerpt_line(groups[size]) for size in shown)
    first = next(record for record in section.records if record.timing is not None)
    worlds = {len(row.timings) for members in groups.values() for row in members}
    every = timed_table.captions([section], is_wide=True)
    captions = [
        f"time: microseconds a call; busbw: GB/s, as in nccl-tests; {setup_text(first)}; each the median over "
        f"{counted(max(worlds), 'world')} of the median over samples of the maximum over ranks",
        *(one.partition("; out of place:")[0] for one in every if one.startswith(_EXCERPT_CAPTIONS)),
    ]
    heading = f"{section.heading}, {device_text(first)}"
    made = sheet.markdown([Sheet(heading, _EXCERPT_COLUMNS, (lines,), _EXCERPT_NUMERIC)], captions)
    return f"\n{_picture(f'{PLACE.as_posix()}/{name}')}\n\n{made}\n\n"


def _picture(folder: str) -> str:
    return f"![time and bus bandwidth over bytes]({folder}/{FIGURE})"


def _excerpt_line(contestants: Sequence[Row]) -> Line:
    """Return the line of one size: the fastest of our algorithms, the fastest library, and their ratio."""
    cells = {"size": size_text(contestants[0].size_bytes)}
    for column, is_ours in (("ours", True), ("library", False)):
        timed = [row for row in contestants if row.is_ours == is_ours]
        best = min(timed, key=lambda row: row.figure("median_us") or 0.0, default=None)
        cells[column] = best.algorithm if best else "-"
        cells[f"{column}: time (busbw)"] = _time_text(best) if best else "-"
    ratio = next((row.ratio for row in contestants if row.ratio is not None), None)
    return Line(cells | {"ours / library": "-" if ratio is None else f"{ratio:.2f}"})


def _time_text(row: Row) -> str:
    time, bandwidth = row.figure("median_us"), row.figure("busbw_gbps")
    assert time is not None
    return time_text(time) if bandwidth is None else f"{time_text(time)} ({bandwidth:.1f})"


def _is_of(path: Path, records: Sequence[Record]) -> bool:
    """Return whether a figure names the digest of these records."""
    found = _IDENTIFIER.search(_read(path))
    return found is not None and found[0] == digest(records)


def _read(path: Path) -> str:
    """Return a file's text, "" if there is no such file. Raises ValueError if it can't be read."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: can't be read ({error})") from None
