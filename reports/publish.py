"""What is published: records of real machines, committed as bundles, and tables and pictures made from them.

reports/published/<machine>/ holds README.md (by hand: the machine and the commands) and bundles. Made from the bundles,
by `python -m reports published`, are table.md, figure.svg, a picture for each op and world size, and what stands in the
project's README between `<!-- published: <machine> -->` and `<!-- end -->`. Last, a manifest has the digest of every
file of reports/published/. --check says what is not as it would be made, and what is not as the manifest has it. A
machine without bundles has nothing made, and an empty place in the README.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from reports.record.bundle import SUFFIX, digest, read, write_file
from reports.record.record import Record
from reports.record.seal import MANIFEST, broken, seal, sealed
from reports.table import table
from reports.table.compare import Section, split

PLACE = Path("reports") / "published"

FEATURED_DTYPE, FEATURED_OP = "bfloat16", "all_reduce"
"""The README shows this dtype and this op, if there is any of it, at the largest world size; table.md shows all."""

_MADE_BY = "<!-- made from the bundles here by `python -m reports published`: do not edit -->"
_INCLUDED = re.compile(r"(<!-- published: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_IDENTIFIER = re.compile(r"sha256:[0-9a-f]{64}")


def machines(root: Path) -> dict[str, list[Record]]:
    """The machines that have bundles, by name, with all their records.

    ValueError for a bundle that can't be read, and for a machine whose README.md is missing.
    """
    folders = sorted({path.parent for path in (root / PLACE).glob(f"*/*{SUFFIX}")})
    for folder in folders:
        if not _read(folder / "README.md").strip():
            raise ValueError(f"{folder / 'README.md'}: missing; it says by which commands the bundles were made")
    return {folder.name: read(sorted(folder.glob(f"*{SUFFIX}"))) for folder in folders}


def refresh(root: Path, is_check: bool = False) -> None:
    """Write what differs from how it would be made, and say so; is_check: write nothing, ValueError naming it.

    ValueError for a root that is no project's folder, in which nothing could ever differ.

    A text is compared to the letter. A picture is taken to be the right one if it says that it was drawn from these
    records: its bytes depend on matplotlib's version.
    """
    if not (root / "README.md").is_file():
        raise ValueError(f"{root}: no README.md here; --root is the project's folder")
    published = machines(root)
    wanted = texts(root, published)
    late_texts = [path for path, text in wanted.items() if _read(path) != text]
    pictures = other_pictures(drawings(root, published))
    if is_check:
        _refuse_changes(root, [*late_texts, *pictures])
        return
    made = {path: wanted[path].encode() for path in late_texts}
    if pictures:
        from reports.figures import picture

        made |= {path: picture(records) for path, records in pictures.items()}
    for path, data in made.items():
        write_file(path, data)
        print(f"{path.relative_to(root)}: written")
    if (root / PLACE).is_dir() and not _is_sealed(root / PLACE):
        print(f"{seal(root / PLACE).relative_to(root)}: written")
    print(f"{len(published)} machines published, {len(made)} files made anew")


def _is_sealed(folder: Path) -> bool:
    path = folder / MANIFEST
    return path.is_file() and path.read_bytes() == sealed(folder)


def changes(root: Path) -> list[str]:
    """What of all that is published is not as its manifest has it, a sentence each. ValueError without a manifest."""
    folder = root / PLACE
    return [f"{PLACE.as_posix()}/{fault}" for fault in broken(folder)] if folder.is_dir() else []


def _refuse_changes(root: Path, late: Sequence[Path]) -> None:
    """ValueError naming what is not as it would be made, and what is not as it was sealed."""
    names = [path.relative_to(root).as_posix() for path in late]
    parts = [f"not as the bundles have it: {', '.join(names)}"] if names else []
    if changed := [fault for fault in changes(root) if fault.partition(":")[0] not in names]:
        parts.append(f"not as it was sealed: {', '.join(changed)}")
    if parts:
        raise ValueError(f"{'; '.join(parts)}; run python -m reports published")


def other_pictures(wanted: Mapping[Path, list[Record]]) -> dict[Path, list[Record]]:
    """The pictures that do not say that they were drawn from the records that are wanted."""
    return {path: records for path, records in wanted.items() if not _is_of(path, records)}


def texts(root: Path, published: dict[str, list[Record]]) -> dict[Path, str]:
    """The texts as they are to be, by path: each machine's table, and the README with what it includes."""
    found = {root / PLACE / name / "table.md": _table(name, records) for name, records in published.items()}
    readme = root / "README.md"
    text = _read(readme)
    for name in sorted(set(published) - set(re.findall(r"<!-- published: (\S+) -->", text))):
        raise ValueError(
            f"README.md: no place for {name}; add the lines '<!-- published: {name} -->' and '<!-- end -->'"
        )
    if _INCLUDED.search(text):
        found[readme] = _INCLUDED.sub(lambda match: f"{match[1]}{_included(match[2], published)}{match[4]}", text)
    return found


def machine_texts(root: Path, name: str, records: list[Record]) -> dict[str, tuple[str, str]]:
    """One machine's table and its part of the README, by name: as they are, and as its records make them."""
    table_path, readme = root / PLACE / name / "table.md", root / "README.md"
    there = {match[2]: match[3] for match in _INCLUDED.finditer(_read(readme))}
    return {
        table_path.relative_to(root).as_posix(): (_read(table_path), _table(name, records)),
        f"{name} in {readme.name}": (there.get(name, ""), _included(name, {name: records})),
    }


def drawings(root: Path, published: dict[str, list[Record]]) -> dict[Path, list[Record]]:
    """The pictures, by path, with the records that each is drawn from."""
    found: dict[Path, list[Record]] = {}
    for name, records in published.items():
        found[root / PLACE / name / "figure.svg"] = list(featured(records).records)
        for section in split(records)[0]:
            case = section.records[0].case
            path = root / PLACE / name / f"{case.op}-n{case.world_size}.svg"
            found.setdefault(path, []).extend(section.records)
    return found


def featured(records: Sequence[Record]) -> Section:
    """The section that a README has room for. ValueError where nothing was timed."""
    sections, _ = split(records)
    if not sections:
        raise ValueError("what is published has no timing; only real hardware gives one")

    def rank(section: Section) -> tuple[bool, int, bool]:
        case = section.records[0].case
        return case.dtype == FEATURED_DTYPE, case.world_size, case.op == FEATURED_OP

    return max(sections, key=rank)


def _table(name: str, records: Sequence[Record]) -> str:
    hint = f"Percentiles, bandwidths and all else: `python -m reports table {PLACE.as_posix()}/{name}`."
    return f"{_MADE_BY}\n\n# {name}\n\n{hint}\n\n{table.markdown(records, is_wide=True)}"


def _included(name: str, published: dict[str, list[Record]]) -> str:
    """What the README says of a machine; nothing while it has no bundles."""
    if name not in published:
        return ""
    shown = table.markdown(featured(published[name]).records, is_wide=True)
    place = f"{PLACE.as_posix()}/{name}"
    return (
        f"\n{shown}\n![time and bus bandwidth over bytes]({place}/figure.svg)\n\n"
        f"All ops, dtypes and world sizes: [{place}/table.md]({place}/table.md); "
        f"the commands that made them: [README]({place}/README.md).\n\n"
    )


def _is_of(path: Path, records: Sequence[Record]) -> bool:
    """The picture says that it was drawn from these records."""
    found = _IDENTIFIER.search(_read(path))
    return found is not None and found[0] == digest(records)


def _read(path: Path) -> str:
    """A file's text, "" where there is none."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: can't be read ({error})") from None
