"""How a command ends where something else than a first interrupt ends it: the process may go on, as a notebook does."""

import errno
import io
import json
import os
import signal

import pytest

from reports.record.seal import MANIFEST
from runner.command import plan
from runner.command.console import Console
from runner.command.session import run_within
from runner.command.to_mlflow import Connection
from runner.interrupt import Interrupted
from runner.records.command_json import COMMAND_JSON, command_document_of
from runner.records.lock import LOCK_NAME
from runner.request.compose import compose_jobs, hydra_over
from tests.patience import PATIENCE_S
from tests.runner.conftest import in_thread

TWO_CASES = ("algorithms=[one_shot]", "sizes=[8,16]", "fabric=simulator")

FULL = OSError(errno.ENOSPC, "No space left on device")


class FailingConsole(Console):
    """A console that raises an error as soon as the first case has ended, when its record is already kept."""

    def __init__(self, error):
        super().__init__()
        self._error = error

    def finished(self, record):
        raise self._error


def run(script, console, *overrides, multirun=False):
    """Run two cases on stub worlds."""
    with hydra_over():
        jobs = compose_jobs([*TWO_CASES, *overrides], multirun)
    run_within(plan.prepare(TWO_CASES, jobs), console, script.tools())


def command_in(folder):
    """The only command of a folder of records."""
    (one,) = folder.iterdir()
    assert not (one / LOCK_NAME).exists()
    assert (one / MANIFEST).exists()
    return command_document_of(one)


@pytest.mark.parametrize(
    ("error", "code", "outcome", "why"),
    [
        (FULL, 1, "stopped", "OSError: [Errno 28] No space left on device"),
        (RuntimeError("a defect"), 1, "stopped", "RuntimeError: a defect"),
        (RuntimeError(), 1, "stopped", "RuntimeError"),
        (Interrupted(signal.SIGTERM, times=2), 143, "interrupted", "SIGTERM"),
    ],
    ids=["OSError", "RuntimeError", "no message", "a second interrupt"],
)
def test_nothing_is_left_behind_by_an_error(script, database, mlflow_runs, tmp_path, error, code, outcome, why):
    experiment = f"left-{tmp_path.name}"
    followers = []

    def connect():
        followers.append(in_thread())
        return followers[-1]

    script.connect = connect
    tracked = (f"track.uri={database}", f"track.experiment={experiment}")
    with pytest.raises(type(error)) as caught:
        run(script, FailingConsole(error), f"records={tmp_path}/records", *tracked)
    assert caught.value is error
    assert [world.closed for world in script.worlds] == [True]
    command = command_in(tmp_path / "records")
    assert (command.end.exit_code, command.end.outcome, command.end.why) == (code, outcome, why)
    assert [case for _, case in command.end.cases_not_run] == [command.cases[1][1]]
    followers[0].wait(PATIENCE_S)  # abandoning waits for seconds only; a follower that imports MLflow takes longer
    assert [one.info.status for one in mlflow_runs(experiment)["parents"]] == ["KILLED"]


def test_a_stdout_that_takes_nothing_leaves_no_empty_folder(script, tmp_path):
    with pytest.raises(OSError, match="No space left"), open("/dev/full", "w") as full:
        run(script, Console(full, ["a heading"]), f"records={tmp_path}/records", "track=none")
    command = command_in(tmp_path / "records")
    assert command.end.outcome == "stopped"
    assert len(command.end.cases_not_run) == len(command.cases) == 2
    assert script.worlds == []


def test_the_first_word_comes_when_command_json_is_there(script, tmp_path):
    seen = []

    class Looking(Console):
        def say(self, text):
            if not seen:
                (folder,) = (tmp_path / "records").iterdir()
                seen.append([path.name for path in folder.iterdir() if path.name != LOCK_NAME])

    run(script, Looking(heading=["a heading"]), f"records={tmp_path}/records", "track=none")
    assert seen == [[COMMAND_JSON]]


@pytest.mark.parametrize(("more", "sent"), [((), ["*.json"]), (("seed=1,2",), ["00-*.json", "01-*.json"])])
def test_each_job_is_sent_once_it_is_done(script, tmp_path, more, sent):
    """To a follower that only keeps what it is told."""
    told, (reading, writing) = io.StringIO(), os.pipe()
    told.close = lambda: None
    script.connect = lambda: Connection(told, os.fdopen(reading), lambda seconds: None)
    with os.fdopen(writing, "w") as answers:
        answers.write('{"problem": "", "remarks": [], "place": ""}\n')
    run(script, Console(), f"records={tmp_path}/records", f"track.uri=sqlite:///{tmp_path}/x.db", *more, multirun=True)
    opened, *jobs, end = map(json.loads, told.getvalue().splitlines())
    assert (list(opened), jobs, end) == (["open"], [{"send": names} for names in sent], {"finish": True})
    assert all(len(list(tmp_path.glob(f"records/*/{names}"))) >= 2 for names in sent), "the pattern finds the records"
