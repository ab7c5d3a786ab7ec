"""symlab explore on all_reduce/ll with its flags stored before their words: found, and shrunk to what matters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.explore.command import jobs_of, subject_of
from runner.explore.found import replayed, shrunk
from runner.explore.search import Plan, Search
from runner.explore.subject import CaseSubject
from simulator.explore.reading import switches_of
from tests.kernels.test_flags_first import flags_first

MOST_SWITCHES, MOST_NEEDED = 6, 3
"""On 2026-11-22: 86 switches became 5, 2 of them up to the access that went wrong, in 441 runs."""


def broken() -> CaseSubject:
    (job,) = jobs_of(
        ["op=all_reduce", "algorithms=[ll]", "world_size=2", "sizes=[1K]", "launches=1", "track=none"]
    ).jobs
    whole = subject_of(job, job.cases[0])
    assert isinstance(whole, CaseSubject)
    made = whole.contestant.executable
    assert made is not None
    made = replace(made, ptx=flags_first(made.ptx), digest=f"{made.digest}-flags-first")
    return replace(whole, contestant=replace(whole.contestant, executable=made))


@pytest.mark.slow
def test_flags_before_their_words_are_shrunk_to_few_switches() -> None:
    subject = broken()
    plan = Plan([subject], ("random", "adversarial"), "access", 0, 100, None, 1)
    done = Search(plan).run()
    assert done.found is not None
    trial, failure = done.found
    found, interrupt = shrunk(subject, trial.order, failure, 180.0)
    assert interrupt is None
    assert found.switches_before > 3 * MOST_SWITCHES
    assert found.switches <= MOST_SWITCHES
    assert switches_of(found.rows) <= MOST_NEEDED
    assert "reads inbox[" in found.cause
    late = next(row for row in found.rows if "comes too late" in row.mark)
    assert "%word" in late.text
    ran, difference = replayed(subject, found)
    assert ran.failure is not None
    assert ran.failure.is_like(failure)
    assert difference == ""
