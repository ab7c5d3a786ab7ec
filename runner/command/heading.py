"""What a command says before it runs: what is going to run, and on what."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.command.plan import Command
    from runner.custom.description import CustomJob


ROUNDED = "sizes: rounded down so that all ranks have equal chunks, as in nccl-tests"


ROUNDED_TOTALS = "sizes: rounded down so that each rank's total is divisible by the number of ranks"
"""Of an op whose chunks differ by counts: a size is what a rank sends to all of them."""


def headline(command: Command) -> list[str]:
    """What is going to run, and on what."""
    from reports.table.text import counted
    from runner.case.cases import names_of, sizes_of
    from runner.command.unused_keys import unused_keys

    request = command.jobs[0].request
    if command.jobs[0].custom is not None and len(command.jobs) == 1:
        return [_custom_line(command.jobs[0].custom), *command.fabric_lines, *unused_keys(command)]
    sweep = f"{counted(len(command.jobs), 'job')}, " if len(command.jobs) > 1 else ""
    if sweep:
        what = f"symlab: {command.label}: {sweep}{counted(command.case_count, 'case')}"
    else:
        arithmetic = f"{request.dtype}/{request.accumulator} {request.reduction}"
        places = ", out of place and in place" if len(request.placement.placements) > 1 else ""
        does = f"{request.dtype}, moves data" if request.reduction == "none" else arithmetic
        what = (
            f"symlab: {request.op} {does}, "
            f"{counted(request.world_size, 'rank')}, {counted(len(sizes_of(request)), 'size')} x "
            f"{counted(len(names_of(request)), 'algorithm')}{places} = {counted(command.case_count, 'case')}"
        )
    brought = dict.fromkeys(f"kernel: {one.spec.name} from {one.place}" for job in command.jobs for one in job.brought)
    tables = dict.fromkeys(
        line for job in command.jobs if job.request.chooser is not None for line in job.request.chooser.said(job.cases)
    )
    notes = [*_rounded_lines(command), *command.fabric_lines, *unused_keys(command), *_spread_lines(command)]
    return [what, *brought, *tables, *notes]


def _rounded_lines(command: Command) -> list[str]:
    """Why sizes are not those that were asked for, and which became the same one, which runs once."""
    from runner.case.cases import rounded_sizes
    from runner.request.sizes import format_bytes

    found: dict[str, dict[str, None]] = {}
    for job in command.jobs:
        if job.custom is not None:
            continue
        by_size = rounded_sizes(job.request)
        if all(asked == [size] for size, asked in by_size.items()):
            continue
        same = found.setdefault(ROUNDED_TOTALS if job.request.op == "all_to_all_v" else ROUNDED, {})
        for size, asked in by_size.items():
            if len(asked) > 1:
                names = [format_bytes(one) for one in asked]
                same[f"{', '.join(names[:-1])} and {names[-1]} became {format_bytes(size)}"] = None
    return ["; ".join([line, *same]) for line, same in found.items()]


def _spread_lines(command: Command) -> list[str]:
    """Which workers a command gets."""
    from reports.table.text import counted

    if command.launch is None:
        return []
    from runner.command.groups import groups_for

    workers = " + ".join(counted(group.workers, "worker") for group in groups_for(command.launch, command))
    return [f"launcher: {command.launch.name}, {workers}"]


def _custom_line(custom: CustomJob) -> str:
    """What a custom kernel is going to run on."""
    from reports.table.text import counted

    buffers = ", ".join(f"{one.name} {one.dtype} {list(one.shape)}" for one in custom.spec.buffers)
    launch = custom.spec.launch
    threads = f"{counted(launch.blocks, 'block')} x {counted(launch.threads, 'thread')}" if launch else "its own launch"
    return f"symlab: custom {custom.place}, {counted(custom.case.world_size, 'rank')}, {threads}, {buffers} = 1 case"
