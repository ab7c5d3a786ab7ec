"""The search over trials, on subjects that need no kernel: which failure it reports, and how it ends."""

import itertools
import signal
import threading
import time
from dataclasses import replace
from functools import partial

import pytest
import torch

from cases.case import Case
from cases.dtypes import ITEMSIZES
from cases.record.record import Check, Mismatch
from kernels import catalogue
from memory.fabric import Executable
from runner.case.contestant import Contestant
from runner.interrupt import Interrupted, interruptible
from runner.request.compose import compose_jobs, hydra_over
from runner.request_error import RequestError
from simulator.options import Interleaving
from simulator.world import SimulatorOptions
from symlab.checks.explore.found import shrunk
from symlab.checks.explore.of_case import case_subject
from symlab.checks.explore.progress import progress_text
from symlab.checks.explore.search import Plan, Search, Searched
from symlab.checks.explore.subject import Judgement, Ran, Subject, run_once
from symlab.checks.explore.verb import orders_of
from tests.golden import refused


def seed_of(fabric, _):
    """What the traits of a simulated world say of its seed."""
    return int(fabric.traits.description.rpartition("seed ")[2])


def judged(bad, interrupts_at, refuses, world, deadline_s, _):
    (seed,) = world.run(seed_of, None, deadline_s)
    if refuses:
        raise ValueError("it does not fit")
    if seed == interrupts_at and threading.current_thread() is threading.main_thread():
        signal.raise_signal(signal.SIGINT)
    return Judgement("wrong" if seed in bad else "")


def seeded(bad=(), interrupts_at=-1, refuses=False):
    """A subject that fails under some seeds."""
    return of(partial(judged, bad, interrupts_at, refuses))


def of(judge):
    return Subject("seeded", "sha256:0", 1, SimulatorOptions(heap_bytes=4096), 10.0, judge, {})


def plan(*subjects, **more):
    orders = orders_of(more.pop("schedule", "random"), more.pop("first_seed", 0))
    return Plan(subjects, orders, **{"seeds": 30, "seconds": None, "processes": 1, **more})


def test_nothing_is_found_in_a_right_subject():
    done = Search(plan(seeded(), seeded(), schedule="both")).run()
    assert (done.found, done.runs, done.interrupt) == (None, 120, None)


def test_it_ends_at_the_first_failure():
    done = Search(plan(seeded(), seeded(bad=(7, 3)))).run()
    trial, failure = done.found
    assert (trial.order.seed, trial.subject, failure.kind) == (3, 1, "wrong output")
    assert done.runs == 8


def test_seeds_begin_where_they_are_told_to():
    seeds = [trial.order.seed for trial in plan(seeded(), first_seed=5, seeds=3).trials()]
    assert seeds == [5, 6, 7]
    endless = plan(seeded(), seeds=None, first_seed=2).trials()
    assert [trial.order.seed for trial in itertools.islice(endless, 3)] == [2, 3, 4]


def test_the_time_ends_it():
    now = itertools.count(0.0, 0.5)
    done = Search(plan(seeded(), seeds=None, seconds=10.0), clock=lambda: next(now)).run()
    assert 1 <= done.runs < 30
    assert done.found is None


def test_the_only_run_counts_though_the_end_of_the_time_cut_it_short(monkeypatch):
    """Without that the search would go on for ever: each of its runs has a second, and none would be the last one."""
    begun = []

    def slow(subject, order, deadline_s):
        begun.append(order.seed)
        assert len(begun) < 5, "the search does not end"
        return Ran(None, "the deadline of 1 s passed")

    monkeypatch.setattr("symlab.checks.explore.search.run_once", slow)
    now = itertools.count(0.0, 3.0)
    done = Search(plan(seeded(), seeds=None, seconds=2.0), clock=lambda: next(now)).run()
    assert (done.runs, done.decided) == (1, 0)
    assert done.undecided == ["schedule=random, seed 0: the deadline of 1 s passed"]


def test_an_interrupt_keeps_what_was_done():
    with interruptible():
        done = Search(plan(seeded(interrupts_at=4))).run()
    assert isinstance(done.interrupt, Interrupted)
    assert (done.runs, done.found) == (4, None)


def test_what_can_not_run_at_all_is_a_wrong_request():
    with pytest.raises(ValueError, match="it does not fit"):
        Search(plan(seeded(refuses=True))).run()


@pytest.mark.parametrize(("seconds", "launches"), [(0.0, 4), (5.0, 1)])
def test_fewer_launches_are_looked_for_if_there_is_time(seconds, launches):
    """0: the failure is told as it was found."""
    subject, order = replace(seeded(bad=(3,)), launches=4), Interleaving("random", seed=3)
    failure = run_once(subject, order).failure
    assert failure is not None
    found, interrupt = shrunk(subject, order, failure, seconds)
    assert (found.failure, found.launches, interrupt) == (failure, launches, None)


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_failure_is_told_though_fewer_launches_and_the_fair_order_can_not_run(is_interrupted):
    """What they raise, and an interrupt there, took with it what was found."""

    def judge(world, deadline_s, launches):
        if launches < 4 or world.run(seed_of, None, deadline_s) != [3]:
            if is_interrupted:
                signal.raise_signal(signal.SIGINT)
            raise ValueError("it does not fit")
        return Judgement("wrong", launch=3)

    subject, order = replace(of(judge), launches=4), Interleaving("random", seed=3)
    failure = run_once(subject, order).failure
    assert failure is not None
    with interruptible():
        found, interrupt = shrunk(subject, order, failure, 5.0)
    assert (found.failure.message, found.launches, interrupt is not None) == ("wrong", 4, is_interrupted)


class Late:
    """A helper in this process, which takes its time."""

    def __init__(self, subjects):
        self.subjects = subjects

    def ran(self, subject, order, deadline_s):
        time.sleep(0.3)
        return run_once(self.subjects[subject], order, deadline_s)

    def close(self):
        pass


@pytest.fixture
def at_once(monkeypatch):
    """Helpers are started after the first run."""
    monkeypatch.setattr("symlab.checks.explore.search.HELP_AFTER_S", 0.0)
    monkeypatch.setattr("symlab.checks.explore.search.HELP_FROM_S", 0.0)


@pytest.mark.usefixtures("at_once")
def test_what_has_begun_below_a_failure_is_waited_for(monkeypatch):
    """The helper is given seed 1 or 2, and all of these fail; this process is at a later one before it answers."""
    monkeypatch.setattr("symlab.checks.explore.search.Helper", Late)
    done = Search(plan(seeded(bad=tuple(range(1, 30))), processes=2)).run()
    assert done.found[0].order.seed == 1


@pytest.mark.usefixtures("at_once")
def test_a_helper_that_ends_by_itself_ends_the_search(monkeypatch):
    monkeypatch.setattr("symlab.checks.explore.helper.__name__", "symlab.checks.explore.progress")  # has no main()
    with refused(RequestError):
        Search(plan(seeded(), seeds=100_000, processes=2)).run()


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
def test_helpers_report_the_failure_of_the_lowest_number():
    done = Search(plan(seeded(bad=(3000, 3001)), seeds=6000, processes=2)).run()
    assert done.processes == 2
    assert done.notes == []
    assert done.found[0].order.seed == 3000


def same(tensors, *_):
    return Judgement("" if all(one.float().tolist() == [0, 1, 2, 3, 4, 5] for one in tensors) else "another tensor")


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
def test_helpers_take_tensors_of_every_data_type():
    tensors = [torch.arange(6).to(getattr(torch, name)) for name in ITEMSIZES]
    done = Search(plan(of(partial(same, tensors)), seeds=2000, processes=2)).run()
    assert (done.processes, done.runs, done.found) == (2, 2000, None)


@pytest.mark.usefixtures("at_once")
def test_a_subject_that_can_not_be_sent_runs_in_one_process():
    done = Search(plan(of(lambda *_: Judgement()), processes=2)).run()
    assert (done.processes, done.runs) == (1, 30)
    assert "can't be sent to another process" in done.notes[0]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"seeds": 100}, "40 of 200 runs, 20 of 100 seeds, 4 runs/s, 40 s left"),
        ({"seeds": None, "seconds": 60.0}, "40 runs, 20 seeds, 4 runs/s, 50 s left"),
        ({"seeds": 100, "seconds": 12.0}, "40 of 200 runs, 20 of 100 seeds, 4 runs/s, 2 s left"),
        ({"seeds": None}, "40 runs, 20 seeds, 4 runs/s, no end is set"),
    ],
)
def test_progress_says_how_far_it_is(more, text):
    searched = Searched(runs=40, seconds=10.0)
    assert progress_text(plan(seeded(), schedule="both", **more), searched) == text


@pytest.mark.parametrize(("size_bytes", "between"), [(64, 3), (16 << 20, 1)])
def test_a_wrong_element_is_placed_in_the_launch_that_wrote_it(size_bytes, between, monkeypatch):
    """A world counts all launches from 0; checks count those that are checked, between which others come."""
    spec, job = catalogue.find("send_recv/push"), "runner.command.case_programs"
    case = Case("send_recv", "push", "float32", "float32", "sum", size_bytes, 2, "out_of_place")
    made = Executable(spec.name, "entry", "sm_90a", "", "sha256:0")
    with hydra_over(None):
        (composed,) = compose_jobs(["op=send_recv", "fabric=simulator"], False)
    subject = case_subject(Contestant(case, spec, made), composed.request, SimulatorOptions())
    monkeypatch.setattr(f"{job}.outcomes_of", lambda *given: [])
    found = []
    for launch in range(3):
        wrong = Mismatch(1, launch, 5, 1.0, 0.0, "0x3f800000", "0x00000000")
        check = Check("bytes", 9, 1, 1.0, 1, 1.0, True, 3, False, first_mismatch=wrong)
        monkeypatch.setattr(f"{job}.check_of", lambda *given, check=check: check)
        judgement = subject.judge(None, 1.0, 3)
        assert (judgement.wrong.rank, judgement.wrong.offset_bytes) == (1, 20)
        assert judgement.launch == launch
        found.append(judgement.wrong.launch)
    queued = [launch for launch in range(3) for _ in range(between * bool(launch) + 1)]
    assert found == [max(at for at, own in enumerate(queued) if own == launch) for launch in range(3)]
