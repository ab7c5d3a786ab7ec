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
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from cases.case import UNIFORM, Case
from cases.documents import decoded, parsed
from cases.dtypes import ALL, ITEMSIZES
from cases.gathered import gathered
from cases.ops import OPS, collective
from cases.record.reading import contents
from kernels.catalogue import find
from kernels.spec import KernelSpec, refuses
from kernels.tuned_name import base_of
from kernels.tuning import ANY_SIZE, MAX_WORLD_SIZE
from memory.fabric import Traits
from runner.request.sizes import format_bytes

FOLDER = Path(__file__).resolve().parent
SUFFIX = ".json"

VERSION = 3
MAX_BYTES = 8 << 20

UNIT, FIGURES = "us", "median time of a call, the maximum over ranks, by the GPUs' clocks"
"""What figures are, and what a table says of that."""

EXHAUSTIVE = "exhaustive"
MODEL = "model"
WAYS = {
    EXHAUSTIVE: "all candidates were measured, the better part of them again with more samples",
    MODEL: "a model of times ranked all candidates, and only those that it ranked best were measured",
}
"""How the search of a case went about it."""

PLACE = ":"
"""What the name of a kernel of the user's own has, its place, and no other one."""

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


@dataclass(frozen=True, slots=True)
class Entry:
    """A choice for cases of from_bytes to up_to_bytes, searched at size_bytes.

    runner_up is the second best, None if there was one contestant; library the best of other libraries beside it, None
    if none was measured. records are digests of the records that the figures are from. A choice that is a kernel of the
    user's own is named by its place, and kernel is the digest of its files, else "". gemm, of an op that multiplies, is
    the (M, N, K) that it is for, and no other ones (Case.gemm); the sizes are then all those of C.
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
    kernel: str = ""
    gemm: tuple[int, int, int] | None = None

    @property
    def key(self) -> tuple[str, str, str, str, str, int, tuple[int, ...]]:
        """What entries of one series of sizes have in common."""
        return self.op, self.dtype, self.accumulator, self.reduction, self.placement, self.ranks, self.gemm or ()


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

    def choice(self, case: Case, arch: str, gpu: str = "", brought: Mapping[str, KernelSpec] | None = None) -> Choice:
        """Return what to run for a case, whose algorithm does not matter, on GPUs of an architecture.

        gpu: the type of the GPUs that it runs on; "" for simulated ones of no type. brought: kernels by their places.
        ValueError, in one line, if no entry has a kernel that takes the case, and for M, N and K that were not
        searched: their tiles may come in another number of waves.
        """
        entries = [one for one in self.entries if (one.op, one.gemm) == (case.op, case.gemm)]
        if not entries:
            of = f"{case.op} {size_text(case)}" if case.gemm else case.op
            right = how_to_make(case.op, case.world_size, case.gemm)
            raise ValueError(f"{self.place or 'the table'} has no entry of {of}: search one, {right}")
        traits = Traits("ideal", arch, case.world_size, 1 << 40, multicast=True)
        reasons: dict[str, None] = {}
        for entry in sorted(entries, key=lambda one: _distance(one, case)):
            spec = (brought or {}).get(entry.choice.name) or find(f"{case.op}/{entry.choice.name}")
            mine = replace(case, algorithm=spec.algorithm)
            refusal = refuses(spec, collective(case.op), mine, traits)
            if refusal is None:
                return Choice(spec.algorithm, entry, "; ".join(self._differences(entry, case, gpu)))
            reasons.setdefault(str(refusal))
        raise ValueError(f"no entry of {self.place or 'the table'} takes the case {case.id}: {next(iter(reasons))}")

    def _differences(self, entry: Entry, case: Case, gpu: str) -> Iterator[str]:
        """In what an entry is not of a case."""
        if slug_of(gpu) != slug_of(self.gpu):
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
            "entries": [
                {key: value for key, value in asdict(one).items() if key not in ("kernel", "gemm") or value}
                for one in self.entries
            ],
        }

    def text(self) -> str:
        """Return the file's text: a line for each entry."""
        document = self.document()
        entries = document.pop("entries")
        head = json.dumps(document, indent=1, allow_nan=False).removesuffix("\n}")
        lines = ",\n  ".join(json.dumps(one, allow_nan=False) for one in entries)
        return f'{head},\n "entries": [\n  {lines}\n ]\n}}\n'


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


def how_to_make(op: str = "all_reduce", ranks: int = 2, gemm: tuple[int, ...] | None = None) -> str:
    """Return the command that makes a table, as messages name it."""
    shape = "".join(f" {key}={value}" for key, value in zip("mnk", gemm or (), strict=False))
    return f"with: symlab tune op={op}{shape} world_size={ranks} -o my-table.json"


def size_text(one: Case | Entry) -> str:
    """Return the size of a case or an entry in a word: "4M", or M, N and K, "4096x8192x4096"."""
    return "x".join(map(str, one.gemm)) if one.gemm else format_bytes(one.size_bytes)


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
        content = contents(path, MAX_BYTES)
        found = decoded(_Document, _of_this_version(content), "table")
        if path.resolve().parent == FOLDER and any(one.kernel for one in found.entries):
            raise ValueError("a table of the project names a kernel that is not the project's")
        for key, value, wanted in _wrong(found):
            raise ValueError(f"table.{key} is {_brief(value)}, give {wanted}")
    except ValueError as error:
        said = " ".join(str(error).split()).removeprefix(f"{path}: ")
        raise ValueError(f"{path}: {said}; make a table {how_to_make()}") from None
    digest = f"sha256:{sha256(content).hexdigest()}"
    return Table(found.gpu, found.arch, found.made, found.entries, str(path), digest)


def digest_of(text: str) -> str:
    """Return the digest that a table has once it is read from a file with this text."""
    return f"sha256:{sha256(text.encode()).hexdigest()}"


@dataclass(frozen=True, slots=True)
class _Document:
    """A table as its file has it."""

    symlab_tuned: int
    gpu: str
    arch: str
    unit: str
    figures: str
    made: dict[str, Any]
    entries: tuple[Entry, ...]


def _of_this_version(content: bytes) -> Any:
    try:
        document = parsed(content.decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"no JSON that can be read ({error})") from None
    version = document.get("symlab_tuned") if isinstance(document, dict) else None
    if version != VERSION:
        raise ValueError(f"no table that this version reads: symlab_tuned is {_brief(version)}, not {VERSION}")
    return document


Wrong = tuple[str, object, str]
"""A key, its value, and what it should be."""


def _wrong(found: _Document) -> Iterator[Wrong]:
    """Yield what a document can't say."""
    if (found.unit, found.figures) != (UNIT, FIGURES):
        yield "unit", found.unit, f"{UNIT}, with its figures"
    if not found.entries:
        yield "entries", [], "one at least"
    for number, one in enumerate(found.entries):
        yield from ((f"entries[{number}].{key}", *rest) for key, *rest in _wrong_entry(one))  # type: ignore[misc]
    yield from _wrong_ranges(found.entries)


def _wrong_ranges(entries: tuple[Entry, ...]) -> Iterator[Wrong]:
    """Yield two entries of the same cases."""
    by_key = gathered((one.key, (one.from_bytes, one.up_to_bytes, number)) for number, one in enumerate(entries))
    for ranges in by_key.values():
        for (_, last, first_number), (begin, _, number) in itertools.pairwise(sorted(ranges)):
            if begin <= last:
                yield f"entries[{number}].from_bytes", begin, f"one outside the range of entries[{first_number}]"


def _wrong_entry(one: Entry) -> Iterator[Wrong]:
    for key, value, known in (("op", one.op, tuple(OPS)), ("dtype", one.dtype, ALL)):
        if value not in known:
            yield key, value, f"one of {', '.join(known)}"
            return
    if not 1 <= one.ranks <= MAX_WORLD_SIZE:
        yield "ranks", one.ranks, f"a whole number, 1 to {MAX_WORLD_SIZE}"
    if not 0 <= one.from_bytes <= one.size_bytes <= one.up_to_bytes <= ANY_SIZE:
        yield "size_bytes", one.size_bytes, f"one of {one.from_bytes} to {one.up_to_bytes} (from_bytes, up_to_bytes)"
    if (one.gemm is not None) != (collective(one.op).product is not None):
        yield "gemm", one.gemm, "M, N and K of an op that multiplies, and of no other one"
    elif one.gemm is not None and (
        len(one.gemm) != 3 or min(one.gemm) < 1 or one.gemm[0] * one.gemm[1] * ITEMSIZES[one.dtype] != one.size_bytes
    ):
        yield "gemm", one.gemm, f"M, N and K, whose C has {one.size_bytes} bytes"
    if bool(one.kernel) != (PLACE in one.choice.name):
        yield "kernel", one.kernel, "the digest of a kernel with a place, and of no other one"
    elif not one.kernel:
        yield from _wrong_kernel(one.op, one.choice.name)


def _wrong_kernel(op: str, name: str) -> Iterator[Wrong]:
    """Yield a name that no kernel of the catalogue has, with its own tuning or another."""
    try:
        find(f"{op}/{base_of(name)}")
        find(f"{op}/{name}")
    except ValueError as error:
        yield "choice.name", name, f"a kernel ({error})"


def _brief(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:58]}.."
