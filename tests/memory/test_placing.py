"""Where a heap puts allocations, and a pool that counts what they take."""

import subprocess
import sys

import pytest

from memory.fabric import HeapFull
from memory.placing import NVSHMEM, SIMULATED, CountingPool, first_fit
from memory.pool import SymmetricPool
from simulator.world import SimulatedWorld, SimulatorOptions
from tests.memory.nvshmem_stand_in import StandInWorld


@pytest.mark.parametrize("rules", [SIMULATED, NVSHMEM], ids=["simulator", "nvshmem"])
def test_a_heap_of_the_peak_holds_the_program_and_a_granule_less_does_not(rules):
    def allocate(pool):
        for number, (size, alignment) in enumerate(((1, 256), (70_001, 256), (257, 256), (100_000, 512), (300, 256))):
            pool.bytes(size, name=f"t{number}", alignment_bytes=alignment)

    def run(heap_bytes):
        fabric = StandInWorld(1, heap_bytes=heap_bytes).fabric(0)
        if rules is SIMULATED:
            fabric = SimulatedWorld(1, SimulatorOptions(heap_bytes=heap_bytes)).fabric(0)
        with SymmetricPool(fabric) as pool:
            allocate(pool)

    counting = CountingPool(rules)
    allocate(counting)
    run(counting.peak_bytes)
    with pytest.raises(HeapFull):
        run(counting.peak_bytes - rules.granule_bytes)


def test_first_fit_says_what_would_fit():
    assert first_fit([], 1024, 1024, 1, SIMULATED) == (0, 1024)
    assert first_fit([(0, 300)], 8192, 4000, 256, SIMULATED) == (None, 8192 - 4608)
    assert first_fit([(0, 300)], 8192, 4000, 256, NVSHMEM) == (512, 8192 - 512)
    assert first_fit([(0, 256), (8192, 8448)], 8448, 9000, 256, NVSHMEM) == (None, 8192 - 512)


def test_counting_imports_no_torch():
    program = """
import sys
from memory.placing import SIMULATED, CountingPool

pool = CountingPool(SIMULATED)
pool.bytes(1 << 47, name="data")
assert pool.peak_bytes == 1 << 47
assert "torch" not in sys.modules and "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
