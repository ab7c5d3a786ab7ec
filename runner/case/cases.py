"""A request to its cases, in a stable order with stable ids; and the questions that only the catalogue can answer.

Sizes are the outer loop and algorithms the inner one, baselines after them, so that what is compared runs close
together. What a request leaves open ("auto", "all") is decided here, by the op and the fabric: see resolved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from cases.case import Case, Inputs
from cases.dtypes import ITEMSIZES, NONE, accumulators_of, refuses_types
from cases.ops import OPS, collective
from cases.stress import Stress
from kernels.baselines import ACCUMULATOR, find_baseline, names_for, usual_names_for
from kernels.catalogue import algorithms_of, find, is_known, specs_of
from kernels.spec import KernelSpec, refuses_counts
from kernels.tuned_name import has_tuning, with_dependent
from memory.placing import NVSHMEM, SIMULATED, HeapRules
from runner.case.contestant import spec_for
from runner.case.memory_needed import heap_bytes_needed, is_too_large, largest_fitting, step_bytes, takes_memory
from runner.request.chooser import BEST, Chooser
from runner.request.schema import PlacementChoice
from runner.request.sizes import AUTO, format_bytes
from runner.request.validate import MAX_DEVICE_HEAP_BYTES, MAX_HEAP_BYTES, Request, ResolvedRequest, check_heap
from runner.request_error import RequestError, near
from runner.world.fabrics import FabricRequest
from simulator.options import Schedule
from symlab.rooms import part_of

USUAL_DTYPE = "float32"
"""What dtype=auto stands for, where an op has it."""

AS_ASKED = ("op", "dtype", "reduction", "world_size", "seed", "root", "offset", "stress")
"""What a case has as its request has it."""


def resolved(
    request: Request,
    fabric: FabricRequest,
    specs: Sequence[KernelSpec] | None = None,
    chooser: Chooser | None = None,
) -> ResolvedRequest:
    """Return the request with names for all that it left open, on a fabric that is decided (runner.world.fabrics).

    Here and below, specs are the kernels there are; None: the catalogue's.

    - algorithms: "all" are the op's in the catalogue's order, without those that call NVSHMEM's device functions,
      which are "device_nvshmem"; "auto" leaves out those that need multicast where the simulated fabric has it switched
      off. (A real fabric's is only known once it runs: they are refused then.)
    - dtype: float32, or what the op's kernels have instead.
    - reduction: sum, or none for an op that only moves data.
    - accumulator: float32 where sums of the dtype can be kept in it, else native; none for an op that only moves data.
    - timing.dependent_launch: our kernels' names say it from here on, such as lamport@d.
    - best, among the algorithms: at each size what chooser has; None: the table that the request's `tuned` names.
      Beside it, "auto" stands for all that "auto" is by itself.
    - baselines: all of the op's on a real fabric, none on the simulator and under stress.
    - the simulator's order: random in place of fair under stress, but for a dead rank.
    - sizes: those of C, of an op that multiplies; else the usual ones, or that of one element, where all refuse those
      (a barrier's token).

    RequestError for an unknown op.
    """
    if request.op not in OPS:
        raise RequestError(f"unknown op '{request.op}' (op), {near(request.op, OPS)}")
    specs = [spec for spec in specs or specs_of(request.op, request.algorithms) if spec.op == request.op]
    reduces = collective(request.op).reduces
    dtype, reduction, accumulator = request.dtype, request.reduction, request.accumulator
    if dtype == AUTO:
        known = _union(spec.dtypes for spec in specs)
        dtype = known[0] if known and USUAL_DTYPE not in known else USUAL_DTYPE
    if reduction == AUTO:
        reduction = "sum" if reduces else NONE
    if accumulator == AUTO:
        wide = "float32" in accumulators_of(dtype, reduction)
        accumulator = ("float32" if wide else "native") if reduces else NONE
    algorithms = _algorithms(request.algorithms, specs, fabric)
    if request.timing.dependent_launch:
        brought = [spec.algorithm for spec in specs if not is_known(spec.name)]
        algorithms = tuple(_with_dependent_launch(name, request.op, brought) for name in algorithms)
    baselines = request.baselines
    if baselines == AUTO:
        ours_alone = fabric.simulated or fabric.share_gpus or request.stress != Stress.none
        baselines = () if ours_alone else usual_names_for(request.op)
    if request.stress not in (Stress.none, Stress.dead_rank) and fabric.schedule == Schedule.fair:
        fabric = dataclasses.replace(fabric, schedule=Schedule.random)
    names = [member.name for member in dataclasses.fields(ResolvedRequest) if member.name != "chooser"]
    fields = {name: getattr(request, name) for name in names}
    fields |= {"algorithms": algorithms, "baselines": baselines, "fabric": fabric}
    if BEST in algorithms:
        fields["chooser"] = chooser or part_of("algorithms=best")(
            request.tuned, fabric, request.op, ranks=request.world_size, specs=specs
        )
    named = ResolvedRequest(**fields | {"dtype": dtype, "reduction": reduction, "accumulator": accumulator})
    if request.sizes_given or dtype not in ITEMSIZES:
        return named
    if request.gemm is not None:
        return dataclasses.replace(named, sizes_bytes=(request.gemm[0] * request.gemm[1] * ITEMSIZES[dtype],))
    return dataclasses.replace(named, sizes_bytes=_suitable(named, specs))


def _algorithms(asked: tuple[str, ...] | str, specs: Sequence[KernelSpec], fabric: FabricRequest) -> tuple[str, ...]:
    """Names for what was asked of an op's kernels."""
    if not isinstance(asked, str):
        if not {BEST, AUTO} <= set(asked):
            return asked
        meant = [names for name in asked for names in (_algorithms(AUTO, specs, fabric) if name == AUTO else (name,))]
        return tuple(dict.fromkeys(meant))
    left_out = asked == AUTO and fabric.simulated and not fabric.multicast
    is_device = asked == "device_nvshmem"
    kernels = [spec for spec in specs if bool(spec.nvshmem) == is_device] or specs
    return tuple(spec.algorithm for spec in kernels if not (left_out and spec.needs_multicast))


def _with_dependent_launch(algorithm: str, op: str, brought: Sequence[str]) -> str:
    """The name of the kernel with dependent launches; those of libraries and of brought kernels stay, and best, whose
    table says which launches are dependent. RequestError for what can't have them."""
    if algorithm == BEST or algorithm in names_for(op) or algorithm in brought:
        return algorithm
    if not has_tuning(algorithm) and not is_known(f"{op}/{algorithm}"):
        raise RequestError(
            f"'{algorithm}' is no kernel of the catalogue, and only those have dependent launches "
            "(timing.dependent_launch), leave it false"
        )
    return with_dependent(algorithm)


def _suitable(request: ResolvedRequest, specs: Sequence[KernelSpec]) -> tuple[int, ...]:
    """The usual sizes; for an op that takes none of those, one of one element."""
    one = step_bytes(request.op, request.dtype, request.world_size)
    takes_usual = any(_takes(spec, request, size) for spec in specs for size in request.sizes_bytes)
    return (one,) if not takes_usual and any(_takes(spec, request, one) for spec in specs) else request.sizes_bytes


def _takes(spec: KernelSpec, request: ResolvedRequest, size_bytes: int) -> bool:
    """Whether nothing that a kernel says of itself is against a size."""
    step = step_bytes(request.op, request.dtype, request.world_size)
    case = _case(request, spec.algorithm, size_bytes // step * step, request.placement.placements[0].value)
    return not is_too_large(case, spec) and spec.refusal(case, request.fabric.arch) is None


def names_of(request: ResolvedRequest) -> tuple[str, ...]:
    """The algorithms that a request runs at each size: its own, then its baselines, each once."""
    return tuple(dict.fromkeys((*request.algorithms, *request.baselines)))


def sizes_of(request: ResolvedRequest) -> tuple[int, ...]:
    """The sizes in bytes that a request runs.

    For an op that divides its elements evenly over the ranks they are rounded down to what it can divide, as in
    nccl-tests (it may be 0), and what is then equal runs once.
    """
    return tuple(rounded_sizes(request))


def rounded_sizes(request: ResolvedRequest) -> dict[int, list[int]]:
    """The sizes in bytes that a request runs, each with those that were asked for and became it."""
    step = step_bytes(request.op, request.dtype, request.world_size) if collective(request.op).chunked else 1
    found: dict[int, list[int]] = {}
    for size_bytes in request.sizes_bytes:
        found.setdefault(size_bytes // step * step, []).append(size_bytes)
    return found


def cases_of(request: ResolvedRequest) -> tuple[Case, ...]:
    """All cases of a job: sizes outside, algorithms inside them, both in the request's order, placements innermost."""
    found = (
        _case(request, algorithm, size_bytes, placement)
        for size_bytes in sizes_of(request)
        for algorithm in names_of(request)
        for placement in _placements(request, algorithm)
    )
    if request.chooser is None:
        return tuple(found)
    return tuple(dict.fromkeys(_chosen(request.chooser, case) for case in found))


def _chosen(chooser: Chooser, case: Case) -> Case:
    """The case itself; of best what the table has, which may be one of the other algorithms."""
    return dataclasses.replace(case, algorithm=chooser.name_for(case)) if case.algorithm == BEST else case


def _placements(request: ResolvedRequest, algorithm: str) -> tuple[str, ...]:
    """The placements that an algorithm is run in: those asked for; of a baseline those that its interface has."""
    wanted = [placement.value for placement in request.placement.placements]
    baseline = find_baseline(algorithm)
    if baseline is None or request.op not in baseline.ops:
        return tuple(wanted)
    return tuple(dict.fromkeys(baseline.placement(request.op, one, request.world_size) for one in wanted))


def _case(request: ResolvedRequest, algorithm: str, size_bytes: int, placement: str) -> Case:
    """One case. A baseline's names what runs: its accumulator is the library's own matter."""
    baseline = find_baseline(algorithm)
    return Case(
        **{name: getattr(request, name) for name in AS_ASKED},
        algorithm=algorithm,
        accumulator=ACCUMULATOR if baseline else request.accumulator,
        size_bytes=size_bytes,
        placement=placement,
        inputs=str(request.inputs),
        counts=str(request.counts),
        gemm=request.gemm,
    )


def _refuse_bracketed(name: str, key: str, words: Sequence[str], names: Sequence[str]) -> None:
    """RequestError if a name in a list is one of the words that stand for a whole list."""
    if name in words:
        others = f", or the names without {name}" if len(names) > 1 else ""
        raise RequestError(f"'{name}' is no name for a list ({key}), give {key}={name} without brackets{others}")


def check_against_catalogue(request: ResolvedRequest, specs: Sequence[KernelSpec] | None = None) -> None:
    """RequestError if an op, algorithm, dtype, accumulator, reduction, placement, root, size or architecture can never
    run.

    What some algorithms can and others can't is no error: those cases end REFUSED, with the reason.
    """
    specs = tuple(spec for spec in specs or specs_of(request.op, request.algorithms) if spec.op == request.op)
    algorithms = [spec.algorithm for spec in specs]
    known_baselines = names_for(request.op)
    for algorithm in request.algorithms:
        if algorithm == BEST and request.chooser is not None:
            continue
        if has_tuning(algorithm):
            _check_tuning(f"{request.op}/{algorithm}")
        elif algorithm not in algorithms and algorithm not in known_baselines:
            _refuse_bracketed(algorithm, "algorithms", ("auto", "all", "device_nvshmem"), request.algorithms)
            if algorithm.endswith((".py", ".yaml")):
                raise RequestError(f"{algorithm} is a file (algorithms), add the name in it: {algorithm}:NAME")
            known = list(dict.fromkeys((*algorithms_of(request.op), *algorithms, *known_baselines)))
            raise RequestError(
                f"unknown algorithm '{algorithm}' of {request.op} (algorithms), {near(algorithm, known)}"
            )
    for name in request.baselines:
        if name not in known_baselines:
            _refuse_bracketed(name, "baselines", ("auto", "none"), request.baselines)
            raise RequestError(f"unknown baseline '{name}' of {request.op} (baselines), {near(name, known_baselines)}")
    if request.fabric.share_gpus and (libraries := [name for name in names_of(request) if name in known_baselines]):
        raise RequestError(
            f"libraries such as {libraries[0]} need a GPU for each rank (fabric.share_gpus), give baselines=none"
        )
    _check_types(request, specs)
    _check_placing(request)
    archs = _union(spec.archs for spec in specs)
    if request.fabric.simulated and request.fabric.arch not in archs:
        raise RequestError(
            f"{request.op} is not built for '{request.fabric.arch}' (fabric.arch), known: {', '.join(archs)}"
        )
    check_heap(request.fabric, MAX_HEAP_BYTES if request.fabric.simulated else MAX_DEVICE_HEAP_BYTES)
    _check_sizes(request, specs)


def _check_tuning(name: str) -> None:
    """RequestError if a name with a tuning is no kernel's."""
    try:
        find(name)
    except ValueError as error:
        raise RequestError(f"{error} (algorithms)") from None


def _check_types(request: ResolvedRequest, specs: Sequence[KernelSpec]) -> None:
    """RequestError for a dtype, reduction or accumulator that the op has not, or that don't belong together."""
    dtypes = _union(spec.dtypes for spec in specs)
    if request.dtype in ITEMSIZES and request.dtype not in dtypes:
        raise RequestError(f"{request.op} does not support {request.dtype} (dtype), give one of {', '.join(dtypes)}")
    _known(request.dtype, "dtype", [dtypes])
    if not collective(request.op).reduces:
        for key in ("reduction", "accumulator"):
            value = getattr(request, key)
            if value != NONE:
                raise RequestError(f"{request.op} only moves data: no {key} '{value}' ({key}), give none or auto")
        return
    _known(request.reduction, "reduction", (spec.reductions for spec in specs))
    unfit = refuses_types(request.dtype, request.accumulator, request.reduction)
    if unfit:
        raise RequestError(f"{unfit.reason} ({unfit.key}), {unfit.hint}")
    fitting = _union(spec.accumulators for spec in specs if request.dtype in spec.dtypes)
    if request.accumulator not in fitting:
        raise RequestError(
            f"no kernel of {request.op} has the accumulator '{request.accumulator}' for {request.dtype} (accumulator), "
            f"known: {', '.join(fitting)}"
        )


def _check_placing(request: ResolvedRequest) -> None:
    """RequestError for a root, a placement or counts that the op has not."""
    op = collective(request.op)
    if not op.rooted and request.root:
        raise RequestError(f"{request.op} has no root {request.root} (root), leave it at 0")
    if request.root >= request.world_size:
        last = request.world_size - 1
        raise RequestError(
            f"there is no rank {request.root} in a world of {request.world_size} (root), "
            f"give {f'0 to {last}' if last else '0'}"
        )
    if op.in_place is None and request.placement == PlacementChoice.in_place:
        raise RequestError(f"{request.op} has no form in place (placement), give out_of_place")
    if unfit := refuses_counts(op, request.counts):
        raise RequestError(f"{unfit.reason} ({unfit.key}), {unfit.hint}")
    if op.product is not None and request.inputs == Inputs.edge:
        raise RequestError(f"{request.op} has no edge inputs (inputs), give normal or exact")


def _check_sizes(request: ResolvedRequest, specs: Sequence[KernelSpec]) -> None:
    """Every size is whole elements and fits the heap with each algorithm; else RequestError saying what would.

    What fits alone can be timed: algorithms that do not fit together take turns (measured_in_turns).
    """
    cases = cases_of(request)
    heap_bytes = request.fabric.heap_bytes
    rules = rules_of(request.fabric)
    for case in cases:
        spec = spec_for(case, specs)
        if case.size_bytes % case.itemsize:
            lower = case.size_bytes // case.itemsize * case.itemsize
            near_sizes = f"{lower} or {lower + case.itemsize}" if lower else str(case.itemsize)
            raise RequestError(
                f"{case.size_bytes} bytes are no whole number of {case.dtype} elements (sizes), "
                f"give a multiple of {case.itemsize}, such as {near_sizes}"
            )
        if takes_memory(case, spec) and (
            case.size_bytes > heap_bytes or heap_bytes_needed(case, spec, rules) > heap_bytes
        ):
            if case.gemm is not None:
                needed = format_bytes(-(-heap_bytes_needed(case, spec, rules) >> 20) << 20)
                raise RequestError(
                    f"A, B and C of M, N, K {list(case.gemm)} are beyond the heap of {format_bytes(heap_bytes)} a rank "
                    f"(m, n, k, fabric.heap_bytes), give smaller ones or fabric.heap_bytes={needed}"
                )
            most = largest_fitting(case, spec, heap_bytes, rules)
            fits = f"at most {most} bytes fit" if most else "nothing fits"
            smaller = f"sizes up to {format_bytes(1 << most.bit_length() - 1)} or " if most else ""
            raise RequestError(
                f"{format_bytes(case.size_bytes)} is beyond the heap of {format_bytes(heap_bytes)} a rank (sizes, "
                f"fabric.heap_bytes), with input, output and guards {fits}: give {smaller}a larger fabric.heap_bytes"
            )


def rules_of(fabric: FabricRequest) -> HeapRules:
    """Return how the fabric's heap places allocations."""
    return SIMULATED if fabric.simulated else NVSHMEM


def _union(groups: Iterable[Sequence[str]]) -> list[str]:
    """All names of the groups, each once, in the order in which they appear."""
    return list(dict.fromkeys(name for group in groups for name in group))


def _known(value: str, key: str, groups: Iterable[Sequence[str]]) -> None:
    known = _union(groups)
    if value not in known:
        right = near(value, known)
        raise RequestError(f"unknown {key} '{value}' ({key}), {right}")
