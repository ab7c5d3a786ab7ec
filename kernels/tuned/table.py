"""A table of choices: for ranges of sizes the kernel and the tuning that measured best, as `symlab tune` writes it.

A table is of one type of GPU. Its entries are of one op, data type, accumulator, reduction, placement and number of
ranks each; what it holds of a case that was not searched is the nearest entry, and Choice.nearest says in what it
differs. Tables are files that people copy and edit, so every value is checked when one is read: a wrong one is a
ValueError in one line, with the file and the key.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

from cases.case import UNIFORM, Case, Placement
from cases.dtypes import ITEMSIZES
from cases.ops import OPS, collective
from kernels.catalogue import find
from kernels.spec import refuses
from kernels.tuned_name import AT, base_of
from kernels.tuning import ANY_SIZE, MAX_WORLD_SIZE
from memory.fabric import Traits

FOLDER = Path(__file__).resolve().parent
SUFFIX = ".json"

VERSION = 3
MAX_BYTES = 8 << 20
MAX_ENTRIES = 20_000

UNIT, FIGURES = "us", "median time of a call, the maximum over ranks, by the GPUs' clocks"
"""What figures are, and what a table says of that."""

EXHAUSTIVE = "exhaustive"
MODEL = "model"
WAYS = {
    EXHAUSTIVE: "all candidates were measured, the better part of them again with more samples",
    MODEL: "a model of times ranked all candidates, and only those that it ranked best were measured",
}
"""How the search of a case went about it."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_GPU = re.compile(r"\b([a-z]{0,4}\d{1,4})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured of one contestant: its name, and its figure with a 95 % interval of it, in the table's unit."""

    name: str
    value: float
    low: float
    high: float
    samples: int


@dataclass(frozen=True, slots=True)
class Guess:
    """A candidate's name and the time that the model predicts for it, in microseconds."""

    name: str
    us: float


@dataclass(frozen=True, slots=True)
class Searched:
    """How a choice was found: the number of candidates that were timed, that failed or gave wrong results, and that the
    search had no time for.

    how: of WAYS. seconds: what finding it took, from the command's start, divided among the command's cases; 0 if
    unknown. Of a search that asked a model first, model: its name and digest; ranked: number of candidates that it
    predicted; predicted: those that it ranked best, best first.
    """

    timed: int
    failed: int
    left_out: int
    how: str = EXHAUSTIVE
    seconds: float = 0.0
    model: str = ""
    ranked: int = 0
    predicted: tuple[Guess, ...] = ()

    def found(self, name: str) -> str:
        """Return in a few words how the choice of a name was found."""
        if self.how == EXHAUSTIVE:
            return EXHAUSTIVE
        if AT not in name:
            return "the catalogue's own"
        names = [one.name for one in self.predicted]
        if name in names:
            return f"{MODEL}'s no. {names.index(name) + 1} of {self.ranked}"
        return f"beside the {MODEL}'s {len(names)} of {self.ranked}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A choice for cases of from_bytes to up_to_bytes, searched at size_bytes.

    runner_up is the second best, None if there was one contestant; library the best of other libraries beside it, None
    if none was measured. records are digests of the records that the figures are from.
    """

    op: str
    dtype: str
    accumulator: str
    reduction: str
    placement: str
    ranks: int
    size_bytes: int
    from_bytes: int
    up_to_bytes: int
    choice: Figure
    runner_up: Figure | None
    library: Figure | None
    searched: Searched
    records: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str, str, str, str, int]:
        """What entries of one series of sizes have in common."""
        return self.op, self.dtype, self.accumulator, self.reduction, self.placement, self.ranks


@dataclass(frozen=True, slots=True)
class Choice:
    """What a table gives a case: the kernel's name, the entry, and in what the entry differs from the case ("" if it
    was searched for such cases)."""

    name: str
    entry: Entry
    nearest: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table of one type of GPU. place and digest are those of the file that it was read from."""

    gpu: str
    arch: str
    made: Mapping[str, str]
    entries: tuple[Entry, ...]
    place: str = ""
    digest: str = ""

    def choice(self, case: Case, arch: str, gpu: str = "") -> Choice:
        """Return what to run for a case, whose algorithm does not matter, on GPUs of an architecture.

        gpu: the type of the GPUs that it runs on; "" for simulated ones of no type. ValueError, in one line, if no
        entry has a kernel that takes the case.
        """
        entries = [one for one in self.entries if one.op == case.op]
        if not entries:
            right = how_to_make(case.op, case.world_size)
            raise ValueError(f"{self.place or 'the table'} has no entry of {case.op}: search one, {right}")
        traits = Traits("ideal", arch, case.world_size, 1 << 40, multicast=True)
        reasons: dict[str, None] = {}
        for entry in sorted(entries, key=lambda one: _distance(one, case)):
            mine = _with(case, entry.choice.name)
            refusal = refuses(find(mine.name), collective(case.op), mine, traits)
            if refusal is None:
                return Choice(entry.choice.name, entry, "; ".join(self._differences(entry, case, gpu)))
            reasons.setdefault(str(refusal))
        raise ValueError(f"no entry of {self.place or 'the table'} takes the case {case.id}: {next(iter(reasons))}")

    def _differences(self, entry: Entry, case: Case, gpu: str) -> Iterator[str]:
        """In what an entry is not of a case."""
        if gpu != self.gpu:
            yield f"searched on {self.gpu}, not on {gpu or 'a simulated GPU of no type'}"
        for name, there, here in (
            ("ranks", entry.ranks, case.world_size),
            ("dtype", entry.dtype, case.dtype),
            ("accumulator", entry.accumulator, case.accumulator),
            ("reduction", entry.reduction, case.reduction),
            ("placement", entry.placement, case.placement),
        ):
            if there != here:
                yield f"searched for {name} {there}, not {here}"
        if case.counts != UNIFORM:
            yield f"searched for counts {UNIFORM}, not {case.counts}"
        if not entry.from_bytes <= case.size_bytes <= entry.up_to_bytes:
            yield f"searched for {entry.from_bytes} to {entry.up_to_bytes} bytes, not {case.size_bytes}"

    def document(self) -> dict[str, Any]:
        """Return the table as a JSON object."""
        return {
            "symlab_tuned": VERSION,
            "gpu": self.gpu,
            "arch": self.arch,
            "unit": UNIT,
            "figures": FIGURES,
            "made": dict(self.made),
            "entries": [asdict(one) for one in self.entries],
        }

    def text(self) -> str:
        """Return the file's text: a line for each entry."""
        document = self.document()
        entries = document.pop("entries")
        head = json.dumps(document, indent=1, allow_nan=False).removesuffix("\n}")
        lines = ",\n  ".join(json.dumps(one, allow_nan=False) for one in entries)
        return f'{head},\n "entries": [\n  {lines}\n ]\n}}\n'


def _with(case: Case, name: str) -> Case:
    return Case(**{**{one.name: getattr(case, one.name) for one in fields(Case)}, "algorithm": name})


def _distance(entry: Entry, case: Case) -> tuple[float, ...]:
    """How far an entry is from a case: what matters most comes first. Sizes are compared by their logarithms."""
    is_inside = entry.from_bytes <= case.size_bytes <= entry.up_to_bytes
    apart = 0.0 if is_inside else abs(math.log2(max(case.size_bytes, 1)) - math.log2(max(entry.size_bytes, 1)))
    return (
        abs(math.log2(entry.ranks) - math.log2(case.world_size)),
        entry.placement != case.placement,
        entry.reduction != case.reduction,
        entry.dtype != case.dtype,
        ITEMSIZES[entry.dtype] != case.itemsize,
        entry.accumulator != case.accumulator,
        apart,
        # Two entries that are as near: the one that was searched nearer to the size.
        abs(math.log2(max(case.size_bytes, 1)) - math.log2(max(entry.size_bytes, 1))),
    )


def how_to_make(op: str = "all_reduce", ranks: int = 2) -> str:
    """Return the command that makes a table, as messages name it."""
    return f"with: symlab tune op={op} world_size={ranks} -o my-table.json"


def slug_of(gpu: str) -> str:
    """Return the file name's beginning for a type of GPU: "h200" of "NVIDIA H200"."""
    words = re.sub(r"\bNVIDIA\b|\bGeForce\b", "", gpu, flags=re.IGNORECASE)
    match = _GPU.search(words)
    return match[1].lower() if match else re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-") or "gpu"


def place_for(gpu: str, folder: Path = FOLDER) -> Path:
    """Return where the project's table of a type of GPU is kept."""
    return folder / f"{slug_of(gpu)}{SUFFIX}"


def tables_in(folder: Path = FOLDER) -> tuple[Path, ...]:
    """Return the project's tables."""
    return tuple(sorted(folder.glob(f"*{SUFFIX}")))


def read(path: Path) -> Table:
    """Return the table in a file. ValueError, in one line, for a file that is missing, or is no table."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"{path}: no table, it has more than {MAX_BYTES} bytes")
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}; make a table {how_to_make()}") from None
    try:
        document = json.loads(content.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        said = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise ValueError(f"{path}: no table, it is no JSON that can be read ({said})") from None
    try:
        return _table(document, str(path), f"sha256:{sha256(content).hexdigest()}")
    except _Wrong as error:
        raise ValueError(f"{path}: {error}; make the table again {how_to_make()}") from None


def digest_of(text: str) -> str:
    """Return the digest that a table has once it is read from a file with this text."""
    return f"sha256:{sha256(text.encode()).hexdigest()}"


class _Wrong(Exception):
    """What is wrong with a document, with its key."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} stands twice")
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _table(document: Any, place: str, digest: str) -> Table:
    keys = {"symlab_tuned", "gpu", "arch", "unit", "figures", "made", "entries"}
    if not isinstance(document, dict) or "symlab_tuned" not in document:
        raise _Wrong("no table of symlab tune (symlab_tuned is missing)")
    if document["symlab_tuned"] != VERSION:
        raise _Wrong(f"symlab_tuned is {_brief(document['symlab_tuned'])}, this version reads {VERSION}")
    _keys(document, keys, "")
    if (document["unit"], document["figures"]) != (UNIT, FIGURES):
        raise _Wrong(f"unit is {_brief(document['unit'])} with other figures than those of {UNIT}")
    made = document["made"]
    if not isinstance(made, dict) or not all(isinstance(one, str) for one in made.values()):
        raise _Wrong("made is no object of texts")
    entries = document["entries"]
    if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_ENTRIES:
        raise _Wrong(f"entries is no list of 1 to {MAX_ENTRIES}")
    found = tuple(_entry(one, f"entries[{number}]") for number, one in enumerate(entries))
    _check_ranges(found)
    return Table(_text(document, "gpu", ""), _text(document, "arch", ""), made, found, place, digest)


def _check_ranges(entries: tuple[Entry, ...]) -> None:
    """Raise _Wrong if two entries are of the same cases."""
    by_key: dict[tuple[Any, ...], list[tuple[int, int, int]]] = {}
    for number, one in enumerate(entries):
        by_key.setdefault(one.key, []).append((one.from_bytes, one.up_to_bytes, number))
    for ranges in by_key.values():
        ranges.sort()
        for (_, last, first_number), (begin, _, number) in itertools.pairwise(ranges):
            if begin <= last:
                raise _Wrong(f"entries[{number}].from_bytes is {begin}, within the range of entries[{first_number}]")


def _entry(value: Any, at: str) -> Entry:
    _keys(value, {one.name for one in fields(Entry)}, at)
    op = _text(value, "op", at)
    if op not in OPS:
        raise _Wrong(f"{at}.op is {_brief(op)}, give one of {', '.join(OPS)}")
    placement, dtype = _text(value, "placement", at), _text(value, "dtype", at)
    if placement not in tuple(Placement):
        raise _Wrong(f"{at}.placement is {_brief(placement)}, give {' or '.join(Placement)}")
    if dtype not in ITEMSIZES:
        raise _Wrong(f"{at}.dtype is {_brief(dtype)}, give one of {', '.join(ITEMSIZES)}")
    size, first, last = (_count(value, key, at, 0, ANY_SIZE) for key in ("size_bytes", "from_bytes", "up_to_bytes"))
    if not first <= size <= last:
        raise _Wrong(f"{at}.size_bytes is {size}, outside {first} to {last} (from_bytes, up_to_bytes)")
    records = value["records"]
    if not isinstance(records, list) or not all(isinstance(one, str) and _DIGEST.fullmatch(one) for one in records):
        raise _Wrong(f"{at}.records is no list of digests, sha256: and 64 hexadecimal digits")
    return Entry(
        op=op,
        dtype=dtype,
        accumulator=_text(value, "accumulator", at),
        reduction=_text(value, "reduction", at),
        placement=placement,
        ranks=_count(value, "ranks", at, 1, MAX_WORLD_SIZE),
        size_bytes=size,
        from_bytes=first,
        up_to_bytes=last,
        choice=_figure(value["choice"], op, f"{at}.choice"),
        runner_up=_other(value, "runner_up", op, at),
        library=_other(value, "library", op, at),
        searched=_searched(value["searched"], op, f"{at}.searched"),
        records=tuple(records),
    )


def _searched(value: Any, op: str, at: str) -> Searched:
    """How a choice was found; what a model said stands with the choices of a model alone."""
    _keys(value, {one.name for one in fields(Searched)}, at)
    if value["how"] not in tuple(WAYS):
        raise _Wrong(f"{at}.how is {_brief(value['how'])}, give {' or '.join(WAYS)}")
    seconds, guesses = value["seconds"], value["predicted"]
    if not _is_number(seconds) or seconds < 0:
        raise _Wrong(f"{at}.seconds is {_brief(seconds)}, give a number from 0")
    if not isinstance(guesses, list):
        raise _Wrong(f"{at}.predicted is no list")
    timed, failed, left_out, ranked = (_count(value, key, at, 0, 1 << 31) for key in _COUNTS)
    predicted = tuple(_guess(one, op, f"{at}.predicted[{number}]") for number, one in enumerate(guesses))
    if [one.us for one in predicted] != sorted(one.us for one in predicted):
        raise _Wrong(f"{at}.predicted is not in the order of its times")
    if len(predicted) > ranked:
        raise _Wrong(f"{at}.ranked is {ranked}, fewer than the {len(predicted)} of predicted")
    if value["how"] == EXHAUSTIVE:
        if predicted or ranked or value["model"] != "":
            raise _Wrong(f"{at}.how is {EXHAUSTIVE}, which has no model, ranked or predicted")
        return Searched(timed, failed, left_out, EXHAUSTIVE, float(seconds))
    model = _text(value, "model", at)
    return Searched(timed, failed, left_out, MODEL, float(seconds), model, ranked, predicted)


_COUNTS = ("timed", "failed", "left_out", "ranked")


def _guess(value: Any, op: str, at: str) -> Guess:
    _keys(value, {one.name for one in fields(Guess)}, at)
    name, us = _text(value, "name", at), value["us"]
    _check_kernel(name, op, at)
    if not _is_number(us) or us <= 0:
        raise _Wrong(f"{at}.us is {_brief(us)}, give a number above 0")
    return Guess(name, float(us))


def _check_kernel(name: str, op: str, at: str) -> None:
    """Raise _Wrong if a name is none of the catalogue's kernels, with its own tuning or another."""
    try:
        find(f"{op}/{base_of(name)}")
        find(f"{op}/{name}")
    except ValueError as error:
        raise _Wrong(f"{at}.name: {error}") from None


def _other(value: Mapping[str, Any], key: str, op: str, at: str) -> Figure | None:
    """The figure of another contestant, if there is one."""
    return None if value[key] is None else _figure(value[key], op, f"{at}.{key}", True)


def _figure(value: Any, op: str, at: str, is_of_others: bool = False) -> Figure:
    """A figure. A choice has the name of a kernel of the catalogue; others may be anything that was measured."""
    _keys(value, {one.name for one in fields(Figure)}, at)
    name = _text(value, "name", at)
    if not is_of_others or AT in name:
        _check_kernel(name, op, at)
    numbers = {key: value[key] for key in ("value", "low", "high")}
    for key, number in numbers.items():
        if not _is_number(number) or number <= 0:
            raise _Wrong(f"{at}.{key} is {_brief(number)}, give a number above 0")
    if not numbers["low"] <= numbers["value"] <= numbers["high"]:
        raise _Wrong(f"{at}.value is {_brief(numbers['value'])}, outside its interval (low, high)")
    figures = {key: float(number) for key, number in numbers.items()}
    return Figure(name=name, samples=_count(value, "samples", at, 1, 1 << 31), **figures)


def _keys(value: Any, wanted: set[str], at: str) -> None:
    where = at or "the table"
    if not isinstance(value, dict):
        raise _Wrong(f"{where} is no object")
    if missing := sorted(wanted - set(value)):
        raise _Wrong(f"{where} has no {missing[0]}")
    if more := sorted(set(value) - wanted):
        raise _Wrong(f"{where} has the unknown key {_brief(more[0])}")


def _text(value: Mapping[str, Any], key: str, at: str) -> str:
    found = value[key]
    if not isinstance(found, str) or not found or len(found) > 200 or not found.isprintable():
        raise _Wrong(f"{at + '.' if at else ''}{key} is {_brief(found)}, give a text")
    return found


def _count(value: Mapping[str, Any], key: str, at: str, least: int, most: int) -> int:
    found = value[key]
    if type(found) is not int or not least <= found <= most:
        raise _Wrong(f"{at}.{key} is {_brief(found)}, give a whole number, {least} to {most}")
    return found


def _is_number(value: object) -> bool:
    """Whether a value of JSON is a number that a float can hold."""
    return type(value) in (int, float) and -sys.float_info.max <= value <= sys.float_info.max  # type: ignore[operator]


def _brief(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:58]}.."
