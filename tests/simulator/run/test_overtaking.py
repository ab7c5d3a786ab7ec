"""Launches that overtake: each rank's streams go on by themselves, and a report says which launch it is about."""

import re
from dataclasses import replace

import numpy as np
import pytest

from memory.fabric import Deadlock
from runner.gpu.reading import gpu_type
from tests.patience import NEVER_S, PATIENCE_S
from tests.simulator.harness import executable, get, make_world, module, put, ran, run, start, succeed

SEEDS = 40
LAUNCHES = 3
BLOCKS = 8

ZERO = np.zeros(1, np.uint32)

# The shape of a two-shot kernel whose flags count arrivals and are set back to 0 by who waits. A fast rank's next
# launch adds to the flag of a slow one before that has set it back: then the flag holds 3, and never 2.
COUNTED = """
  mul.wide.u32 %d1, %block, 4; add.u64 %own, %own, %d1; add.u64 %peer, %peer, %d1;
  red.release.sys.global.add.u32 [%own], 1;
  red.release.sys.global.add.u32 [%peer], 1;
  SPIN: atom.acquire.sys.global.cas.b32 %r1, [%own], 2, 0;
  setp.ne.u32 %p1, %r1, 2; @%p1 bra SPIN;
"""
# The same with a count that is never set back: launch n, which is a parameter, waits for 2 n.
GROWING = """
  mul.wide.u32 %d1, %block, 4; add.u64 %own, %own, %d1; add.u64 %peer, %peer, %d1;
  red.release.sys.global.add.u32 [%own], 1;
  red.release.sys.global.add.u32 [%peer], 1;
  SPIN: ld.acquire.sys.global.u32 %r1, [%own];
  setp.lt.u32 %p1, %r1, %wanted; @%p1 bra SPIN;
"""


def in_a_row(body, count=LAUNCHES, **options):
    """Launch the kernel count times in a row on two ranks, with one host synchronisation at the end."""
    return run(make_world(2, **options), flagged(body, count))


def flagged(body, count=LAUNCHES):
    kernel = executable(module(body, ["u64 own", "u64 peer", "u32 wanted"]))

    def program(fabric):
        flags = put(fabric, "flags", np.zeros(BLOCKS, np.uint32))
        fabric.barrier()
        peer = fabric.peer_address(flags, 1 - fabric.rank)
        for number in range(count):
            start(fabric, kernel, BLOCKS, 1, [flags.address, peer, 2 * (number + 1)])
        fabric.synchronize()
        fabric.barrier()
        fabric.free(flags)

    return program


class TestOvertaking:
    @pytest.mark.slow
    def test_flags_that_are_set_back_deadlock_when_a_launch_overtakes(self):
        found = [in_a_row(COUNTED, schedule="random", seed=seed).errors for seed in range(SEEDS)]
        stuck = [errors for errors in found if any(errors)]
        assert all(isinstance(one, Deadlock) for errors in stuck for one in errors)
        assert len(stuck) >= SEEDS // 8

    def test_the_fair_order_begins_launches_together_and_finds_nothing(self):
        assert not any(in_a_row(COUNTED).errors)

    def test_one_launch_alone_is_right_in_every_order(self):
        assert not any(any(in_a_row(COUNTED, 1, schedule="random", seed=seed).errors) for seed in range(SEEDS))

    @pytest.mark.slow
    def test_flags_that_grow_are_right_in_every_order(self):
        assert not any(any(in_a_row(GROWING, schedule="random", seed=seed).errors) for seed in range(SEEDS))

    def test_a_seed_says_when_launches_begin(self):
        one, other = (in_a_row(GROWING, schedule="random", seed=5).counters["trace"] for _ in range(2))
        assert one == other

    def test_a_fast_rank_is_a_launch_ahead(self):
        """Two launches of rank 0, which wait for no one, are done before rank 1's first has begun: in some order."""
        body = """
          atom.sys.global.add.u32 %r1, [%tickets], 1;
          st.global.b32 [%out], %r1;
        """
        kernel = executable(module(body, ["u64 tickets", "u64 out"]))

        def program(fabric):
            tickets, out = put(fabric, "tickets", np.zeros(1, np.uint32)), put(fabric, "out", np.zeros(2, np.uint32))
            fabric.barrier()
            for number in range(2):
                start(fabric, kernel, 1, 1, [fabric.peer_address(tickets, 0), out.address + 4 * number])
            fabric.barrier()
            return get(fabric, out, "u4").tolist()

        seen = {tuple(succeed(make_world(2, schedule="random", seed=seed), program).results[0]) for seed in range(20)}
        assert (0, 1) in seen
        assert (2, 3) in seen
        assert any(second - first == 2 for first, second in seen)


SIGNAL = executable(module("st.release.sys.global.u32 [%flag], 7;", ["u64 flag"]))
WAIT = executable(
    module("SPIN: ld.acquire.sys.global.u32 %r1, [%flag]; setp.ne.u32 %p1, %r1, 7; @%p1 bra SPIN;", ["u64 flag"])
)
GPU = replace(gpu_type("h100").limits, multiprocessors=2)


def waiting(second, waits_for_first=False):
    """A launch that waits for a flag, and one on stream `second` that sets it, which may wait for the first one."""

    def program(fabric):
        flag = put(fabric, "flag", ZERO)
        start(fabric, WAIT, 1, 1, [flag.address])
        if waits_for_first:
            fabric.wait_stream(second, None)
        start(fabric, SIGNAL, 1, 1, [flag.address], stream=second)
        fabric.synchronize()

    return program


class TestStreams:
    @pytest.mark.parametrize("options", [{}, {"schedule": "random", "seed": 3}], ids=["fair", "random"])
    @pytest.mark.parametrize("second", [None, 5])
    def test_launches_of_two_streams_run_side_by_side(self, options, second):
        """A launch that waits for the next one of its rank ends only if that is on another stream."""
        errors = run(make_world(1, **options), waiting(second)).errors
        assert [type(one) for one in errors if one] == ([Deadlock] if second is None else [])

    def test_a_gpu_whose_limits_hold_runs_one_launch_at_a_time(self):
        assert isinstance(run(make_world(1, gpu=GPU), waiting(5)).error(), Deadlock)

    @staticmethod
    def seen(waits, ends_before=False, **options):
        """What a launch on stream 5 reads of what one on the default stream stores; waits: it waits for an event."""
        store = executable(module("mov.u32 %r1, 7; st.global.u32 [%data], %r1;", ["u64 data", "u64 out"]))
        load = executable(module("ld.global.u32 %r1, [%data]; st.global.u32 [%out], %r1;", ["u64 data", "u64 out"]))

        def program(fabric):
            data, out = (put(fabric, name, ZERO) for name in ("data", "out"))
            start(fabric, store, 1, 1, [data.address, out.address])
            if ends_before:
                fabric.pause(0)
            if waits:
                fabric.wait_stream(5, None)
            start(fabric, load, 1, 1, [data.address, out.address], stream=5)
            return int(get(fabric, out, "u4")[0])

        return succeed(make_world(1, **options), program)

    def test_a_stream_that_waits_for_an_event_sees_what_came_before(self):
        orders = [{"schedule": name, "seed": seed} for name in ("random", "adversarial") for seed in range(10)]
        assert {self.seen(True, **one).results[0] for one in orders} == {7}
        assert {self.seen(False, **one).results[0] for one in orders} == {0, 7}
        assert self.seen(True, ends_before=True).results == [7]
        assert self.seen(True, gpu=GPU).results == [7]

    def test_choices_are_followed_past_an_event(self):
        first = self.seen(True, schedule="random", seed=4, records_choices=True)
        again = self.seen(True, schedule="random", follows=tuple(first.world.choices))
        assert again.counters["trace"] == first.counters["trace"]

    def test_a_stream_that_waits_for_a_launch_that_waits_for_it_is_a_deadlock(self):
        assert isinstance(run(make_world(1), waiting(5, waits_for_first=True)).error(), Deadlock)

    @pytest.mark.parametrize(("stream", "name"), [(None, "the default stream"), (9, "stream 9")])
    def test_a_deadlock_names_stream_and_launch(self, stream, name):
        """Rank 1's second launch waits for a flag that nothing sets."""

        def program(fabric):
            flags = put(fabric, "flags", np.zeros(2, np.uint32))
            start(fabric, SIGNAL, 1, 1, [flags.address], stream=stream)
            if fabric.rank == 1:
                start(fabric, WAIT, 1, 1, [flags.address + 4], stream=stream)
            fabric.synchronize()

        error = run(make_world(2), program).error()
        assert isinstance(error, Deadlock)
        assert re.search(
            rf"rank 1, block 0, thread 0 spins: sees 0 at .*; PTX line \d+: .*; launch 1 on {name}, compared with 7 \(setp\.ne\.u32\)$",
            str(error),
            re.M,
        )
        assert [(one.rank, one.launch, one.stream) for one in error.places] == [(1, 1, stream)]

    def test_threads_at_a_barrier_are_told_with_their_launch(self):
        body = "setp.ne.u32 %p1, %lane, 0; @%p1 bar.sync 0; SPIN: ld.volatile.global.u32 %r1, [%flag]; bra SPIN;"
        text = str(ran(body, {"flag": ZERO}, 1, 64, stream=4).error())
        assert re.search(r"wait at PTX line \d+: .*bar\.sync.*; launch 0 on stream 4", text), text


class TestPauses:
    def test_a_host_pauses_until_the_others_can_do_nothing_more(self):
        """Rank 1 pauses, so rank 0's kernel has seen its first value many times before the second is stored."""

        def program(fabric):
            flag = put(fabric, "flag", ZERO)
            fabric.barrier()
            if fabric.rank == 0:
                start(fabric, WAIT, 1, 1, [flag.address])
            else:
                fabric.pause(NEVER_S)
                start(fabric, SIGNAL, 1, 1, [fabric.peer_address(flag, 0)])
            fabric.synchronize()
            return fabric.rank

        outcome = succeed(make_world(2), program)
        assert outcome.results == [0, 1]
        assert outcome.wall_s < PATIENCE_S

    def test_all_ranks_may_pause(self):
        def program(fabric):
            fabric.pause(1.0)
            fabric.barrier()
            return fabric.rank

        assert succeed(make_world(3), program).results == [0, 1, 2]


def test_a_world_goes_on_with_another_seed():
    """A seed that is set later gives the orders of a world that was made with it."""
    program = flagged(GROWING)
    wanted = [succeed(make_world(2, schedule="random", seed=seed), program).counters["trace"] for seed in (1, 2)]
    world = make_world(2, schedule="random", seed=0)
    succeed(world, program)
    found = []
    for seed in (1, 2):
        world.set_seed(seed)
        found.append(succeed(world, program).counters["trace"])
    assert found == wanted
