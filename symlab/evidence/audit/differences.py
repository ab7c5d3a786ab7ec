"""What two sets of records were made with, where it is not the same: code, kernels, packages, machine, configuration.

Every value that a record holds about where it comes from is compared, whatever its name, so that what is captured
tomorrow is compared tomorrow. Left out are only values that differ between any two commands: see PASSING.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

from cases.documents import encoded
from cases.gathered import gathered
from cases.record.record import KernelInfo, Record
from cases.record.request import as_today
from reports.record.leaves import leaves
from reports.table.sheet import Line, Sheet
from reports.table.text import counted

PASSING = re.compile(
    r"environment\.(capture_s|not_captured|.*\.not_captured|.*\.load|.*\.process|variables\.withheld|git\.kept_diff)(\.|$)"
    r"|(configuration\.(records|cache_dir|track)(\.|$))"
)
"""What no two commands have alike, or what only says where results are kept."""

NOTHING = "-"
"""What stands for a value that a side does not have."""

_ORDER = ("git", "kernel", "library", "packages", "python", "torch", "gpu", "cuda", "fabric", "host", "world")

_LONG_HEX = re.compile(r"\b(?:sha256:)?([0-9a-f]{12})[0-9a-f]{28,}\b")

_MOST_SHOWN, _MOST_CHARACTERS = 3, 60
"""Values of one side that a line shows, and characters of each. The JSON has all."""

_PINNED = re.compile(r"configuration\.(op|algorithms|baselines|dtype|accumulator|reduction|sizes|fabric\.name)(\.|$)")
"""What a replay writes out that a configuration may have left open: its cases are the same all the same."""

_OF_THE_CASE = ("world_size", "simulated")
"""What a fabric repeats of its case, or of its own name."""

HEADING = "what differs"


@dataclass(frozen=True, slots=True)
class Difference:
    """What is not the same: its name, and all values of each side, sorted; none where a side does not say."""

    what: str
    before: tuple[str, ...]
    after: tuple[str, ...]


def differences(before: Sequence[Record], after: Sequence[Record]) -> tuple[Difference, ...]:
    """All that differs, what matters most first. A value that a set has several of counts as all of them."""
    sides = [_values(records) for records in (before, after)]
    names = sorted(set(sides[0]) | set(sides[1]), key=_rank)
    if any(record.request.replays is not None for record in (*before, *after)):
        names = [name for name in names if not _PINNED.match(name)]
    found = ((name, sides[0].get(name, set()), sides[1].get(name, set())) for name in names)
    others = [Difference(name, tuple(sorted(one)), tuple(sorted(other))) for name, one, other in found if one != other]
    return (*others, *_compiled(before, after))


def sheet_of(found: Sequence[Difference], sides: tuple[str, str] = ("before", "after")) -> Sheet:
    """A line for each difference; sides are the columns' names. What only one side says at all is a line for each part
    of a record: the other may be of before it was captured."""
    columns = ("what", *sides)
    rows: dict[str, tuple[str, str, str]] = {}
    one_sided: dict[tuple[str, bool], list[str]] = {}
    for one in found:
        if one.before and one.after:
            rows[one.what] = (one.what, _shown(one.before), _shown(one.after))
        else:
            one_sided.setdefault((one.what.partition(".")[0], bool(one.before)), []).append(one.what)
    for (part, is_before), names in one_sided.items():
        what = f"{part}: {len(names)} more" if len(names) > 1 else names[0]
        (single,) = (one for one in found if one.what == names[0])
        says = f"{len(names)} values" if len(names) > 1 else _shown(single.before or single.after)
        rows[f"{part} {is_before}"] = (what, says, NOTHING) if is_before else (what, NOTHING, says)
    lines = (Line(dict(zip(columns, row, strict=True))) for row in rows.values())
    return Sheet(HEADING, columns, (tuple(lines),))


def _values(records: Iterable[Record]) -> dict[str, set[str]]:
    """All values of a set, by name."""
    found: dict[str, set[str]] = {}
    seen: set[str] = set()
    for record in records:
        for part, value in _parts(record):
            # Hundreds of records of one command have the same environment: it is looked through once.
            key = f"{part} {json.dumps(value, sort_keys=True)}"
            if key in seen:
                continue
            seen.add(key)
            for name, text in _texts(part, value):
                if not PASSING.match(name):
                    found.setdefault(_short(name), set()).add(text)
    return found


def _parts(record: Record) -> Iterator[tuple[str, Any]]:
    yield "environment", encoded(record.environment)
    configuration = record.request.configuration
    yield "configuration", None if configuration is None else as_today(configuration)
    if record.fabric is not None:
        yield "fabric", {key: one for key, one in encoded(record.fabric).items() if key not in _OF_THE_CASE}
    if record.kernel is not None:
        kernel = record.kernel
        yield (
            f"kernel {kernel.name}",
            {"sources": kernel.source_digest, "compiler": kernel.compiler, "multimem": list(kernel.multimem)},
        )
    if record.library:
        yield "library", {record.case.algorithm: record.library}


def _compiled(before: Sequence[Record], after: Sequence[Record]) -> list[Difference]:
    """Return how the kernels of cases that both sets have differ in what they were compiled to.

    A kernel is compiled for a type, an accumulator, a number of ranks, so its digests belong to the case. Cases that
    changed alike are one difference.
    """
    sides = [_of_cases(records) for records in (before, after)]
    alike: dict[tuple[str, tuple[str, ...], tuple[str, ...]], int] = {}
    for key in sides[0]:
        for what, ours, theirs in _digests(sides[0][key], sides[1].get(key, ())):
            if ours != theirs:
                name = f"kernel {key[1]}.{what}"
                found = name, tuple(sorted(ours)), tuple(sorted(theirs))
                alike[found] = alike.get(found, 0) + 1
    return [Difference(f"{name} ({counted(count, 'case')})", one, other) for (name, one, other), count in alike.items()]


def _of_cases(records: Iterable[Record]) -> dict[tuple[str, str], list[KernelInfo]]:
    """Return what was compiled, by case id and kernel name."""
    return gathered(((record.id, record.kernel.name), record.kernel) for record in records if record.kernel is not None)


def _digests(ours: Sequence[KernelInfo], theirs: Sequence[KernelInfo]) -> Iterator[tuple[str, Set[str], Set[str]]]:
    """Yield what to compare of a case's kernel on both sides: what it is, and the values of each side.

    Code is compared where every record has its digest: PTX and cubin of equal code differ in line information alone.
    Where some record is older than code digests PTX is compared, with its line information.
    """
    if not theirs:
        return
    sides = ours, theirs
    ptx, cubin = ([{getattr(one, name) for one in side} for side in sides] for name in ("ptx_digest", "cubin_digest"))
    code = [{one.code_digest or "" for one in side} for side in sides]
    launch = [{f"{one.grid} blocks of {one.block} threads" for one in side} for side in sides]
    if any("" in side for side in code):
        yield "PTX", ptx[0], ptx[1]
        yield "cubin", cubin[0], cubin[1]
    else:
        yield "code", code[0], code[1]
        if code[0] != code[1] or ptx[0] == ptx[1]:
            yield "cubin", cubin[0], cubin[1]
    yield "launch", launch[0], launch[1]


def _texts(part: str, value: Any) -> Iterator[tuple[str, str]]:
    """Names with dots and the values as text. Members of a list of objects share a name: a set of like parts."""
    for path, leaf in leaves(value, into_lists=True):
        if leaf is not None and leaf != {}:
            name = ".".join([part, *(key for key in path if isinstance(key, str))])
            yield name, leaf if isinstance(leaf, str) else json.dumps(leaf)


def _short(name: str) -> str:
    return name.removeprefix("environment.")


def _rank(name: str) -> tuple[int, str]:
    """Code and kernels first, the configuration and all else last."""
    return next((index for index, one in enumerate(_ORDER) if name.startswith(one)), len(_ORDER)), name


def _shown(values: Sequence[str]) -> str:
    if not values:
        return NOTHING
    texts = [_one_line(_LONG_HEX.sub(r"\1..", value)) or '""' for value in values[:_MOST_SHOWN]]
    more = f" and {len(values) - _MOST_SHOWN} more" if len(values) > _MOST_SHOWN else ""
    return " | ".join(texts) + more


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 2]}.."
