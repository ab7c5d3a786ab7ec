"""The symmetric heap that cases need: the programs' own allocations (allocation.py), made in a pool that only counts.

It imports no torch. Sizes in bytes are of one rank.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import lru_cache

from cases.case import Case, Inputs
from cases.dtypes import ITEMSIZES
from cases.ops import collective
from cases.stress import NO_STRESS
from kernels.baselines import Baseline
from kernels.spec import KernelSpec, cases_in_turn
from memory.placing import NVSHMEM, SIMULATED, CountingPool, HeapRules
from runner.case.allocation import allocate, allocate_arenas
from runner.case.contestant import spec_for


def heap_bytes_needed(case: Case, spec: KernelSpec | Baseline, rules: HeapRules = SIMULATED) -> int:
    """Return the smallest heap that holds one run of a case, a multiple of rules.granule_bytes.

    0 for a library that brings its own memory.
    """
    return _heap_bytes_needed(without_data(case), spec, rules)


def without_data(case: Case) -> Case:
    """Return the case with the usual data: memory depends on neither seed nor inputs, so jobs of a sweep share it."""
    return dataclasses.replace(case, seed=0, inputs=Inputs.normal.value)


@lru_cache(maxsize=1 << 16)
def _heap_bytes_needed(case: Case, spec: KernelSpec | Baseline, rules: HeapRules) -> int:
    pool = CountingPool(rules)
    if isinstance(spec, KernelSpec):
        stressed = case.stress != NO_STRESS
        allocate(pool, spec, cases_in_turn(spec, collective(case.op), case) if stressed else [case])
    elif spec.uses_heap:
        allocate_arenas(pool, None, case, 1)
    return pool.peak_bytes


def heap_bytes_to_measure(cases: Sequence[Case], brought: Sequence[KernelSpec] = ()) -> int:
    """Return the smallest heap in which cases of one size are timed together, each with one slot, its minimum.

    By NVSHMEM's rules: only GPUs are timed. brought: see spec_for.
    """
    pool = CountingPool(NVSHMEM)
    for case in cases:
        known = spec_for(case, brought)
        if takes_memory(case, known) and (isinstance(known, KernelSpec) or known.uses_heap):
            allocate_arenas(pool, known if isinstance(known, KernelSpec) else None, case, 1)
    return pool.peak_bytes


def measured_in_turns(
    cases: Sequence[Case], heap_bytes: int, brought: Sequence[KernelSpec] = ()
) -> list[tuple[int, ...]]:
    """Return which cases of one size are timed together, by their places: all, or as many as fit the heap in turn.

    In order, each with the ones before it, if the heap has room for another one with one slot.
    """
    turns: list[list[int]] = []
    for place, case in enumerate(cases):
        if turns:
            together = [cases[one] for one in turns[-1]]
            takes_none = not heap_bytes_to_measure([case], brought)
            if takes_none or heap_bytes_to_measure([*together, case], brought) <= heap_bytes:
                turns[-1].append(place)
                continue
        turns.append([place])
    return [tuple(turn) for turn in turns]


def largest_fitting(case: Case, spec: KernelSpec | Baseline, heap_bytes: int, rules: HeapRules = SIMULATED) -> int:
    """Return the largest of the op's sizes, in bytes, that fits the heap with all else; 0 if none does."""

    def fits(size_bytes: int) -> bool:
        return heap_bytes_needed(dataclasses.replace(case, size_bytes=size_bytes), spec, rules) <= heap_bytes

    return largest_size(fits, step_bytes(case.op, case.dtype, case.world_size), heap_bytes * case.world_size)


def largest_size(fits: Callable[[int], bool], step_bytes: int, most_bytes: int) -> int:
    """Return the largest multiple of step_bytes up to most_bytes that fits, by bisection; 0 if none does."""
    low, high = 0, most_bytes // step_bytes
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle * step_bytes):
            low = middle
        else:
            high = middle - 1
    return low * step_bytes


def is_too_large(case: Case, spec: KernelSpec | Baseline) -> bool:
    """Whether a kernel for small messages refuses the case's size, so that it takes no memory."""
    most = spec.limit_bytes(case.world_size) if isinstance(spec, KernelSpec) else None
    return most is not None and case.size_bytes > most


def takes_memory(case: Case, spec: KernelSpec | Baseline) -> bool:
    """Whether a case takes any: kernels refuse sizes that are too large for them, and placements that they lack."""
    return not is_too_large(case, spec) and not (isinstance(spec, KernelSpec) and case.placement not in spec.placements)


def step_bytes(op: str, dtype: str, world_size: int) -> int:
    """Return the bytes of which an op's sizes are multiples: an element's, or those of one element a rank."""
    return ITEMSIZES[dtype] * (world_size if collective(op).chunked else 1)
