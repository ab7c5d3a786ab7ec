"""A world that looks for races in fair order looks in orders by priority, too, and says in which."""

import pytest

import symlab
from runner.world.world import WorldFailure
from tests.museum.exhibits.nvshmem_84 import EXHIBIT
from tests.rooms import needs

BUFFERS = {"data": ((2,), "int32", 0), "count": ((2,), "int32", 0), "out": ((2,), "int32", 0)}
ARGUMENTS = [("peer", "data", 1), ("peer", "count", 1), "out", ("u32", "rank")]
HOW = {"ranks": 2, "grid": 2, "block": 1, "buffers": BUFFERS, "arguments": ARGUMENTS, "races": True}
ORDERS = [f"fabric.schedule=priority fabric.seed={seed}" for seed in (0, 1)]


@needs("checks")
def test_a_counter_that_pairs_rightly_by_chance_is_found():
    done = symlab.simulate(EXHIBIT.ptx(is_mended=False), schedule="fair", **HOW)
    (one,) = done.findings
    assert one.fails
    assert one.order == ORDERS[0]
    assert one.sentence().endswith(f"with {ORDERS[0]}")
    assert done.counts["race_orders"] == ORDERS
    assert done.outputs["out"][1].tolist() == [500, 501], "that of the fair order"


@needs("checks")
def test_the_mended_kernel_is_clean():
    done = symlab.simulate(EXHIBIT.ptx(is_mended=True), schedule="fair", **HOW)
    assert done.findings == ()
    assert done.counts["race_orders"] == ORDERS


@needs("checks")
@pytest.mark.parametrize("how", [{"races": False}, {"schedule": "random", "seeds": [0]}])
def test_other_worlds_run_once(how):
    done = symlab.simulate(EXHIBIT.ptx(is_mended=True), **{**HOW, "schedule": "fair", **how})
    assert "race_orders" not in done.counts


@needs("checks")
def test_a_failure_in_such_an_order_names_it():
    ran = []

    def program(rank, _):
        if rank.rank == 0:
            ran.append(len(ran))
            if len(ran) == 2:
                raise ValueError("not twice")
        rank.barrier()

    with symlab.world(ranks=2, races=True) as world, pytest.raises(WorldFailure) as failure:
        world.run(program)
    assert failure.value.message == f"rank 0: not twice (with {ORDERS[0]})"
