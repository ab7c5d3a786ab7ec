"""The matrix of all that the catalogue could be asked, as cases: whole, or a sample of every kernel.

A cell is a kernel with a dtype, an accumulator and a reduction that belong together (cases/dtypes.py); each
is run on every world size with every kind of input, placement, shape and root. What a kernel refuses is a cell, too.
"""

from dataclasses import dataclass
from functools import cache

from cases import ops
from cases.case import UNIFORM, Case, Counts
from cases.dtypes import ALL, ARITHMETIC, ITEMSIZES, NONE, accumulators_of, reductions_of
from kernels import catalogue
from kernels.spec import refuses
from memory.fabric import Traits

WORLD_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 16, 72)
PLACEMENTS = ("out_of_place", "in_place")
ARCHS = ("sm_90a", "sm_100a")
"""Where a cell is run: on the first, or on the first that has it."""

LARGE_BYTES = {2: 96 << 10, 3: (2 << 20) + (96 << 10), 4: 600 << 10}
"""Messages that take other steps of the kernels' tunings than small ones, one a world size."""

LARGEST_LONG_WORLD = 8
"""Longer buffers, of several turns of a loop, only up to here: 72 ranks of them take the simulator minutes."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A kernel, by its name, and what it computes with."""

    name: str
    dtype: str
    accumulator: str
    reduction: str


@dataclass(frozen=True, slots=True)
class Row:
    """One point of the matrix, by its axes."""

    name: str
    dtype: str
    accumulator: str
    reduction: str
    world_size: int
    inputs: str
    placement: str
    shape: str
    root: str
    counts: str = UNIFORM


def cells(specs=catalogue.SPECS):
    """All cells of these kernels, refused ones too, in the kernels' order."""
    for spec in specs:
        if ops.collective(spec.op).reduces:
            for dtype in ARITHMETIC:
                for reduction in reductions_of(dtype):
                    for accumulator in accumulators_of(dtype, reduction):
                        yield Cell(spec.name, dtype, accumulator, reduction)
        else:
            for dtype in ALL:
                yield Cell(spec.name, dtype, NONE, NONE)


def rows(cell, world_size, few=False):
    """What a cell is run with in a world: every kind of input, placement, shape and root, in few rows.

    few: the most telling three of them, for GPUs, on which each takes longer to set up than to run.
    """
    spec = catalogue.find(cell.name)
    first, last = spec.placements[0], spec.placements[-1]
    plan = [
        ("odd", "normal", first, "last"),
        ("whole", "edge", last, "first"),
        ("large", "normal", first, "middle"),
        ("few", "exact", first, "middle"),
        ("odd", "edge", last, "first"),
        ("none", "normal", last, "first"),
        ("long", "exact", last, "last"),
    ]
    if few:
        plan = plan[:3] if spec.op != "barrier" else plan[3:4]
    refused = next((where for where in PLACEMENTS if where not in spec.placements), None)
    if refused and not few:
        plan.append(("whole", "normal", refused, "first"))
    for number, (shape, inputs, placement, root) in enumerate(plan):
        if _has(shape, world_size):
            counts = _counts(spec)
            yield Row(*_values(cell), world_size, inputs, placement, shape, root, counts[number % len(counts)])


def case_of(row):
    """The case of a row."""
    spec, collective = catalogue.find(row.name), ops.collective(row.name.split("/")[0])
    itemsize, n = ITEMSIZES[row.dtype], row.world_size
    chunks = n if collective.chunked else 1
    per_vector = 16 // itemsize
    numel, offset = {
        "whole": (max(3 * n * per_vector, 24 * chunks), 0),
        "odd": (chunks * (2 * per_vector + 3), 1),
        "few": (chunks if collective.chunked else max(1, n - 1), per_vector - 1),
        "none": (0, 0),
        "long": (n * (((20 << 10) // itemsize) // n + 1), 0),
        "large": (_large(spec, itemsize, n), 0),
    }[row.shape]
    if spec.op == "barrier":
        numel, offset = (0 if row.shape == "none" else 1), 0
    root = {"first": 0, "middle": n // 2, "last": n - 1}[row.root] if collective.rooted else 0
    types = (row.dtype, row.accumulator, row.reduction)
    how = {"placement": row.placement, "inputs": row.inputs, "root": root, "offset": offset, "counts": row.counts}
    return Case(spec.op, spec.algorithm, *types, numel * itemsize, n, **how)


def _counts(spec):
    """The counts per peer that an op can have, the most telling first."""
    return (UNIFORM,) if ops.collective(spec.op).sends is None else tuple(map(str, reversed(Counts)))


def _large(spec, itemsize, world_size):
    """Elements of a message for which launch values are others than for small ones, within what the kernel takes."""
    size_bytes = LARGE_BYTES.get(world_size, 0)
    if spec.max_size_bytes is not None:
        size_bytes = min(size_bytes, spec.max_size_bytes)
    return size_bytes // itemsize // world_size * world_size


def _has(shape, world_size):
    """Whether a shape is run in a world: 72 ranks of the longer ones take the simulator minutes."""
    return {"long": world_size <= LARGEST_LONG_WORLD, "large": world_size in LARGE_BYTES}.get(shape, True)


@cache
def arch_of(cell):
    """The first architecture whose instructions the cell needs nothing beyond; the first where none has it."""
    spec = catalogue.find(cell.name)
    numel = 1 if spec.op == "barrier" else 0
    case = Case(spec.op, spec.algorithm, cell.dtype, cell.accumulator, cell.reduction, numel * ITEMSIZES[cell.dtype], 1)
    return next((arch for arch in ARCHS if refusal(case, arch) is None), ARCHS[0])


def refusal(case, arch):
    """Return why the kernel refuses a case on a machine that has everything else; None if it does not."""
    traits = Traits("any", arch, case.world_size, 1 << 30, multicast=True)
    return refuses(catalogue.find(case.name), ops.collective(case.op), case, traits)


def all_rows(specs, world_sizes=WORLD_SIZES, few=False):
    """The whole matrix of these kernels; rows whose cases are the same (a barrier has one size) stand once.

    Kernels that call NVSHMEM's device functions may be among them: each of their cells takes seconds to compile.
    """
    found = {}
    for cell in cells(specs):
        for world_size in world_sizes:
            for row in rows(cell, world_size, few):
                found.setdefault(case_of(row).id, row)
    return list(found.values())


def _values(cell):
    return cell.name, cell.dtype, cell.accumulator, cell.reduction


def sample():
    """A few rows that are not refused, with world sizes and plans in turn."""
    chosen = [cell for number, cell in enumerate(cells()) if cell.accumulator == NONE or number % 4 == 0]
    found = []
    for number, cell in enumerate(chosen):
        plans = [row for row in rows(cell, WORLD_SIZES[number % 10]) if refusal(case_of(row), arch_of(cell)) is None]
        found += plans[number // 10 % max(len(plans), 1) :][:1]
    return found
