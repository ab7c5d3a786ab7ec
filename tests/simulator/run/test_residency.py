"""Blocks that do not fit on a GPU at once: they wait until others exit, and what waits for them meanwhile deadlocks."""

import re
from dataclasses import replace

import numpy as np
import pytest

from memory.fabric import DeadlineExceeded, Deadlock
from runner.gpu.reading import gpu_type
from simulator.gpu import Fit
from simulator.ptx import assembler
from simulator.run.residency import Places, Resident
from tests.golden import refused, same_text
from tests.simulator.harness import PEER, executable, get, launching, make_world, module, put, ran, run, start, succeed

ORDERS = [{}, *({"schedule": "random", "seed": seed} for seed in range(6))]
ORDER_IDS = ["fair", *(f"seed{seed}" for seed in range(6))]


def gpu(multiprocessors):
    """A GPU of few multiprocessors, each of which holds two blocks of 1,024 threads."""
    return replace(gpu_type("h100").limits, name="small", multiprocessors=multiprocessors)


TWO_PHASES = module(
    """
  mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra MEET;
  atom.add.release.sys.global.u32 %r2, [%count], 1;
SPIN:
  ld.acquire.sys.global.u32 %r3, [%count]; setp.lt.u32 %p2, %r3, %all; @%p2 bra SPIN;
MEET:
  bar.sync 0;
""",
    ["u64 count", "u32 all"],
)
"""Every block counts itself, then waits for the count of all blocks."""


def phases(grid, block=1024, all_blocks=None):
    return launching(TWO_PHASES, grid, block, [np.zeros(1, np.uint32), all_blocks or grid], at=0)


def deadlock_of(outcome):
    error = outcome.error()
    assert isinstance(error, Deadlock), error
    return str(error)


@pytest.mark.parametrize("options", ORDERS, ids=ORDER_IDS)
class TestTwoPhases:
    def test_all_blocks_are_there_at_once_without_a_gpu(self, options):
        assert succeed(make_world(1, **options), phases(9)).results == [9]

    def test_as_many_as_fit_pass(self, options):
        assert succeed(make_world(2, gpu=gpu(4), **options), phases(8)).results == [8, 8]

    def test_one_too_many_is_a_deadlock_that_says_so(self, options):
        text = deadlock_of(run(make_world(2, gpu=gpu(4), **options), phases(9)))
        waits = r"rank \d: blocks? \d of 9 waits for a place: small holds 8 at once \(4 multiprocessors x 2, limited by threads\)"
        assert len(re.findall(waits, text)) == 2
        assert "thread 0 spins: sees 8 at" in text

    def test_a_smaller_block_lets_more_of_them_in(self, options):
        assert succeed(make_world(1, gpu=gpu(4), **options), phases(9, 512)).results == [9]

    def test_only_what_waits_for_them_is_stuck(self, options):
        """The first eight exit, and so do the others after them."""
        assert succeed(make_world(1, gpu=gpu(4), **options), phases(40, all_blocks=8)).results == [40]

    def test_what_does_not_spin_runs_in_waves(self, options):
        """Blocks count in, note the largest count, and count out."""
        body = """
          mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra MEET;
          atom.add.global.u32 %r2, [%count], 1; add.u32 %r2, %r2, 1; atom.max.global.u32 %r3, [%count+4], %r2;
          MEET: bar.sync 0; @%p1 ret; atom.add.global.u32 %r2, [%count], -1; atom.add.global.u32 %r2, [%count+8], 1;
        """
        count = {"count": np.zeros(3, np.uint32)}
        left, most, done = ran(body, count, 21, 1024, gpu=gpu(2), **options).right[0]
        assert (left, done) == (0, 21)
        assert 2 <= most <= 4
        assert ran(body, count, 21, 1024).right == [[0, 21, 21]]


def test_the_waiting_blocks_are_named():
    same_text(deadlock_of(run(make_world(1, gpu=gpu(2)), phases(20))))


def test_every_second_seed_draws_the_order_of_the_blocks():
    seen = {}
    for seed in range(4):
        text = deadlock_of(run(make_world(1, gpu=gpu(2), schedule="random", seed=seed), phases(20)))
        seen[seed] = next(one for one in text.splitlines() if "place" in one).split(" of 20")[0].strip()
    assert seen[0] == seen[2] == "rank 0: blocks 4 to 19"
    assert len({seen[0], seen[1], seen[3]}) == 3
    assert all(seen[seed].endswith("and 8 more") for seed in (1, 3))


def test_a_peer_that_has_no_place_is_waited_for_in_vain():
    """Block b of rank 0 waits for block b of rank 1, of which one block fits after the other; both launch the same."""
    body = """
      mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 ret;
      mov.u32 %r2, %ctaid.x; sub.u32 %r3, 3, %r2;
      mul.wide.u32 %d1, %r2, 4; add.u64 %d1, %d1, %peer; mov.u32 %r4, 1; st.release.sys.global.u32 [%d1], %r4;
      mul.wide.u32 %d2, %r3, 4; add.u64 %d2, %d2, %own;
      SPIN: ld.acquire.sys.global.u32 %r5, [%d2]; setp.eq.u32 %p2, %r5, 0; @%p2 bra SPIN;
    """
    values = {"own": np.zeros(4, np.uint32), "peer": PEER}
    assert ran(body, values, 4, 1024, 2, gpu=gpu(2)).right
    same_text(deadlock_of(ran(body, values, 4, 1024, 2, gpu=gpu(1))))


def test_launches_follow_each_other_in_a_ranks_stream():
    """The second launch spins on nothing that the first did not do, although the first takes several turns."""

    def program(fabric):
        count = put(fabric, "count", np.zeros(1, np.uint32))
        start(fabric, executable(TWO_PHASES), 12, 1024, [count.address, 1])
        start(fabric, executable(TWO_PHASES), 4, 1024, [count.address, 16])
        return int(get(fabric, count, "u4")[0])

    for options in ORDERS:
        assert succeed(make_world(2, gpu=gpu(2), **options), program).results == [16, 16]


def test_a_step_budget_that_ran_out_names_them_too():
    body = """
      mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 ret;
      SPIN: atom.add.global.u32 %r1, [%count], 1; setp.ne.u32 %p1, %r1, -1; @%p1 bra SPIN;
    """
    error = ran(body, {"count": np.zeros(1, np.uint32)}, 6, 1024, gpu=gpu(2), step_budget=300).error()
    assert isinstance(error, DeadlineExceeded)
    same_text(str(error))


def test_a_block_knows_its_multiprocessor():
    """One block on each, then a second one on each; those that come later where others were."""
    body = """
      mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 ret; mov.u32 %r2, %smid; mov.u32 %r3, %nsmid;
      mul.wide.u32 %d1, %block, 8; add.u64 %d1, %d1, %out; st.global.u32 [%d1], %r2; st.global.u32 [%d1+4], %r3;
    """
    for options in ORDERS:
        found = ran(body, {"out": np.zeros(40, np.uint32)}, 20, 1024, 2, gpu=gpu(3), **options).right[1]
        assert set(found[1::2]) == {3}
        assert set(found[::2]) == {0, 1, 2}
        if not options:
            assert found[:12:2] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("options", ORDERS[:3], ids=ORDER_IDS[:3])
def test_nothing_changes_where_everything_fits(options):
    """Steps, their order and results are the same as without a GPU."""
    one = succeed(make_world(2, **options), phases(8))
    other = succeed(make_world(2, gpu=gpu(4), **options), phases(8))
    assert one.results == other.results
    residency = other.counters.pop("residency")
    assert residency["test/kernel"]["blocks_at_once"] == 8
    assert one.counters == other.counters


class TestRegisters:
    """As ptxas counts them, where it is installed."""

    MANY = module(
        "".join(f"ld.volatile.global.u32 %q{at}, [%in+{4 * at}];\n" for at in range(90))
        + "".join(f"st.volatile.global.u32 [%in+{4 * at}], %q{at};\n" for at in range(90)),
        ["u64 in"],
        registers="  .reg .b32 %q<90>;",
    )

    def launched(self, ptx, grid=3, block=512, **how):
        world = make_world(1, gpu=gpu(1))
        outcome = run(world, launching(ptx, grid, block, [np.zeros(90, np.uint32)], **how))
        return outcome.errors[0], outcome.counters.get("residency", {}).get("test/kernel"), world.traits.description

    @pytest.fixture(autouse=True)
    def _needs_ptxas(self, request):
        if assembler.find_ptxas() is None and "without" not in request.node.name:
            pytest.skip("ptxas is not installed")

    def test_they_limit(self):
        error, found, description = self.launched(self.MANY)
        assert error is None
        assert found["registers"] >= 90
        assert found["blocks_at_once"] == 1
        assert found["limits"].endswith("limited by registers")
        assert "registers as ptxas " in description

    def test_a_directive_lowers_them(self):
        """The programmer's .maxnreg makes it spill in place of taking registers."""
        _, found, _ = self.launched(self.MANY.replace(")\n{", ")\n.maxnreg 32\n{", 1))
        assert found["registers"] <= 32
        assert found["blocks_at_once"] == 4
        _, found, _ = self.launched(self.MANY.replace(")\n{", ")\n.maxntid 512\n.minnctapersm 3\n{", 1))
        assert found["registers"] <= 40
        assert found["blocks_at_once"] == 3

    def test_a_block_of_too_many_is_refused(self):
        error, _, _ = self.launched(self.MANY, block=1024)
        assert isinstance(error, ValueError)
        same_text(str(error))

    def test_a_cooperative_launch_counts_them(self):
        error, _, _ = self.launched(self.MANY, grid=2, cooperative=True)
        assert isinstance(error, ValueError)
        same_text(str(error))
        assert self.launched(self.MANY, grid=1, cooperative=True)[0] is None

    def test_a_later_version_of_ptx_than_ptxas_knows(self):
        ptx = self.MANY.replace(".version 9.0", ".version 99.9")
        assert ptx != self.MANY
        assert self.launched(ptx)[1] == self.launched(self.MANY)[1]

    def test_without_ptxas_they_are_unknown_and_limit_nothing(self, monkeypatch):
        monkeypatch.setattr(assembler, "find_ptxas", lambda: None)
        error, found, description = self.launched(self.MANY, block=1024)
        assert error is None
        assert found == {"registers": None, "blocks_at_once": 2, "limits": "1 multiprocessor x 2, limited by threads"}
        assert description.endswith("GPU small, registers unknown (no ptxas): no limit")


def test_what_a_world_without_a_gpu_says():
    assert make_world(1).traits.multiprocessors == 0
    assert "GPU" not in make_world(1).traits.description
    assert make_world(1, gpu=gpu(7)).traits.multiprocessors == 7
    with refused(ValueError):
        make_world(1, gpu=gpu(7), arch="sm_100a")


def test_clusters_come_in_whole():
    """A grid of 4 x 2 x 2 in clusters of 2 x 1 x 2, on five places: one cluster at a time, in the order of their numbers."""
    places = Places(Resident(gpu(5), None, Fit(1, 4, ("threads",)), (2, 1, 2)), (4, 2, 2), 2)
    assert places.begin().tolist() == [0, 1, 8, 9, 16, 17, 24, 25]
    assert places.leave(np.array([0, 1, 8])).tolist() == [2, 3, 10, 11]  # the fifth place was free all along
    assert places.leave(np.array([9])).tolist() == []
    assert places.report([3, 5])[0].startswith("rank 3: blocks 4, 5, 6, 7, 12, 13, 14, 15 of 16 wait for a place")
    assert places.leave(np.array([16, 17, 24, 25])).tolist() == [18, 19, 26, 27]
