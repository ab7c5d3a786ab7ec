"""The variants of a kernel that stand for its code, and their compilation.

A kernel is compiled for each choice that its code depends on (KernelSpec.choices). All of them are too many to compile
whenever somebody asks whether the code is still the same: 2,684 for the catalogue at two world sizes, ten minutes on
one core. The variants here cover every data type with every accumulator that it takes, and every reduction at least
once, each in worlds of 2 and of 4 ranks and at a small and a large size, which take different steps of a tuning; both
placements, where the code differs; the first of ARCHS that takes the cell. A kernel that takes more than it did before
has more variants, so its code is another.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cases.case import Case
from cases.code_digest import code_digest
from cases.dtypes import ITEMSIZES
from cases.ops import collective
from kernels.catalogue import find
from kernels.compile import executable
from kernels.matrix.codes import Code, code_from
from kernels.matrix.matrix import Cell, Row
from kernels.spec import KernelSpec, refuses
from memory.fabric import Traits
from memory.worker_process import end_with_parent

WORLD_SIZES = (2, 4)
SIZES_BYTES = (4 << 10, 64 << 20)
ARCHS = ("sm_90a", "sm_100a")


@dataclass(frozen=True, slots=True)
class Variant:
    """One case of a kernel, and the architecture to compile it for."""

    case: Case
    arch: str

    @property
    def label(self) -> str:
        """A name in the words of the case, such as "bfloat16-float32-sum-n2-4096B-out_of_place-sm_90a"."""
        one = self.case
        return (
            f"{one.dtype}-{one.accumulator}-{one.reduction}-n{one.world_size}-{one.size_bytes}B-{one.placement}"
            f"-{self.arch}"
        )


def variants(spec: KernelSpec, every: bool = False) -> tuple[Variant, ...]:
    """Return the variants that stand for a kernel's code, or with `every` those of all cells that it takes.

    Cases that the spec compiles to one code (equal choices) appear once, by the first of them.
    """
    taken = Row(spec, ()).taken
    found: dict[tuple[str, str], Variant] = {}
    for cell in taken if every else covering(taken):
        arch = next((one for one in ARCHS if one in taken[cell]), taken[cell][0])
        for case in _cases(spec, cell, arch):
            found.setdefault((spec.variant(case), arch), Variant(case, arch))
    return tuple(found.values())


def covering(cells: Iterable[Cell]) -> list[Cell]:
    """Return cells with every pair of data type and accumulator once, and every reduction at least once.

    Each pair takes the reduction that was used least so far; a reduction that is left over at the end gets a cell of
    its own.
    """
    pairs: dict[tuple[str, str], list[str]] = {}
    for dtype, accumulator, reduction in cells:
        pairs.setdefault((dtype, accumulator), []).append(reduction)
    used = {reduction: 0 for reductions in pairs.values() for reduction in reductions}
    chosen = []
    for (dtype, accumulator), reductions in pairs.items():
        reduction = min(reductions, key=used.__getitem__)
        used[reduction] += 1
        chosen.append((dtype, accumulator, reduction))
    for reduction in (name for name, count in used.items() if not count):
        dtype, accumulator = next(pair for pair, reductions in pairs.items() if reduction in reductions)
        chosen.append((dtype, accumulator, reduction))
    return chosen


def compiled(spec: KernelSpec, wanted: Iterable[Variant], cache_dir: Path) -> dict[str, str]:
    """Return the code digests of a kernel's variants by label, each compiled here or found in the cache.

    Raises RuntimeError if one can't be compiled.
    """
    return {one.label: code_digest(executable(spec, one.case, one.arch, cache_dir).ptx) for one in wanted}


def code_of(spec: KernelSpec, cache_dir: Path) -> Code:
    """Return a kernel's code as it compiles here. Raises RuntimeError if a variant can't be compiled."""
    return code_from(compiled(spec, variants(spec), cache_dir))


def codes_of(names: Sequence[str], cache_dir: Path) -> Iterator[tuple[str, Code]]:
    """Yield the code of each kernel of the catalogue by name, in order. Uses a process for each core."""
    count = min(len(os.sched_getaffinity(0)), len(names))
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), end_with_parent) as pool:
        yield from zip(names, pool.map(partial(_code_of_name, cache_dir), names), strict=True)


def _code_of_name(cache_dir: Path, name: str) -> Code:
    return code_of(find(name), cache_dir)


def _cases(spec: KernelSpec, cell: Cell, arch: str) -> Iterator[Case]:
    """The cases of a cell: every world size, size and placement, as far as the kernel takes them."""
    dtype, accumulator, reduction = cell
    sizes = (ITEMSIZES[dtype],) if spec.op == "barrier" else SIZES_BYTES
    for world_size in WORLD_SIZES:
        largest = spec.limit_bytes(world_size) or max(SIZES_BYTES)
        for size_bytes in sizes:
            for placement in spec.placements:
                case = Case(
                    spec.op,
                    spec.algorithm,
                    dtype,
                    accumulator,
                    reduction,
                    min(size_bytes, largest),
                    world_size,
                    placement=placement,
                )
                traits = Traits("ideal", arch, world_size, 1 << 40, True)
                if refuses(spec, collective(spec.op), case, traits) is None:
                    yield case
