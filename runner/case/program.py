"""The per-rank program of a case: allocate, fill, launch, bring home. A plain function that a World runs on every rank.

It knows no algorithm: memory and arguments are bound from what the kernel's spec declares (runner/case/binding.py).
Every buffer lies between two guard zones, and a kernel that writes into one, or into anything else that isn't its
output, is reported with its result: an input out of place, what lies beside the output in place, the output of a rank
that is given none. On a GPU inputs, outputs and their reference stay there: what comes home is what was found.

A library's own collective runs in the same way, without guards, in memory that the library wants.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from cases.case import Case
from cases.ops import collective
from kernels.baselines import Baseline
from kernels.spec import KernelSpec
from memory.fabric import Deadlock, Executable, Fabric
from memory.pool import SymmetricPool
from memory.tensor import flat_bytes
from runner.case.binding import BoundKernel, Slots, bind, device_of
from runner.case.check import RankCheck, check_rank
from runner.case.contestant import check_names
from runner.case.inputs import digest_of, forget_inputs, make_input
from runner.case.reference import forget_references

if TYPE_CHECKING:
    from runner.case.library_slots import LibrarySlots

SMALL_BYTES = 64 << 10
"""Up to here launches are cheap, on GPUs and in the simulator."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What all ranks are to run: a case, its kernel's spec and what was compiled of it, how often, how it is watched.

    executable None: spec is a library's. launches are those that are checked; they follow each other with the same
    workspaces, and between them come others on other data. check=False brings nothing home. patience_s is how long a
    kernel on a real GPU waits for another rank before it reports that. between is how many of those others there are
    before each checked launch but the first; None: as many as show what is wrong, 0: none; a library has none. inputs,
    one 1-D tensor of the case's dtype a rank, stand in for what make_input gives. brings_output: the ranks bring their
    last output home.
    """

    case: Case
    spec: KernelSpec | Baseline
    executable: Executable | None = None
    launches: int = 2
    check: bool = True
    patience_s: float = 10.0
    between: int | None = None
    inputs: tuple[torch.Tensor, ...] | None = None
    brings_output: bool = False

    def __post_init__(self) -> None:
        if self.launches < 1:
            raise ValueError(f"launches is {self.launches}: a plan needs 1 or more")
        if not self.patience_s > 0:
            raise ValueError(f"patience_s is {self.patience_s}: a plan needs more than 0 seconds")
        check_names(self.case, self.spec, self.executable)


@dataclass(frozen=True, slots=True)
class RankOutcome:
    """What one rank brings home; check is None if the plan asked for none.

    output is the last launch's, a 1-D host tensor; None if the plan did not ask for it, and for a rank that is given
    none. report is what the rank's kernel says of a wait that it gave up, where that was wanted.
    """

    rank: int
    check: RankCheck | None
    output: torch.Tensor | None = None
    report: str = ""


def run_case(fabric: Fabric, plan: Plan) -> RankOutcome:
    """Run a plan's launches on this rank and check what came out.

    All ranks call it with the same plan. Raises ValueError for a plan that is not for this world, HeapFull when its
    memory does not fit, and what the fabric and the library raise.
    """
    case, spec = plan.case, plan.spec
    check_world(case, fabric)
    data = input_of(fabric, case, plan.inputs)
    outputs: list[torch.Tensor] = []
    faults: list[str] = []
    with SymmetricPool(fabric) as pool, _opened(fabric, pool, plan) as opened:
        kernel = opened if isinstance(opened, BoundKernel) else None
        between = 0 if kernel is None else launches_between(case) if plan.between is None else plan.between
        for index in range(plan.launches):
            if index:
                _launch_on_other_data(fabric, opened, data, between)
            if kernel is not None:
                kernel.prepare(index, {0: data})
            else:
                opened.write(0, data)
            fabric.synchronize()
            if not index or kernel is None:
                fabric.barrier()  # no peer may reach this memory before it's ready; later the kernels see to that
            opened.launch(0)
            fabric.synchronize()
            if kernel is not None and (report := kernel.trouble()):
                raise Deadlock(report, rank=fabric.rank)
            if plan.check or (plan.brings_output and index == plan.launches - 1):
                outputs.append(opened.output(0).clone())
            if plan.check and kernel is not None:
                faults += kernel.faults(index, {0: (case, data)})
            if between:  # a rank that was let go too early overwrites what others still read
                opened.write(0, _complement(data))
            fabric.barrier()
    output = output_of(case, fabric.rank, outputs) if plan.brings_output else None
    if not plan.check:
        return RankOutcome(fabric.rank, None, output)
    given = digest_of(data)
    check = check_rank(case, spec, fabric.rank, outputs, faults, input_digest=given, inputs=plan.inputs)
    return RankOutcome(fabric.rank, check, output)


@contextlib.contextmanager
def _opened(fabric: Fabric, pool: SymmetricPool, plan: Plan) -> Iterator[Slots | LibrarySlots]:
    """Collective: what does the plan's case, with memory for one slot."""
    if isinstance(plan.spec, KernelSpec):
        assert plan.executable is not None
        yield bind(fabric, pool, plan.spec, [plan.case], [plan.executable], plan.patience_s)
    else:
        from runner.case.libraries import open_baseline

        with open_baseline(plan.spec.name, fabric, pool, plan.case, 1) as opened:
            yield opened


def check_world(case: Case, fabric: Fabric) -> None:
    """Raise ValueError for a case of another world."""
    if case.world_size != fabric.world_size:
        raise ValueError(f"the case is for {case.world_size} ranks, this world has {fabric.world_size}")


def input_of(fabric: Fabric, case: Case, inputs: Sequence[torch.Tensor] | None = None) -> torch.Tensor:
    """Return this rank's input where its memory is: of the given ones (one 1-D tensor a rank), else make_input's."""
    device, numel = device_of(fabric), collective(case.op).elements(case)[0]
    return make_input(case, fabric.rank, numel, device) if inputs is None else inputs[fabric.rank].to(device)


def output_of(case: Case, rank: int, outputs: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return a rank's last output as a host tensor; None for a rank that the op gives no output."""
    return outputs[-1].cpu() if collective(case.op).gives(case, rank) else None


def launches_between(case: Case) -> int:
    """Launches on other data before each checked one but the first: as many as any kernel has banks, where they are
    cheap."""
    return 3 if case.size_bytes <= SMALL_BYTES else 1


def _complement(data: torch.Tensor) -> torch.Tensor:
    """Other data: no byte is the same."""
    return (~flat_bytes(data)).view(data.dtype)


def _launch_on_other_data(fabric: Fabric, opened: Slots | LibrarySlots, data: torch.Tensor, count: int) -> None:
    """Unchecked launches on complemented data, run back to back between checked ones, without barriers of the hosts.

    They leave buffers, banks and flags different from what the next checked launch has to give. So the check finds a
    kernel that reads too early, or that lets a rank continue too early.
    """
    for _ in range(count):
        opened.write(0, _complement(data))
        fabric.synchronize()
        opened.launch(0)
        fabric.synchronize()


def forget(fabric: Fabric, _: object) -> None:
    """A per-rank program: give up all inputs and references that are kept between cases, and torch's spare memory."""
    forget_references()
    forget_inputs()
    if device_of(fabric).type == "cuda":
        torch.cuda.empty_cache()
