"""Counts per peer: what they distribute, that kernels follow them, and that one which does not is found."""

import dataclasses
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cases.case import Case, Counts
from cases.ops import collective, exchanged
from cases.sends import ROOM, sends_of
from kernels.catalogue import find
from kernels.compile import executable
from kernels.dsl.status import describe
from kernels.spec import refuses
from kernels.ways.push import store_chunks, store_counted
from memory.fabric import Traits
from tests.kernels.launching import Launches
from tests.runner.judged import judged

PUSH = find("all_to_all_v/push")

WORLDS = (1, 2, 3, 4, 5, 8, 16, 72)
COUNTS = tuple(map(str, Counts))


def case_with(counts, ranks=4, numel=480, seed=0, **changes):
    case = Case("all_to_all_v", "push", "bfloat16", "none", "none", 2 * numel, ranks, seed=seed, counts=counts)
    return replace(case, **changes)


@pytest.mark.parametrize("counts", COUNTS)
def test_all_counts_distribute_the_same_total_within_the_room(counts):
    for ranks in WORLDS:
        for chunk in (0, 1, 2, 3, 4, 5, 7, 100, 1001):
            for seed in (0, 1, ranks, 12345):
                numel = chunk * ranks
                rows = sends_of(case_with(counts, ranks, numel, seed))
                columns = list(zip(*rows, strict=True))
                assert (len(rows), {len(row) for row in rows}) == (ranks, {ranks})
                assert sum(map(sum, rows)) == numel * ranks
                assert min(map(min, rows)) >= 0
                assert max(map(sum, [*rows, *columns])) <= ROOM * numel


def test_skewed_counts_have_popular_ranks_and_every_sender_its_own():
    rows = sends_of(case_with("skewed", 8, 8000))
    assert {sum(row) for row in rows} == {8000}
    got = [sum(column) for column in zip(*rows, strict=True)]
    assert got[7] == max(got) > 1.5 * 8000
    assert got[0] == min(got) < 0.5 * 8000
    assert len(set(rows)) == 8, "a kernel that takes another rank's row for its own must show"
    assert sends_of(case_with("skewed", 8, 8000, seed=1)) != rows
    assert sends_of(case_with("skewed", 8, 8000, seed=8)) == rows
    for ranks, most in ((2, 1.375), (3, 1.5), (4, 1.5625), (8, 1.65625), (72, 1.7396)):
        numel = 1_000 * ranks * ranks
        got = [sum(column) for column in zip(*sends_of(case_with("skewed", ranks, numel)), strict=True)]
        assert max(got) / numel == pytest.approx(most, abs=1e-3)


def test_zeros_leave_one_rank_silent_another_ignored_and_many_pairs_empty():
    for ranks in WORLDS[1:]:
        for seed in range(2 * ranks):
            rows = sends_of(case_with("zeros", ranks, 10 * ranks, seed))
            silent = [rank for rank in range(ranks) if not sum(rows[rank])]
            ignored = [rank for rank in range(ranks) if not sum(row[rank] for row in rows)]
            assert (len(silent), len(ignored)) == (1, 1)
            assert silent != ignored
            assert silent == [seed % ranks]
            empty = sum(count == 0 for row in rows for count in row)
            assert empty >= ranks * ranks // 2 - 1
            assert empty == {2: 3, 3: 7}.get(ranks, empty)
    assert sends_of(case_with("zeros", 1, 7)) == ((7,),)


def test_a_rank_gets_what_is_for_it_in_the_order_of_ranks():
    rows = ((1, 2), (0, 3))
    inputs = [torch.tensor([1, 2, 3, 99]), torch.tensor([4, 5, 6, 99])]
    assert exchanged(inputs, rows, 0).tolist() == [1]
    assert exchanged(inputs, rows, 1).tolist() == [2, 3, 4, 5, 6]


def test_uniform_counts_are_what_all_to_all_gives():
    """Of the part of the inputs that is sent."""
    case, ranks = case_with("uniform", 4, 12), range(4)
    inputs = [torch.arange(24) + 100 * rank for rank in ranks]
    one, other = collective("all_to_all_v"), collective("all_to_all")
    for rank in ranks:
        expected = other.outputs([data[:12] for data in inputs], rank, 0)
        for found in (one.outputs(inputs, rank, 0), one.parts(case, inputs, rank)):
            assert torch.equal(found[0], expected[0])
        assert one.received(case, rank) == 12


def test_other_ops_and_unknown_counts_are_refused():
    traits = Traits("any", "sm_90a", 4, 1 << 30, multicast=False)
    moved = Case("all_to_all", "push", "bfloat16", "none", "none", 960, 4, counts="skewed")
    found = refuses(find("all_to_all/push"), collective("all_to_all"), moved, traits)
    assert (found.key, found.reason) == ("counts", "all_to_all has no counts per peer, such as skewed")
    unknown = refuses(PUSH, collective("all_to_all_v"), case_with("even"), traits)
    assert (unknown.key, unknown.hint) == ("counts", "give uniform, skewed, zeros")
    assert found.hint == "leave it at uniform"


def test_counts_are_in_the_id_of_a_case_off_uniform():
    assert case_with("zeros").id == case_with("uniform").id + "-counts_zeros"


@pytest.fixture(scope="module")
def check_of(compile_cache):
    """check_of(spec, case, **options of the simulator): the runner's check of two launches."""

    def check(spec, case, **options):
        case = replace(case, algorithm=spec.algorithm)
        return judged(case, spec, executable(spec, case, "sm_90a", compile_cache), **options)

    return check


@pytest.mark.slow
@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize(("ranks", "numel", "offset"), [(1, 33, 1), (2, 2, 7), (3, 3003, 3), (3, 0, 0), (8, 1200, 5)])
def test_every_byte_is_there_and_none_beyond(check_of, counts, ranks, numel, offset):
    case = case_with(counts, ranks, numel, seed=ranks, offset=offset)
    found = check_of(PUSH, case, schedule="random", seed=3)
    assert (found.faults, found.method, found.elements) == ((), "bytes", 2 * numel * ranks)


@pytest.mark.parametrize("left", [0, 1, 1 << 20], ids=["first", "after_small", "after_large"])
def test_a_rank_that_never_comes_makes_no_other_store_beyond_the_room(compile_cache, left):
    """Its row is what an earlier launch left: 0, if there was none."""

    def workspaces(case):
        found = PUSH.workspaces(case)
        return tuple(replace(one, fill=stale) if stale and one.name == "rows" else one for one in found)

    stale = left.to_bytes(8, "little") if left else b""
    case = case_with("skewed", 3, 480)
    compiled = executable(PUSH, case, "sm_90a", compile_cache)
    spec = replace(PUSH, workspaces=workspaces)
    work = Launches(spec, case, [compiled, None, compiled], patience=3_000_000)
    work.run()
    assert work.errors == {}
    assert [work.found[rank].changed for rank in range(3)] == [()] * 3
    for rank in (0, 2):
        assert "waited" in describe(work.found[rank].workspaces["status"].tolist(), rank)


def with_body(defect, body):
    def build(case):
        kernel = PUSH.build(case)
        kernel.body = body
        return kernel

    files = (*PUSH.files, str(Path(__file__).resolve()))
    return dataclasses.replace(PUSH, algorithm=f"push_{defect}", build=build, files=files)


def sends_uniformly(frame):
    """all_to_all/push's, which knows nothing of counts."""
    store_chunks(frame, each_its_own=True)


def one_element_beyond(frame):
    """Each message is an element too long: the last one goes beyond what its rank gets."""
    from kernels.dsl.counted import Counted

    whole = Counted.message

    def longer(self, rank):
        start, there, size = whole(self, rank)
        return start, there, size + frame.itemsize

    Counted.message = longer
    try:
        store_counted(frame)
    finally:
        Counted.message = whole


@pytest.mark.parametrize("counts", ["skewed", "zeros"])
def test_a_kernel_that_ignores_what_others_send_is_wrong(check_of, counts):
    assert check_of(with_body("uniform", sends_uniformly), case_with(counts)).wrong > 10
    found = check_of(with_body("beyond", one_element_beyond), case_with("skewed"))
    assert all("output" in line and " changed at byte " in line for line in found.guard_faults), found.guard_faults
    assert {line.split(":")[0] for line in found.guard_faults} == {f"rank {rank}" for rank in range(4)}
