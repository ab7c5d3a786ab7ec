"""The clock that kernels can read: moved by steps, the same for the same seed, and no spin that reads it is a deadlock."""

import numpy as np
import pytest

from memory.fabric import Deadlock, DeviceFault
from simulator.run.schedule import STEP_NS
from tests.golden import refused
from tests.simulator.harness import executable, get, make_world, module, put, ran, simple, start, succeed

WAIT = """
  mov.u64 %d1, %globaltimer;
  SPIN: ld.acquire.sys.global.b32 %r1, [%flag];
  setp.eq.u32 %p1, %r1, 7; @%p1 bra DONE;
  mov.u64 %d2, %globaltimer; sub.u64 %d3, %d2, %d1;
  setp.lt.u64 %p1, %d3, 5000000; @%p1 bra SPIN;
  DONE: st.global.b64 [%flag+8], %d3;
"""
"""Waits for a flag that becomes 7, at most 5 ms; leaves how long it waited."""

OPTIONS = [{}, {"schedule": "random", "seed": 3}]


def waited(**options):
    """What each of 64 threads of two ranks waited, in vain."""
    found = ran(WAIT, {"flag": np.zeros(4, np.uint32)}, 2, 32, 2, **options).right
    return [words[2] + (words[3] << 32) for words in found]


@pytest.mark.parametrize("options", OPTIONS, ids=["fair", "random"])
def test_a_wait_with_a_time_limit_ends(options):
    found = waited(**options)
    assert all(5_000_000 <= one < 6_000_000 for one in found)
    assert all(one % STEP_NS == 0 for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=["fair", "random"])
def test_the_same_seed_reads_the_same_times(options):
    assert waited(**options) == waited(**options)


def test_the_clock_begins_again_with_each_program():
    def program(fabric):
        out = put(fabric, "out", np.zeros(1, np.uint64))
        ptx = module("mov.u64 %d1, %globaltimer; st.global.b64 [%out], %d1;", ["u64 out"])
        start(fabric, executable(ptx), 1, 1, [out.address])
        found = int(get(fabric, out, "u8")[0])
        fabric.free(out)
        return found

    world = make_world(1)
    first, second = (succeed(world, program).results[0] for _ in range(2))
    assert first == second == STEP_NS


def test_all_threads_of_a_step_read_the_same_time():
    body = "mov.u64 %d1, %clock64; mad.lo.u64 %d2, %lane64, 8, %out; st.global.b64 [%d2], %d1;"
    found = simple(body, output_bytes=8 * 256, grid=2, block=128).view("u8")
    assert found.tolist() == [STEP_NS] * 256


def test_a_spin_without_the_clock_is_still_a_deadlock():
    body = "mov.u64 %d1, %globaltimer; SPIN: ld.acquire.sys.global.b32 %r1, [%flag]; setp.ne.u32 %p1, %r1, 7; @%p1 bra SPIN;"

    assert isinstance(ran(body, {"flag": np.zeros(1, np.uint32)}, 1, 32).error(), Deadlock)


@pytest.mark.parametrize(
    "text", ["cvt.u32.u64 %r1, %globaltimer;", "mov.u32 %r1, %globaltimer;", "mov.u64 %d1, %clock;"]
)
def test_other_ways_to_read_a_clock_stop(text):
    with refused(DeviceFault):
        simple(text)
