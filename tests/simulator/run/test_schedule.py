"""Order is a function of the seed; what runs for ever is ended."""

import re
import time

import numpy as np
import pytest

from memory.fabric import DeadlineExceeded, PeerLost
from simulator.run import schedule
from simulator.world import SimulatedWorld
from tests.patience import NEVER_S, PATIENCE_S, Clock, pressed
from tests.simulator.harness import executable, get, make_world, module, put, ran, run, start, succeed

STORE = "st.global.b32 [%out], %block;"
CELL = {"out": np.zeros(1, np.uint32)}
FILES = '.file 1 "kernels/example.py"\n'

RING = module(
    """
    // Each rank's block 0 hands a growing sum to the next rank's flag and value, twice around; the other blocks add up.
    setp.ne.u32 %p1, %block, 0; @%p1 bra SIDE;
    setp.ne.u32 %p1, %lane, 0; @%p1 bra END;
    mov.u32 %r5, 1;
    ROUND:
      sub.u32 %r6, %r5, 1; setp.eq.u32 %p2, %rank, 0; selp.b32 %r6, %r6, %r5, %p2; setp.eq.u32 %p3, %r6, 0; @%p3 bra SEND;
      WAIT: ld.acquire.sys.global.b32 %r1, [%mine]; setp.lt.u32 %p4, %r1, %r6; @%p4 bra WAIT;
      SEND: ld.global.b32 %r2, [%mine+4]; mad.lo.u32 %r2, %r2, 3, %rank; st.global.b32 [%next+4], %r2;
      st.release.sys.global.b32 [%next], %r5;
      add.u32 %r5, %r5, 1; setp.le.u32 %p5, %r5, 2; @%p5 bra ROUND;
    bra END;
    SIDE: red.global.add.u32 [%mine+8], %lane;
    END:
    """,
    ["u64 mine", "u64 next", "u32 rank"],
    before=FILES,
)


def ring(fabric, ptx=RING):
    mine = put(fabric, "ring", np.zeros(4, np.uint32))
    fabric.barrier()
    following = fabric.peer_address(mine, (fabric.rank + 1) % fabric.world_size)
    start(fabric, executable(ptx), 3, 64, [mine.address, following, fabric.rank])
    fabric.synchronize()
    fabric.barrier()
    return [int(one) for one in get(fabric, mine, "u4")[:3]]


def expected_ring(world_size):
    values, held = [0] * world_size, 0
    for _ in range(2):
        for rank in range(world_size):
            held = (3 * values[rank] + rank) & 0xFFFFFFFF
            values[(rank + 1) % world_size] = held
    return [[2, value, sum(range(64, 192))] for value in values]


class TestSeeds:
    @pytest.mark.parametrize("seed", range(20))
    def test_the_same_result_for_every_seed(self, seed):
        outcome = succeed(make_world(4, schedule="random", seed=seed), ring)
        assert outcome.results == expected_ring(4)

    def test_the_same_trace_for_the_same_seed(self):
        def trace(seed):
            counters = succeed(make_world(3, schedule="random", seed=seed), ring).counters
            return counters["trace"], counters["steps"]

        first = [trace(seed) for seed in range(8)]
        assert first == [trace(seed) for seed in range(8)]
        assert len(set(first)) == 8

    def test_a_world_used_again_begins_its_seed_anew(self):
        world = make_world(3, schedule="random", seed=5)
        counters = []
        for _ in range(2):
            outcome = succeed(world, ring)
            counters.append({key: outcome.counters[key] for key in ("steps", "instructions", "trace")})
        assert counters[0] == counters[1]

    def test_fair_is_one_order(self):
        traces = {succeed(make_world(3, seed=seed), ring).counters["trace"] for seed in range(3)}
        assert len(traces) == 1

    def test_launches_of_many_blocks_have_two_teams_however_ranks_begin(self):
        """12 blocks a rank: those of two ranks are many, though each is launched alone."""

        def program(fabric):
            out = put(fabric, "out", np.zeros(1, np.uint32))
            for rank in range(2):
                if rank == fabric.rank:
                    start(fabric, executable(module(STORE, ["u64 out"])), 12, 32, [out.address])
                    fabric.synchronize()
                fabric.barrier()

        assert succeed(make_world(2, schedule="priority"), program).counters["steps"] == 2 * 2

    @pytest.mark.parametrize("schedule", ["priority", "random"])
    def test_launches_begin_together_by_priority(self, schedule, monkeypatch):
        """Batches of single ranks would take several times as many steps."""
        found = []
        batch = SimulatedWorld._batch

        def noted(world, ranks, queued):
            found.append(ranks)
            return batch(world, ranks, queued)

        monkeypatch.setattr(SimulatedWorld, "_batch", noted)
        for seed in range(4):
            assert ran(STORE, CELL, 8, 32, 4, schedule=schedule, seed=seed).right
        assert all(ranks == [0, 1, 2, 3] for ranks in found) == (schedule == "priority")

    @pytest.mark.parametrize(("blocks", "teams"), [(1, 1), (3, 3), (4, 4), (5, 2), (8, 2), (64, 2)])
    def test_up_to_four_blocks_run_one_after_another_and_more_in_two_teams(self, blocks, teams):
        """Each team takes steps of its own: by four teams of eight blocks runs took four times as many as in fair
        order."""
        fair, priority = (ran(STORE, CELL, blocks, 32, schedule=one).counters["steps"] for one in ("fair", "priority"))
        assert priority == teams * fair

    def test_a_race_shows_its_several_results(self):
        """Blocks store to one cell without any order: some seeds must disagree, or random orders are none."""
        found = {tuple(ran(STORE, CELL, 8, 32, schedule="random", seed=seed).right[0]) for seed in range(20)}
        assert len(found) > 1

    @pytest.mark.slow
    def test_a_message_without_its_flag_is_caught(self):
        """The ring with its wait taken out: some of 20 seeds must give a wrong number."""
        broken = RING.replace("@%p4 bra WAIT;", "")
        worlds = [make_world(4, schedule="random", seed=seed) for seed in range(20)]
        outcomes = [run(world, lambda fabric: ring(fabric, broken)).results for world in worlds]
        assert any(found != expected_ring(4) for found in outcomes)


RUNAWAY = module(
    "mov.u32 %r2, 0;\n  .loc 1 66 3\n  LOOP: add.u32 %r2, %r2, 1; ld.global.b32 %r1, [%flag]; setp.ne.u32 %p1, %r1, 7; @%p1 bra LOOP;",
    ["u64 flag"],
    before=FILES,
)


def runaway(fabric):
    flags = put(fabric, "flags", np.zeros(2, np.uint32))
    start(fabric, executable(RUNAWAY), 1, 32, [flags.address])
    fabric.synchronize()


class TestRunaways:
    def check(self, outcome, said):
        assert all(isinstance(one, DeadlineExceeded) for one in outcome.errors), outcome.errors
        text = str(outcome.errors[0])
        assert said in text
        assert re.search(
            r"test/kernel on rank 0, block 0, thread \d+ runs at PTX line \d+: .*kernels/example\.py:66", text
        )

    def test_step_budget(self):
        self.check(
            run(make_world(2, step_budget=500), runaway),
            "the step budget of 500 ran out (fabric.step_budget) after 500 steps",
        )

    @pytest.mark.parametrize("schedule", ["fair", "random"])
    @pytest.mark.parametrize("load", ["", "ld.global.b32 %r5, [%flag];"])
    def test_a_loop_that_makes_progress_in_registers_alone_ends(self, schedule, load):
        """Neither reading nothing nor reading what never changes makes it a deadlock."""
        text = f"mov.u32 %r1, 1; mov.u32 %r2, 0; LOOP: {load} mad.lo.u32 %r1, %r1, 3, 1; add.u32 %r2, %r2, 1;"
        text += "setp.lt.u32 %p1, %r2, 2000; @%p1 bra LOOP; st.global.b32 [%flag], %r1;"
        wanted = 1
        for _ in range(2000):
            wanted = (wanted * 3 + 1) % 2**32
        assert ran(text, {"flag": np.zeros(1, np.uint32)}, schedule=schedule).right == [[wanted]]

    def test_deadline(self, monkeypatch):
        monkeypatch.setattr(schedule, "time", Clock(looks=20))
        outcome = run(make_world(2), runaway, deadline_s=NEVER_S)
        self.check(outcome, "the deadline passed")
        assert outcome.wall_s < PATIENCE_S

    def test_a_deadline_set_before_the_ranks_come(self, monkeypatch):
        monkeypatch.setattr(schedule, "time", Clock(looks=20))
        world = make_world(1)
        world.set_deadline(time.monotonic() + NEVER_S)
        outcome = run(world, runaway)
        self.check(outcome, "the deadline passed")
        assert outcome.wall_s < PATIENCE_S

    def test_ended_from_outside(self):
        world = make_world(2)
        with pressed(lambda: world.scheduler.steps > 100, lambda: world.abort(RuntimeError("enough"))):
            outcome = run(world, runaway)
        assert outcome.wall_s < PATIENCE_S
        assert all(isinstance(one, PeerLost) and "enough" in str(one) for one in outcome.errors)
