"""timing.predict in a job on GPUs: predictions are made when a size's samples are taken, and cost no measurement."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from cases.record.prediction import INTERRUPTED, RecordedPrediction
from cases.record.record import Status
from cases.record.request import RecordedEnvironment, RecordedRequest
from runner.case.cases import cases_of
from runner.command import means
from runner.command.console import Console
from runner.command.job import run_job
from runner.command.means import Means
from runner.command.plan import Job
from tests.golden import same_text
from tests.reports.beside import predicted
from tests.reports.synthetic import record
from tests.rooms import needs
from tests.runner.command.test_job_timing import Shelf, asked_for
from tests.runner.conftest import Script


def told(timing, time_us=4.0):
    return predicted(dataclasses.replace(record(world_size=2), timing=timing), time_us).prediction


@dataclasses.dataclass
class Told:
    """What predicts: the names that were asked for, in the shelf's events; one that interrupts."""

    shelf: Shelf
    interrupts: str = ""

    def __call__(self, contestant, timing, job):
        name = contestant.case.algorithm
        self.shelf.events.append(f"predict {contestant.case.size_bytes} {name}")
        if name == self.interrupts:
            raise KeyboardInterrupt
        return RecordedPrediction(reason="a library's") if name == "nccl" else told(timing)


def predicted_job(shelf, script, *arguments, interrupts=""):
    request = asked_for(*arguments)
    job = Job(request, cases_of(request), {}, RecordedEnvironment, RecordedRequest())
    means = script.tools().means
    given = Means(means.refuses, means.compiled, means.ran, shelf.measure, predicted=Told(shelf, interrupts))
    run_job(job, shelf, given)
    return shelf


def times_beside(records):
    found = [one.prediction for one in records]
    return [None if one is None else one.time.time_us if one.time else one.reason for one in found]


def test_predictions_are_made_between_the_sizes_when_nothing_is_timed():
    shelf = predicted_job(Shelf(), Script(), "sizes=[8,16]", "timing.predict=true")
    same_text("\n".join(shelf.events[3:11]))
    assert shelf.events.index("measure 16") > shelf.events.index("keep 8 nccl")
    assert times_beside(shelf.records) == [4.0, 4.0, "a library's"] * 2
    assert all(one.status is Status.PASSED and one.timing is not None for one in shelf.records)
    unasked = predicted_job(Shelf(), Script(), "sizes=8")
    assert times_beside(unasked.records) == [None] * 3
    assert not any(one.startswith("predict") for one in unasked.events)
    assert all("prediction" not in json.loads(one.to_json()) for one in unasked.records)


def test_an_interrupted_prediction_keeps_all_times():
    shelf = Shelf()
    with pytest.raises(KeyboardInterrupt):
        predicted_job(shelf, Script(), "sizes=[8,16]", "timing.predict=true", interrupts="two_shot")
    assert times_beside(shelf.records) == [4.0, INTERRUPTED, INTERRUPTED]
    assert [(one.status, one.timing is not None, one.reason) for one in shelf.records] == [
        (Status.PASSED, True, "")
    ] * 3


@needs("speed")
def test_the_usual_prediction_says_why_it_has_none(monkeypatch):
    """GPUs of an unknown type, and whatever breaks while the type is looked up: the records have all times and the
    reason, and no case fails."""
    from symlab.speed.predict import beside

    monkeypatch.setattr(Told, "__call__", lambda self, *given: means._predicted(*given))
    shelf = predicted_job(Shelf(), Script(), "sizes=8", "timing.predict=true")
    (reason,) = {str(one) for one in times_beside(shelf.records)}
    assert reason == "the GPUs are unknown here, of no known type (timing.predict), name one: fabric.gpu=h200"
    monkeypatch.setattr(beside, "type_beside", Mock(side_effect=MemoryError))
    shelf = predicted_job(Shelf(), Script(), "sizes=8", "timing.predict=true")
    assert times_beside(shelf.records) == ["not simulated: MemoryError"] * 3
    assert all(one.timing is not None for one in shelf.records)


@needs("speed")
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["fabric=simulator"], "symlab: error: nothing is measured in the simulator (timing.predict)"),
        (["fabric=simulator", "timing.predict=maybe"], "symlab: error: "),
    ],
)
def test_a_command_that_measures_nothing_is_refused_with_one_line(symlab, words, reason):
    outcome = symlab("sizes=8", "timing.predict=true", *words)
    assert outcome.code == 2
    assert outcome.err.strip().startswith(reason)
    assert len(outcome.err.strip().splitlines()) == 1
    assert not Path(outcome.folder, "records").exists()


def test_a_line_of_the_console_has_the_predicted_time_and_points_out_what_is_slower():
    shelf = predicted_job(Shelf(), Script(), "sizes=8", "timing.predict=true")
    slow, _, library = shelf.records
    quick = dataclasses.replace(slow, prediction=told(slow.timing, slow.timing.median_us))
    stream = io.StringIO()
    console = Console(stream)
    for one in (slow, quick, library):
        console.finished(one)
    lines = stream.getvalue().splitlines()
    assert lines[0].endswith("PASSED 5.75 us, predicted 4.00 us: slower than predicted")
    assert lines[1].endswith("PASSED 5.75 us, predicted 5.75 us")
    assert lines[2].endswith("PASSED 5.75 us")
