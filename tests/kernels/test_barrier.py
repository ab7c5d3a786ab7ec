"""The barriers over ranks at work: launches that follow each other with no host in between, and epochs that wrap."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

from kernels.catalogue import SPECS, find
from kernels.spec import Case, KernelSpec
from memory.fabric import Executable, Region
from simulator.fabric import SimulatorFabric
from simulator.world import SimulatedWorld, SimulatorOptions

LAUNCHES = 3


def as_int32(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def run_rank(fabric: SimulatorFabric, spec: KernelSpec, case: Case, executable: Executable, epoch: int) -> list[int]:
    """Launch back to back from an epoch, on inputs of rank + 1: the distinct sums, then the distinct epochs."""
    regions: dict[str, Region] = {}

    def place(name: str, content: torch.Tensor) -> None:
        flat = content.view(torch.uint8)
        regions[name] = fabric.allocate(flat.numel(), 256, name)
        fabric.write(regions[name], 0, flat)

    place("input", torch.full((case.numel,), fabric.rank + 1.0, dtype=torch.bfloat16))
    place("output", torch.zeros(case.numel, dtype=torch.bfloat16))
    # Where a barrier counts arrivals of all ranks, earlier epochs have left that many; else they've left their number.
    arrived = as_int32(epoch * case.world_size) if spec.needs_multicast else epoch
    for workspace in spec.workspaces(case):
        value = epoch if workspace.name == "epochs" else arrived
        place(workspace.name, torch.full((workspace.numel,), value, dtype=torch.int32))
    arguments = []
    for parameter in spec.parameters:
        if parameter.kind == "peers":
            region = regions[parameter.of]
            table = [fabric.peer_address(region, peer) for peer in range(case.world_size)]
            place(f"peers of {parameter.of}", torch.tensor(table, dtype=torch.int64))
            arguments.append(regions[f"peers of {parameter.of}"].address)
        elif parameter.kind == "multicast":
            arguments.append(fabric.multicast_address(regions[parameter.of]))
        elif parameter.kind == "address":
            arguments.append(regions[parameter.of].address)
        else:
            arguments.append(case.numel if parameter.kind == "numel" else fabric.rank)
    fabric.barrier()
    launch = spec.launch(case)
    for _ in range(LAUNCHES):
        fabric.launch(executable, launch.grid, launch.block, arguments)
    sums = fabric.read(regions["output"], 0, case.size_bytes).view(torch.bfloat16)
    epochs = fabric.read(regions["epochs"], 0, 4 * launch.grid).view(torch.int32)
    return [*sums.unique().int().tolist(), *epochs.unique().tolist()]


@pytest.mark.parametrize("epoch", [0, (1 << 31) - 4, -3])
@pytest.mark.parametrize("algorithm", [spec.algorithm for spec in SPECS])
def test_epochs_go_on_over_launches_and_over_the_wrap(
    case_of: Callable[..., Case],
    compiled: Callable[[KernelSpec, Case, str], Executable],
    algorithm: str,
    epoch: int,
) -> None:
    spec, case = find(f"all_reduce/{algorithm}"), case_of(algorithm, world_size=3, size_bytes=2 * 20_003)
    executable = compiled(spec, case, "sm_90a")
    world = SimulatedWorld(case.world_size, SimulatorOptions(heap_bytes=1 << 20))
    fabrics = [world.fabric(rank) for rank in range(case.world_size)]
    results: dict[int, list[int]] = {}

    def work(rank: int) -> None:
        error: BaseException | None = None
        try:
            results[rank] = run_rank(fabrics[rank], spec, case, executable, epoch)
        except BaseException as failure:
            error = failure
            raise
        finally:
            world.leave(rank, error)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(case.world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [1 + 2 + 3, as_int32(epoch + 2 * LAUNCHES)]
    assert results == {rank: expected for rank in range(case.world_size)}
