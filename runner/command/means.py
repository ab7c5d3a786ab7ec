"""How a job does its work: compiling, running, judging and timing a case. What a job is, and what tests replace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cases.case import Case
from cases.ops import Collective
from cases.record.record import Check
from cases.record.timing import LinkLimit
from cases.refusal import Refusal
from kernels.spec import KernelSpec, refuses
from memory.fabric import Executable, Traits
from memory.held_interrupts import uninterrupted
from runner.case.contestant import Contestant
from runner.command.case_programs import brought, measured, ran
from runner.request.validate import ResolvedRequest
from runner.world.world import World

if TYPE_CHECKING:
    from runner.case.library_modules import Brought
    from runner.custom.running import CompiledJob
    from runner.timing.combine import TimedResult


@dataclass(frozen=True, slots=True)
class Means:
    """How a job does its work; tests put their own in.

    measured times contestants of one size together; its last argument is the links' limit if it is known already,
    and it gives that back beside one TimedResult a contestant. Without it nothing is timed. brought brings a module
    that a library's baseline needs onto the ranks of a world. prepared is called, with what the fabric can do, before a
    case's time begins. late: the least size at which a library did not end in time, by all else that decides it
    (Subject.but_size): larger ones are refused.
    """

    refuses: Callable[[KernelSpec, Collective, Case, Traits], Refusal | None]
    compiled: Callable[[KernelSpec, Case, str, Path], Executable]
    ran: Callable[[World, Contestant, ResolvedRequest], Check | None]
    measured: (
        Callable[
            [World, Sequence[Contestant | CompiledJob], ResolvedRequest, LinkLimit | None],
            tuple[list[TimedResult], LinkLimit | None],
        ]
        | None
    ) = None
    brought: Callable[[World, str], Brought] | None = None
    prepared: Callable[[Traits], None] | None = None
    late: dict[tuple[object, ...], int] = field(default_factory=dict)


def usual_means() -> Means:
    """The catalogue's refusals, the compiler with its cache, the per-rank programs.

    Imports all of them with what they import when they are called: seconds that would be in the first case's time.
    """
    with uninterrupted():
        import runner.case.program  # noqa: F401
        from kernels.compile import executable

    return Means(refuses, executable, ran, measured, brought)
