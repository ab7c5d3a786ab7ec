"""CountingFabric: the addresses of the fabric it stands for, and no memory."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest
import torch
from memory_nvshmem_stand_in import StandInWorld

from memory.counting import HEAP_BYTES, CountingFabric
from memory.fabric import Fabric, HeapFull
from memory.placing import NVSHMEM, SIMULATED, first_fit
from memory.pool import SymmetricPool
from simulator.world import SimulatedWorld, SimulatorOptions
from tests.golden import refused
from tests.patience import within

SIZES = ((1, 256), (256, 256), (257, 1), (4096, 4096), (100_000, 256), (8, 1 << 14))
"""Bytes and alignments of allocations, one after another."""


def offsets(fabric: Fabric, base: int) -> list[int]:
    """Where SIZES are placed, then what takes the place of the second and the fifth."""
    regions = [fabric.allocate(size, alignment, f"t{number}") for number, (size, alignment) in enumerate(SIZES)]
    fabric.drop(regions[1])
    fabric.drop(regions[4])
    more = [fabric.allocate(size, 256, f"m{size}") for size in (2000, 200, 99_000)]
    return [region.address - base for region in (*regions, *more)]


def test_it_places_as_the_simulator_does() -> None:
    world = SimulatedWorld(1, SimulatorOptions(heap_bytes=1 << 20))
    found = offsets(world.fabric(0), world.space.base(0))
    assert offsets(CountingFabric(1, SIMULATED), HEAP_BYTES) == found
    assert found[6] == found[1], "what was freed is placed anew"


@pytest.mark.parametrize("rules", [SIMULATED, NVSHMEM], ids=["simulator", "nvshmem"])
def test_a_heap_of_the_peak_holds_the_program_and_a_granule_less_does_not(rules: Any) -> None:
    counting = CountingFabric(1, rules)

    def program(fabric: Fabric) -> None:
        with SymmetricPool(fabric) as pool:
            pool.tensor(1000, torch.float32, name="a")
            with pool.scope():
                pool.bytes(70_001, name="b")
            pool.bytes(20_000, name="c")

    def run(heap_bytes: int) -> None:
        if rules is SIMULATED:
            program(SimulatedWorld(1, SimulatorOptions(heap_bytes=heap_bytes)).fabric(0))
        else:
            program(StandInWorld(1, heap_bytes=heap_bytes).fabric(0))

    program(counting)
    assert counting.peak_bytes > 70_001 + 4000, "what was freed counts, too"
    run(counting.peak_bytes)
    with pytest.raises(HeapFull):
        run(counting.peak_bytes - rules.granule_bytes)


def test_gigabytes_cost_neither_memory_nor_time() -> None:
    fabric = CountingFabric(8, SIMULATED)
    with within():
        region = fabric.allocate(1 << 47, 256, "data")
        fabric.write(region, 1 << 46, torch.empty(1 << 46, dtype=torch.uint8, device="meta"))
        for looked_at in (fabric.view(region), fabric.inspect(region), fabric.read(region, 0, 1 << 47)):
            assert (looked_at.numel(), looked_at.device.type) == (1 << 47, "meta")
        fabric.synchronize()
        fabric.barrier()
    assert fabric.peak_bytes == 1 << 47


def test_every_replica_has_an_address_of_its_own() -> None:
    fabric = CountingFabric(3, SIMULATED)
    with SymmetricPool(fabric) as pool:
        pair = [pool.bytes(64, name=name) for name in "ab"]
        addresses = [[*tensor.peer_addresses(), tensor.multicast().address] for tensor in pair]
    assert addresses[0][0] == pair[0]._region.address
    assert len(set(itertools.chain(*addresses))) == 8
    assert {second - first for first, second in zip(*addresses, strict=True)} == {256 + 4096}
    assert fabric.exchange("same") == ("same",) * 3


def test_misuse_is_named() -> None:
    fabric = CountingFabric(2, SIMULATED)
    region = fabric.allocate(64, 256, "data")
    with refused():
        fabric.write(region, 60, torch.zeros(8, dtype=torch.uint8))
    with refused():
        fabric.peer_address(region, 2)
    with refused():
        fabric.allocate(64, 3, "data")
    with refused():
        fabric.launch(None, 1, 1, ())
    with refused(HeapFull):
        fabric.allocate(HEAP_BYTES, 256, "more")
    fabric.free(region)
    with refused():
        fabric.free(region)
    fabric.drop(region)


def test_first_fit_says_what_would_fit() -> None:
    assert first_fit([], 1024, 1024, 1, SIMULATED) == (0, 1024)
    assert first_fit([(0, 300)], 8192, 4000, 256, SIMULATED) == (None, 8192 - 4608)
    assert first_fit([(0, 300)], 8192, 4000, 256, NVSHMEM) == (512, 8192 - 512)
    assert first_fit([(0, 256), (8192, 8448)], 8448, 9000, 256, NVSHMEM) == (None, 8192 - 512)


def test_a_pool_of_bytes_imports_no_torch() -> None:
    program = """
import sys
from memory.counting import CountingFabric
from memory.placing import SIMULATED
from memory.pool import SymmetricPool

fabric = CountingFabric(8, SIMULATED)
with SymmetricPool(fabric) as pool:
    pool.bytes(1 << 32, name="data").peer_addresses()
assert fabric.peak_bytes == 1 << 32
assert "torch" not in sys.modules and "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
