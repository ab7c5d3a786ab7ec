"""A request to its cases, in a stable order with stable ids; and the questions that only the catalogue can answer.

Sizes are the outer loop and algorithms the inner one, baselines after them, so that what is compared runs close
together. A request's fabric is decided before cases are made: "auto" stands for the simulator here.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

from kernels.catalogue import OPS, SPECS, collective, find
from kernels.spec import Case, KernelSpec
from runner.baselines import ACCUMULATOR, Baseline, find_baseline, names_for
from runner.config import MAX_DEVICE_HEAP_BYTES, MAX_HEAP_BYTES, Request, RequestError, check_heap, format_bytes, near

GUARD_BYTES = 256
"""What runner.program keeps on either side of every buffer and workspace."""

ALIGNMENT_BYTES = 256

GAP_BYTES = 4096
"""What the simulator leaves free behind every allocation, so that an access beyond its end meets nobody."""


def names_of(request: Request) -> tuple[str, ...]:
    """The algorithms that a request runs at each size: its own, then its baselines, each once."""
    baselines = request.baselines
    if baselines == "auto":
        baselines = () if request.fabric.simulated else names_for(request.op)
    return tuple(dict.fromkeys((*request.algorithms, *baselines)))


def cases_of(request: Request) -> tuple[Case, ...]:
    """All cases of a job: sizes outside, algorithms inside, both in the request's order."""
    return tuple(
        _case(request, algorithm, size_bytes) for size_bytes in request.sizes_bytes for algorithm in names_of(request)
    )


def _case(request: Request, algorithm: str, size_bytes: int) -> Case:
    """One case. A baseline's names what runs: its own placement, and an accumulator that is the library's matter."""
    baseline = find_baseline(algorithm)
    return Case(
        op=request.op,
        algorithm=algorithm,
        dtype=request.dtype,
        accumulator=ACCUMULATOR if baseline else request.accumulator,
        reduction=request.reduction,
        size_bytes=size_bytes,
        world_size=request.world_size,
        placement=baseline.placement(request.placement) if baseline else request.placement,
        inputs=request.inputs,
        seed=request.seed,
    )


def check_against_catalogue(request: Request) -> None:
    """RequestError if an op, algorithm, dtype, accumulator, reduction, size or architecture can never run.

    What some algorithms can and others can't is no error: those cases end REFUSED, with the reason.
    """
    if request.op not in OPS:
        raise RequestError(f"unknown op '{request.op}' (op), {near(request.op, OPS)}")
    specs = {spec.algorithm: spec for spec in SPECS if spec.op == request.op}
    known_baselines = names_for(request.op)
    for algorithm in request.algorithms:
        if algorithm not in specs and algorithm not in known_baselines:
            known = [*specs, *known_baselines]
            raise RequestError(
                f"unknown algorithm '{algorithm}' of {request.op} (algorithms), {near(algorithm, known)}"
            )
    for name in () if request.baselines == "auto" else request.baselines:
        if name not in known_baselines:
            raise RequestError(f"unknown baseline '{name}' of {request.op} (baselines), {near(name, known_baselines)}")
    _known(request.dtype, "dtype", (spec.dtypes for spec in specs.values()))
    _known(request.reduction, "reduction", (spec.reductions for spec in specs.values()))
    fitting = [spec.accumulators for spec in specs.values() if request.dtype in spec.dtypes]
    accumulators = _union(fitting)
    if request.accumulator not in accumulators:
        raise RequestError(
            f"{request.dtype} has no accumulator '{request.accumulator}' (accumulator), "
            f"known: {', '.join(accumulators)}"
        )
    archs = _union(spec.archs for spec in specs.values())
    if request.fabric.simulated and request.fabric.arch not in archs:
        raise RequestError(
            f"{request.op} is not built for '{request.fabric.arch}' (fabric.arch), known: {', '.join(archs)}"
        )
    check_heap(request.fabric, MAX_HEAP_BYTES if request.fabric.simulated else MAX_DEVICE_HEAP_BYTES)
    _check_sizes(request, specs)


def heap_bytes_needed(case: Case, spec: KernelSpec | Baseline) -> int:
    """Symmetric memory of one rank that a case takes: buffers with their guards, workspaces, tables of peers."""
    if isinstance(spec, Baseline):
        return _arenas_bytes(case) if spec.uses_heap else 0
    input_numel, output_numel = collective(case.op).counts(case.numel, case.world_size)
    sizes = [input_numel * case.itemsize + 2 * GUARD_BYTES]
    if case.placement == "out_of_place":
        sizes.append(output_numel * case.itemsize + 2 * GUARD_BYTES)
    sizes += _overhead(case, spec)
    return sum(_aligned(size) for size in sizes) + GAP_BYTES * (len(sizes) - 1)


def heap_bytes_to_measure(cases: Sequence[Case]) -> int:
    """Symmetric memory of one rank while cases of one size are timed together, each with its one slot at least."""
    total = 0
    for case in cases:
        known = find_baseline(case.algorithm) or find(case.name)
        if isinstance(known, KernelSpec):
            total += _arenas_bytes(case) + sum(_aligned(size) + GAP_BYTES for size in _overhead(case, known))
        elif known.uses_heap:
            total += _arenas_bytes(case)
    return total


def _overhead(case: Case, spec: KernelSpec) -> list[int]:
    """The sizes of what a kernel needs beside its input and output."""
    sizes = []
    for workspace in spec.workspaces(case):
        itemsize = int(re.sub(r"\D", "", workspace.dtype)) // 8
        sizes.append(workspace.numel * itemsize + 2 * GUARD_BYTES)
    return sizes + [8 * case.world_size] * len({one.of for one in spec.parameters if one.kind == "peers"})


def _arenas_bytes(case: Case) -> int:
    """One slot's input and output, without guards."""
    counts = collective(case.op).counts(case.numel, case.world_size)
    return sum(_aligned(count * case.itemsize) for count in counts[: 1 if case.placement == "in_place" else 2])


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _check_sizes(request: Request, specs: Mapping[str, KernelSpec]) -> None:
    """Every size is whole elements and fits the heap with every algorithm; else RequestError saying what would."""
    cases = cases_of(request)
    for case in cases:
        spec = find_baseline(case.algorithm) or specs[case.algorithm]
        if case.size_bytes % case.itemsize:
            lower = case.size_bytes // case.itemsize * case.itemsize
            near_sizes = f"{lower} or {lower + case.itemsize}" if lower else str(case.itemsize)
            raise RequestError(
                f"{case.size_bytes} bytes are no whole number of {case.dtype} elements (sizes), "
                f"give a multiple of {case.itemsize}, such as {near_sizes}"
            )
        heap_bytes = request.fabric.heap_bytes
        if heap_bytes_needed(case, spec) > heap_bytes:
            most = largest_fitting(case, spec, heap_bytes)
            fits = f"at most {most} bytes fit" if most else "nothing fits"
            raise RequestError(
                f"{format_bytes(case.size_bytes)} is beyond the heap of {format_bytes(heap_bytes)} a rank (sizes, "
                f"fabric.heap_bytes), with input, output and guards {fits}"
            )
    if request.fabric.simulated or request.timing.mode == "none" or not request.check:
        return
    for size_bytes in request.sizes_bytes:
        needed = heap_bytes_to_measure([case for case in cases if case.size_bytes == size_bytes])
        if needed > request.fabric.heap_bytes:
            raise RequestError(
                f"timing {format_bytes(size_bytes)} takes {format_bytes(needed)} a rank, for all algorithms together, "
                f"beyond the heap of {format_bytes(request.fabric.heap_bytes)} (sizes, fabric.heap_bytes), give more "
                "heap, fewer algorithms, or timing.mode=none"
            )


def largest_fitting(case: Case, spec: KernelSpec | Baseline, heap_bytes: int) -> int:
    """The largest size in bytes, in whole elements, that would fit the heap beside everything else; 0 if none does."""
    low, high = 0, heap_bytes // case.itemsize
    while low < high:
        middle = (low + high + 1) // 2
        if heap_bytes_needed(dataclasses.replace(case, size_bytes=middle * case.itemsize), spec) <= heap_bytes:
            low = middle
        else:
            high = middle - 1
    return low * case.itemsize


def _union(groups: Iterable[Sequence[str]]) -> list[str]:
    """All names of the groups, each once, in the order in which they appear."""
    return list(dict.fromkeys(name for group in groups for name in group))


def _known(value: str, key: str, groups: Iterable[Sequence[str]]) -> None:
    known = _union(groups)
    if value not in known:
        raise RequestError(f"unknown {key} '{value}' ({key}), {near(value, known)}")
