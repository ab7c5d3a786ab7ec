"""One entrant of a measurement on its way: its contender, its data, its outputs, and what was found so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from kernels import catalogue
from kernels.spec import Case
from memory.fabric import Executable
from runner.case.buffers import POISON
from runner.case.check import RankCheck, check_rank
from runner.case.layout import layout_of
from runner.case.reference import Promise
from runner.case.slots import Contender, slot_bytes

REPEATABLE = ("none", "min", "max", "and", "or")
"""Reductions (and none) of which a second call in place changes nothing more."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A case to be timed; executable None is a baseline's."""

    case: Case
    executable: Executable | None = None


@dataclass(frozen=True, slots=True)
class EntrantTimes:
    """What one rank found of one entrant. samples_us are per call; problem says why there are none."""

    slots: int
    slot_bytes: int
    calls_per_sample: int
    samples_us: tuple[float, ...]
    before: RankCheck
    after: tuple[RankCheck, ...]
    problem: str = ""


@dataclass(slots=True)
class Lane:
    """One entrant on its way: its contender, its data, and what was found so far.

    before_call is what a slot's output holds before a call, has_output whether the op gives this rank anything;
    changes says that a call changes the output, as far as one right call showed it. queue queues one sample's calls,
    once one call on every slot; None: by launching them.
    """

    entrant: Entrant
    contender: Contender
    promise: Promise
    calls: int
    data: torch.Tensor
    before_call: torch.Tensor
    has_output: bool = True
    changes: bool = True
    queue: Callable[[], None] = lambda: None
    once: Callable[[], None] | None = None
    before: RankCheck | None = None
    after: list[RankCheck] = field(default_factory=list)
    samples_us: list[float] = field(default_factory=list)
    problem: str = ""

    @property
    def accumulates(self) -> bool:
        """Whether calls in place go on from the results of those before them."""
        case = self.entrant.case
        return case.placement == "in_place" and case.reduction not in REPEATABLE

    def outputs(self) -> list[torch.Tensor]:
        """What lies in the outputs of all slots; to be looked at."""
        return [self.contender.output(slot) for slot in range(self.contender.slots)]

    def is_as_before(self, output: torch.Tensor) -> bool:
        """Whether an output holds what it held before any call."""
        return torch.equal(output.view(torch.uint8), self.before_call)

    def checked(self, rank: int) -> RankCheck:
        """What is wrong with the outputs; for a rank that is given none, that one of them was changed."""
        outputs = self.outputs()
        faults: list[str] = []
        if not self.has_output and self.entrant.executable is not None:
            touched = [slot for slot, output in enumerate(outputs) if not self.is_as_before(output)]
            faults = [f"the output of a rank that is given none changed in slot {slot}" for slot in touched]
        return check_rank(self.entrant.case, self.promise, rank, outputs, faults)

    def times(self) -> EntrantTimes:
        assert self.before is not None
        return EntrantTimes(
            slots=self.contender.slots,
            slot_bytes=slot_bytes(self.entrant.case),
            calls_per_sample=self.calls,
            samples_us=tuple(self.samples_us),
            before=self.before,
            after=tuple(self.after),
            problem=self.problem,
        )


def before_call(case: Case, rank: int, data: torch.Tensor) -> torch.Tensor:
    """The bytes of an output before a call, on the data's device: poison, in place the input's where the two overlap.

    None where they never matter: an output out of place is written again before every call that is looked at.
    """
    layout = layout_of(case)
    if not layout.in_place and catalogue.collective(case.op).gives(case, rank):
        return data.new_empty(0, dtype=torch.uint8)
    held = torch.full((max(layout.payloads_bytes),), POISON, dtype=torch.uint8, device=data.device)
    if layout.in_place:
        held[layout.input_starts[rank] :][: layout.input_bytes] = data.view(torch.uint8)
    return held[layout.output_starts[rank] :][: layout.output_bytes]
