"""How long MLflow takes for a sweep of 100 series, beside plain client calls: `make bench`. Prints a table; no test.

The sweep is invented: 100 jobs of one algorithm, 6 sizes each, with a check, a timing and what a simulator counts. It
goes into a database that is there, by the code that the follower of a command runs: `send` after every job, while the
next one runs, and `finish` once, which is what a user waits for at the end. The rival writes the same metrics,
parameters, tags and record files as one would by hand, a call each, and no report.
"""

import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cases.record.request import RecordedRequest
from reports.sent import metrics_of, parameters_of
from runner.track.names import Kept, series_tags
from runner.track.send import CommandRun
from tests.reports.synthetic import KIB, record

SERIES, SIZES = 100, tuple(KIB << power for power in range(0, 12, 2))
COUNTERS = {
    "instructions": 1 << 20,
    "steps": 4096,
    "accesses": {kind: {"count": 64, "bytes": 1024} for kind in ("own_read", "own_write", "peer_read", "signal")},
}
RIVAL_SERIES = 10
"""So few of them, and then times ten: by hand it takes long."""


def sweep(folder):
    """The records of each job, on disk."""
    jobs = []
    for job in range(SERIES):
        made = [one(job, size_bytes) for size_bytes in SIZES]
        paths = [folder / f"{job:02d}-{number}.json" for number in range(len(made))]
        for path, item in zip(paths, made, strict=True):
            path.write_text(item.to_json(), encoding="utf-8")
        jobs.append([Kept(path, item) for path, item in zip(paths, made, strict=True)])
    return jobs


def one(job, size_bytes):
    world_size = 2 + job % 4
    plain = record(size_bytes=size_bytes, world_size=world_size)
    seed = f"seed={job // 4}"
    request = replace(
        plain.request, command="bench", job=job, jobs=SERIES, overrides=(f"world_size={world_size}", seed)
    )
    case = replace(plain.case, seed=job // 4)
    return record(size_bytes=size_bytes, world_size=world_size, case=case, counters=COUNTERS, request=request)


def ours(uri, jobs, folder):
    """For all series, and for the end with its report: seconds, and seconds of CPU."""
    began = clocks()
    run = CommandRun(uri, "bench", jobs[0][0].record.request, folder)
    for job in jobs:
        run.send(job)
    sent = clocks()
    problems = run.finish([kept for job in jobs for kept in job])
    assert not problems, problems
    ended = clocks()
    return [(after[0] - before[0], after[1] - before[1]) for before, after in ((began, sent), (sent, ended))]


def clocks():
    return time.perf_counter(), time.process_time()


def by_hand(uri, jobs):
    """Seconds for as many series as are given, without a report."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("bench").experiment_id
    began_s = time.perf_counter()
    for job in jobs:
        run_id = client.create_run(experiment).info.run_id
        for key, value in parameters_of(job[0].record).items():
            client.log_param(run_id, key, value)
        for key, value in series_tags([kept.record for kept in job]).items():
            client.set_tag(run_id, key, value)
        for kept in job:
            for key, value in metrics_of(kept.record).items():
                client.log_metric(run_id, key, value, step=int(kept.record.case.size_bytes))
            client.log_artifact(run_id, str(kept.path), "records")
        client.set_terminated(run_id)
    return time.perf_counter() - began_s


def main():
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "records"
        folder.mkdir()
        jobs = sweep(folder)
        uri = f"sqlite:///{place}/mlflow.db"
        warm = CommandRun(uri, "bench", RecordedRequest(command="first"), folder)  # makes the database, imports MLflow
        warm.close("FINISHED")
        import matplotlib

        del matplotlib
        (sent_s, sent_cpu_s), (end_s, end_cpu_s) = ours(uri, jobs, folder)
        rival_s = by_hand(uri, jobs[:RIVAL_SERIES]) * SERIES / RIVAL_SERIES
        points = statistics.mean(len(metrics_of(kept.record)) for job in jobs for kept in job)
    print(f"{SERIES} series of {len(SIZES)} sizes with {points:.0f} metrics each, to sqlite, in seconds:")
    print(f"  sent while the sweep runs          {sent_s:6.2f}  ({sent_cpu_s:.2f} of CPU)")
    print(f"  waited for at the end, with report {end_s:6.2f}  ({end_cpu_s:.2f} of CPU)")
    print(f"  both                               {sent_s + end_s:6.2f}  ({sent_cpu_s + end_cpu_s:.2f} of CPU)")
    print(f"  plain client calls, no report      {rival_s:6.2f}  (measured on {RIVAL_SERIES} series)")


if __name__ == "__main__":
    main()
