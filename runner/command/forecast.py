"""What `symlab run --plan` says: the cases of a command, what will be refused and why, the memory.

Nothing is run and nothing is created: no folder of records, no database, no entry of the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from cases.case import UNIFORM, Case
from cases.refusal import Refusal
from reports.table.sheet import Line, Sheet, room_here, text, wrapped
from reports.table.text import MAX_LINES, counted
from runner.case.cases import rules_of
from runner.case.contestant import spec_for
from runner.case.host_memory import NOTHING_KEPT, gibibytes, host_bytes_needed
from runner.case.memory_needed import heap_bytes_needed, is_too_large
from runner.command.plan import Command
from runner.command.refusals import refusal_in
from runner.environment.host import available_bytes
from runner.launch.workers import SLURM, workers_given
from runner.request.sizes import format_bytes

MAX_REASONS = 20
"""Number of reasons of refusals that are listed."""

_COLUMNS: dict[str, Callable[[Case], object]] = {
    **{name: attrgetter(name) for name in ("op", "algorithm", "dtype", "accumulator", "reduction")},
    "ranks": attrgetter("world_size"),
    **{name: attrgetter(name) for name in ("placement", "inputs", "root", "offset", "seed", "counts")},
    "m x n x k": lambda case: " x ".join(map(str, case.gemm)) if case.gemm else "none",
    "stress": attrgetter("stress"),
}
"""The axes of cases but for their size."""


@dataclass(frozen=True, slots=True)
class ExpectedCase:
    """A case of a command: its job, counted from 1; why it will be refused."""

    job: int
    case: Case
    refusal: Refusal | None


def plan_text(command: Command, heading: Sequence[str], memory: Callable[[], int | None] = available_bytes) -> str:
    """Return what is planned, as lines: the heading, the table, refusals and memory.

    memory gives the bytes that this process can still take; None if the system does not report it.
    """
    cases = [
        ExpectedCase(job.composed.number + 1, case, refusal_in(job, case)) for job in command.jobs for case in job.cases
    ]
    reasons = list(dict.fromkeys(str(one.refusal) for one in cases if one.refusal))
    sheet = _case_by_case(cases[:MAX_LINES], reasons, len(command.jobs) > 1)
    room = room_here()
    said = [f"and {counted(len(cases) - MAX_LINES, 'more case')}"] if len(cases) > MAX_LINES else []
    said += [*_refusals(cases, reasons), _memory(command, memory())]
    below = [part for line in (*said, "nothing was run (--plan)") for part in wrapped(line, room)]
    above = [part for line in heading for part in wrapped(line, room)]
    return "\n".join([*above, "", text([sheet], [], room).rstrip(), "", *below])


def _case_by_case(cases: Sequence[ExpectedCase], reasons: Sequence[str], is_sweep: bool) -> Sheet:
    """The table, with a line a case."""
    axes = _varying(cases)
    columns = [*(["job"] if is_sweep else []), *dict.fromkeys(["algorithm", *axes]), "size", "expected"]
    lines = []
    for one in cases:
        cells = {name: str(_COLUMNS[name](one.case)) for name in columns if name in _COLUMNS}
        cells |= {"job": str(one.job), "size": format_bytes(one.case.size_bytes)}
        cells["expected"] = f"refused [{reasons.index(str(one.refusal)) + 1}]" if one.refusal else "runs"
        lines.append(Line({name: cells[name] for name in columns}))
    numeric = frozenset({"job", "ranks", "size", "root", "offset", "seed"})
    return Sheet(_heading(cases, axes), tuple(columns), (tuple(lines),), numeric)


def _varying(cases: Sequence[ExpectedCase]) -> list[str]:
    """The axes in which the cases differ."""
    return [name for name, value in _COLUMNS.items() if len({value(one.case) for one in cases}) > 1]


def _heading(cases: Sequence[ExpectedCase], axes: Sequence[str]) -> str:
    """What all cases agree in: "cases: all_reduce, float32, sum, 8 ranks"."""
    first, same = cases[0].case, []
    for name, value in _COLUMNS.items():
        is_left_out = name in ("algorithm", "root", "offset", "seed") or value(first) in ("none", UNIFORM)
        if name not in axes and not is_left_out:
            same.append(counted(first.world_size, "rank") if name == "ranks" else str(value(first)))
    return f"cases: {', '.join(same)}"


def _refusals(cases: Sequence[ExpectedCase], reasons: Sequence[str]) -> list[str]:
    """Each reason once, with its number, the key that it is about and the number of cases."""
    lines = []
    for number, reason in enumerate(reasons[:MAX_REASONS], 1):
        some = [one.refusal for one in cases if one.refusal and str(one.refusal) == reason]
        lines.append(f"[{number}] refused, {counted(len(some), 'case')} ({some[0].key}): {reason}")
    if len(reasons) > MAX_REASONS:
        lines.append(f"{counted(len(reasons) - MAX_REASONS, 'more reason')} (--plan of fewer jobs shows them)")
    return lines


def _memory(command: Command, available: int | None) -> str:
    """What the command needs at most: of the host for simulated ranks, of the symmetric heap for GPUs."""
    from runner.custom.host_memory import custom_heap_bytes, custom_host_bytes

    needed, job, kept = 0, 0, NOTHING_KEPT
    heap = custom = 0
    for one in command.jobs:
        request, here = one.request, 0
        if one.custom is not None:
            spec = one.custom.spec
            custom = max(custom, custom_heap_bytes(spec, request.world_size, request.fabric.simulated))
            here = custom_host_bytes(spec, request, request.fabric, request.world_size, one.custom.ptx)
        elif request.fabric.simulated:
            here = host_bytes_needed(request, one.specs, kept)
            kept = kept.after(request, one.specs)
        else:
            pairs = [(case, spec_for(case, one.specs)) for case in one.cases]
            rules = rules_of(request.fabric)
            heaps = (heap_bytes_needed(case, spec, rules) for case, spec in pairs if not is_too_large(case, spec))
            heap = max(heap, *heaps, 0)
        if request.fabric.simulated and here > needed:
            needed, job = here, one.composed.number + 1
    parts = []
    if needed:
        there = _available(command, available)
        where = f" (job {job} of {len(command.jobs)})" if len(command.jobs) > 1 else ""
        parts.append(f"up to {gibibytes(needed)} of host memory{where}, {there}")
    if heap:
        parts.append(f"at least {format_bytes(heap)} of symmetric heap a rank to check a case; timing fills the rest")
    if custom:
        parts.append(f"at least {format_bytes(custom)} of symmetric heap a rank for a custom kernel")
    return f"memory: {'; '.join(parts) or 'unknown'}"


def _available(command: Command, available: int | None) -> str:
    """How much of the host's memory there is for a job: workers share this machine's, and nodes have their own."""
    launch = command.launch
    if launch is not None and launch.name == SLURM:
        return "a worker looks at what Slurm gives it"
    if available is None:
        return "what is available is unknown"
    if launch is None:
        return f"{gibibytes(available)} is available"
    workers = min(workers_given(launch), len(command.jobs))
    return f"{gibibytes(available // workers)} is available to each of {counted(workers, 'worker')}"
