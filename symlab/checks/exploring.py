"""Explore the orders of a kernel that was brought, up to the first that gives a wrong output, a fault or a deadlock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from memory.tensor import flat_bytes
from runner.request_error import RequestError, near
from runner.world.fabrics import simulator_options
from simulator.options import Interleaving, Memory, traits_of
from symlab.launching import Asked, Brought, Kernel, adapted, brought_launch, run_on_rank
from symlab.worlds import world

if TYPE_CHECKING:
    import torch

    from runner.world.threads import ThreadWorld
    from simulator.world import SimulatorOptions
    from symlab.checks.explore.found import Found
    from symlab.checks.explore.subject import Judgement, Subject

__tracebackhide__ = True
"""pytest shows the test's own lines, and none of this file."""

DEADLINE_S = 120.0

_OF_LAUNCH = (
    *("local", "variables", "entry", "shared_bytes", "cluster", "cooperative", "assumptions"),
    *("launches", "graph", "dependent"),
)
_OF_WORLD = ("arch", "gpu", "memory", "races", "multicast", "heap_bytes", "step_budget", "multimem")
"""Arguments of a launch and of symlab.world that explore() takes beside those that it names itself."""


@dataclass(frozen=True, slots=True)
class Exploration:
    """How an exploration ended; explore() returns it.

    found is the failure, None if there was none: `found.order` says under which schedule and seed, `found.failure` what
    went wrong, `found.text()` tells it with the interleaving, and `found.rows` are the interleaving. runs: number of
    runs; undecided: what was said of runs that the time or the steps ended. An exploration that found nothing proves no
    absence.
    """

    found: Found | None
    runs: int
    seconds: float
    undecided: tuple[str, ...] = ()


def explore(
    kernel: Kernel,
    *,
    ranks: int = 4,
    grid: int | tuple[int, int, int] | None = None,
    block: int | tuple[int, int, int] | None = None,
    buffers: Mapping[str, Any],
    arguments: Sequence[Any] | Callable[[int], Sequence[Any]] = (),
    expected: Mapping[str, Any] | None = None,
    seeds: int | None = None,
    seconds: float | None = None,
    schedule: str = "both",
    first_seed: int = 0,
    shrink_s: float = 30.0,
    processes: int | None = None,
    deadline_s: float = DEADLINE_S,
    **launch: Any,
) -> Exploration:
    """Launch a kernel under one order of threads after another, up to the first that fails, and shrink that order.

    A run fails with a wrong output, a fault or a deadlock; with races=True also if the race checker finds a race in it,
    right as its output may be. expected: by buffer what it must hold afterwards, a tensor (on every rank) or a list of
    them by rank, bit for bit; None: what all buffers hold after a run in the fair order.

    seeds: number of seeds, from first_seed on, each a run under every schedule. seconds: how long; None for both: 60
    seconds. schedule: "random", "adversarial" or "both". shrink_s: seconds for the search for fewer switches.
    processes: their number; None: one a processor. deadline_s: seconds that one run may take. launch: the other
    arguments of symlab.simulate, such as local, gpu and memory. stderr has progress.

    Raises ValueError for what can't be launched, for a fair run that fails, with its message, and for a search of which
    the time or the steps ended every run.

    >>> import symlab
    >>> ptx = '''
    ... .version 8.0
    ... .target sm_90
    ... .entry count(.param .u64 counter) {
    ...   .reg .b64 %d; .reg .b32 %r; ld.param.u64 %d, [counter];
    ...   ld.global.u32 %r, [%d]; add.u32 %r, %r, 1; st.global.u32 [%d], %r; ret;
    ... }
    ... '''
    >>> how = {"ranks": 1, "grid": 2, "block": 1, "buffers": {"counter": (1, "int32", 0)}, "arguments": ["counter"]}
    >>> done = symlab.explore(ptx, **how, expected={"counter": [[2]]}, seeds=50, processes=1)
    >>> done.found.failure.kind, done.found.switches
    ('wrong output', 0)
    """
    how = _How(schedule, first_seed, seeds, seconds, shrink_s, processes)
    of_launch = {name: launch.pop(name) for name in _OF_LAUNCH if name in launch}
    work, options = _brought(Asked(kernel, buffers, arguments, grid, block, **of_launch), ranks, launch)
    subject = _subject(work, ranks, options, deadline_s)
    must: dict[int, Mapping[str, tuple[torch.Tensor, ...]]]
    must = {work.launches: _after_fair(work, subject) if expected is None else _expected(work, ranks, expected)}
    subject = replace(subject, judge=partial(_judged, work, must, subject if expected is None else None))
    return _explored(subject, how)


@dataclass(frozen=True, slots=True)
class _How:
    """How to search. RequestError for what is not possible."""

    schedule: str
    first_seed: int
    seeds: int | None
    seconds: float | None
    shrink_s: float
    processes: int | None

    def __post_init__(self) -> None:
        schedules = ("random", "adversarial", "both")
        if self.schedule not in schedules:
            raise RequestError(f"schedule is {self.schedule!r} (schedule), give one of {', '.join(schedules)}")
        for name in ("seeds", "processes"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise RequestError(f"{name} is {value!r} ({name}), give 1 or more")
        for name in ("seconds", "shrink_s"):
            given = getattr(self, name)
            if given is not None and not 0 <= given < float("inf"):
                raise RequestError(f"{name} is {given!r} ({name}), give seconds, 0 or more")


def _brought(asked: Asked, ranks: int, how: Mapping[str, Any]) -> tuple[Brought, SimulatorOptions]:
    """The launch, and how its worlds are made. how: of symlab.world."""
    for name in how:
        if name not in _OF_WORLD:
            raise RequestError(f"there is no argument {name!r} ({name}), {near(name, [*_OF_WORLD, *_OF_LAUNCH])}")
    opened = world(ranks, **how)  # before anything is compiled: it refuses what is not possible
    arch = how.get("arch") if how.get("gpu") is None else opened.request.arch
    work = brought_launch(asked, ranks, arch, opened.request.heap_bytes)
    options = simulator_options(world(ranks, **{**how, "arch": arch or work.arch}).request)
    traits = traits_of(1, options.arch, options.heap_bytes, options.multicast, options.gpu)
    return adapted(work, traits), options


def _subject(work: Brought, ranks: int, options: SimulatorOptions, deadline_s: float) -> Subject:
    """The launch, of which nothing is expected yet."""
    from symlab.checks.explore.subject import Subject
    from symlab.checks.explore.trace import Layout, dtype_of

    layouts = {one.name: Layout(0, one.size_bytes // one.numel, dtype_of(one.dtype)) for one in work.buffers}
    judge = partial(_judged, work, {}, None)
    return Subject(work.name, work.digest, ranks, options, deadline_s, judge, layouts, work.launches)


def _judged(
    work: Brought,
    must: dict[int, Mapping[str, tuple[torch.Tensor, ...]]],
    fair: Subject | None,
    world: ThreadWorld,
    deadline_s: float,
    launches: int,
) -> Judgement:
    """Run some launches in a row, and compare buffers with what they must hold afterwards, by name and rank.

    must: that by the number of launches. Of a number that it lacks it is what fair leaves in the fair order; None:
    nothing is known of it, since a user's word is of other launches.
    """
    from symlab.checks.explore.blame import Wrong
    from symlab.checks.explore.subject import Judgement

    work = replace(work, launches=launches)
    if launches not in must:
        must[launches] = {}
        with suppress(ValueError):  # the fair order fails: that is another mistake than the one that is looked for
            must[launches] = {} if fair is None else _after_fair(work, fair)
    found = world.run(run_on_rank, work, deadline_s)
    for name, by_rank in must[launches].items():
        for rank, expected in enumerate(by_rank):
            actual = found[rank].outputs[name]
            if (wrong := _first_difference(expected, actual)) is not None:
                count, at = wrong
                values = [one.reshape(-1)[at].item() for one in (expected, actual)]
                problem = (
                    f"{count} of {actual.numel()} elements of buffer {name} are wrong on rank {rank}; first at "
                    f"element {at}: expected {values[0]}, got {values[1]}"
                )
                steps = len(work.steps)
                return Judgement(problem, Wrong(name, rank, at * actual.element_size(), launches * steps - 1, steps))
    return Judgement()


def _explored(subject: Subject, how: _How) -> Exploration:
    from symlab.checks.explore.found import shrunk
    from symlab.checks.explore.progress import searched
    from symlab.checks.explore.search import plan_of
    from symlab.checks.explore.verb import orders_of

    orders = orders_of(how.schedule, how.first_seed)
    done = searched(plan_of((subject,), orders, how.seeds, how.seconds, how.processes))
    interrupt, kept = done.interrupt, None
    if interrupt is None and done.found is None and not done.decided:
        first = done.undecided[0].splitlines()[0]
        raise RequestError(f"no run was decided, the first: {first} (deadline_s), give more time or steps")
    if interrupt is None and done.found is not None:
        trial, failure = done.found
        kept, interrupt = shrunk(subject, trial.order, failure, how.shrink_s)
    if interrupt is not None:
        raise interrupt
    return Exploration(kept, done.runs, done.seconds, tuple(done.undecided))


def _expected(work: Brought, ranks: int, given: Mapping[str, Any]) -> dict[str, tuple[torch.Tensor, ...]]:
    """What the buffers must hold, as given."""
    import torch

    from cases.dtypes import DTYPES

    shapes = {one.name: one for one in work.buffers}
    found = {}
    for name, value in given.items():
        if name not in shapes:
            raise RequestError(f"there is no buffer {name!r} (expected), the buffers are {', '.join(shapes)}")
        spec = shapes[name]
        by_rank = value if isinstance(value, list) else [value] * ranks
        if len(by_rank) != ranks:
            raise RequestError(f"{name} is a list of {len(by_rank)} (expected), give one for each rank")
        tensors = tuple(torch.as_tensor(one, dtype=DTYPES[spec.dtype]).reshape(-1).contiguous() for one in by_rank)
        if any(one.numel() != spec.numel for one in tensors):
            raise RequestError(f"{name} has {tensors[0].numel()} elements (expected), give {spec.numel}")
        found[name] = tensors
    return found


def _after_fair(work: Brought, subject: Subject) -> dict[str, tuple[torch.Tensor, ...]]:
    """What the buffers hold after a run in the fair order."""
    from runner.world.threads import ThreadWorld
    from runner.world.world import WorldFailure

    plain = replace(subject.options.under(Interleaving()), memory=Memory.strong, races=False)
    opened = ThreadWorld(subject.world_size, plain)
    try:
        found = opened.run(run_on_rank, work, subject.deadline_s)
    except WorldFailure as failure:
        raise ValueError(f"the fair order fails already: {failure.message} (kernel)") from failure
    finally:
        opened.close()
    return {one.name: tuple(rank.outputs[one.name] for rank in found) for one in work.buffers}


def _first_difference(expected: torch.Tensor, actual: torch.Tensor) -> tuple[int, int] | None:
    """The number of elements whose bytes differ, and the first of them; None if there is none."""

    raw = [flat_bytes(one).view(-1, one.element_size()) for one in (expected, actual)]
    where = (raw[0] != raw[1]).any(dim=1).nonzero()
    return (len(where), int(where[0])) if len(where) else None
