"""Pieces that are added as they arrive: what the PTX contains, and that sums are right."""

import re
from dataclasses import replace

import pytest
import torch

from cases.case import Case
from cases.ops import collective
from kernels.catalogue import find, retuned
from kernels.spec import refuses
from kernels.tuning import Step, Tuning
from memory.fabric import Traits
from simulator.observe.events import Listener
from tests.golden import refused
from tests.kernels.launching import Launches, as_int32

NAMES = ("reduce_scatter/bulk", "reduce/bulk", "reduce_scatter/push_rounds")
SMALL = Tuning((Step(threads=96, blocks=2, loads_in_flight=2, reason="64 threads add, a piece has 1,024 bytes"),))
ROUND_BYTES = 2 * 2 * 1024
"""Of two blocks with two stages each; by stores, where 32 threads add, two rounds."""
SPECS = {name: replace(retuned(name, SMALL), algorithm=f"{name.partition('/')[2]}_small") for name in NAMES}


def case_of(name, world_size, message_bytes, **changes):
    """bfloat16 unless changed; message_bytes is what goes from one rank to another."""
    op = SPECS[name].op
    size_bytes = message_bytes * (world_size if op == "reduce_scatter" else 1)
    case = Case(op, SPECS[name].algorithm, "bfloat16", "float32", "sum", size_bytes, world_size)
    return replace(case, **changes)


def launches_of(compiled, spec, case, count=2):
    return Launches(spec, case, compiled(spec, case, "sm_90a"), count=count)


def test_loads_of_a_round_are_under_way_together(compiled):
    """Four vectors that arrived and four own ones, before the first addition."""
    ptx = compiled(
        find("reduce_scatter/bulk"), replace(case_of("reduce_scatter/bulk", 2, 64 << 20), algorithm="bulk"), "sm_90a"
    ).ptx
    before = re.split(r"\sadd\S*\.f32", ptx[ptx.index("bar.warp.sync") :])[0]
    assert len(re.findall(r"ld\.global\.v4", before)) == 8


SLOW = pytest.mark.slow
SHAPES = {
    1: (16, ROUND_BYTES),
    2: (16, 2 * ROUND_BYTES - 1024 + 16, 3 * ROUND_BYTES + 48),
    3: (2 * ROUND_BYTES + 48,),
    9: (2 * ROUND_BYTES + 48,),
    34: (48,),
}
"""By ranks: less than a piece, and several rounds, the last of which not whole."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("world_size", [1, 2, 3, pytest.param(9, marks=SLOW), pytest.param(34, marks=SLOW)])
def test_they_are_right(compiled, name, world_size):
    """Few peers, more than registers hold, more than a warp has lanes."""
    for number, message in enumerate(SHAPES[world_size]):
        case = case_of(name, world_size, message, root=world_size - 1 if name == "reduce/bulk" else 0)
        if world_size > 3:
            case = replace(case, dtype="float32")  # whose sums of so many are exact
        options = {"schedule": "random", "seed": number} if number % 2 else {}
        work = launches_of(compiled, SPECS[name], case)
        work.run(**options)
        assert work.seen() == "right", (number, work.errors)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("dtype", "offset", "placement"), [("bfloat16", 5, "in_place"), ("float64", 1, "out_of_place")]
)
def test_elements_around_the_boundaries_are_added_one_by_one(compiled, name, dtype, offset, placement):
    accumulator = "float32" if dtype == "bfloat16" else "native"
    for message in (16, ROUND_BYTES + 32):
        case = case_of(name, 2, message, dtype=dtype, accumulator=accumulator, offset=offset, placement=placement)
        work = launches_of(compiled, SPECS[name], case)
        work.run(schedule="random", seed=message)
        assert work.seen() == "right", work.errors


def test_a_reduce_has_any_size(compiled):
    for size_bytes in (2, 14, 18, ROUND_BYTES + 6):
        work = launches_of(compiled, SPECS["reduce/bulk"], case_of("reduce/bulk", 3, size_bytes, root=1))
        work.run()
        assert work.seen() == "right"


def test_rounds_count_on_the_epochs_of_barriers(compiled):
    """Each launch takes as many epochs as it has rounds, and one for its exit, across the wrap."""
    before, rounds, launches = 0x7FFFFFF9, 5, 3
    work = launches_of(compiled, SPECS["reduce/bulk"], case_of("reduce/bulk", 2, rounds * ROUND_BYTES), count=launches)
    work.epoch = before
    work.run(schedule="random", seed=1)
    assert work.seen() == "right"
    for rank in range(2):
        epochs = work.found[rank].workspaces["epochs"].view(torch.int32)
        assert epochs.tolist() == [as_int32(before + launches * (rounds + 1))] * 2


def test_each_contribution_crosses_a_link_once(compiled):
    message, n = 4 * ROUND_BYTES, 3
    counts = {"reduce_scatter/bulk": n * (n - 1), "reduce/bulk": n - 1, "reduce_scatter/push_rounds": n * (n - 1)}
    for name, senders in counts.items():
        work = launches_of(compiled, SPECS[name], case_of(name, n, message), count=1)
        accesses = work.run().counters()["accesses"]
        assert accesses["peer_write"]["bytes"] == senders * message
        assert accesses["peer_read"]["bytes"] == 0


def test_what_arrives_is_added_while_more_is_on_its_way(compiled):
    """The point of rounds: an owner stores the first of its output before a peer has sent the last piece."""
    case = case_of("reduce_scatter/bulk", 2, 6 * ROUND_BYTES)
    work = launches_of(compiled, SPECS["reduce_scatter/bulk"], case, count=1)
    seen = work.listener = Moments()
    work.run()
    assert work.seen() == "right"
    assert seen.order.index("added") < seen.order.index("sent", len(seen.order) // 2)
    assert seen.order.count("sent") == 2 * 6 * ROUND_BYTES // 1024


class Moments(Listener):
    """When pieces are sent, and when vectors of the output are stored."""

    def __init__(self):
        self.order = []

    def access(self, event):
        if event.action == "store" and event.width_bytes == 16:
            self.order.append("added")

    def copy(self, event):
        if event.moment == "issued" and not event.is_load:
            self.order.append("sent")


@pytest.mark.parametrize("algorithm", ["bulk", "push_rounds"])
@pytest.mark.parametrize("world_size", [1, 4])
def test_chunks_that_begin_between_boundaries_are_refused(world_size, algorithm):
    spec = find(f"reduce_scatter/{algorithm}")
    traits = Traits("simulator", "sm_90a", world_size, 1 << 30, True)
    case = replace(case_of("reduce_scatter/bulk", world_size, 24), algorithm=algorithm)
    reason = refuses(spec, collective("reduce_scatter"), case, traits)
    assert (reason is None) == (world_size == 1)
    assert world_size == 1 or "chunks of 24 bytes don't begin at 16-byte boundaries" in str(reason)


def test_a_tuning_that_does_not_fit_in_shared_memory_is_no_kernel(compiled):
    tuning = Tuning((Step(threads=1024, blocks=2, loads_in_flight=4, reason="too much"),))
    spec = retuned("reduce/bulk", tuning)
    with refused(RuntimeError, r"\.py:\d+"):
        compiled(spec, replace(case_of("reduce/bulk", 2, 4096), algorithm="bulk"), "sm_90a")
