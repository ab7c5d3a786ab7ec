"""Workers of a launcher: records of several machines in one command are its workers', or a finding."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cases.record.record import Record
from reports.audit.bound_workers import of_folder
from tests.reports.audit.invented_records import one


def made(job: int, host: str, number: int | None, **changes: Any) -> Record:
    """A record of a job, of a machine and of one of its workers."""
    record = one(us=10.0, **changes)
    launch = {"launcher": "none"} | ({"worker": {"number": number, "launcher": "joblib"}} if number is not None else {})
    environment = dataclasses.replace(record.environment, host={"name": host}, launch=launch)
    request = dataclasses.replace(record.request, job=job, jobs=4)
    return dataclasses.replace(record, environment=environment, request=request)


def worker(number: int, host: str, *jobs: int, **changes: Any) -> dict[str, Any]:
    """A worker as command.json lists it: it was at work all day."""
    times = {"started": "2026-01-01T00:00:00.000+00:00", "ended": "2026-01-01T23:00:00.000+00:00"}
    found = {"number": number, "launcher": "joblib", "resumed": 0, "host": host, "node": "", "submission": ""}
    return found | {"gpus": "", "starts": 1, **times, "how": "finished", "jobs": list(jobs), "lost": []} | changes


def document_of(workers: object) -> dict[str, Any]:
    found: dict[str, Any] = {"started": "2026-01-01T00:00:00.000+00:00", "ended": "2026-01-01T23:30:00.000+00:00"}
    found |= {"jobs": [{"number": job} for job in range(4)], "cases_not_run": []}
    return found if workers is None else found | {"launcher": ["hydra/launcher=joblib"], "workers": workers}


def told(workers: object, *records: Record, **changes: Any) -> list[str]:
    return [found.sentence for found in of_folder(document_of(workers) | changes, "c", records)]


def test_workers_that_are_listed_are_no_finding() -> None:
    workers = [worker(0, "node1", 0, 2), worker(1, "node2", 1)]
    assert told(workers, made(0, "node1", 0), made(1, "node2", 1), made(2, "node1", 0)) == []
    assert told(None, made(0, "here", None), made(1, "here", None)) == []


@pytest.mark.parametrize(
    ("workers", "records", "says"),
    [
        (None, [(0, "here", None), (1, "there", None)], "ran in one process, its records on 2 machines: here, there"),
        (None, [(0, "node1", 0)], "is of worker 1, which command.json does not list"),
        ([worker(0, "node1", 0)], [(0, "node9", 0)], "ran on node9, its worker on node1"),
        ([worker(0, "node1", 0)], [(1, "node1", 0)], "is of job 2, which worker 1 did not take"),
        ([worker(0, "node1", 0)], [(0, "node1", None)], "names no worker, and command.json lists the workers"),
        ([worker(0, "node1", 0), worker(0, "node2", 0)], [], "lists a worker twice"),
        ([{"number": "one"}], [], "is not what a command writes"),
        ("none", [], "is not what a command writes"),
    ],
)
def test_what_did_not_come_from_the_command_is_found(workers: object, records: list[Any], says: str) -> None:
    (sentence,) = told(workers, *(made(*each) for each in records))
    assert says in sentence


def test_a_resumption_has_workers_of_its_own() -> None:
    first, later = made(0, "node1", 0), made(1, "here", None)
    later = dataclasses.replace(later, request=dataclasses.replace(later.request, resumed=1))
    resumed = [{"at": "2026-01-01T12:00:00.000+00:00", "after": "interrupted"}]
    early = {"ended": "2026-01-01T11:00:00.000+00:00"}
    late = {"started": "2026-01-01T12:00:01.000+00:00", "resumed": 1}
    assert told([worker(0, "node1", 0, **early)], first, later, resumed=resumed) == []
    (sentence,) = told([worker(0, "node1", 0, **early), worker(0, "here", **late)], first, later, resumed=resumed)
    assert "names no worker" in sentence


def test_two_workers_on_one_gpu_at_once_are_found() -> None:
    both = []
    for number in range(2):
        record = made(number, "here", number)
        assert record.timing is not None
        state = ({"before": {"uuid": "GPU-0"}},) * 4
        both.append(dataclasses.replace(record, timing=dataclasses.replace(record.timing, devices=state)))
    workers = [worker(0, "here", 0), worker(1, "here", 1)]
    assert any("workers 1 and 2 timed on the same GPU" in one for one in told(workers, *both))
    apart = dataclasses.replace(both[1], started="2026-01-01T20:00:00Z", ended="2026-01-01T20:00:01Z")
    assert told(workers, both[0], apart) == []


# What an honest command may leave.


def test_workers_that_did_nothing_are_no_finding() -> None:
    idle = worker(1, "", starts=0, started="", ended="", how="CANCELLED", launcher="submitit_slurm")
    assert told([worker(0, "n", 0, launcher="submitit_slurm"), idle], launcher=["hydra/launcher=submitit_slurm"]) == []
    assert told([worker(0, "here", 0), worker(1, "here")], made(0, "here", 0)) == []


def test_a_resumption_on_another_launcher_is_no_finding() -> None:
    resumed = [{"at": "2026-01-01T12:00:00.000+00:00", "after": "interrupted"}]
    early = {"ended": "2026-01-01T11:00:00.000+00:00", "lost": [0], "how": "SIGINT"}
    late = {"started": "2026-01-01T12:00:01.000+00:00", "resumed": 1, "launcher": "submitit_local"}
    workers = [worker(0, "node1", 0, **early), worker(0, "here", 0, **late)]
    local = ["hydra/launcher=submitit_local"]
    assert told(workers, resumed=resumed, launcher=local) == [], "lost in the first part, and done in the second"
    assert told(workers[:1], resumed=resumed, launcher=local) == [], "the second was killed, or had nothing to do"


def test_a_requeued_worker_has_the_place_and_time_of_its_last_start() -> None:
    again = worker(0, "node2", 0, 1, starts=2, started="2026-01-01T12:00:00.000+00:00")
    assert told([again], made(0, "node1", 0), made(1, "node2", 0)) == []
    assert any("on 3 machines" in one for one in told([again], made(0, "node1", 0), made(1, "node3", 0)))


def test_a_part_that_was_killed_lists_no_workers() -> None:
    document = document_of(None) | {"launcher": ["hydra/launcher=joblib"]}
    cut = {key: value for key, value in document.items() if key != "ended"}
    record = made(0, "here", 0)
    assert list(of_folder(cut, "c", [record])) == []
    resumed = [{"at": "2026-01-01T12:00:00.000+00:00", "after": "killed"}]
    assert list(of_folder(document | {"resumed": resumed}, "c", [record])) == []
    resumed[0]["after"] = "interrupted"
    assert list(of_folder(document | {"resumed": resumed}, "c", [record])) != []


def test_a_job_that_joblib_gave_again_is_of_both_workers() -> None:
    """joblib ends all workers if one is killed: others go on with the cases that have no record."""
    workers = [worker(0, "here", ended="", how="A worker was ended"), worker(1, "here", 0)]
    assert told(workers, made(0, "here", 0), made(0, "here", 1)) == []
    workers[0]["how"] = "finished"
    assert told(workers, made(0, "here", 0), made(0, "here", 1)) != []


def test_workers_without_a_common_folder_list_no_jobs() -> None:
    assert told([worker(0, "node1"), worker(1, "node2")], made(0, "node1", 0), made(1, "node2", 1)) == []


def test_a_worker_of_slurm_may_be_cancelled_after_its_last_job() -> None:
    """The command cancels workers that are slow to end, and so do people: no part of the set says otherwise."""
    workers = [worker(0, "n", 0, launcher="submitit_slurm", how="CANCELLED")]
    assert told(workers, launcher=["hydra/launcher=submitit_slurm"]) == []


# Lies.

LATE = "2026-01-02T03:00:00.000+00:00"


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        ({"jobs": [0, 1]}, "job 2 was taken 2 times in the first part"),
        ({"jobs": [0, 7]}, "took job 8, which the command does not have"),
        ({"lost": [0]}, "is said to have lost job 1, whose cases all ran"),
        ({"lost": [3]}, "lost a job that it did not take"),
        ({"started": LATE}, "outside the first part of its command"),
        ({"started": LATE}, "ended before it started"),
        ({"ended": "2020-01-01T00:00:00.000+00:00"}, "ended after its worker"),
        ({"started": "2026-01-01T01:00:00.000+00:00"}, "began before its worker"),
        ({"started": "yesterday"}, "are not what a command writes"),
        ({"started": ""}, "does not say when or where"),
        ({"launcher": "submitit_local"}, "is of a worker of joblib, its worker of submitit_local"),
        ({"launcher": "submitit_local"}, "the first part has workers of 2 launchers"),
        ({"gpus": "0,1"}, "had GPUs none, its worker 0,1"),
        ({"starts": 0}, "was started 0 times, and was at work"),
        ({"starts": -1}, "was started -1 times, and was at work"),
        ({"how": "CANCELLED"}, "is said to have ended as Slurm's jobs do: CANCELLED"),
        ({"host": "ghost"}, "ran on node1, its worker on ghost"),
        ({"resumed": 3}, "lists workers of resumption 3, and was resumed 0 times"),
    ],
)
def test_a_lie_about_a_worker_is_found(lie: dict[str, Any], says: str) -> None:
    workers = [worker(0, "node1", 0), worker(1, "node2", 1)]
    records = made(0, "node1", 0), made(1, "node2", 1)
    assert told(workers, *records) == []
    found = told([workers[0] | lie, workers[1]], *records)
    assert any(says in sentence for sentence in found), found


def test_a_worker_that_there_was_not_is_found_by_its_jobs() -> None:
    ghost = worker(7, "ghost", 0)
    assert told([worker(0, "node1", 0), ghost], made(0, "node1", 0)) == ["c: job 1 was taken 2 times in the first part"]


def test_a_job_that_was_lost_is_said_to_be() -> None:
    missing = [{"job": 0, "case": "x"}]
    assert told([worker(0, "node1", 0, lost=[0])], cases_not_run=missing) == []
    (sentence,) = told([worker(0, "node1", 0)], cases_not_run=missing)
    assert "is not said to have lost it" in sentence


def test_workers_need_a_launcher() -> None:
    (sentence,) = told([worker(0, "node1", 0)], launcher=[])
    assert "lists workers of the first part, and no launcher" in sentence
    (sentence,) = told([worker(0, "node1", 0)], launcher=["hydra/launcher=submitit_local"])
    assert "has workers of joblib, and its launcher is submitit_local" in sentence


@pytest.mark.parametrize(("node", "count"), [("node1", 0), ("node2", 1), ("", 1)])
def test_a_worker_of_slurm_is_on_its_records_node(node: str, count: int) -> None:
    record = made(0, "host", 0)
    launch = {"launcher": "srun", "node_names": "node1", "worker": {"number": 0, "launcher": "submitit_slurm"}}
    environment = dataclasses.replace(record.environment, launch=launch)
    record = dataclasses.replace(record, environment=environment)
    found = told(
        [worker(0, "host", 0, launcher="submitit_slurm", node=node)],
        record,
        launcher=["hydra/launcher=submitit_slurm"],
    )
    assert len([one for one in found if "ran on Slurm's node node1" in one]) == len(found) == count
