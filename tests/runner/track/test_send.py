"""MLflow gets what the records say: while the command runs, or later; never a run that is left RUNNING."""

from __future__ import annotations

import http.server
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from reports import tracked
from reports.record.record import RecordedRequest
from reports.sent import metrics_of
from runner.records.lock import MIRROR_LOCK_NAME, FolderInUse, FolderLock
from runner.request.validate import TrackRequest
from runner.track import problems, send
from runner.track.__main__ import main as send_later
from runner.track.background import Connection, Mirror, in_process
from runner.track.pages import view_key
from runner.track.problems import problem_of
from runner.world.world import WorldFailure
from tests.patience import PATIENCE_S, until, within
from tests.runner.conftest import BAD, Outcome, Script, in_thread, record_files

Symlab = Callable[..., Outcome]
Runs = Callable[[str], dict[str, list[Any]]]


@pytest.mark.slow
def test_a_parent_a_command_and_a_child_a_series(symlab: Symlab, database: str, mlflow_runs: Runs) -> None:
    done = symlab("+exp=allreduce_bf16", "sizes=[8,16]", f"track.uri={database}", "track.experiment=tree", track=True)
    assert done.code == 0
    runs = mlflow_runs("tree")
    (parent,) = runs["parents"]
    last = done.out.splitlines()[-1]
    key = view_key(parent.data.tags["symlab.command"])
    assert last.startswith(f"dashboard: http://127.0.0.1:5000/#/experiments/{parent.info.experiment_id}/runs?")
    assert f"viewStateShareKey={key}&compareRunsMode=CHART" in last
    assert last.endswith(f" (start it: symlab dashboard --uri {database})")
    assert (parent.info.run_name, parent.info.status) == ("allreduce_bf16", "FINISHED")
    assert parent.data.params["experiment"] == "allreduce_bf16"
    assert (parent.data.metrics["cases/run"], parent.data.metrics["cases/passed"]) == (8, 8)
    assert sorted(run.info.run_name for run in runs["children"]) == [
        f"all_reduce/{name} bfloat16/float32 n8"
        for name in ("multimem_one_shot", "multimem_two_shot", "one_shot", "two_shot")
    ]
    for child in runs["children"]:
        assert child.info.status == "FINISHED"
        assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert child.data.tags["status"] == "PASSED"
        assert (child.data.tags["fabric"], child.data.tags["simulated"]) == ("simulator", "true")
        assert child.data.tags["mlflow.source.git.commit"] == "0123abc"
        assert child.data.tags["git_dirty"] == "true"
        assert child.data.tags["ptx_digest"].startswith("sha256:")
        assert child.data.tags["code_digest"].startswith("sha256:")
        assert child.data.params["world_size"] == "8"
        assert child.data.params["fabric.multimem"] == "exact"
        assert not any(word in key for key in child.data.metrics for word in ("time", "bandwidth", "gbps", "["))


def test_metrics_are_curves_over_bytes_and_artifacts_are_there(
    symlab: Symlab, database: str, mlflow_runs: Runs
) -> None:
    from mlflow import MlflowClient

    symlab("sizes=[8,16,64]", f"track.uri={database}", "track.experiment=curves", track=True)
    client = MlflowClient(tracking_uri=database)
    runs = mlflow_runs("curves")
    child = runs["children"][0].info.run_id
    history = client.get_metric_history(child, "simulator/instructions")
    assert sorted((one.step, one.value) for one in history) == [(8, 2000.0), (16, 2000.0), (64, 2000.0)]
    assert sorted(one.step for one in client.get_metric_history(child, "errors/max_ulp_error")) == [8, 16, 64]
    assert "simulator/bytes_read_own" in runs["children"][0].data.metrics
    assert runs["children"][0].data.metrics["simulator/link_bytes_busiest"] == 9
    assert not any("links" in key for key in runs["children"][0].data.metrics)
    assert len(client.list_artifacts(child, "records")) == 3
    assert [one.path.endswith(".ptx") for one in client.list_artifacts(child, "ptx")] == [True]
    configuration = client.list_artifacts(runs["parents"][0].info.run_id, "configuration")
    assert [one.path.partition("/")[2] for one in configuration] == [
        "command.json",
        "configuration.yaml",
        "manifest.sha256",
    ]
    database_folder = Path(database.removeprefix("sqlite:///")).parent
    assert (database_folder / "mlartifacts").is_dir()


@pytest.mark.slow
def test_jobs_of_a_sweep_are_under_one_parent(symlab: Symlab, database: str, mlflow_runs: Runs) -> None:
    symlab("-m", "world_size=2,3", "sizes=[8]", f"track.uri={database}", "track.experiment=sweep", track=True)
    runs = mlflow_runs("sweep")
    assert len(runs["parents"]) == 1
    assert sorted(run.info.run_name for run in runs["children"]) == [
        f"all_reduce/{name} float32/float32 n{world_size}" for name in ("one_shot", "two_shot") for world_size in (2, 3)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outcome", "code", "statuses"),
    [
        (BAD, 1, {"two_shot": "FAILED", "one_shot": "FINISHED", "all_reduce": "FAILED"}),
        (
            WorldFailure("TIMEOUT", 0, "too long"),
            1,
            {"two_shot": "FAILED", "one_shot": "FINISHED", "all_reduce": "FAILED"},
        ),
        (KeyboardInterrupt(), 130, {"one_shot": "FINISHED", "all_reduce": "KILLED"}),
    ],
    ids=["wrong", "timeout", "interrupt"],
)
def test_no_run_is_left_running(
    request: pytest.FixtureRequest,
    symlab: Symlab,
    script: Script,
    database: str,
    mlflow_runs: Runs,
    outcome: Any,
    code: int,
    statuses: dict[str, str],
) -> None:
    name = f"ends_{request.node.callspec.id}"
    script.outcomes = {"two_shot": outcome}
    done = symlab("sizes=[8]", f"track.uri={database}", f"track.experiment={name}", track=True)
    assert done.code == code
    runs = mlflow_runs(name)
    found = {
        run.info.run_name.partition(" ")[0].removeprefix("all_reduce/"): run.info.status
        for run in [*runs["parents"], *runs["children"]]
    }
    assert found == statuses


def test_refused_series_are_finished_and_say_why(symlab: Symlab, database: str, mlflow_runs: Runs) -> None:
    symlab(
        "algorithms=[one_shot,multimem_two_shot]", "sizes=[8]", "fabric.multicast=false",
        f"track.uri={database}", "track.experiment=refused", track=True,
    )  # fmt: skip
    (child,) = [one for one in mlflow_runs("refused")["children"] if one.data.tags["status"] == "REFUSED"]
    assert (child.info.status, child.data.tags["status"]) == ("FINISHED", "REFUSED")
    assert child.data.tags["reason"] == "no multicast here"


def test_records_that_a_place_can_never_take_are_sent_to_another(symlab: Symlab, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# words\n")
    done = symlab("sizes=[8]", "track.uri=sqlite:///README.md", track=True)
    assert done.code == 0
    assert "README.md is no database: name another file" in done.err
    assert "send them to another database later with: symlab track records/" in done.err
    assert "--uri sqlite:////folder/mlflow.db" in done.err
    assert "--uri sqlite:///README.md" not in done.err


def test_a_server_that_is_down_costs_a_warning_and_seconds(symlab: Symlab) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with within():
        done = symlab("sizes=[8]", f"track.uri=http://127.0.0.1:{port}", track=True)
    assert done.code == 0
    warning = next(line for line in done.err.splitlines() if "warning" in line)
    (folder,) = (done.folder / "records").iterdir()
    assert f"MLflow at http://127.0.0.1:{port} is not reachable" in warning
    assert f"symlab track records/{folder.name} --uri http://127.0.0.1:{port}" in warning
    assert done.statuses == ["PASSED", "PASSED"]


@pytest.mark.slow
def test_a_server_that_never_answers_is_named_before_the_first_case(symlab: Symlab) -> None:
    """And it is not waited for: each look has two seconds."""
    assert problems.PATIENCE_S <= 2
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        said = [f"MLflow at {uri} is not reachable: {why}" for why in ("timed out", "no answer within 2 s")]
        assert problem_of(uri) in said
        done = symlab("sizes=[8]", f"track.uri={uri}", track=True)
    assert done.code == 0
    assert any(one in done.err for one in said)
    assert "the work goes on without MLflow" in done.err
    assert done.statuses == ["PASSED", "PASSED"]


def test_a_server_that_goes_away_is_named_for_what_it_is(symlab: Symlab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answered before the sweep, and no longer when the follower asks."""
    monkeypatch.setattr("runner.track.problems.check_server", lambda uri, patience_s: None)
    done = symlab("sizes=[8]", "track.uri=http://127.0.0.1:9", track=True)
    assert done.code == 0
    assert "MLflow at http://127.0.0.1:9 is not reachable: [Errno 111] Connection refused" in done.out + done.err


def test_a_server_is_found_by_a_uri_with_user_and_password() -> None:
    class Healthy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/base/health" else 404)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tracked.prepare(f"http://me:pa55@127.0.0.1:{server.server_port}/base/")
        server.shutdown()


def test_passwords_of_a_server_are_not_kept(symlab: Symlab) -> None:
    done = symlab("sizes=[8]", "track.uri=http://me:hunter2@127.0.0.1:9", track=True)
    assert done.code == 0
    assert "hunter2" not in done.out
    kept = [path.read_text() for path in done.folder.glob("records/*/*.*")]
    assert len(kept) == 5
    assert not any("hunter2" in text for text in kept)


def test_a_database_that_can_not_be_made_costs_a_warning(symlab: Symlab, tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").mkdir()
    done = symlab("sizes=[8]", f"track.uri=sqlite:///{tmp_path}/mlflow.db", track=True)
    assert done.code == 0
    assert f"{tmp_path}/mlflow.db" in done.err
    assert "warning" in done.err
    assert done.statuses == ["PASSED", "PASSED"]


def test_a_failure_in_the_middle_ends_the_runs(
    symlab: Symlab, database: str, mlflow_runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("the server went away")

    monkeypatch.setattr(send.CommandRun, "_send_files", broken)
    done = symlab("sizes=[8]", f"track.uri={database}", "track.experiment=middle", track=True)
    assert done.code == 0
    assert "the server went away" in done.err
    runs = mlflow_runs("middle")
    assert [run.info.status for run in [*runs["parents"], *runs["children"]]] == ["FAILED", "FAILED"]
    monkeypatch.undo()
    assert send_later([str(done.folder / "records"), "--uri", database, "--experiment", "middle"]) == 0
    again = mlflow_runs("middle")
    assert len(again["parents"]) == 1
    assert len(again["children"]) == 2
    assert all("status" in run.data.tags for run in again["children"])


@pytest.mark.slow
def test_records_are_sent_later_and_only_once(
    symlab: Symlab, script: Script, database: str, mlflow_runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    script.outcomes = {"two_shot": BAD}
    done = symlab("-m", "world_size=2,3", "sizes=[8,16]")
    arguments = [str(done.folder / "records"), "--uri", database, "--experiment", "later"]
    assert send_later(arguments) == 0
    assert "8 records sent as run" in capsys.readouterr().out
    runs = mlflow_runs("later")
    assert (len(runs["parents"]), len(runs["children"])) == (1, 4)
    assert runs["parents"][0].info.status == "FAILED"
    assert {run.info.status for run in runs["children"]} == {"FINISHED", "FAILED"}
    assert send_later(arguments) == 0
    assert "already sent" in capsys.readouterr().out
    assert len(mlflow_runs("later")["children"]) == 4


@pytest.mark.slow
def test_what_was_sent_while_running_is_not_sent_again(
    symlab: Symlab, database: str, mlflow_runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    done = symlab("sizes=[8]", f"track.uri={database}", "track.experiment=once", track=True)
    assert send_later([str(done.folder / "records"), "--uri", database, "--experiment", "once"]) == 0
    assert "already sent" in capsys.readouterr().out
    assert len(mlflow_runs("once")["children"]) == 2


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nowhere"], "nowhere: no records here"),
        (["broken.json"], "broken.json: not JSON"),
        (["broken.json", "--uri", "mlruns"], "'mlruns' is no tracking URI (--uri)"),
        (
            ["broken.json", "--uri", "sqlite:///no/x.db"],
            "for the database (--uri=sqlite:///no/x.db), create the folder",
        ),
    ],
)
def test_sending_later_what_can_not_be_sent(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    part: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.json").write_text("{")
    assert send_later(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("symlab: error: ")
    assert captured.err.count("\n") == 1
    assert part in captured.err
    assert [path.name for path in tmp_path.iterdir()] == ["broken.json"]


def test_sending_later_to_a_server_that_is_down(symlab: Symlab, capsys: pytest.CaptureFixture[str]) -> None:
    done = symlab("sizes=[8]")
    assert send_later([str(done.folder / "records"), "--uri", "http://127.0.0.1:9"]) == 1
    error = capsys.readouterr().err
    assert "is not sent: MLflow at http://127.0.0.1:9 is not reachable" in error
    assert error.count("\n") == 1


def test_help_of_sending_later_imports_nothing_heavy() -> None:
    code = (
        "import sys; from runner.track.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as end: assert not end.code\n"
        "print(*sorted({'mlflow', 'torch', 'numpy', 'hydra'} & set(sys.modules)), file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr.split() == []
    assert "Exit codes" in run.stdout


def test_what_is_not_finite_stays_in_the_record(symlab: Symlab, script: Script) -> None:
    from dataclasses import replace

    from reports.record.record import load

    script.outcomes = {"one_shot": replace(BAD, max_absolute_error=float("nan"))}
    done = symlab("sizes=[8]", "algorithms=one_shot")
    (path,) = record_files(done.folder)
    metrics = metrics_of(load(path))
    assert "errors/max_absolute_error" not in metrics
    assert metrics["errors/wrong"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("connect", [in_thread, None])
def test_abandoning_is_quick_and_ends_what_is_open(
    connect: Callable[[], Connection] | None, database: str, mlflow_runs: Runs, tmp_path: Path
) -> None:
    name = f"abandoned_{'process' if connect is None else 'thread'}"
    mirror = Mirror(TrackRequest("mlflow", database, name), RecordedRequest(command="c1"), tmp_path, connect)
    until(lambda: mlflow_runs(name)["parents"], "the command's run")
    mirror.abandon()
    (parent,) = mlflow_runs(name)["parents"]
    assert parent.info.status == "KILLED"


@pytest.mark.slow
def test_an_interrupted_command_is_incomplete_whoever_sends_it(
    symlab: Symlab, script: Script, database: str, mlflow_runs: Runs
) -> None:
    script.outcomes = {"two_shot": KeyboardInterrupt()}
    done = symlab("sizes=[8,16]", f"track.uri={database}", "track.experiment=cut", track=True)
    assert done.code == 130
    assert send_later([str(done.folder / "records"), "--uri", database, "--experiment", "cut_later"]) == 0
    for name in ("cut", "cut_later"):
        (parent,) = mlflow_runs(name)["parents"]
        assert (parent.info.status, parent.data.tags["status"]) == ("KILLED", "INCOMPLETE")
        assert (parent.data.tags["outcome"], parent.data.tags[tracked.COMPLETE_TAG]) == ("interrupted", "false")
        metrics = parent.data.metrics
        assert [metrics[f"cases/{key}"] for key in ("run", "requested", "not_run")] == [1, 4, 3]
        (child,) = mlflow_runs(name)["children"]
        assert (child.info.status, child.data.tags["passed"]) == ("KILLED", "1/2")


def test_an_interrupt_before_any_case_is_not_passed(
    symlab: Symlab, script: Script, database: str, mlflow_runs: Runs
) -> None:
    script.outcomes = {"": KeyboardInterrupt()}
    symlab("sizes=[8]", f"track.uri={database}", "track.experiment=none_ran", track=True)
    (parent,) = mlflow_runs("none_ran")["parents"]
    assert (parent.info.status, parent.data.tags["status"]) == ("KILLED", "INCOMPLETE")
    assert (parent.data.metrics["cases/run"], parent.data.metrics["cases/not_run"]) == (0, 2)


@pytest.mark.slow
def test_a_killed_command_is_incomplete(symlab: Symlab, database: str, mlflow_runs: Runs) -> None:
    done = symlab("sizes=[8]")
    (path,) = done.folder.glob("records/*/command.json")
    document = json.loads(path.read_text())
    for key in ("ended", "exit_code", "outcome", "why", "counts", "cases_not_run"):
        del document[key]
    path.write_text(json.dumps(document))
    record_files(done.folder)[0].unlink()
    arguments = [str(done.folder / "records"), "--uri", database, "--experiment", "killed"]
    assert [send_later(arguments), send_later(arguments)] == [0, 0]
    (parent,) = mlflow_runs("killed")["parents"]
    assert (parent.info.status, parent.data.tags["status"]) == ("KILLED", "INCOMPLETE")
    assert parent.data.tags["outcome"] == "killed"


@pytest.mark.slow
def test_times_and_user_are_those_of_the_records(symlab: Symlab, database: str, mlflow_runs: Runs) -> None:
    done = symlab("sizes=[8]")
    time.sleep(0.2)
    assert send_later([str(done.folder / "records"), "--uri", database, "--experiment", "times"]) == 0
    begun, ended = done.records[0]["started"], max(record["ended"] for record in done.records)
    runs = mlflow_runs("times")
    for run in [*runs["parents"], *runs["children"]]:
        assert run.data.tags["mlflow.user"] == "somebody"
        assert run.info.end_time < datetime.fromisoformat(ended).timestamp() * 1000 + 150
    child = min(runs["children"], key=lambda run: run.info.start_time)
    assert child.info.start_time == pytest.approx(datetime.fromisoformat(begun).timestamp() * 1000, abs=1)
    assert runs["parents"][0].info.start_time <= child.info.start_time
    assert not any("bound_used" in key for key in child.data.metrics)
    assert child.data.params["sizes"] == "8"
    assert child.data.tags["counters"] == "sums over all ranks and all launches"
    assert child.data.tags["source_digest"].startswith("sha256:")


@pytest.mark.slow
def test_runs_of_different_jobs_can_be_told_apart(symlab: Symlab, database: str, mlflow_runs: Runs) -> None:
    options = ["algorithms=[one_shot]", "sizes=[8]", f"track.uri={database}", "track.experiment=apart"]
    symlab("-m", "seed=1,2", *options, track=True)
    names = sorted(run.info.run_name for run in mlflow_runs("apart")["children"])
    assert names == [f"all_reduce/one_shot float32/float32 n2 seed={seed}" for seed in (1, 2)]


def test_a_bad_file_among_records_is_left_out(
    symlab: Symlab, database: str, mlflow_runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    done = symlab("sizes=[8]")
    (record_files(done.folder)[0].parent / "bad.json").write_text("{")
    assert send_later([str(done.folder / "records"), "--uri", database, "--experiment", "bad_file"]) == 1
    assert "warning: left out" in capsys.readouterr().err
    assert mlflow_runs("bad_file")["parents"][0].info.status == "FINISHED"


def test_sending_nothing_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert send_later([]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_follower_holds_a_lock_from_its_first_moment_until_it_is_gone(tmp_path: Path) -> None:
    connection = in_process(tmp_path)
    with pytest.raises(FolderInUse, match=r"^process \d+ on .* still works in"):
        FolderLock(tmp_path, MIRROR_LOCK_NAME)
    FolderLock(tmp_path).release()
    connection.messages.close()
    connection.wait(PATIENCE_S)
    assert list(tmp_path.iterdir()) == []
    FolderLock(tmp_path, MIRROR_LOCK_NAME).release()


@pytest.mark.slow
def test_the_follower_is_gone_when_the_command_is(tmp_path: Path, database: str) -> None:
    connection = in_process(tmp_path)
    track = TrackRequest("mlflow", database, "gone")
    mirror = Mirror(track, RecordedRequest(command="c2"), tmp_path, lambda: connection)
    mirror.finish(lambda: None)
    assert connection.wait(0) is None
    assert connection.wait.__closure__[0].cell_contents.returncode == 0  # type: ignore[attr-defined]
