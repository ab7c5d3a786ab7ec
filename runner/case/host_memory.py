"""What simulated cases need of the host's memory: an upper bound, computed before anything runs.

A simulated world lives in one process, and a process that asks for more than the host has is killed by the kernel
without a word. The parts of the bound, for n ranks:

- the process: Python, torch and the compiler (BASE_BYTES), its tracking (TRACKING_BYTES), a thread a rank;
- the ranks' heaps (memory_needed.py): each byte, another that says whether it was written, and 1/64 for the owners of
  granules (simulator/memory/heaps.py);
- the lanes of a launch: registers of all threads of all blocks of all ranks (lane_bytes);
- what ranks hold beside the heap (runner/case/program.py): inputs, their complement, outputs of all launches, copies of
  payloads and workspaces on their way. Freed pieces below 32 MiB stay with the allocator, so none is counted as reused;
- the reference and the comparison (FOLDED_BYTES, ..), once, or for each rank where ranks get different data;
- drawing the inputs (DRAWING_BYTES an element of a chunk), which all ranks do at once, before they hold anything else;
- inputs and references of other cases of the job and of the command's jobs before it, as far as they are kept
  (inputs.py, reference.py).

Peak resident memory of `python -m runner` with track=none on a 2-core x86 host, 2026-11-22, and its bound here (MiB):

| ranks | job | peak | bound |
|---:|---|---:|---:|
| 8 | all_reduce/one_shot 1M | 487 | 801 |
| 8 | all_reduce, all algorithms, 1M | 1507 | 2341 |
| 8 | all_reduce/one_shot 16M | 2047 | 2810 |
| 8 | all_reduce/one_shot 16M, check=false | 1766 | 1939 |
| 8 | all_reduce/one_shot 4M, launches=12 | 1188 | 1555 |
| 8 | all_reduce/two_shot 16M bfloat16 | 2832 | 3895 |
| 8 | all_reduce/two_shot 4M float64 avg | 1222 | 1440 |
| 8 | all_reduce/two_shot, two_shot_lamport 1M, random schedule | 1561 | 2231 |
| 8 | all_gather/pull 16M | 1140 | 1559 |
| 8 | all_to_all/pull 16M | 1786 | 2546 |
| 8 | reduce_scatter/pull 16M | 1216 | 2192 |
| 72 | all_reduce/one_shot 1M | 4001 | 5356 |
| 72 | all_reduce/ll 32K | 2984 | 4640 |
| 72 | all_reduce/multimem_two_shot 1M, check=false | 1141 | 1506 |
| 72 | all_gather/push 4M | 2497 | 3493 |
| 72 | all_to_all/pull 1M | 1094 | 2008 |
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from cases.case import Case
from cases.dtypes import FLOATS, NONE
from cases.ops import collective
from kernels.spec import KernelSpec
from runner.case.cases import cases_of, sizes_of
from runner.case.contestant import spec_for
from runner.case.layout import layout_of
from runner.case.memory_needed import heap_bytes_needed, largest_size, step_bytes, takes_memory
from runner.request.schema import HostMemory
from runner.request.sizes import format_bytes
from runner.request.validate import ResolvedRequest
from runner.request_error import RequestError

BASE_BYTES = 450 << 20
TRACKING_BYTES = 250 << 20
RANK_BYTES = 3 << 20

SLACK_PERCENT = 10
"""For what the allocator loses between pieces."""

MANY_RANKS = 16
"""Beyond it kernels share their blocks among groups of ranks, and hold more registers."""

LANE_BYTES, ADDING_LANE_BYTES = 720, 1500
"""A lane's registers and its share of shared memory; the second of a reduction over more than MANY_RANKS ranks. The
copies of registers that tell whether a spin can end (simulator/run/machine.py) are made only for lanes that spin long.
"""

BULK_LANE_BYTES, MANY_BULK_LANE_BYTES = 1500, 5000
"""The same of reductions by bulk copies, the second of more than MANY_RANKS ranks."""

INBOX_LANE_BYTES = ((3, 1900), (8, 3500), (16, 5700), (72, 9700))
MOVING_INBOX_LANE_BYTES = 1400
TWO_SHOT_INBOX_LANE_BYTES = 7300
"""The same of kernels for small messages, by most ranks: they unroll their waits over the ranks. The second of those
that only move data, the third of both shots in one kernel on up to 3 ranks."""

KEPT_INPUT_BYTES = 256 << 20
KEPT_REFERENCE_ELEMENTS = 8 << 20
KEPT_REFERENCE_BYTES = 100
CHUNK_ELEMENTS = 4 << 20

DRAWING_BYTES = {"normal": 8, "exact": 40, "edge": 96}
"""Bytes an element while inputs are drawn, by kind."""

FOLDED_BYTES, BOUNDED_BYTES, FLOAT64_BYTES = 110, 180, 450
"""Bytes an element of an output of floats while it is compared: with a fold, with a bound, and of float64, of which
some sums are made as fractions."""

PART_BYTES = 3
"""Beside these, for each rank: lists of what is added."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What jobs that ran before leave in a process, at most: bytes of inputs, and elements of references."""

    input_bytes: int = 0
    reference_elements: int = 0

    def after(self, request: ResolvedRequest, brought: Sequence[KernelSpec] = ()) -> Kept:
        """Return what is kept when another job has run, too."""
        needs = _needs(request, brought)
        return Kept(
            self.input_bytes + sum({need.input_bytes for need in needs}),
            self.reference_elements + sum(need.reference_elements for need in needs),
        )


NOTHING_KEPT = Kept()


def check_host_memory(
    request: ResolvedRequest,
    available_bytes: int | None,
    brought: Sequence[KernelSpec] = (),
    kept: Kept = NOTHING_KEPT,
) -> None:
    """RequestError if a job of simulated ranks may need more than the host has, saying what would fit.

    available_bytes is what the host can still give; None, if it is unknown: then nothing is checked. brought: see
    runner.case.contestant.spec_for. kept is of the jobs before this one.
    """
    if available_bytes is None or not request.fabric.simulated or request.host_memory == HostMemory.ignore:
        return

    def needed(world_size: int, sizes_bytes: Sequence[int]) -> int:
        job = dataclasses.replace(request, world_size=world_size, sizes_bytes=tuple(sizes_bytes))
        return host_bytes_needed(job, brought, kept)

    ranks, sizes = request.world_size, sizes_of(request)
    total = needed(ranks, sizes)
    if total <= available_bytes:
        return
    largest = max(sizes)

    def fits_in_size(size_bytes: int) -> bool:
        return needed(ranks, (*(size for size in sizes if size < size_bytes), size_bytes)) <= available_bytes

    most_bytes = largest_size(fits_in_size, step_bytes(request.op, request.dtype, ranks), largest)
    ranks_that_fit = bisect_left(range(request.root + 1, ranks), True, key=lambda n: needed(n, sizes) > available_bytes)
    gives = [f"at most {most_bytes} bytes"] if most_bytes else []
    gives += [f"world_size={request.root + ranks_that_fit}"] if ranks_that_fit else []
    advice = f"give {' or '.join(gives)}" if gives else "no size fits"
    advice += "; host_memory=ignore runs it all the same, the bound may be too high"
    raise RequestError(
        f"simulating {format_bytes(largest)} with world_size={ranks} takes up to {gibibytes(total)} of host memory, "
        f"and {gibibytes(available_bytes)} is available (sizes, world_size), {advice}"
    )


def host_bytes_needed(request: ResolvedRequest, brought: Sequence[KernelSpec] = (), before: Kept = NOTHING_KEPT) -> int:
    """Return an upper bound of the peak resident memory of a process that runs a job in the simulator."""
    needs = _needs(request, brought)
    tracking = TRACKING_BYTES if request.track.name != "none" else 0
    base = BASE_BYTES + tracking + request.world_size * RANK_BYTES
    if not needs:
        return base
    of_others = sum(need.reference_elements for need in needs) - max(need.reference_elements for need in needs)
    of_others += before.reference_elements
    kept = min(of_others, KEPT_REFERENCE_ELEMENTS) * KEPT_REFERENCE_BYTES
    inputs = {need.input_bytes for need in needs}
    kept += min(sum(inputs) - max(inputs) + before.input_bytes, KEPT_INPUT_BYTES)
    heap, lanes = max(need.heap_bytes for need in needs), max(need.lane_bytes for need in needs)
    run = max(need.run_bytes for need in needs) + kept
    return base + (heap + lanes + run) * (100 + SLACK_PERCENT) // 100


@dataclass(frozen=True, slots=True)
class _Need:
    """What one case needs on all ranks together. run_bytes: all beside the heaps and the lanes' registers."""

    heap_bytes: int
    lane_bytes: int
    run_bytes: int
    input_bytes: int
    reference_elements: int


def _needs(request: ResolvedRequest, brought: Sequence[KernelSpec]) -> list[_Need]:
    """Return the needs of all cases of a job that the simulator runs."""
    found = []
    for case in cases_of(request):
        spec = spec_for(case, brought)
        if isinstance(spec, KernelSpec) and takes_memory(case, spec):  # others are refused in the simulator
            found.append(_need(request.launches if request.check else 0, spec, dataclasses.replace(case, seed=0)))
    return found


@lru_cache(maxsize=1 << 16)
def _need(checked_launches: int, spec: KernelSpec, case: Case) -> _Need:
    """Return the need of one case, of which checked_launches launches are compared (0: check=false)."""
    layout, ranks = layout_of(case), case.world_size
    heap_bytes = heap_bytes_needed(case, spec)
    payloads_bytes = sum(layout.payloads_bytes)
    data_bytes, result_bytes = layout.input_bytes, max(layout.outputs_bytes)
    launch = spec.launch(case)
    op = collective(case.op)
    elements = result_bytes // case.itemsize * (1 if op.same_on_all_ranks or op.rooted else ranks)
    # The complement twice, as a buffer's content and on its way there; a payload's copy, poison, and the workspaces'.
    held_bytes = 3 * data_bytes + result_bytes + max(layout.payloads_bytes) + 2 * (heap_bytes - payloads_bytes)
    checked_bytes = 0
    if checked_launches:
        held_bytes += checked_launches * result_bytes
        checked_bytes = elements * _reference_bytes(case, spec)
        if ranks * data_bytes > KEPT_INPUT_BYTES:
            held_bytes += data_bytes  # drawn again for the reference
    drawing_bytes = min(data_bytes // case.itemsize, CHUNK_ELEMENTS) * _drawing_bytes(case) + data_bytes
    return _Need(
        heap_bytes=ranks * (2 * heap_bytes + heap_bytes // 64),
        lane_bytes=ranks * launch.blocks * launch.threads * lane_bytes(spec, case),
        run_bytes=max(ranks * held_bytes + checked_bytes, ranks * drawing_bytes),
        input_bytes=ranks * data_bytes,
        reference_elements=elements if checked_launches else 0,
    )


def lane_bytes(spec: KernelSpec, case: Case) -> int:
    """Return the most bytes that the simulator keeps for one thread of a launch."""
    if spec.max_size_bytes is not None:
        if case.reduction == NONE:
            return MOVING_INBOX_LANE_BYTES
        if spec.algorithm == "two_shot_lamport" and case.world_size <= INBOX_LANE_BYTES[0][0]:
            return TWO_SHOT_INBOX_LANE_BYTES
        return next(size_bytes for most, size_bytes in INBOX_LANE_BYTES if case.world_size <= most)
    if spec.algorithm == "bulk" and case.reduction != NONE:
        return BULK_LANE_BYTES if case.world_size <= MANY_RANKS else MANY_BULK_LANE_BYTES
    if spec.algorithm == "push_rounds" and case.world_size > MANY_RANKS:
        return MANY_BULK_LANE_BYTES
    return ADDING_LANE_BYTES if case.world_size > MANY_RANKS and case.reduction != NONE else LANE_BYTES


def _reference_bytes(case: Case, spec: KernelSpec) -> int:
    """Bytes an element of an output, while its reference is made and it is compared."""
    if case.reduction == NONE:
        return 3 * case.itemsize
    if case.dtype not in FLOATS:
        return 6 * case.itemsize
    parts_bytes = PART_BYTES * case.world_size
    if case.itemsize == 8:
        return FLOAT64_BYTES + parts_bytes
    return parts_bytes + (BOUNDED_BYTES if spec.fold == "unordered" else FOLDED_BYTES)


def _drawing_bytes(case: Case) -> int:
    """Bytes an element of a chunk, while it is drawn; and, or take a word for each halving of the ranks."""
    if case.inputs == "exact" and case.reduction in ("and", "or"):
        return 24 + 8 * case.world_size.bit_length()
    return DRAWING_BYTES[case.inputs]


def gibibytes(size_bytes: int) -> str:
    """Return a size in GiB with one decimal, as in messages: 1.5G."""
    return f"{size_bytes / (1 << 30):.1f}G"
