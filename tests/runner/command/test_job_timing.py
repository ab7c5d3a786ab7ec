"""Jobs on real fabrics: the cases of a size are timed together after their checks, and keep their order and honesty."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from memory.fabric import DeadlineExceeded, Traits
from reports.record.record import LinkLimit, Record, RecordedEnvironment, RecordedRequest, Status, Timing
from runner.case.cases import cases_of
from runner.case.contestant import Contestant, spec_for
from runner.command.job import Job, Means, run_job, usual_means
from runner.interrupt import interruptible
from runner.request.compose import compose_jobs, hydra_over
from runner.timing.measure import TimedResult, measure
from runner.world.world import WorldFailure
from tests.runner.conftest import BAD, GOOD, TWO, Script, on_its_fabric

LIMIT = LinkLimit(380.0, 370.0, 1 << 28)


def timing_of(limit: LinkLimit | None) -> Timing:
    return Timing(
        mode="graph",
        window="kernel",
        l2="rotate",
        slots=4,
        slot_bytes=8192,
        warmup_calls=12,
        calls_per_sample=4,
        bus_factor=1.0,
        samples_us=((5.0, 6.0), (5.5, 5.0)),
        checked_before=64,
        checked_after=128,
        limit=limit,
    )


class GpuWorld:
    """A world on two GPUs whose programs do nothing but tell the traits."""

    world_size = 2

    def __init__(self, traits: Traits) -> None:
        self.traits = traits
        self.healthy = True

    def run(self, program: Any, argument: Any, deadline_s: float | None) -> list[Any]:
        return [self.traits] * 2

    def counters(self) -> dict[str, Any]:
        return {}

    def findings(self) -> None:
        return None


@dataclasses.dataclass
class Shelf:
    """job.Keeper on GPUs, and what measured: by the algorithms timed together, an exception or each TimedResult."""

    outcomes: dict[str, Any] = dataclasses.field(default_factory=dict)
    failures: list[BaseException] = dataclasses.field(default_factory=list)
    simulated: bool = False
    heap_bytes: int = 8 << 30
    records: list[Record] = dataclasses.field(default_factory=list)
    worlds: list[GpuWorld] = dataclasses.field(default_factory=list)
    measured: list[tuple[int, tuple[str, ...], LinkLimit | None]] = dataclasses.field(default_factory=list)
    events: list[str] = dataclasses.field(default_factory=list)

    def world(self) -> Any:
        if not self.worlds or not self.worlds[-1].healthy:
            traits = Traits("nvshmem", "sm_90a", 2, self.heap_bytes, False, "no switch", self.simulated)
            self.worlds.append(GpuWorld(traits))
        return self.worlds[-1]

    def starting(self, case: Any) -> None:
        self.events.append(f"start {case.size_bytes} {case.algorithm}")

    @contextlib.contextmanager
    def preparing(self, what: str) -> Iterator[None]:
        self.events.append(what)
        yield

    def keep(self, record: Record, executable: Any) -> None:
        self.events.append(f"keep {record.case.size_bytes} {record.case.algorithm}")
        self.records.append(record)

    def measure(
        self, world: Any, contestants: Sequence[Contestant], request: Any, limit: LinkLimit | None
    ) -> tuple[list[TimedResult], LinkLimit | None]:
        names = tuple(one.case.algorithm for one in contestants)
        assert [one.executable is None for one in contestants] == [name in ("nccl", "nvshmem") for name in names]
        size_bytes = contestants[0].case.size_bytes
        self.measured.append((size_bytes, names, limit))
        self.events.append(f"measure {size_bytes}")
        if self.failures:
            failure = self.failures.pop(0)
            world.healthy = not isinstance(failure, WorldFailure)
            raise failure
        return [self.outcomes.get(name, TimedResult(timing_of(LIMIT))) for name in names], LIMIT

    @property
    def told(self) -> list[tuple[int, str, str, bool]]:
        return [
            (one.case.size_bytes, one.case.algorithm, str(one.status), one.timing is not None) for one in self.records
        ]


def done(shelf: Shelf, script: Script, *arguments: str) -> Shelf:
    with hydra_over():
        (composed,) = compose_jobs(["fabric=nvshmem", "baselines=[nccl]", TWO, *arguments], multirun=False)
    request = on_its_fabric(composed.request)
    job = Job(request, cases_of(request), {}, RecordedEnvironment, RecordedRequest())
    means = script.tools().means
    assert means is not None
    run_job(job, shelf, Means(means.refuses, means.compiled, means.ran, shelf.measure))
    return shelf


def test_all_that_passed_at_a_size_is_timed_together() -> None:
    shelf = done(Shelf(), Script(), "sizes=[8,16]")
    assert shelf.measured == [
        (8, ("one_shot", "two_shot", "nccl"), None),
        (16, ("one_shot", "two_shot", "nccl"), LIMIT),
    ]
    assert [(size, name, status, timed) for size, name, status, timed in shelf.told] == [
        (size, name, "PASSED", True) for size in (8, 16) for name in ("one_shot", "two_shot", "nccl")
    ]
    assert shelf.events[:7] == [
        "start 8 one_shot",
        "start 8 two_shot",
        "start 8 nccl",
        "measure 8",
        "keep 8 one_shot",
        "keep 8 two_shot",
        "keep 8 nccl",
    ]
    assert len(shelf.worlds) == 1
    assert all(record.check == GOOD for record in shelf.records)


def test_what_does_not_fit_the_heap_together_is_timed_in_turns() -> None:
    shelf = done(Shelf(heap_bytes=1 << 13), Script(), "sizes=[2K]")
    assert shelf.measured == [(2048, ("one_shot",), None), (2048, ("two_shot", "nccl"), LIMIT)]
    assert [(name, status, timed) for _, name, status, timed in shelf.told] == [
        (name, "PASSED", True) for name in ("one_shot", "two_shot", "nccl")
    ]


def test_a_baselines_record_names_its_library_and_no_kernel() -> None:
    records = done(Shelf(), Script(), "sizes=8", "algorithms=one_shot").records
    assert records[0].library == ""
    assert records[0].kernel is not None
    assert records[1].library.startswith("NCCL")
    assert records[1].kernel is None
    assert (records[1].case.accumulator, records[1].case.placement) == ("library", "in_place")


def test_a_record_of_nccl_names_what_it_was_restricted_to_and_no_other_contestants_does() -> None:
    asked = ("library.nccl_algo=Tree", "library.nccl_proto=LL", "library.nccl_channels=4")
    shelf = done(Shelf(), Script(), "sizes=8", "algorithms=one_shot", *asked)
    assert [one.library for one in shelf.records] == ["", "NCCL (none is loaded) (Tree, LL, 4 channels)"]
    assert shelf.told == [(8, "one_shot", "PASSED", True), (8, "nccl", "PASSED", True)]


def test_a_restriction_that_nccl_has_nothing_for_is_refused_and_its_key_is_named() -> None:
    shelf = done(Shelf(), Script(), "sizes=8", "algorithms=one_shot", "library.nccl_algo=PAT")
    assert shelf.told[1] == (8, "nccl", "REFUSED", False)
    assert shelf.records[1].refusal is not None
    assert shelf.records[1].refusal.key == "library.nccl_algo"


def test_what_did_not_pass_is_not_timed_and_keeps_its_place() -> None:
    script = Script({"two_shot": BAD})
    shelf = done(Shelf(), script, "sizes=8", "algorithms=[one_shot,multimem_one_shot,two_shot]")
    assert shelf.measured == [(8, ("one_shot", "nccl"), None)]
    assert shelf.told == [
        (8, "one_shot", "PASSED", True),
        (8, "multimem_one_shot", "REFUSED", False),
        (8, "two_shot", "WRONG", False),
        (8, "nccl", "PASSED", True),
    ]


def test_when_nothing_passed_nothing_is_timed() -> None:
    shelf = done(Shelf(), Script({"one_shot": BAD, "nccl": BAD}), "sizes=8", "algorithms=one_shot")
    assert shelf.measured == []
    assert [status for _, _, status, _ in shelf.told] == ["WRONG", "WRONG"]


@pytest.mark.parametrize("arguments", [("timing.mode=none",), ("check=false",)])
def test_nothing_is_timed_unasked_or_unchecked(arguments: tuple[str, ...]) -> None:
    shelf = done(Shelf(), Script(), "sizes=8", *arguments)
    assert shelf.measured == []
    assert [(status, timed) for _, _, status, timed in shelf.told] == [("PASSED", False)] * 3
    assert shelf.events[1] == "keep 8 one_shot", "nothing has to wait"


def test_a_simulated_fabric_is_never_timed() -> None:
    shelf = done(Shelf(simulated=True), Script(), "sizes=8")
    assert shelf.measured == []
    assert [status for _, _, status, _ in shelf.told] == ["PASSED", "PASSED", "REFUSED"]


def test_wrong_while_timing_is_wrong_and_a_problem_is_a_failure() -> None:
    outcomes = {"one_shot": TimedResult(wrong=BAD), "two_shot": TimedResult(problem="its calls could not be captured")}
    shelf = done(Shelf(outcomes), Script(), "sizes=8")
    assert [(status, timed) for _, _, status, timed in shelf.told] == [
        ("WRONG", False),
        ("FAILED", False),
        ("PASSED", True),
    ]
    assert shelf.records[0].reason.startswith("while timing: 3 of 64 elements are wrong")
    assert shelf.records[0].check == BAD
    assert shelf.records[1].reason == "while timing: its calls could not be captured"
    assert shelf.records[1].check is None


def test_a_failure_while_timing_costs_the_size_and_the_world() -> None:
    shelf = done(Shelf(failures=[WorldFailure("FAILED", 1, "rank 1: waited for rank 0")]), Script(), "sizes=[8,16]")
    assert shelf.told == [(8, name, "FAILED", False) for name in ("one_shot", "two_shot", "nccl")] + [
        (16, name, "PASSED", True) for name in ("one_shot", "two_shot", "nccl")
    ]
    assert shelf.records[0].reason == "while timing: rank 1: waited for rank 0"
    assert len(shelf.worlds) == 2
    assert shelf.measured[1][2] is None, "the limit is asked for again: nobody has it yet"


def hang(name: str = "", status: str = "TIMEOUT") -> WorldFailure:
    """Ranks that waited for the end of a contestant's work, of size 8; one of them names it."""
    with hydra_over():
        (composed,) = compose_jobs(["fabric=nvshmem", "baselines=[nccl]", TWO, "sizes=8"], multirun=False)
    works = [one.id for one in cases_of(on_its_fabric(composed.request)) if one.algorithm == name] or [""]
    errors = {0: DeadlineExceeded("rank 0 waits", rank=0), 1: DeadlineExceeded("x", rank=1, work=works[0])}
    return WorldFailure(status, 1, "work launched on rank 1 is still running", errors)


@pytest.mark.parametrize("status", ["DEADLOCK", "TIMEOUT"])
def test_what_hangs_while_it_is_timed_costs_only_itself(status: str) -> None:
    shelf = done(Shelf(failures=[hang("nccl", status)]), Script(), "sizes=[8,16]")
    assert shelf.measured == [
        (8, ("one_shot", "two_shot", "nccl"), None),
        (8, ("one_shot", "two_shot"), None),
        (16, ("one_shot", "two_shot", "nccl"), LIMIT),
    ]
    assert shelf.told[:3] == [
        (8, "one_shot", "PASSED", True),
        (8, "two_shot", "PASSED", True),
        (8, "nccl", status, False),
    ]
    assert [status for _, _, status, _ in shelf.told[3:]] == ["PASSED"] * 3
    assert len(shelf.worlds) == 2, "one that hung is not used again"
    note = "timed again without all_reduce/nccl, which hung while they were timed together"
    assert [one.reason for one in shelf.records[:4]] == [
        note,
        note,
        "while timing: work launched on rank 1 is still running",
        "",
    ]


def test_where_no_rank_knows_what_hung_libraries_are_timed_alone() -> None:
    shelf = done(Shelf(failures=[hang()]), Script(), "sizes=8")
    assert [names for _, names, _ in shelf.measured] == [
        ("one_shot", "two_shot", "nccl"),
        ("one_shot", "two_shot"),
        ("nccl",),
    ]
    assert [(status, timed) for _, _, status, timed in shelf.told] == [("PASSED", True)] * 3
    expected = "timed apart: together with others it hung"
    assert [one.reason for one in shelf.records] == [expected] * 3


def test_the_one_that_hangs_alone_says_so_and_the_others_have_their_times() -> None:
    class Hanging(Shelf):
        def measure(self, world: Any, contestants: Any, *rest: Any) -> Any:
            if any(one.case.algorithm == "nccl" for one in contestants):
                self.failures.append(hang())
            return super().measure(world, contestants, *rest)

    shelf = done(Hanging(), Script(), "sizes=8")
    assert [(name, status, timed) for _, name, status, timed in shelf.told] == [
        ("one_shot", "PASSED", True),
        ("two_shot", "PASSED", True),
        ("nccl", "TIMEOUT", False),
    ]
    assert shelf.records[2].reason.startswith(
        "while timing: work launched on rank 1 is still running; timed apart: together "
    )


def test_the_third_hang_of_a_size_ends_it() -> None:
    shelf = done(
        Shelf(failures=[hang("one_shot"), hang(), hang()]), Script(), "sizes=[8,16]", "baselines=[nccl,nvshmem]"
    )
    assert [names for size, names, _ in shelf.measured if size == 8] == [
        ("one_shot", "two_shot", "nccl", "nvshmem"),
        ("two_shot", "nccl", "nvshmem"),
        ("two_shot",),
    ]
    assert [status for _, _, status, _ in shelf.told] == ["TIMEOUT"] * 4 + ["PASSED"] * 4
    last = shelf.records[3].reason
    assert last.startswith("while timing: not timed: 3 measurements of this size hung before; timed again without ")


def test_a_failure_that_is_no_hang_ends_what_is_timed_again() -> None:
    shelf = done(Shelf(failures=[hang("nccl"), WorldFailure("FAILED", 0, "rank 0: a fault")]), Script(), "sizes=8")
    assert [status for _, _, status, _ in shelf.told] == ["FAILED", "FAILED", "TIMEOUT"]
    assert shelf.records[0].reason.startswith("while timing: rank 0: a fault; timed again without all_reduce/nccl")


def test_an_error_of_our_own_while_timing_is_a_failure_with_its_place() -> None:
    shelf = done(Shelf(failures=[KeyError("lost")]), Script(), "sizes=[8,16]")
    assert [status for _, _, status, _ in shelf.told] == ["FAILED"] * 3 + ["PASSED"] * 3
    assert shelf.records[0].reason.startswith("while timing: KeyError: 'lost' (test_job_timing.py:")


@pytest.mark.parametrize("where", ["measuring", "checking"])
def test_an_interrupt_keeps_what_was_checked(where: str) -> None:
    shelf, script = Shelf(), Script()
    if where == "measuring":
        shelf.failures.append(KeyboardInterrupt())  # type: ignore[arg-type]
    else:
        script.outcomes["nccl"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        done(shelf, script, "sizes=[8,16]")
    expected = ["one_shot", "two_shot", "nccl"] if where == "measuring" else ["one_shot", "two_shot"]
    assert shelf.told == [(8, name, "PASSED", False) for name in expected]
    assert all(record.status is Status.PASSED for record in shelf.records)
    assert {record.reason for record in shelf.records} == {"interrupted before it was timed"}


@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_interrupt_while_measured_cases_are_kept_loses_none_and_keeps_none_twice(at: int) -> None:
    class Interrupting(Shelf):
        def keep(self, record: Record, executable: Any) -> None:
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

    def run(self, program: Any, argument: Any, deadline_s: float | None) -> list[Any]:
        self.asked = (program, argument, deadline_s)
        raise Asked


@pytest.mark.parametrize(
    ("limit", "wanted", "link"), [(None, "measured", True), (None, "none", False), (LIMIT, "measured", False)]
)
def test_measuring_gets_time_for_its_samples_and_measures_the_links_once(
    limit: LinkLimit | None, wanted: str, link: bool
) -> None:
    with hydra_over():
        given_s = 6  # nothing runs
        arguments = [
            "fabric=nvshmem",
            "algorithms=[nccl]",
            "sizes=[256M]",
            f"deadline_s={given_s}",
            f"timing.limit={wanted}",
        ]
        (composed,) = compose_jobs(arguments, multirun=False)
    request = on_its_fabric(composed.request)
    case = next(one for one in cases_of(request) if one.algorithm == "nccl")
    world = OnlyAsked(Traits("nvshmem", "sm_90a", 2, 8 << 30, False))
    measured = usual_means().measured
    assert measured is not None
    with pytest.raises(Asked):
        measured(world, [Contestant(case, spec_for(case))], request, limit)
    program, plan, deadline_s = world.asked
    assert program is measure
    assert (plan.link, plan.patience_s, plan.timing) == (link, 2.0, request.timing)
    # 53 rounds of 4 calls of 15 us and 256 MiB at 200 GB/s, and 0.2 ms beside each
    assert deadline_s == pytest.approx(given_s + 10 * 53 * (4 * (15 + (256 << 20) / 200e3) + 200) / 1e6)


def test_both_placements_of_a_size_are_timed_together_and_kept_apart() -> None:
    shelf = done(Shelf(), Script(), "sizes=[8]", "placement=both")
    assert shelf.measured == [(8, ("one_shot", "one_shot", "two_shot", "two_shot", "nccl"), None)]
    assert [(one.case.algorithm, one.case.placement, str(one.status)) for one in shelf.records] == [
        ("one_shot", "out_of_place", "PASSED"),
        ("one_shot", "in_place", "PASSED"),  # the script refuses nothing
        ("two_shot", "out_of_place", "PASSED"),
        ("two_shot", "in_place", "PASSED"),
        ("nccl", "in_place", "PASSED"),
    ]
