"""Times of a custom kernel: the per-rank program that measures it, on slots of all its buffers, compared with nothing.

It is launched again and again on what the launch before it left: buffers are filled before the checks and before the
samples, not between calls. What the timed calls left is compared with the reference, unless a second call on the same
buffers gives something else than the first: then calls after them, from freshly filled buffers, are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from cases.record.record import Check
from memory.fabric import DeviceFabric
from memory.pool import SymmetricPool
from memory.tensor import flat_bytes
from runner.case.binding import device_of
from runner.case.brought_arguments import BroughtMemory
from runner.custom.contents import content_of
from runner.custom.host_memory import custom_heap_bytes
from runner.custom.judge import judged, wrong_elements
from runner.custom.nouns import Contents
from runner.custom.program import Call, CustomOutcome, CustomPlan, allocate_custom, custom_launches, launch_all
from runner.request.schema import TimingRequest
from runner.timing.calls import calls_for, slots_for, whole_turns
from runner.timing.sampling import WRONG_BEFORE, Measured


@dataclass(frozen=True, slots=True)
class CustomContestant:
    """A custom kernel with its buffers, and what they must hold afterwards, by rank."""

    run: CustomPlan
    expected: tuple[Contents, ...]

    @property
    def title(self) -> str:
        return self.run.compiled.executable.name

    @property
    def size_bytes(self) -> int:
        """The bytes of all buffers of one slot."""
        return sum(buffer.size_bytes for buffer in self.run.spec.buffers)


def open_custom(
    fabric: DeviceFabric, pool: SymmetricPool, contestant: CustomContestant, timing: TimingRequest, budget_bytes: int
) -> CustomMeasurement:
    """Collective: the kernel, with as many slots as it is to have."""
    plan, size_bytes = contestant.run, contestant.size_bytes
    spec = plan.spec
    calls = calls_for(size_bytes, timing.calls)
    slots = slots_for(size_bytes, timing.l2, fabric.traits.l2_bytes, calls, budget_bytes)
    slots = max(1, min(slots, budget_bytes // custom_heap_bytes(spec, fabric.world_size, is_simulated=False)))
    memories = [allocate_custom(pool, spec, fabric.world_size, f"slot {slot} ") for slot in range(slots)]
    contents = {}
    for buffer in spec.buffers:
        given = plan.given.get(buffer.name)
        made = given[fabric.rank] if given else content_of(buffer, fabric.rank, fabric.world_size, plan.seed)
        contents[buffer.name] = flat_bytes(made).to(device_of(fabric))
    return CustomMeasurement(
        name=contestant.title,
        label=contestant.title,
        slots=slots,
        slot_bytes=size_bytes,
        calls=whole_turns(calls, slots, timing.calls),
        fabric=fabric,
        plan=plan,
        expected=contestant.expected[fabric.rank],
        memories=memories,
        launches=[custom_launches(fabric, spec, plan.compiled, memory) for memory in memories],
        contents=contents,
    )


@dataclass(slots=True, kw_only=True)
class CustomMeasurement(Measured):
    """A custom kernel on its way through a measurement. contents are what the buffers hold before a call, as bytes on
    the device."""

    fabric: DeviceFabric
    plan: CustomPlan
    expected: Contents
    memories: list[BroughtMemory]
    launches: list[list[Call]]
    contents: dict[str, torch.Tensor]
    wrong: CustomOutcome | None = None

    def write(self, slot: int) -> None:
        for name, placed in self.memories[slot].buffers.items():
            placed.write(self.fabric, self.contents[name])

    def launch(self, slot: int) -> None:
        launch_all(self.fabric, self.launches[slot])

    def look_before(self, rank: int) -> None:
        elements, self.wrong = self._looked_at(rank)
        self.elements = (elements, 0)
        self.changes = bool(self.expected) and not self._is_as_before(0)
        if self.wrong is not None:
            self.problem = WRONG_BEFORE

    def look_again(self, rank: int) -> bool:
        return self._looked_at(rank)[1] is None

    def look_after(self, rank: int) -> None:
        elements, wrong = self._looked_at(rank)
        self.elements = (self.elements[0], self.elements[1] + elements)
        self.wrong = self.wrong or wrong

    def is_unchanged(self) -> bool:
        return any(map(self._is_as_before, range(self.slots)))

    def _is_as_before(self, slot: int) -> bool:
        """Whether all compared buffers of a slot hold what they held before any call."""
        buffers = self.memories[slot].buffers
        return all(torch.equal(buffers[name].inspect(self.fabric), self.contents[name]) for name in self.expected)

    def _looked_at(self, rank: int) -> tuple[int, CustomOutcome | None]:
        """How many elements of all slots were compared, and the first slot that is wrong."""
        spec, elements, wrong = self.plan.spec, 0, None
        for memory in self.memories:
            outputs = {
                name: memory.buffers[name].inspect(self.fabric).cpu().clone().view(one.dtype).view(one.shape)
                for name, one in self.expected.items()
            }
            elements += sum(one.numel() for one in outputs.values())
            if wrong is None and wrong_elements(spec, self.expected, outputs):
                wrong = CustomOutcome(rank, (outputs,), ())
        return elements, wrong


def custom_wrong(
    contestant: CustomContestant, inputs: Sequence[Contents], wrong: Sequence[CustomOutcome | None]
) -> Check | None:
    """Return the check of what is wrong on the ranks; None if all was right. inputs are what the buffers held."""
    if not any(wrong):
        return None
    outcomes = [one or CustomOutcome(rank, (), ()) for rank, one in enumerate(wrong)]
    return judged(contestant.run.spec, inputs, contestant.expected, outcomes).check
