"""The barriers over ranks at work: launches that follow each other, epochs that wrap, and ranks that never come."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from kernels.all_reduce import one_shot, two_shot
from kernels.all_reduce.tuning import Step, Tuning
from kernels.catalogue import SPECS, find
from kernels.spec import Case, KernelSpec
from kernels.status import describe
from memory.fabric import Deadlock, Executable, Region
from simulator.fabric import SimulatorFabric
from simulator.world import SimulatedWorld, SimulatorOptions

Compiled = Callable[[KernelSpec, Case, str], Executable]

ALGORITHMS = [spec.algorithm for spec in SPECS]
RANKS = 3
LAUNCHES = 3
PATIENCE_NS = 3_000_000


def as_int32(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


@dataclass(slots=True)
class Found:
    """What a rank's launches left: the distinct sums, the distinct epochs, the status."""

    sums: list[int]
    epochs: list[int]
    status: list[int]


@dataclass(slots=True)
class Launches:
    """Launches back to back from an epoch, of each rank's own executable (None: that rank never launches)."""

    spec: KernelSpec
    case: Case
    executables: list[Executable | None]
    epoch: int = 0
    patience: int = 0
    count: int = LAUNCHES
    heap_bytes: int = 1 << 20
    found: dict[int, Found] = field(default_factory=dict)
    errors: dict[int, BaseException] = field(default_factory=dict)

    def run(self, **options: Any) -> SimulatedWorld:
        world = SimulatedWorld(RANKS, SimulatorOptions(heap_bytes=self.heap_bytes, **options))
        fabrics = [world.fabric(rank) for rank in range(RANKS)]
        threads = [threading.Thread(target=self.work, args=(world, fabric)) for fabric in fabrics]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return world

    def work(self, world: SimulatedWorld, fabric: SimulatorFabric) -> None:
        try:
            self.found[fabric.rank] = self.rank(fabric)
        except BaseException as failure:
            self.errors[fabric.rank] = failure
        world.leave(fabric.rank, self.errors.get(fabric.rank))

    def rank(self, fabric: SimulatorFabric) -> Found:
        """On inputs of rank + 1."""
        regions, arguments = self.bind(fabric)
        fabric.barrier()
        launch = self.spec.launch(self.case)
        executable = self.executables[fabric.rank]
        for _ in range(self.count if executable is not None else 0):
            assert executable is not None
            fabric.launch(executable, launch.grid, launch.block, arguments)
        sums = fabric.read(regions["output"], 0, self.case.size_bytes).view(torch.bfloat16)
        epochs = fabric.read(regions["epochs"], 0, 4 * launch.grid).view(torch.int32)
        status = fabric.read(regions["status"], 0, regions["status"].size_bytes).view(torch.int32)
        fabric.barrier()
        return Found(sums.unique().int().tolist(), epochs.unique().tolist(), status.tolist())

    def bind(self, fabric: SimulatorFabric) -> tuple[dict[str, Region], list[int]]:
        """Buffers by name, and the kernel's arguments."""
        regions: dict[str, Region] = {}

        def place(name: str, content: torch.Tensor) -> int:
            flat = content.view(torch.uint8)
            regions[name] = fabric.allocate(flat.numel(), 256, name)
            fabric.write(regions[name], 0, flat)
            return regions[name].address

        place("input", torch.full((self.case.numel,), fabric.rank + 1.0, dtype=torch.bfloat16))
        place("output", torch.zeros(self.case.numel, dtype=torch.bfloat16))
        # Earlier epochs have left their number, or where a barrier counts arrivals of all ranks, as many.
        arrived = as_int32(self.epoch * RANKS) if self.spec.needs_multicast else self.epoch
        begin = {"epochs": self.epoch, "signals": arrived, "status": 0, "scratch": -1}
        for workspace in self.spec.workspaces(self.case):
            place(workspace.name, torch.full((workspace.numel,), begin[workspace.name], dtype=torch.int32))
        plain = {"numel": self.case.numel, "rank": fabric.rank, "patience": self.patience}
        arguments = []
        for parameter in self.spec.parameters:
            if parameter.kind == "peers":
                region = regions[parameter.of]
                table = [fabric.peer_address(region, peer) for peer in range(RANKS)]
                arguments.append(place(f"peers of {parameter.of}", torch.tensor(table, dtype=torch.int64)))
            elif parameter.kind == "multicast":
                arguments.append(fabric.multicast_address(regions[parameter.of]))
            elif parameter.kind == "address":
                arguments.append(regions[parameter.of].address)
            else:
                arguments.append(plain[parameter.kind])
        return regions, arguments


@pytest.fixture
def launches(case_of: Callable[..., Case], compiled: Compiled) -> Callable[..., Launches]:
    """launches(algorithm, ..): on all ranks, the kernel of the catalogue."""

    def make(algorithm: str, **values: Any) -> Launches:
        spec = find(f"all_reduce/{algorithm}")
        case = case_of(algorithm, world_size=RANKS, size_bytes=2 * 20_003)
        return Launches(spec, case, [compiled(spec, case, "sm_90a")] * RANKS, **values)

    return make


@pytest.mark.parametrize("epoch", [0, (1 << 31) - 4, -3])
@pytest.mark.parametrize("patience", [0, 1 << 40])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_epochs_go_on_over_launches_and_over_the_wrap(
    launches: Callable[..., Launches], algorithm: str, patience: int, epoch: int
) -> None:
    work = launches(algorithm, epoch=epoch, patience=patience)
    work.run()
    assert work.errors == {}
    expected = Found([1 + 2 + 3], [as_int32(epoch + 2 * LAUNCHES)], [0] * 9)
    assert work.found == {rank: expected for rank in range(RANKS)}


@pytest.mark.parametrize("options", [{}, {"schedule": "random", "seed": 5}], ids=["fair", "random"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_rank_that_never_comes_is_reported_by_all_others(
    launches: Callable[..., Launches], algorithm: str, options: dict[str, Any]
) -> None:
    work = launches(algorithm, patience=PATIENCE_NS, count=1)
    work.executables[2] = None
    work.run(**options)
    assert work.errors == {}
    missing = (
        "all ranks: expected 3 arrivals, saw 2" if work.spec.needs_multicast else "rank 2: expected epoch 1, saw 0"
    )
    texts = [describe(work.found[rank].status) for rank in range(2)]
    wanted = [rf"rank {rank}, block [0-9]+: entry barrier: waited [3-5] ms for {missing}" for rank in range(2)]
    matching = [bool(re.fullmatch(pattern, text)) for pattern, text in zip(wanted, texts, strict=True)]
    # Who gave up goes on to arrive at its exit, and counters can't tell that from the entry of the missing rank.
    assert all(matching) or (work.spec.needs_multicast and any(matching) and all(texts)), texts
    assert [work.found[rank].epochs for rank in range(2)] == [[2], [2]]
    assert describe(work.found[2].status) == ""


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_rank_that_leaves_no_sign_at_the_exit_is_reported(
    launches: Callable[..., Launches], compiled: Compiled, sabotaged: dict[str, KernelSpec], algorithm: str
) -> None:
    work = launches(algorithm, patience=PATIENCE_NS, count=1)
    work.executables[1] = compiled(sabotaged[f"{algorithm}_no_exit_barrier"], work.case, "sm_90a")
    work.run()
    assert work.errors == {}
    missing = (
        "all ranks: expected 6 arrivals, saw 5" if work.spec.needs_multicast else "rank 1: expected epoch 2, saw 1"
    )
    for rank in (0, 2):
        text = describe(work.found[rank].status)
        assert re.fullmatch(rf"rank {rank}, block [0-9]+: exit barrier: waited [3-5] ms for {missing}", text), text
        assert work.found[rank].sums == [1 + 2 + 3]
    assert describe(work.found[1].status) == ""


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_after_the_first_report_no_wait_takes_its_time(launches: Callable[..., Launches], algorithm: str) -> None:
    steps, reports = [], []
    for count in (1, 5):
        work = launches(algorithm, patience=6_000_000, count=count)
        work.executables[2] = None
        steps.append(work.run().counters()["steps"])
        reports.append([work.found[rank].status for rank in range(2)])
        assert work.found[0].epochs == [2 * count]
    assert steps[1] - steps[0] < steps[0] / 2  # four more launches with two waits each
    assert reports[0] == reports[1]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_patience_the_wait_is_a_spin_that_the_simulator_sees_through(
    launches: Callable[..., Launches], algorithm: str
) -> None:
    work = launches(algorithm)
    work.executables[2] = None
    work.run()
    assert isinstance(work.errors[0], Deadlock)
    assert "kernels/signals.py" in str(work.errors[0])
    assert re.search(r"rank 0, block 0, thread \d spins: sees \d at .*tensor 'signals'", str(work.errors[0]))


@pytest.mark.parametrize(
    ("step", "options"),
    [
        (Step(128, 132, 16, "many small blocks"), {}),
        (Step(1024, 132, 8, "the largest grid"), {}),
        (Step(1024, 3, 4, "few large blocks"), {"peer_loads": "no_allocate"}),
        (Step(96, 5, 32, "the smallest blocks"), {"peer_loads": "relaxed", "entry_signal": "relaxed"}),
    ],
    ids=lambda one: one.reason if isinstance(one, Step) else "-".join(one.values()),
)
@pytest.mark.parametrize("module", [one_shot, two_shot], ids=["one_shot", "two_shot"])
def test_any_grid_and_block_gives_the_sum(
    case_of: Callable[..., Case], compiled: Compiled, module: Any, step: Step, options: dict[str, str]
) -> None:
    spec = module.spec_of(Tuning((step,), tuple(options.items())))
    work = step.threads * step.blocks * (RANKS if module is two_shot else 1)
    case = case_of(spec.algorithm, world_size=RANKS, size_bytes=16 * work + 16 * 77 + 6)
    assert spec.launch(case).grid == step.blocks
    heap_bytes = 1 << (2 * case.size_bytes + (1 << 17)).bit_length()
    launches = Launches(spec, case, [compiled(spec, case, "sm_90a")] * RANKS, count=2, heap_bytes=heap_bytes)
    launches.run()
    assert launches.errors == {}
    assert launches.found == {rank: Found([1 + 2 + 3], [4], [0] * 9) for rank in range(RANKS)}
