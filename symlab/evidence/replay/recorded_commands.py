"""Commands that run recorded cases by the code of their commit, which may be older than any replay.

That code first says which keys it knows (`--cfg job`, which every version has). Then a command names op, algorithms,
libraries and sizes, and the keys whose recorded values are not its defaults. Nothing else of a record goes there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from cases.record.record import Record
from reports.record.leaves import by_dotted_path
from reports.table.compare import is_baseline
from symlab.evidence.replay.recorded_code import Ran

_KEY = re.compile("[a-z0-9_]+(\\.[a-z0-9_]+)*")

_VALUE = re.compile("[A-Za-z0-9_.+-]+")
"""Texts that may go to a command line: no quotes, no interpolation, no file."""

_OF_THE_CASE = ("op", "dtype", "accumulator", "reduction", "world_size")

_ELSEWHERE = frozenset(
    {
        *_OF_THE_CASE,
        "algorithms",
        "baselines",
        "sizes",
        "records",
        "cache_dir",
        "track",
        "custom",
        "tuned",
        "deadline_s",
    }
)
"""Keys that the case says, or that name files and servers; host memory is that of GPUs."""


def known_keys(asked: Ran) -> dict[str, Any]:
    """Return the keys that code knows, with their defaults, by what its `--cfg job` said. OSError if it said none."""
    try:
        document = yaml.safe_load(asked.said)
    except yaml.YAMLError:
        document = None
    found = by_dotted_path(document) if isinstance(document, dict) else {}
    known = {key: value for key, value in found.items() if _KEY.fullmatch(key)}
    if not known:
        raise OSError(asked.complaint or "it does not say its keys")
    return known


@dataclass(frozen=True, slots=True)
class Start:
    """A command of the recorded code: overrides that its cases share, and the numbers of their records."""

    overrides: tuple[str, ...]
    numbers: list[int] = field(default_factory=list)

    def words(self, records: Mapping[int, Record]) -> list[str]:
        """Return the overrides, with all algorithms, all libraries and all sizes of the cases."""
        some = [records[number] for number in self.numbers]
        ours, libraries = (
            ",".join(dict.fromkeys(one.case.algorithm for one in some if is_baseline(one) == is_library))
            for is_library in (False, True)
        )
        sizes = ",".join(str(size) for size in sorted({one.case.size_bytes for one in some}))
        baselines = f"[{libraries}]" if libraries else "none"
        which = [] if some[0].case.gemm else [f"sizes.list=[{sizes}]"]
        return [*self.overrides, f"algorithms=[{ours}]", f"baselines={baselines}", *which]


def commands_of(
    records: Mapping[int, Record], known: Mapping[str, Any], reasons: dict[int, str], deadline_s: float | None = None
) -> list[Start]:
    """Return the commands that run records; reasons gets why others can't be asked for. known: the keys of the recorded
    code, with their defaults. deadline_s: the maximum for a launch."""
    starts: dict[tuple[str, ...], Start] = {}
    for number, record in records.items():
        try:
            overrides = _overrides(record, known, deadline_s)
        except ValueError as error:
            reasons[number] = str(error)
        else:
            starts.setdefault(overrides, Start(overrides)).numbers.append(number)
    return list(starts.values())


def _overrides(record: Record, known: Mapping[str, Any], deadline_s: float | None) -> tuple[str, ...]:
    """Return the overrides that a case needs, but for its algorithm and size. Raises ValueError for a configuration
    that the recorded code can't have had."""
    case = record.case
    there = {key: getattr(case, key) for key in _OF_THE_CASE}
    recorded = by_dotted_path(record.request.configuration or {})
    if is_baseline(record):  # a library has its own; it runs beside kernels that have what the job resolved
        resolved = record.request.resolved or {}
        there["accumulator"] = str(resolved.get("accumulator", recorded.get("accumulator", "none")))
    words = [f"{key}={value}" for key, value in there.items() if value != "none"]
    for key, value in recorded.items():
        if key.partition(".")[0] in _ELSEWHERE or key in ("fabric.name", "host_memory"):
            continue
        if key not in known:
            raise ValueError(f"its configuration has the key {key!r:.60}, which the code of its commit does not know")
        if value != known[key]:
            words.append(f"{key}={_text(key, value)}")
    limit_s = recorded.get("deadline_s")
    if isinstance(limit_s, (int, float)) and "deadline_s" in known:
        words.append(f"deadline_s={float(limit_s) if deadline_s is None else min(float(limit_s), deadline_s)}")
    return tuple(words)


def _text(key: str, value: Any) -> str:
    """Return a value as the command line takes it. Raises ValueError for what may not go there."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)) or (isinstance(value, str) and _VALUE.fullmatch(value)):
        return str(value)
    raise ValueError(f"the value of {key} in its configuration is not handed to other code")
