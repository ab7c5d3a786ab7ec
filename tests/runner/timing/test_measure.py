"""Measuring: how many slots and calls, in which order, and that nothing wrong is ever given a time."""

import dataclasses
import itertools
import time
from itertools import pairwise
from typing import Any, cast

import pytest
import torch

from kernels.baselines import Baseline
from memory.fabric import DeadlineExceeded, work_of
from memory.pool import SymmetricPool
from runner.case.binding import BoundKernel
from runner.case.contestant import Contestant
from runner.request.schema import TimingMode
from runner.timing import measure as measure_module
from runner.timing import of_case
from runner.timing.calls import calls_for, slots_for, whole_turns
from runner.timing.combine import combine
from runner.timing.kernel_names import CapturedKernel
from runner.timing.link import LinkTimes, link_limit, measure_link
from runner.timing.measure import MeasurePlan, RankMeasurement, expected_s, measure
from runner.timing.sampling import LONGEST_DELAY_S
from runner.timing.stopwatch import DELAY_S
from runner.world.threads import ThreadWorld
from runner.world.world import WorldFailure
from simulator.world import SimulatorOptions
from tests.golden import refused, same_text
from tests.patience import NEVER_S
from tests.runner.measuring import CALL_US, TIMING, Bench, RecordingFabric, RecordingStopwatch, case_of, contestant


@pytest.fixture
def both(compile_cache):
    """one_shot and two_shot together, two ranks."""
    return MeasurePlan((contestant(compile_cache, "one_shot"), contestant(compile_cache, "two_shot")), TIMING)


def timed_part(log):
    """What comes after the last graph was captured, from the first delay on; of several waits in a row one."""
    part = log[len(log) - log[::-1].index("capture") :]
    part = part[part.index("delay") :]
    return [line for before, line in pairwise(["", *part]) if (before, line) != ("synchronize",) * 2]


@pytest.mark.slow
def test_the_kernels_of_a_librarys_graph_are_named_and_of_ours_the_record_says_more(both):
    ranks = Bench(both, 2).run()
    assert [one.kernels for rank in ranks for one in rank.contestants] == [(CapturedKernel("a_kernel", 7),)] * 4
    library = Contestant(both.contestants[1].case, Baseline("two_shot", ()))
    timed, _ = combine(dataclasses.replace(both, contestants=(both.contestants[0], library)), ranks, None)
    assert [one.timing.kernels for one in timed if one.timing is not None] == [None, ("a_kernel",)]
    assert [one.timing.kernel_blocks for one in timed if one.timing is not None] == [None, (7,)]


def test_calls_suit_the_size_or_are_as_given():
    given = ((1024, None), (1 << 20, None), (16 << 20, None), (256 << 20, None), (1 << 20, 3), (0, None), (1024, 900))
    assert [calls_for(size_bytes, calls) for size_bytes, calls in given] == [50, 37, 8, 4, 3, 50, 900]
    given_turns = ((37, 13, None), (50, 13, None), (8, 4, None), (7, 4, 7))
    assert [whole_turns(*one) for one in given_turns] == [39, 39, 8, 7], "every slot has as many calls"


def test_all_that_is_measured_together_shares_the_heap(both, monkeypatch):
    budgets = []
    monkeypatch.setattr(of_case, "slots_for", lambda *given: budgets.append(given[-1]) or 1)
    Bench(both, 2).run()
    assert max(budgets) * 2 < 1 << 23


def test_slots_fill_the_cache_twice_within_calls_and_heap():
    plenty, mib = 1 << 33, 1 << 20
    given = (
        *((size, "rotate", 50, plenty) for size in (2 << 10, 2 * mib, 8 * mib, 0)),
        (512 * mib, "rotate", 4, plenty),
        *((8 * mib, "rotate", 50, heap) for heap in (33 * mib, mib)),
        *((size, "hot", 50, plenty) for size in (2 << 10, 0)),
    )
    found = [slots_for(size, l2, 50 * mib, calls, heap) for size, l2, calls, heap in given]
    assert found == [50, 50, 13, 50, 1, 4, 1, 1, 1]


def test_what_is_expected_grows_with_samples_and_entrants(both):
    one = dataclasses.replace(both, contestants=both.contestants[:1])
    assert expected_s(both) == pytest.approx(2 * expected_s(one))
    longer = dataclasses.replace(both, timing=dataclasses.replace(TIMING, samples=8))
    assert expected_s(longer) == pytest.approx(2 * expected_s(both))


def test_a_plan_that_can_not_be_is_refused(both):
    one, other = both.contestants
    larger = dataclasses.replace(other, case=case_of("two_shot", size_bytes=8192))
    for contestants in ((), (one, one), (one, larger)):
        with refused():
            MeasurePlan(contestants, TIMING)


def test_a_simulated_fabric_is_not_timed(both):
    with refused(WorldFailure):
        ThreadWorld(2, SimulatorOptions(heap_bytes=1 << 23)).run(measure, both, NEVER_S)


def test_samples_are_microseconds_a_call_interleaved_and_checked_before_any_graph_is_made(both):
    """Each sample begins after a delay and a barrier."""
    noted = []
    bench = Bench(both, 2, spoil=lambda fabric, _: noted.append(fabric))
    for rank, found in enumerate(bench.run()):
        assert found.rank == rank
        for one in found.contestants:
            assert one.samples_us == pytest.approx([(4 + 1) * CALL_US / 4] * 3), "four launches and the replay"
            assert (one.slots, one.slot_bytes, one.calls_per_sample, one.problem) == (4, 8192, 4, "")
            assert one.checks[0].wrong == 0
            assert [check.elements for check in one.checks] == [4 * 2048] * 3, "before, what was left, and once more"
            assert one.elements == (4 * 2048, 8 * 2048)
        assert "not_captured" in found.device_before, "the host has no GPU"
    for log in bench.logs:
        before = log[: log.index("capture")]
        launches = {f"launch all_reduce/{name}" for name in ("one_shot", "two_shot")}
        assert {line for line in before if line.startswith("launch")} == launches
        assert log.index("queue_barrier") < log.index("launch all_reduce/one_shot"), "what it needs is loaded first"
        assert [line for line in log if line in ("capture", "replay")] == ["capture"] * 2 + ["replay"] * (2 * (2 + 3))
        part = timed_part(log)
        rounds = []
        for name in ("one_shot", "two_shot"):
            rounds += ["delay", "queue_barrier", "mark", "replay", *[f"launch all_reduce/{name}"] * 4, "mark"]
            rounds += ["synchronize"]
        assert part[: len(rounds) * 5] == rounds * 5, "the device is idle before each sample"
    assert all(one.noted == ["all_reduce/one_shot", "all_reduce/two_shot"] * 5 for one in noted)


def test_eager_calls_are_not_captured_and_hot_has_one_slot(compile_cache):
    timing = dataclasses.replace(TIMING, mode="eager", l2="hot")
    bench = Bench(MeasurePlan((contestant(compile_cache, "one_shot"),), timing), 2)
    for found in bench.run():
        assert found.contestants[0].samples_us == pytest.approx([CALL_US] * 3)
        assert found.contestants[0].slots == 1
    assert all("capture" not in log and "replay" not in log for log in bench.logs)
    assert bench.logs[0] == bench.logs[1]
    same_text("\n".join(bench.logs[0][-30:]))


def spoiled_output(algorithm, rank, first):
    """Rank's outputs of an algorithm are wrong from the first-th check on."""

    def spoil(monkeypatch):
        seen = {}
        original = of_case.Measurement.checked

        def checked(measurement, own):
            contestant = measurement.contestant
            key = (contestant.case.algorithm, own)
            seen[key] = seen.get(key, 0) + 1
            if key == (algorithm, rank) and seen[key] >= first:
                output = measurement.opened.output(0).clone()
                output[3] += 64
                return of_case.check_rank(contestant.case, contestant.spec, own, [output], ())
            return original(measurement, own)

        monkeypatch.setattr(of_case.Measurement, "checked", checked)

    return spoil


def test_what_is_wrong_before_is_not_timed_on_any_rank(both, monkeypatch):
    spoiled_output("two_shot", 1, 1)(monkeypatch)
    bench = Bench(both, 2)
    ranks = bench.run()
    assert [found.contestants[1].samples_us for found in ranks] == [(), ()]
    assert "rank 1" in ranks[0].contestants[1].problem
    timed, _ = combine(both, ranks, None)
    assert timed[0].timing is not None
    assert timed[1].timing is None
    assert (timed[1].wrong.first_mismatch.rank, timed[1].wrong.first_mismatch.index) == (1, 3)


@pytest.mark.parametrize("check", [2, 3])
def test_what_is_wrong_after_has_no_time(both, monkeypatch, check):
    spoiled_output("one_shot", 0, check)(monkeypatch)
    ranks = Bench(both, 2).run()
    assert all(len(found.contestants[0].samples_us) == 3 for found in ranks)
    timed, _ = combine(both, ranks, None)
    assert timed[0].timing is None
    assert timed[0].wrong.wrong == 1
    assert timed[1].timing is not None


@pytest.mark.parametrize(("warmup", "tired"), [(2, 1), (0, 1), (2, 3)])
def test_graphs_that_do_nothing_or_only_work_while_warming_up_are_found_out(compile_cache, warmup, tired):
    """What was written before would be right, and in place the input would still be there: it is gone by then."""
    contestants = contestant(compile_cache, "one_shot"), contestant(compile_cache, "two_shot", placement="in_place")
    plan = MeasurePlan(contestants, dataclasses.replace(TIMING, warmup=warmup))
    timed, _ = combine(plan, Bench(plan, 2, spoil=stopwatch_with(tired_graphs=tired)).run(), None)
    assert [one.timing for one in timed] == [None, None]
    assert timed[0].wrong is not None
    assert timed[1].problem.endswith("the timed calls changed nothing")


def stopwatch_with(**values):
    """A bench's spoil that sets these of every rank's stopwatch."""

    def spoil(fabric, stopwatch):
        for name, value in values.items():
            setattr(stopwatch, name, value)

    return spoil


def test_in_place_the_last_check_is_of_calls_from_a_graph(compile_cache):
    """Launched one by one they are right; the graph has every call twice, which adds up to something else."""
    plan = MeasurePlan((contestant(compile_cache, "two_shot", placement="in_place"),), TIMING)
    (timed,), _ = combine(plan, Bench(plan, 2, spoil=stopwatch_with(doubled_graphs=True)).run(), None)
    assert timed.timing is None
    assert timed.wrong.wrong > 2048


def test_a_slot_that_the_timed_calls_left_out_is_found_out(compile_cache, monkeypatch):
    plan = MeasurePlan((contestant(compile_cache, "two_shot", placement="in_place"),), TIMING)
    original = measure_module.Sampling._round

    def without_the_last(self, keep=False):
        original(self, keep)
        for measurement in self._measurements:
            measurement.opened.write(3, measurement.data)

    monkeypatch.setattr(measure_module.Sampling, "_round", without_the_last)
    (timed,), _ = combine(plan, Bench(plan, 2).run(), None)
    assert timed.problem.endswith("the timed calls changed nothing")


def break_one(fabric, stopwatch):
    """The first capture of rank 1 fails."""
    original = stopwatch.capture

    def capture(queue):
        stopwatch.broken_capture = fabric.rank == 1 and "capture" not in stopwatch.log
        return original(queue)

    stopwatch.capture = capture


def test_contestants_hear_of_their_graphs_before_the_first_is_replayed(both, monkeypatch):
    """Once each, and only those that are timed: what can't be captured is left out on all ranks."""
    monkeypatch.setattr(BoundKernel, "captured", lambda self: self.fabric.log.append("captured"))
    bench = Bench(both, 2)
    bench.run()
    for log in bench.logs:
        steps = [line for line in log if line in ("capture", "captured", "replay")]
        assert steps[: steps.index("replay")] == ["capture"] * 2 + ["captured"] * 2
        assert steps.count("captured") == 2
    bench = Bench(both, 2, spoil=break_one)
    timed, _ = combine(both, bench.run(), None)
    assert [log.count("captured") for log in bench.logs] == [1, 1]
    assert [one.timing is None for one in timed] == [True, False]
    same_text(timed[0].problem)


def hanging(mark, after):
    """Rank 1's device never gets to a mark of a number, and the wait for it ends at the deadline."""

    def spoil(fabric, stopwatch):
        marks = []
        original, synchronize = stopwatch.mark, fabric.synchronize

        def marked():
            marks.append(original())
            if len(marks) == mark and fabric.rank == 1:
                stopwatch.stuck_at = marks[-1]
            return marks[-1]

        def waited():
            synchronize()
            if len(marks) >= after:
                raise DeadlineExceeded("work is still running", rank=fabric.rank)

        stopwatch.mark, fabric.synchronize = marked, waited

    return spoil


@pytest.mark.parametrize(
    ("mark", "name"),
    [
        (3, "all_reduce/one_shot"),  # after the watch's own one: the first one's start, its end
        (5, "all_reduce/two_shot"),
        (4, ""),  # between the two: it waits for another rank
    ],
)
def test_what_was_begun_and_did_not_end_is_named(both, mark, name):
    with pytest.raises(WorldFailure) as caught:
        Bench(both, 2, spoil=hanging(mark, mark | 1)).run()
    assert caught.value.status == "TIMEOUT"
    works = {work_of(error) for error in caught.value.errors.values()} - {""}
    assert works == {one.case.id for one in both.contestants if one.case.name == name}
    told = [f"work is still running; {name} was begun and did not end"] if name else ["work is still running"]
    assert [caught.value.message] == told


@pytest.mark.slow
def test_all_ranks_give_the_slowest_host_time_to_queue_a_graph(both):
    """NCCL's symmetric kernels took 22.7 us a call here, and 8.9 in a script that queued one graph at a time."""

    def delays(plan, slow_s=0.0):
        watches = {}

        def spoil(fabric, stopwatch):
            watches[fabric.rank] = stopwatch
            original = stopwatch.capture

            def capture(queue):
                replay = original(queue)
                return lambda: (time.sleep(slow_s if fabric.rank == 1 else 0), replay())

            stopwatch.capture = capture

        Bench(plan, 2, spoil=spoil).run()
        return [watches[rank].delays_s[1:] for rank in range(2)]

    one, other = delays(both)
    assert one == other
    assert one[:4] == [DELAY_S] * 4, "in the warm-up"
    assert one[4:] == one[4:6] * 3
    assert all(DELAY_S <= each <= LONGEST_DELAY_S for each in one)
    slow = delays(both, slow_s=0.05)
    assert slow[0][4:] == slow[1][4:] == [LONGEST_DELAY_S] * 6
    eager = dataclasses.replace(both, timing=dataclasses.replace(TIMING, mode=TimingMode.eager))
    assert set(delays(eager, slow_s=0.05)[0]) == {DELAY_S}, "launches are what is timed then"


def test_one_call_that_never_ends_is_named(both):
    def spoil(fabric, stopwatch):
        synchronize = fabric.synchronize

        def waited():
            synchronize()
            if fabric.log[-2].startswith("launch all_reduce/two_shot"):
                raise DeadlineExceeded("work is still running", rank=fabric.rank)

        fabric.synchronize = waited

    with refused(WorldFailure):
        Bench(both, 2, spoil=spoil).run()


def test_a_wait_given_up_is_a_deadlock(both, monkeypatch):
    calls = itertools.count()
    monkeypatch.setattr(BoundKernel, "trouble", lambda self: "rank 0, block 3: waited" * (next(calls) > 20))
    with pytest.raises(WorldFailure, match="all_reduce/.*: rank 0, block 3: waited") as caught:
        Bench(both, 2).run()
    assert caught.value.status == "DEADLOCK"


def test_both_placements_of_a_kernel_are_timed_together_and_apart(compile_cache):
    places = ("out_of_place", "in_place")
    plan = MeasurePlan(tuple(contestant(compile_cache, "two_shot", placement=place) for place in places), TIMING)
    found, _ = combine(plan, Bench(plan, 2).run(), None)
    timings = [one.timing for one in found if one.timing is not None]
    assert [timing.slot_bytes for timing in timings] == [8192, 4096]
    assert [timing.interleaved_with for timing in timings] == [("two_shot",)] * 2
    assert (timings[1].checked_before, timings[1].checked_after) == (2 * 4 * 2048, 2 * 4 * 2048)


def test_a_timing_says_how_it_was_taken(both):
    plan = dataclasses.replace(both, link=True)
    bench = Bench(plan, 2)
    timed, limit = combine(plan, bench.run(), None)
    found = timed[0].timing
    assert (found.mode, found.window, found.l2, found.slots, found.slot_bytes) == ("graph", "kernel", "rotate", 4, 8192)
    assert (found.warmup_calls, found.calls_per_sample, found.bus_factor) == (8, 4, 1.0)
    assert (found.l2_bytes, found.fits_l2) == (1 << 14, False)
    assert found.interleaved_with == ("two_shot",)
    assert [len(row) for row in found.samples_us] == [3, 3]
    assert [set(row) for row in found.devices] == [{"before", "after"}] * 2
    assert found.limit == limit
    assert limit.size_bytes == (1 << 23) // 4
    assert bench.logs[0].count(f"copy {limit.size_bytes}") == 12
    again, kept = combine(both, Bench(both, 2).run(), limit)
    assert kept == limit
    assert again[1].timing.limit == limit


def test_the_links_limit_is_the_slowest_ranks_in_the_best_try():
    size = 256 << 20
    ranks = [LinkTimes(size, (800.0, 700.0), (900.0, 1000.0)), LinkTimes(size, (900.0, 1000.0), (700.0, 800.0))]
    limit = link_limit(ranks)
    assert limit.push_gbps == pytest.approx(size / 900e-6 / 1e9)
    assert limit.pull_gbps == pytest.approx(size / 900e-6 / 1e9)
    assert link_limit([ranks[0], None]) is None
    assert link_limit([]) is None


def test_one_rank_has_no_link(compile_cache):
    plan = MeasurePlan((contestant(compile_cache, "one_shot", world_size=1),), TIMING, link=True)
    (found,) = Bench(plan, 1).run()
    assert found.link is None
    assert isinstance(found, RankMeasurement)
    assert torch.isfinite(torch.tensor(found.contestants[0].samples_us)).all()


@pytest.mark.parametrize(("heap_bytes", "size_bytes"), [(12 << 10, None), (16 << 10, 4096)])
def test_a_heap_without_room_for_copies_has_no_link(heap_bytes, size_bytes):
    def program(fabric, _):
        log = []
        with SymmetricPool(fabric) as pool:
            return measure_link(cast(Any, RecordingFabric(fabric, log, 0)), pool, RecordingStopwatch(log))

    for found in ThreadWorld(2, SimulatorOptions(heap_bytes=heap_bytes)).run(program, None, NEVER_S):
        assert (found.size_bytes if found else None) == size_bytes


def test_times_of_outputs_that_nobody_looked_at_afterwards_are_no_timing(both):
    """As ranks would bring them home that stopped looking: samples, and the check from before them alone."""
    alone = dataclasses.replace(both, contestants=both.contestants[:1])
    ranks = Bench(alone, 2).run()
    assert all(rank.contestants[0].samples_us for rank in ranks)
    (timed,), _ = combine(alone, ranks, None)
    assert timed.timing is not None
    unseen = [dataclasses.replace(rank.contestants[0], checks=rank.contestants[0].checks[:1]) for rank in ranks]
    ranks = [dataclasses.replace(rank, contestants=(one,)) for rank, one in zip(ranks, unseen, strict=True)]
    (timed,), _ = combine(alone, ranks, None)
    assert (timed.timing, timed.problem != "") == (None, True)
