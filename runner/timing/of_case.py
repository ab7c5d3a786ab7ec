"""Times of a case: one contestant on its slots, and the check of what its calls left."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import torch

from cases import ops
from cases.case import Case
from kernels.baselines import Baseline
from memory.fabric import DeviceFabric
from memory.pool import SymmetricPool
from memory.tensor import flat_bytes
from runner.case.binding import Slots, open_kernel
from runner.case.buffers import POISON
from runner.case.check import RankCheck, check_rank
from runner.case.contestant import Contestant
from runner.case.layout import layout_of, slot_bytes
from runner.case.libraries import open_baseline
from runner.case.library_slots import LibrarySlots
from runner.case.program import input_of
from runner.request.schema import TimingRequest
from runner.timing.calls import calls_for, slots_for, whole_turns
from runner.timing.sampling import WRONG_BEFORE, Measured

REPEATABLE = ("none", "min", "max", "and", "or")
"""Reductions (and none) of which a second call in place changes nothing more."""


def open_case(
    stack: contextlib.ExitStack,
    fabric: DeviceFabric,
    pool: SymmetricPool,
    contestant: Contestant,
    timing: TimingRequest,
    patience_s: float,
    budget_bytes: int,
) -> Measurement:
    """Collective: open one contestant with as many slots as it is to have."""
    case = contestant.case
    calls = calls_for(case.size_bytes, timing.calls)
    slots = slots_for(slot_bytes(case), timing.l2, fabric.traits.l2_bytes, calls, budget_bytes)
    if isinstance(contestant.spec, Baseline):
        opened = stack.enter_context(open_baseline(contestant.spec.name, fabric, pool, case, slots))
    else:
        opened = stack.enter_context(open_kernel(fabric, pool, contestant, slots, patience_s))
    data = input_of(fabric, case)
    return Measurement(
        name=case.name,
        label=case.id,
        slots=slots,
        slot_bytes=slot_bytes(case),
        calls=whole_turns(calls, slots, timing.calls),
        accumulates=accumulates(case),
        contestant=contestant,
        opened=opened,
        data=data,
        before_call=before_call(case, fabric.rank, data),
        has_output=ops.collective(case.op).gives(case, fabric.rank),
    )


@dataclass(slots=True, kw_only=True)
class Measurement(Measured):
    """One contestant on its way: its contestant, its data, and what was found so far.

    before_call is what a slot's output holds before a call, has_output whether the op gives this rank anything.
    """

    contestant: Contestant
    opened: Slots | LibrarySlots
    data: torch.Tensor
    before_call: torch.Tensor
    has_output: bool = True
    checks: list[RankCheck] = field(default_factory=list)

    def write(self, slot: int) -> None:
        self.opened.write(slot, self.data)

    def launch(self, slot: int) -> None:
        self.opened.launch(slot)

    def captured(self) -> None:
        self.opened.captured()

    def trouble(self) -> str:
        return self.opened.trouble()

    def look_before(self, rank: int) -> None:
        check = self._look(rank)
        # xor goes back and forth: an even number of calls may leave what was there.
        self.changes = self.contestant.case.reduction != "xor" and not self.is_as_before(self.opened.output(0))
        if check.wrong or check.guard_faults:
            self.problem = WRONG_BEFORE

    def look_after(self, rank: int) -> None:
        self._look(rank)

    def is_unchanged(self) -> bool:
        return any(map(self.is_as_before, self.outputs()))

    def outputs(self) -> list[torch.Tensor]:
        """What lies in the outputs of all slots; to be looked at."""
        return [self.opened.output(slot) for slot in range(self.slots)]

    def is_as_before(self, output: torch.Tensor) -> bool:
        """Whether an output holds what it held before any call."""
        return torch.equal(flat_bytes(output), self.before_call)

    def _look(self, rank: int) -> RankCheck:
        check = self.checked(rank)
        before, after = self.elements
        self.elements = (before, after + check.elements) if self.checks else (check.elements, 0)
        self.checks.append(check)
        return check

    def checked(self, rank: int) -> RankCheck:
        """What is wrong with the outputs; for a rank that is given none, that one of them was changed."""
        outputs = self.outputs()
        faults: list[str] = []
        if not self.has_output and self.contestant.executable is not None:
            touched = [slot for slot, output in enumerate(outputs) if not self.is_as_before(output)]
            faults = [f"the output of a rank that is given none changed in slot {slot}" for slot in touched]
        return check_rank(self.contestant.case, self.contestant.spec, rank, outputs, faults)


def accumulates(case: Case) -> bool:
    """Whether calls of a case go on from the results of those before them."""
    return case.placement == "in_place" and case.reduction not in REPEATABLE


def before_call(case: Case, rank: int, data: torch.Tensor) -> torch.Tensor:
    """The bytes of an output before a call, on the data's device: poison, in place the input's where the two overlap.

    None where they never matter: an output out of place is written again before every call that is looked at.
    """
    layout = layout_of(case)
    if not layout.in_place and ops.collective(case.op).gives(case, rank):
        return data.new_empty(0, dtype=torch.uint8)
    held = torch.full((max(layout.payloads_bytes),), POISON, dtype=torch.uint8, device=data.device)
    if layout.in_place:
        held[layout.input_starts[rank] :][: layout.input_bytes] = flat_bytes(data)
    return held[layout.output_starts[rank] :][: layout.outputs_bytes[rank]]
