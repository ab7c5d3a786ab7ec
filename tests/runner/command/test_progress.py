"""How far a command is: the time remaining from the work done, and what is said of it."""

import pytest

from cases.case import Case
from runner.command.progress import Bar, Progress, clock_text, work_of
from tests.golden import same_text


def case(size_bytes, world_size=4):
    return Case("all_reduce", "one_shot", "float32", "float32", "sum", size_bytes, world_size)


def after(done, waiting, refused=0):
    """The progress of a command whose done cases took these seconds, and refused others took none."""
    some = [case(1024)] * refused
    progress = Progress.of([*(one for one, _ in done), *some, *waiting])
    for one in some:
        progress.finish(one, 0.0, is_refused=True, is_failed=False)
    for one, elapsed_s in done:
        progress.finish(one, elapsed_s, is_refused=False, is_failed=False)
    return progress


def test_the_time_remaining_goes_by_the_work_of_the_cases_that_ran():
    done = [(case(1 << 20), 1.0), (case(2 << 20), 2.0)]
    work = sum(work_of(one) for one, _ in done)
    for waiting in ([case(8 << 20)], [case(1 << 20, 8)], [case(0)] * 3):
        assert after(done, waiting, refused=2).remaining_s == pytest.approx(3.0 * sum(map(work_of, waiting)) / work)


@pytest.mark.parametrize(
    ("done", "waiting"),
    [
        ([(case(1024), 5.0)], [case(1024)]),
        ([(case(1024), 0.1), (case(1024), 0.1)], [case(1024)]),
        ([(case(1024), 1.0), (case(1024), 1.0)], []),
    ],
    ids=["one case", "too short", "nothing is left"],
)
def test_nothing_is_foretold_from_too_little(done, waiting):
    assert after(done, waiting).remaining_s is None


def test_durations():
    texts = {0.4: "0:00", 59.6: "1:00", 245: "4:05", 3600: "1:00:00", 90061: "25:01:01"}
    assert {seconds: clock_text(seconds) for seconds in texts} == texts


def test_what_is_said_beside_the_bar():
    progress = after([(case(1 << 20), 2.0)] * 6, [case(1 << 20)] * 6)
    progress.failed = 2
    many = Bar(progress, jobs=12, job=7, case="one_shot 1M n4 in place")
    spread = Bar(progress, jobs=12, spread="3 running, 5 of 12 jobs done")
    one = Bar(Progress.of([case(1024)]), case="one_shot 1K n4")
    same_text("\n".join(each.line() for each in (many, spread, one)))
