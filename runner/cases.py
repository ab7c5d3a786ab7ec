"""A request to its cases, in a stable order with stable ids; and the questions that only the catalogue can answer.

Sizes are the outer loop and algorithms the inner one, so that what is compared runs close together.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

from kernels.catalogue import OPS, SPECS, collective
from kernels.spec import Case, KernelSpec
from runner.config import Request, RequestError, format_bytes, near

GUARD_BYTES = 256
"""What runner.program keeps on either side of every buffer and workspace."""

ALIGNMENT_BYTES = 256

GAP_BYTES = 4096
"""What the simulator leaves free behind every allocation, so that an access beyond its end meets nobody."""


def cases_of(request: Request) -> tuple[Case, ...]:
    """All cases of a job: sizes outside, algorithms inside, both in the request's order."""
    return tuple(
        Case(
            op=request.op,
            algorithm=algorithm,
            dtype=request.dtype,
            accumulator=request.accumulator,
            reduction=request.reduction,
            size_bytes=size_bytes,
            world_size=request.world_size,
            placement=request.placement,
            inputs=request.inputs,
            seed=request.seed,
        )
        for size_bytes in request.sizes_bytes
        for algorithm in request.algorithms
    )


def check_against_catalogue(request: Request) -> None:
    """RequestError if an op, algorithm, dtype, accumulator, reduction, size or architecture can never run.

    What some algorithms can and others can't is no error: those cases end REFUSED, with the reason.
    """
    if request.op not in OPS:
        raise RequestError(f"unknown op '{request.op}' (op), {near(request.op, OPS)}")
    specs = {spec.algorithm: spec for spec in SPECS if spec.op == request.op}
    for algorithm in request.algorithms:
        if algorithm not in specs:
            raise RequestError(
                f"unknown algorithm '{algorithm}' of {request.op} (algorithms), {near(algorithm, specs)}"
            )
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
    if request.fabric.name != "nvshmem" and request.fabric.arch not in archs:
        raise RequestError(
            f"{request.op} is not built for '{request.fabric.arch}' (fabric.arch), known: {', '.join(archs)}"
        )
    _check_sizes(request, [specs[algorithm] for algorithm in request.algorithms])


def heap_bytes_needed(case: Case, spec: KernelSpec) -> int:
    """Symmetric memory of one rank that a case takes: buffers with their guards, workspaces, tables of peers."""
    input_numel, output_numel = collective(case.op).counts(case.numel, case.world_size)
    sizes = [input_numel * case.itemsize + 2 * GUARD_BYTES]
    if case.placement == "out_of_place":
        sizes.append(output_numel * case.itemsize + 2 * GUARD_BYTES)
    for workspace in spec.workspaces(case):
        itemsize = int(re.sub(r"\D", "", workspace.dtype)) // 8
        sizes.append(workspace.numel * itemsize + 2 * GUARD_BYTES)
    sizes += [8 * case.world_size] * len({parameter.of for parameter in spec.parameters if parameter.kind == "peers"})
    return sum(-(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for size in sizes) + GAP_BYTES * (len(sizes) - 1)


def _check_sizes(request: Request, specs: Sequence[KernelSpec]) -> None:
    """Every size is whole elements and fits the heap with every algorithm; else RequestError saying what would."""
    for case in cases_of(request):
        spec = next(one for one in specs if one.algorithm == case.algorithm)
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


def largest_fitting(case: Case, spec: KernelSpec, heap_bytes: int) -> int:
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
