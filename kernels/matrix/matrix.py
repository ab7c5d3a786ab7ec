"""What every kernel of the catalogue takes, and where it is proven: asked of the specs, not written down.

Each combination of data type, accumulator and reduction is put to kernels.spec.refuses on an ideal fabric of every
architecture, so a row says what would run. Cells are short; what they leave out is in numbered notes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cases.case import Case
from cases.dtypes import (
    ALL,
    FLOAT8,
    FLOATS,
    INTEGERS,
    ITEMSIZES,
    NONE,
    REDUCTIONS,
    accumulators_of,
    reductions_of,
)
from cases.ops import collective
from kernels.catalogue import SPECS
from kernels.compile import source_digest
from kernels.matrix.codes import Code
from kernels.matrix.proofs import SHARED, Proof, Tally
from kernels.spec import KernelSpec, refuses
from memory.fabric import Traits

COLUMNS = ("algorithm", "dtypes", "accumulators", "reductions", "placement", "needs", "ranks", "simulator", "GPU")

NOT_YET = "not yet"
BEFORE_A_CHANGE = "*"

LEGEND = (
    f"dtypes: all {len(ALL)}: {', '.join(ALL)}; floats: {', '.join(FLOATS)}; integers: {', '.join(INTEGERS)}; fp8: "
    f"{', '.join(FLOAT8)}",
    f"reductions: all {len(REDUCTIONS)}: {', '.join(REDUCTIONS)}; and, or, xor are integers'",
    "accumulators, of sum and avg: native (the dtype itself) for every dtype; float32 for floats of 32, 16 and 8 bits; "
    "float16 for fp8",
    "placement: either: in place (as NCCL has it) and out of place; ranks: the world sizes that it takes",
    f"simulator, GPU: cases that passed there, on how many ranks; {BEFORE_A_CHANGE}: with older code, not today's (by "
    f"what it compiles to; by its sources where the proof holds nothing else); {SHARED}: several took turns on one GPU",
)
"""What the words in cells mean."""

_ACCUMULATORS = ("native", "float16", "float32")

Cell = tuple[str, str, str]
"""Data type, accumulator, reduction."""


@dataclass(frozen=True)
class Row:
    """One kernel: what it takes on each architecture that it is built for, and the proofs of it.

    code is the digest of today's code (kernels/matrix/codes.py), None if it is unknown.
    """

    spec: KernelSpec
    proofs: tuple[Proof, ...]
    code: str | None = None

    @cached_property
    def taken(self) -> dict[Cell, tuple[str, ...]]:
        """Every cell that some architecture takes, with the architectures that do."""
        found: dict[Cell, tuple[str, ...]] = {}
        for cell in _cells(self.spec):
            archs = tuple(arch for arch in self.spec.archs if self._takes(arch, *cell))
            if archs:
                found[cell] = archs
        return found

    @cached_property
    def world_sizes(self) -> tuple[int, ...]:
        cell, archs = next(iter(self.taken.items()))
        return tuple(
            size for size in range(1, self.spec.max_world_size + 1) if self._takes(archs[0], *cell, world_size=size)
        )

    @cached_property
    def is_aligned(self) -> bool:
        """Whether both buffers have to begin at a 16-byte boundary."""
        cell, archs = next(iter(self.taken.items()))
        return not self._takes(archs[0], *cell, offset=1)

    def missing(self) -> list[Cell]:
        """The cells of its own data types that it does not take anywhere."""
        dtypes = {cell[0] for cell in self.taken}
        return [cell for cell in _cells(self.spec) if cell[0] in dtypes and cell not in self.taken]

    def tallies(self, simulated: bool) -> list[tuple[Proof, Tally]]:
        name = self.spec.name
        return [(one, one.specs[name]) for one in self.proofs if one.simulated == simulated and name in one.specs]

    def is_before_a_change(self, tally: Tally) -> bool:
        """Return whether a proof is of other code than today's: by code if both are known, else by sources."""
        if tally.code is not None and self.code is not None:
            return tally.code != self.code
        return tally.sources != source_digest(self.spec)

    def _takes(self, arch: str, dtype: str, accumulator: str, reduction: str, **changes: Any) -> bool:
        """Whether it takes a small case with these on an ideal fabric: of 16 elements a rank, or of one element."""
        case = Case(
            op=self.spec.op,
            algorithm=self.spec.algorithm,
            dtype=dtype,
            accumulator=accumulator,
            reduction=reduction,
            size_bytes=0,
            world_size=2,
            placement=self.spec.placements[0],
        )
        case = dataclasses.replace(case, **changes)
        traits = Traits("ideal", arch, case.world_size, 1 << 40, True)
        meaning = collective(case.op)
        sizes = (16 * case.world_size * ITEMSIZES[dtype], ITEMSIZES[dtype])
        return any(
            refuses(self.spec, meaning, dataclasses.replace(case, size_bytes=size), traits) is None for size in sizes
        )


def rows(proven: Sequence[Proof], op: str = "", known: Mapping[str, Code] | None = None) -> tuple[Row, ...]:
    """Return a row for each kernel in the catalogue's order, of one op or of all. known has today's code by name."""
    codes = {name: one.code for name, one in (known or {}).items()}
    return tuple(Row(spec, tuple(proven), codes.get(spec.name)) for spec in SPECS if op in ("", spec.op))


def _cells(spec: KernelSpec) -> list[Cell]:
    """All combinations of its data types that there are at all, whether the kernel takes them or not."""
    if not collective(spec.op).reduces:
        return [(dtype, NONE, NONE) for dtype in ALL]
    return [
        (dtype, accumulator, reduction)
        for dtype in ALL
        for reduction in reductions_of(dtype)
        for accumulator in accumulators_of(dtype, reduction)
    ]


def cells(row: Row, note: Callable[[str], str]) -> dict[str, str]:
    """A row's cells by column. note(text) gives the mark of a note, such as "[1]"."""
    spec, taken = row.spec, row.taken
    accumulators = [name for name in _ACCUMULATORS if any(cell[1] == name for cell in taken)]
    reductions = [name for name in REDUCTIONS if any(cell[2] == name for cell in taken)]
    needs = ["multicast"] if spec.needs_multicast else []
    if row.is_aligned:
        needs.append("16-byte alignment")
    if spec.max_size_bytes is not None:
        others = (f"{_bytes(most)} on {ranks}" for ranks, most in spec.max_sizes.items())
        needs.append("at most " + ", ".join([_bytes(spec.max_size_bytes), *others]))
    if special := exceptions(row):
        needs.append(note(special))
    return {
        "algorithm": spec.algorithm,
        "dtypes": dtypes_text(cell[0] for cell in taken),
        "accumulators": ", ".join(accumulators) or "-",
        "reductions": f"all {len(REDUCTIONS)}" if len(reductions) == len(REDUCTIONS) else ", ".join(reductions) or "-",
        "placement": "either" if len(spec.placements) == 2 else spec.placements[0].replace("_", " "),
        "needs": ", ".join(needs) or "-",
        "ranks": ranges(row.world_sizes),
        "simulator": _proven(row, True),
        "GPU": _proven(row, False),
    }


def exceptions(row: Row) -> str:
    """What a row's product of data types, accumulators and reductions has too much, exactly; "" where nothing."""
    missing = row.missing()
    parts: list[str] = []
    every = {(dtype, reduction): accumulators_of(dtype, reduction) for dtype, _, reduction in missing}
    whole = {pair for pair, names in every.items() if all((pair[0], name, pair[1]) in missing for name in names)}
    parts += _grouped(whole, REDUCTIONS, "no {}")
    rest = [cell for cell in missing if (cell[0], cell[2]) not in whole]
    parts += _grouped({(cell[0], cell[1]) for cell in rest}, (), "no accumulator {}")
    few: dict[tuple[str, ...], list[str]] = {}
    for (dtype, _, _), archs in row.taken.items():
        if len(archs) < len(row.spec.archs) and dtype not in few.setdefault(archs, []):
            few[archs].append(dtype)
    parts += [f"{dtypes_text(dtypes)}: only {', '.join(archs)}" for archs, dtypes in few.items()]
    return "; ".join(parts)


def _grouped(pairs: Iterable[tuple[str, str]], order: Sequence[str], text: str) -> list[str]:
    """ "float64, float32: no min, max": data types that lack the same, together."""
    lacking: dict[str, list[str]] = {}
    for dtype, name in pairs:
        lacking.setdefault(dtype, []).append(name)
    groups: dict[tuple[str, ...], list[str]] = {}
    for dtype in ALL:
        if dtype in lacking:
            names = sorted(lacking[dtype], key=lambda name: order.index(name) if name in order else 0)
            groups.setdefault(tuple(names), []).append(dtype)
    return [f"{dtypes_text(dtypes)}: {text.format(', '.join(names))}" for names, dtypes in groups.items()]


def dtypes_text(dtypes: Iterable[str]) -> str:
    """A set of data types in few words: the legend's groups, and what is left by name."""
    left = set(dtypes)
    if left == set(ALL):
        return f"all {len(ALL)}"
    words = []
    for word, group in (("floats", FLOATS), ("integers", INTEGERS), ("fp8", FLOAT8)):
        if set(group) <= left:
            words.append(word)
            left -= set(group)
    return ", ".join([*words, *(name for name in ALL if name in left)])


def ranges(numbers: Sequence[int]) -> str:
    """1, 2, 3, 16 as "1-3, 16"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{one[0]}-{one[-1]}" if len(one) > 1 else str(one[0]) for one in parts)


def _proven(row: Row, simulated: bool) -> str:
    """ "812 on 1-8, 16, 72 ranks" in the simulator; for GPUs with the machine."""
    texts = []
    for proof, tally in row.tallies(simulated):
        mark = BEFORE_A_CHANGE if row.is_before_a_change(tally) else ""
        where = "" if simulated else f"{proof.machine}: "
        texts.append(f"{where}{tally.passed} on {ranges(tally.world_sizes)} ranks{mark}")
    return "; ".join(texts) or NOT_YET


def _bytes(size: int) -> str:
    return f"{size >> 10} KiB" if size % 1024 == 0 else f"{size} bytes"
