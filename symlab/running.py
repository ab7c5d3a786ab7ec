"""Run a case, and judge what comes out."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from cases.case import Case
from cases.finding import Finding
from cases.record.record import Check, Record, Status
from kernels.spec import KernelSpec
from memory.fabric import Executable
from runner.case.contestant import Contestant
from runner.command.case_programs import check_of, outcomes_of
from runner.command.job import run_job
from runner.command.means import usual_means
from runner.command.plan import Job
from runner.environment.of_command import Surroundings
from runner.records.scrub import scrubbed_record
from runner.request.validate import ResolvedRequest
from runner.request_error import RequestError
from runner.world import fabrics
from runner.world.world import World as RunnerWorld
from symlab.checking import with_inputs
from symlab.describing import runner_of
from symlab.requests import run_request
from symlab.worlds import World
from symlab.worlds import world as new_world


@dataclass(frozen=True, slots=True)
class Run:
    """How a case ended; run() returns it.

    status is PASSED, WRONG, REFUSED, FAILED, DEADLOCK or TIMEOUT; reason says in one line why it is not PASSED. check
    is what was found of the outputs; None if it did not get so far or was off. record has all of this with kernel,
    fabric, counters, environment and timing; None for inputs of your own, which no record can name. outputs are the
    ranks' last outputs, 1-D host tensors (None for a rank that gets none), if they were asked for. findings are those
    of the race checker, the gravest first; None: the case was not checked for races.
    """

    case: Case
    status: Status
    reason: str
    check: Check | None
    record: Record | None
    outputs: tuple[torch.Tensor | None, ...] | None = None
    findings: tuple[Finding, ...] | None = None

    def __repr__(self) -> str:
        """One line: a notebook shows it."""
        reason = f": {self.reason.splitlines()[0]}" if self.reason else ""
        return f"<run of {self.case.id}: {self.status}{reason}>"

    @property
    def verified(self) -> bool:
        """Whether the outputs were checked and right."""
        return self.status is Status.PASSED and self.check is not None


def run(
    case: Case,
    *,
    kernel: str | KernelSpec | None = None,
    world: World | None = None,
    inputs: Sequence[torch.Tensor] | None = None,
    outputs: bool = False,
    launches: int = 2,
    check: bool = True,
    races: bool = False,
    timing: str = "none",
    deadline_s: float = 120.0,
    cache_dir: Path | str | None = None,
) -> Run:
    """Compile and run a case on all ranks, check every element, and return how it ended.

    kernel: what case() was given, if that was not a name of the catalogue. world: an open world of as many ranks as the
    case has; None: a new one in the simulator. inputs: one tensor a rank, as make_inputs returns them; None: those of
    make_inputs. outputs: bring the outputs home. launches: number of checked launches. check: whether to check. races:
    look for accesses that nothing orders, in the simulator; with a race the case is WRONG. timing: "graph" or "eager"
    (on GPUs), or "none". deadline_s: seconds that the case may take. cache_dir: as compile() takes it.

    What happens while it runs is a status, not an exception: see the result's `status`, `reason` and `check`. Raises
    ValueError for what is known before: values that are not possible, memory that does not suffice, unfit inputs, a
    world of another number of ranks or one that is not open; WorldFailure if a new world can't be started.

    >>> import symlab
    >>> case = symlab.case("all_reduce/two_shot", size_bytes="4K", ranks=4, dtype="bfloat16")
    >>> done = symlab.run(case, outputs=True)
    >>> done.status, done.check.method, done.check.wrong, done.outputs[0].shape
    (<Status.PASSED: 'PASSED'>, 'bitwise_fold', 0, torch.Size([2048]))
    """
    spec = runner_of(case, kernel)
    case, given = with_inputs(case, inputs)
    where = world if world is not None else new_world(case.world_size, races=races)
    _check_world(where, case, timing, races)
    races = bool(where.request.races)
    how: dict[str, Any] = {"launches": launches, "deadline_s": deadline_s}
    how |= {} if cache_dir is None else {"cache_dir": str(cache_dir)}
    how["check"] = {"results": check, "races": races}
    request, asked = run_request(case, spec, where.request, where.section, **how, timing={"mode": timing})
    tensors = _Tensors(given, outputs)
    surroundings = Surroundings()
    brought = (spec,) if isinstance(spec, KernelSpec) else ()
    job = Job(request, (case,), fabrics.settings(where.request), surroundings.now, asked, brought)
    with contextlib.nullcontext() if world is not None else where, where.lent() as inner:
        if not where.request.simulated:
            surroundings.ask(inner)
        keeper = _Keeper(inner)
        run_job(job, keeper, replace(usual_means(), ran=tensors.ran))
    record = keeper.record
    assert record is not None
    kept = record if given is None else None
    return Run(case, record.status, record.reason, record.check, kept, tensors.outputs, record.findings)


def _check_world(world: World, case: Case, timing: str, races: bool) -> None:
    if races and not world.request.races:
        raise RequestError("this world was opened without a race checker (races), open one with races=True")
    if world.ranks != case.world_size:
        raise ValueError(f"the case is for {case.world_size} ranks, this world has {world.ranks} (world)")
    if world.request.simulated and timing in ("graph", "eager"):
        raise RequestError(f"the simulator has no clock of real hardware (timing={timing}), give none or use GPUs")


class _Keeper:
    """What a job needs of its command: a world, and a place for the record."""

    def __init__(self, world: RunnerWorld) -> None:
        self._world = world
        self.record: Record | None = None

    def world(self) -> RunnerWorld:
        return self._world

    def starting(self, case: Case) -> None:
        pass

    def preparing(self, what: str) -> None:
        pass

    def keep(self, record: Record, executable: Executable | None) -> None:
        self.record = scrubbed_record(record)


class _Tensors:
    """The tensors that go to the ranks, and those that come back."""

    def __init__(self, inputs: tuple[torch.Tensor, ...] | None, brings_output: bool) -> None:
        self._inputs = inputs
        self._brings_output = brings_output
        self.outputs: tuple[torch.Tensor | None, ...] | None = None

    def ran(self, world: RunnerWorld, contestant: Contestant, request: ResolvedRequest) -> Check | None:
        """Run a contestant, as runner.command.case_programs.ran does."""
        outcomes = outcomes_of(world, contestant, request, self._inputs, self._brings_output)
        if self._brings_output:
            self.outputs = tuple(outcome.output for outcome in outcomes)
        return check_of(contestant, outcomes, request)
