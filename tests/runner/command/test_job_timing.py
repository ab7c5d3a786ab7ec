"""Jobs on real fabrics: the cases of a size are timed together after their checks, and keep their order and honesty."""

import functools
import os
import signal

import pytest

from cases.record.record import Status
from cases.record.request import RecordedEnvironment, RecordedRequest
from cases.record.timing import LinkLimit
from kernels.baselines import find_baseline
from memory.fabric import DeadlineExceeded, Traits
from runner.case.cases import cases_of
from runner.case.contestant import Contestant, spec_for
from runner.command.job import run_job
from runner.command.means import Means, usual_means
from runner.command.plan import Job
from runner.interrupt import interruptible
from runner.records.command_json import exit_code_for
from runner.timing.combine import TimedResult
from runner.timing.measure import measure
from runner.world.world import WorldFailure
from tests.reports.synthetic import record
from tests.runner.conftest import BAD, GOOD, TWO, Script, asked, on_its_fabric
from tests.runner.shelf import Shelf as Kept

LIMIT = LinkLimit(380.0, 370.0, 1 << 28)


def timing_of(limit):
    return record(samples_us=((5.0, 6.0), (5.5, 5.0)), world_size=2, timing={"limit": limit}).timing


class GpuWorld:
    """A world on two GPUs whose programs do nothing but tell the traits."""

    world_size = 2

    def __init__(self, traits):
        self.traits = traits
        self.healthy = True

    def run(self, program, argument, deadline_s):
        return [self.traits] * 2

    def counters(self):
        return {}

    def findings(self):
        return None


class Shelf(Kept):
    """On GPUs; and what measured: by the algorithms timed together, an exception or each TimedResult."""

    def __init__(self, outcomes=None, failures=(), heap_bytes=8 << 30):
        super().__init__(
            lambda: GpuWorld(Traits("nvshmem", "sm_90a", 2, heap_bytes, False, "no switch", library="NVSHMEM 0.0.0"))
        )
        self.outcomes, self.failures = outcomes or {}, [*failures]
        self.measured = []

    def measure(self, world, contestants, request, limit):
        names = tuple(one.case.algorithm for one in contestants)
        assert [one.executable is None for one in contestants] == [find_baseline(name) is not None for name in names]
        size_bytes = contestants[0].case.size_bytes
        self.measured.append((size_bytes, names, limit))
        self.events.append(f"measure {size_bytes}")
        if self.failures:
            failure = self.failures.pop(0)
            world.healthy = not isinstance(failure, WorldFailure)
            raise failure
        return [self.outcomes.get(name, TimedResult(timing_of(LIMIT))) for name in names], LIMIT

    @property
    def told(self):
        return [
            (one.case.size_bytes, one.case.algorithm, str(one.status), one.timing is not None) for one in self.records
        ]


TOGETHER = ("one_shot", "two_shot", "nccl")


@functools.cache
def asked_for(*arguments):
    (request,) = map(on_its_fabric, asked(" ".join(("fabric=nvshmem baselines=[nccl]", TWO, *arguments))))
    return request


def done(shelf, script, *arguments, late=None):
    request = asked_for(*arguments)
    job = Job(request, cases_of(request), {}, RecordedEnvironment, RecordedRequest())
    means = script.tools().means
    run_job(
        job, shelf, Means(means.refuses, means.compiled, means.ran, shelf.measure, late={} if late is None else late)
    )
    return shelf


def each(size_bytes, names, status, is_timed):
    return [(size_bytes, name, status, is_timed) for name in names]


def test_all_that_passed_at_a_size_is_timed_together():
    shelf = done(Shelf(), Script(), "sizes=[8,16]")
    assert shelf.measured == [(8, TOGETHER, None), (16, TOGETHER, LIMIT)]
    assert shelf.told == each(8, TOGETHER, "PASSED", True) + each(16, TOGETHER, "PASSED", True)
    started = [f"start 8 {name}" for name in TOGETHER]
    assert shelf.events[:7] == [*started, "measure 8", *(f"keep 8 {name}" for name in TOGETHER)]
    assert len(shelf.worlds) == 1
    assert all(record.check == GOOD for record in shelf.records)


def test_what_does_not_fit_the_heap_together_is_timed_in_turns():
    shelf = done(Shelf(heap_bytes=1 << 13), Script(), "sizes=[2K]")
    assert shelf.measured == [(2048, ("one_shot",), None), (2048, ("two_shot", "nccl"), LIMIT)]
    assert shelf.told == each(2048, TOGETHER, "PASSED", True)


def test_a_baselines_record_names_its_library_and_no_kernel():
    records = done(Shelf(), Script(), "sizes=8", "algorithms=one_shot").records
    assert records[0].library == ""
    assert records[1].library.startswith("NCCL")
    assert records[1].kernel is None
    assert (records[1].case.accumulator, records[1].case.placement) == ("library", "in_place")


def test_a_record_of_nccl_names_what_it_was_restricted_to_or_why_it_was_refused():
    asked = ("library.nccl_algo=Tree", "library.nccl_proto=LL", "library.nccl_channels=4")
    shelf = done(Shelf(), Script(), "sizes=8", "algorithms=one_shot", *asked)
    assert [one.library for one in shelf.records] == ["", "NCCL (none is loaded) (Tree, LL, 4 channels)"]
    assert shelf.told == each(8, ("one_shot", "nccl"), "PASSED", True)
    shelf = done(Shelf(), Script(), "sizes=8", "algorithms=one_shot", "library.nccl_algo=PAT")
    assert shelf.told[1] == (8, "nccl", "REFUSED", False)
    assert shelf.records[1].refusal.key == "library.nccl_algo"


def test_what_did_not_pass_is_not_timed_and_keeps_its_place():
    script = Script({"two_shot": BAD})
    shelf = done(Shelf(), script, "sizes=8", "algorithms=[one_shot,multimem_one_shot,two_shot]")
    assert shelf.measured == [(8, ("one_shot", "nccl"), None)]
    assert shelf.told == [
        (8, "one_shot", "PASSED", True),
        (8, "multimem_one_shot", "REFUSED", False),
        (8, "two_shot", "WRONG", False),
        (8, "nccl", "PASSED", True),
    ]


@pytest.mark.parametrize("argument", ["timing.mode=none", "check=false"])
def test_nothing_is_timed_unasked_or_unchecked(argument):
    shelf = done(Shelf(), Script(), "sizes=8", argument)
    assert (shelf.measured, shelf.told) == ([], each(8, TOGETHER, "PASSED", False))
    assert shelf.events[1] == "keep 8 one_shot", "nothing has to wait"


def test_wrong_while_timing_is_wrong_and_a_problem_is_a_failure():
    outcomes = {"one_shot": TimedResult(wrong=BAD), "two_shot": TimedResult(problem="its calls could not be captured")}
    shelf = done(Shelf(outcomes), Script(), "sizes=8")
    statuses = [(status, timed) for _, _, status, timed in shelf.told]
    assert statuses == [("WRONG", False), ("FAILED", False), ("PASSED", True)]
    assert shelf.records[0].reason.startswith("while timing: 3 of 64 elements are wrong")
    assert shelf.records[0].check == BAD
    assert shelf.records[1].reason == "while timing: its calls could not be captured"
    assert shelf.records[1].check is None


def test_a_failure_while_timing_costs_the_size_and_the_world():
    shelf = done(Shelf(failures=[WorldFailure("FAILED", 1, "rank 1: waited for rank 0")]), Script(), "sizes=[8,16]")
    assert shelf.told == each(8, TOGETHER, "FAILED", False) + each(16, TOGETHER, "PASSED", True)
    assert shelf.records[0].reason == "while timing: rank 1: waited for rank 0"
    assert len(shelf.worlds) == 2
    assert shelf.measured[1][2] is None, "the limit is asked for again: nobody has it yet"


THREE_LIBRARIES = "baselines=[nccl,nvshmem,torch/one_shot]"


class Hanging(Shelf):
    """All that is measured beside some libraries hangs, and no rank says why."""

    def measure(self, world, contestants, *rest):
        if any(one.executable is None for one in contestants):
            self.failures.append(hang())
        return super().measure(world, contestants, *rest)


def hang(name="", status="TIMEOUT", size_bytes=8):
    """Ranks that waited for the end of a contestant's work; one of them names it."""
    request = asked_for(f"sizes={size_bytes}", THREE_LIBRARIES)
    works = [one.id for one in cases_of(request) if one.algorithm == name] or [""]
    errors = {0: DeadlineExceeded("rank 0 waits", rank=0), 1: DeadlineExceeded("x", rank=1, work=works[0])}
    return WorldFailure(status, 1, "work launched on rank 1 is still running", errors)


def test_a_library_is_refused_beyond_the_least_size_at_which_it_was_late_in_jobs_of_the_same_settings():
    late = {}
    for size in (64, 8):
        done(Shelf(failures=[hang("nccl", size_bytes=size)]), Script(), f"sizes=[{size}]", "deadline_s=600", late=late)
    others = (["deadline_s=600"], ["deadline_s=900"], ["deadline_s=600", "library.nccl_algo=Ring"])
    found = [done(Shelf(), Script(), "sizes=[16]", *other, late=late).records[-1].status for other in others]
    assert found == [Status.REFUSED, Status.PASSED, Status.PASSED]


@pytest.mark.parametrize("status", ["DEADLOCK", "TIMEOUT"])
def test_what_hangs_while_it_is_timed_costs_only_itself(status):
    shelf = done(Shelf(failures=[hang("nccl", status)]), Script(), "sizes=[8,16]")
    is_late = status == "TIMEOUT"  # then a library is not tried at larger sizes: each try costs a deadline and a world
    assert shelf.measured == [
        (8, TOGETHER, None),
        (8, TOGETHER[:2], None),
        (16, TOGETHER[:2] if is_late else TOGETHER, LIMIT),
    ]
    assert shelf.told[:3] == [*each(8, TOGETHER[:2], "PASSED", True), (8, "nccl", status, False)]
    larger = (16, "nccl", "REFUSED" if is_late else "PASSED", not is_late)
    assert shelf.told[3:] == [*each(16, TOGETHER[:2], "PASSED", True), larger]
    assert [one.refusal is not None and one.refusal.key for one in shelf.records[5:]] == [is_late and "deadline_s"]
    assert len(shelf.worlds) == 2, "one that hung is not used again"
    note = "timed again without all_reduce/nccl, which hung while they were timed together"
    said = [one.reason for one in shelf.records[:4]]
    assert said == [note, note, "while timing: work launched on rank 1 is still running", ""]


def test_where_no_rank_knows_what_hung_libraries_are_timed_alone():
    shelf = done(Shelf(failures=[hang()]), Script(), "sizes=8")
    assert [names for _, names, _ in shelf.measured] == [TOGETHER, TOGETHER[:2], TOGETHER[2:]]
    assert shelf.told == each(8, TOGETHER, "PASSED", True)
    assert [one.reason for one in shelf.records] == ["timed apart: together with others it hung"] * 3


def test_the_one_that_hangs_alone_says_so_and_the_others_have_their_times():
    shelf = done(Hanging(), Script(), "sizes=8")
    assert shelf.told == [*each(8, TOGETHER[:2], "PASSED", True), (8, "nccl", "TIMEOUT", False)]
    assert shelf.records[2].reason.startswith(
        "while timing: work launched on rank 1 is still running; timed apart: together "
    )


def test_the_third_hang_of_a_size_ends_it():
    failures = [hang("one_shot"), hang(), hang()]
    shelf = done(Shelf(failures=failures), Script(), "sizes=[8,16]", "baselines=[nccl,nvshmem]")
    every = (*TOGETHER, "nvshmem")
    assert [names for size, names, _ in shelf.measured if size == 8] == [every, every[1:], every[1:2]]
    assert [status for _, _, status, _ in shelf.told] == ["TIMEOUT"] * 4 + ["PASSED"] * 4
    last = shelf.records[3].reason
    assert last.startswith("while timing: not timed: 3 measurements of this size hung before; timed again without ")


def test_libraries_that_hang_take_no_time_from_our_kernels():
    """After the third hang our kernels are timed once more, by themselves: none of those hung without a library."""
    failures = [hang("nccl"), hang("nvshmem"), hang("torch/one_shot")]
    shelf = done(Shelf(failures=failures), Script(), "sizes=8", THREE_LIBRARIES)
    assert shelf.measured[-1][1] == ("one_shot", "two_shot")
    assert shelf.told[:2] == each(8, TOGETHER[:2], "PASSED", True)
    assert shelf.told[2:] == each(8, ("nccl", "nvshmem", "torch/one_shot"), "TIMEOUT", False)
    assert len(shelf.worlds) == 4
    assert exit_code_for(shelf.records) == 0


def test_a_library_that_is_late_in_its_check_costs_only_itself():
    late = WorldFailure("TIMEOUT", 1, "rank 1: the deadline of 60 s passed")
    shelf = done(Shelf(), Script({"nvshmem": late}), "sizes=8", "baselines=[nccl,nvshmem]")
    assert shelf.measured == [(8, TOGETHER, None)]
    assert shelf.told == [*each(8, TOGETHER, "PASSED", True), (8, "nvshmem", "TIMEOUT", False)]
    assert len(shelf.worlds) == 2, "the world that it broke is replaced"
    assert shelf.records[-1].reason == "rank 1: the deadline of 60 s passed"
    assert exit_code_for(shelf.records) == 0
    assert exit_code_for(done(Shelf(), Script({"two_shot": late}), "sizes=8").records) == 1


def test_a_failure_that_is_no_hang_ends_what_is_timed_again():
    shelf = done(Shelf(failures=[hang("nccl"), WorldFailure("FAILED", 0, "rank 0: a fault")]), Script(), "sizes=8")
    assert [status for _, _, status, _ in shelf.told] == ["FAILED", "FAILED", "TIMEOUT"]
    assert shelf.records[0].reason.startswith("while timing: rank 0: a fault; timed again without all_reduce/nccl")


@pytest.mark.parametrize("where", ["measuring", "checking"])
def test_an_interrupt_keeps_what_was_checked(where):
    shelf, script = Shelf(), Script()
    if where == "measuring":
        shelf.failures.append(KeyboardInterrupt())
    else:
        script.outcomes["nccl"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        done(shelf, script, "sizes=[8,16]")
    expected = ["one_shot", "two_shot", "nccl"] if where == "measuring" else ["one_shot", "two_shot"]
    assert shelf.told == [(8, name, "PASSED", False) for name in expected]
    assert all(record.status is Status.PASSED for record in shelf.records)
    assert {record.reason for record in shelf.records} == {"interrupted before it was timed"}


@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_interrupt_while_measured_cases_are_kept_loses_none_and_keeps_none_twice(at):
    class Interrupting(Shelf):
        def keep(self, record, executable):
            super().keep(record, executable)
            if len(self.records) == at:
                os.kill(os.getpid(), signal.SIGINT)

    shelf = Interrupting()
    with pytest.raises(KeyboardInterrupt), interruptible():
        done(shelf, Script(), "sizes=[8,16]")
    assert shelf.told == [(8, name, "PASSED", True) for name in ("one_shot", "two_shot", "nccl")]


class Asked(Exception):
    """Raised by OnlyAsked in place of running anything."""


class OnlyAsked(GpuWorld):
    """Notes what it is to run, with which deadline."""

    def run(self, program, argument, deadline_s):
        self.asked = (program, argument, deadline_s)
        raise Asked


@pytest.mark.parametrize(
    ("limit", "wanted", "link"), [(None, "measured", True), (None, "none", False), (LIMIT, "measured", False)]
)
def test_measuring_gets_time_for_its_samples_and_measures_the_links_once(limit, wanted, link):
    given_s = 6  # nothing runs
    request = asked_for("algorithms=[nccl]", "sizes=[256M]", f"deadline_s={given_s}", f"timing.limit={wanted}")
    case = next(one for one in cases_of(request) if one.algorithm == "nccl")
    world = OnlyAsked(Traits("nvshmem", "sm_90a", 2, 8 << 30, False))
    measured = usual_means().measured
    with pytest.raises(Asked):
        measured(world, [Contestant(case, spec_for(case))], request, limit)
    program, plan, deadline_s = world.asked
    assert program is measure
    assert (plan.link, plan.patience_s, plan.timing) == (link, 2.0, request.timing)
    # 53 rounds of 4 calls of 15 us and 256 MiB at 200 GB/s, and 0.2 ms beside each
    assert deadline_s == pytest.approx(given_s + 10 * 53 * (4 * (15 + (256 << 20) / 200e3) + 200) / 1e6)
