"""A ThreadWorld over the real simulator, with small kernels written by hand: it ends in time, and names who did it."""

import hashlib
import time

import pytest
import torch

from memory.fabric import Argument, Executable, Launch
from memory.pool import SymmetricPool
from runner.interrupt import Interrupted, interruptible
from runner.world.threads import ThreadWorld
from runner.world.world import WorldFailure
from simulator.run import schedule
from simulator.world import SimulatorOptions
from tests.golden import refused
from tests.patience import NEVER_S, Clock, pressed, within

COUNTED_SPIN = """
    ld.param.u64 %rd1, [data]; mov.u32 %r2, 0;
SPIN:
    add.u32 %r2, %r2, 1; ld.acquire.sys.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra SPIN;
    ret;
"""
"""A spin that counts its turns, so that nobody can see that it makes no progress."""

SIGNALLED_SPIN = """
    ld.param.u64 %rd1, [data]; mov.u32 %r3, %tid.x; mov.u32 %r2, 0; setp.eq.u32 %p2, %r3, 0; @%p2 bra STORE;
SPIN:
    add.u32 %r2, %r2, 1; ld.acquire.sys.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra SPIN; bra END;
STORE:
    mov.u32 %r4, 1; st.release.sys.global.u32 [%rd1], %r4;
END:
    ret;
"""
"""Thread 0 stores what the others, who come first in the program, spin on."""


def kernel(body, directives=""):
    ptx = f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 data)
{directives}
{{
    .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<8>;
{body}
}}
"""
    digest = f"sha256:{hashlib.sha256(ptx.encode()).hexdigest()}"
    return Executable("all_reduce/by_hand", "kernel", "sm_90a", ptx, digest)


def launched(*kernels, block=1, peer=None):
    """A program that runs the rank's kernel (or the only one) on a zeroed flag: its own rank's, or a peer's."""

    def program(fabric, _):
        with SymmetricPool(fabric) as pool:
            flag = pool.tensor(64, torch.int32, name="flag", fill=0)
            fabric.barrier()
            address = flag.address if peer is None else flag.peer(peer).address
            fabric.launch(kernels[fabric.rank % len(kernels)], Launch(1, block), [Argument("address", address)])
            fabric.synchronize()

    return program


def fail(world, program, deadline_s=NEVER_S):
    with pytest.raises(WorldFailure) as caught:
        world.run(program, None, deadline_s)
    return caught.value


def simulated(world_size, **options):
    return ThreadWorld(world_size, SimulatorOptions(heap_bytes=1 << 20, **options))


def test_a_kernel_that_never_ends_is_stopped_at_the_deadline(monkeypatch):
    monkeypatch.setattr(schedule, "time", Clock(looks=20))
    with within():
        failure = fail(simulated(2), launched(kernel(COUNTED_SPIN)))
    assert failure.status == "TIMEOUT"
    assert failure.message.startswith("the deadline passed after")
    assert "PTX line" in failure.message


def test_the_deadline_is_that_of_each_program(monkeypatch):
    world = simulated(1)
    world.run(launched(kernel("ret;")), None, NEVER_S)
    world._machine.set_deadline(time.monotonic())
    world.run(launched(kernel("ret;")), None, NEVER_S)
    monkeypatch.setattr(schedule, "time", Clock(looks=20))
    assert fail(world, launched(kernel(COUNTED_SPIN))).status == "TIMEOUT"


def test_an_interrupt_does_not_wait_for_the_kernel():
    world = simulated(2)
    with within(), pytest.raises(Interrupted), interruptible(), pressed(lambda: world._machine.scheduler.steps > 100):
        world.run(launched(kernel(COUNTED_SPIN)), None, NEVER_S)


def test_what_happens_to_all_ranks_is_told_of_the_first():
    def program(fabric, _):
        time.sleep(0.02 * (3 - fabric.rank))
        with SymmetricPool(fabric) as pool:
            pool.tensor(1 << 20, torch.float32, name="big")

    assert {fail(simulated(4), program).rank for _ in range(8)} == {0}


def test_a_step_budget_ends_what_no_deadline_does():
    world = simulated(1, step_budget=1000)
    with refused(WorldFailure, r"after [^;]*") as caught:
        world.run(launched(kernel(COUNTED_SPIN)), None, None)
    assert caught.value.status == "TIMEOUT"
    assert 3000 < world.counters()["instructions"] < 8000


def test_no_batch_starves_while_several_take_turns():
    world = simulated(2, step_budget=20_000)
    program = launched(kernel(COUNTED_SPIN), kernel(SIGNALLED_SPIN), block=32, peer=1)
    assert world.run(program, None, NEVER_S) == [None, None]


def test_launched_work_that_nobody_waited_for_is_an_error_of_its_own_run():
    def program(fabric, _):
        if fabric.rank == 1:
            fabric.launch(kernel("ret;"), Launch(1, 1), [Argument("address", 0)])

    failure = fail(simulated(2), program)
    assert failure.rank == 1
    assert failure.message == "rank 1: it ended with launched kernels that it never waited for (synchronize)"


@pytest.mark.parametrize("body", ["bar.sync 0;", "setp.eq.u32 %p1, 0, 1;\n @%p1 ret;"])
def test_a_kernel_may_end_without_a_return(body):
    simulated(1, step_budget=1000).run(launched(kernel(body), block=64), None, NEVER_S)


def test_a_block_of_another_size_than_compiled_for_is_an_error():
    failure = fail(simulated(1), launched(kernel("ret;", ".reqntid 128, 1, 1"), block=64))
    assert "is compiled for blocks of (128, 1, 1) threads, not (64, 1, 1)" in failure.message
