"""MLflow gets what the records say: while the command runs, or later; never a run that is left RUNNING."""

import http.server
import json
import socket
import threading
import time
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from cases.record.request import RecordedRequest
from reports import tracking
from reports.mlflow_values import metrics_of
from runner.command.console import Console
from runner.command.to_mlflow import Mirror, in_process
from runner.records.lock import MIRROR_LOCK_NAME, FolderInUse, FolderLock
from runner.request.schema import TrackRequest
from runner.track import problems, send
from runner.track.pages import view_key
from runner.track.problems import problem_of
from runner.world.world import WorldFailure
from symlab.command import main as command
from tests.golden import refused, same_text
from tests.patience import PATIENCE_S, SOON_S, until, within
from tests.runner.conftest import BAD, in_thread, record_files


def all_of(sent):
    """All that MLflow has of an experiment's runs: tags, parameters, curves over bytes, and artifacts."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=sent.database)

    def files(run, place=None):
        for one in client.list_artifacts(run, place):
            yield from files(run, one.path) if one.is_dir else [one.path]

    for run in sorted(sent.runs, key=lambda run: run.info.run_name):
        said, run_id = run.data, run.info.run_id
        curves = {name: client.get_metric_history(run_id, name) for name in sorted(said.metrics)}
        yield f"== {run.info.run_name}: {run.info.status}"
        yield from (f"{key} = {value}" for key, value in sorted({**said.params, **said.tags}.items()))
        yield from (f"{name}: {sorted((one.step, one.value) for one in points)}" for name, points in curves.items())
        yield from files(run_id)


@pytest.mark.slow
def test_a_parent_a_command_and_a_child_a_series(sent):
    """Jobs that differ in their seeds alone are told apart by it. What changes from run to run is hidden."""
    done = sent.run("-m", "seed=1,2", "algorithms=[one_shot]", "sizes=[8,16]")
    assert done.code == 0
    parent, children = sent.parent, sent.children
    key = view_key(parent.data.tags["symlab.command"])
    last = done.out.splitlines()[-1]
    assert last.startswith(f"dashboard: http://127.0.0.1:5000/#/experiments/{parent.info.experiment_id}/runs?")
    assert f"viewStateShareKey={key}&compareRunsMode=CHART" in last
    assert last.endswith(f" (start it: symlab dashboard --uri {sent.database})")
    same_text("\n".join(all_of(sent)), *CHANGING)
    assert Path(sent.database.removeprefix("sqlite:///")).with_name("mlartifacts").is_dir()
    assert {run.data.tags[tracking.PARENT_TAG] for run in children} == {parent.info.run_id}
    assert not any(word in key for run in children for key in run.data.metrics for word in ("time", "gbps", "["))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outcome", "code", "statuses"),
    [
        (BAD, 1, {"two_shot": "FAILED", "one_shot": "FINISHED", "all_reduce": "FAILED"}),
        (WorldFailure("TIMEOUT", 0, "late"), 1, {"two_shot": "FAILED", "one_shot": "FINISHED", "all_reduce": "FAILED"}),
        (KeyboardInterrupt(), 130, {"one_shot": "FINISHED", "all_reduce": "KILLED"}),
    ],
    ids=["wrong", "timeout", "interrupt"],
)
def test_no_run_is_left_running(sent, script, outcome, code, statuses):
    script.outcomes = {"two_shot": outcome}
    assert sent.run("sizes=[8]").code == code
    names = [run.info.run_name.partition(" ")[0].removeprefix("all_reduce/") for run in sent.runs]
    assert dict(zip(names, [run.info.status for run in sent.runs], strict=True)) == statuses


def test_refused_series_are_finished_and_say_why(sent):
    sent.run("algorithms=[one_shot,multimem_two_shot]", "sizes=[8]", "fabric.multicast=false")
    (child,) = [one for one in sent.children if one.data.tags["status"] == "REFUSED"]
    assert (child.info.status, child.data.tags["reason"]) == ("FINISHED", "no multicast here")


@pytest.mark.parametrize("uri", ["sqlite:///README.md", "sqlite:///folder.db", "http://127.0.0.1:9"])
def test_a_place_that_takes_no_records_costs_a_warning_and_seconds(symlab, tmp_path, uri):
    """A server that is down, and no databases, which never take them: they are sent to another place later."""
    (tmp_path / "README.md").write_text("# words\n")
    (tmp_path / "folder.db").mkdir()
    with within():
        done = symlab("sizes=[8]", f"track.uri={uri}", track=True)
    assert (done.code, done.statuses) == (0, ["PASSED", "PASSED"])
    same_text(done.err, ADDRESS)


@pytest.mark.slow
def test_a_server_that_never_answers_is_named_before_the_first_case(symlab):
    """And it is not waited for: each look has two seconds."""
    assert problems.PATIENCE_S <= 2
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        said = [f"MLflow at {uri} is not reachable: {why}" for why in ("timed out", "no answer within 2 s")]
        assert problem_of(uri) in said
        done = symlab("sizes=[8]", f"track.uri={uri}", track=True)
    assert (done.code, done.statuses) == (0, ["PASSED", "PASSED"])
    assert any(one in done.err for one in said)
    assert "the work goes on without MLflow" in done.err


def test_a_server_that_goes_away_is_named_for_what_it_is(symlab, monkeypatch):
    """It answered before the sweep, and no longer when the follower asks."""
    monkeypatch.setattr("runner.track.problems.check_server", lambda uri, patience_s: None)
    done = symlab("sizes=[8]", "track.uri=http://127.0.0.1:9", track=True)
    assert done.code == 0
    assert "MLflow at http://127.0.0.1:9 is not reachable: [Errno 111] Connection refused" in done.out + done.err


def test_a_server_is_found_by_a_uri_with_user_and_password():
    class Healthy(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/base/health" else 404)
            self.end_headers()

        def log_message(self, format, *arguments):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        send._prepare(f"http://me:pa55@127.0.0.1:{server.server_port}/base/")
        server.shutdown()


def test_a_failure_in_the_middle_ends_the_runs(sent, monkeypatch):
    def broken(*_):
        raise RuntimeError("the server went away")

    monkeypatch.setattr(send.CommandRun, "_end", broken)
    done = sent.run("sizes=[8]")
    assert done.code == 0
    assert "the server went away" in done.err
    assert [run.info.status for run in sent.runs] == ["FAILED", "FAILED"]
    monkeypatch.undo()
    assert sent.later(done.folder / "records") == 0
    assert sent.parent
    assert len(sent.children) == 2
    assert all("status" in run.data.tags for run in sent.children)


@pytest.mark.parametrize("is_there", [True, False])
def test_of_a_server_that_is_gone_no_run_is_ended(is_there, monkeypatch):
    """MLflow would wait a minute for each, after that for the records."""
    if is_there:
        monkeypatch.setattr("reports.tracking.check_server", lambda uri, patience_s: None)
    ended = []
    run = object.__new__(send.CommandRun)
    run._client = SimpleNamespace(set_terminated=lambda run_id, status: ended.append(run_id))
    run._uri, run._open = "http://127.0.0.1:9", ["parent", "child"]
    run.close("FAILED")
    assert ended == (["child", "parent"] if is_there else [])


@pytest.mark.slow
def test_records_are_sent_later_and_only_once(sent, script, capsys):
    script.outcomes = {"two_shot": BAD}
    done = sent.symlab("-m", "world_size=2,3", "sizes=[8,16]")
    assert sent.later(done.folder / "records") == 0
    assert "8 records sent as run" in capsys.readouterr().out
    assert (sent.parent.info.status, len(sent.children)) == ("FAILED", 4)
    assert {run.info.status for run in sent.children} == {"FINISHED", "FAILED"}
    assert sent.later(done.folder / "records") == 0
    assert "already sent" in capsys.readouterr().out
    assert len(sent.children) == 4


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nowhere"],
        ["broken.json"],
        ["broken.json", "--uri", "mlruns"],
        ["broken.json", "--uri", "sqlite:///no/x.db"],
    ],
)
def test_sending_later_what_can_not_be_sent(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.json").write_text("{")
    assert command(["track", *arguments]) == 2
    same_text(capsys.readouterr().err)
    assert [path.name for path in tmp_path.iterdir()] == ["broken.json"]


def test_sending_later_to_a_server_that_is_down(symlab, capsys):
    done = symlab("sizes=[8]")
    assert command(["track", str(done.folder / "records"), "--uri", "http://127.0.0.1:9"]) == 1
    same_text(capsys.readouterr().err, ADDRESS)


def test_what_is_not_finite_stays_in_the_record(symlab, script):
    from dataclasses import replace

    from cases.record.record import load

    script.outcomes = {"one_shot": replace(BAD, max_absolute_error=float("nan"))}
    done = symlab("sizes=[8]", "algorithms=one_shot")
    (path,) = record_files(done.folder)
    metrics = metrics_of(load(path))
    assert "errors/max_absolute_error" not in metrics
    assert metrics["errors/wrong"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("connect", [in_thread, None], ids=["thread", "process"])
def test_abandoning_is_quick_and_ends_what_is_open(connect, sent, tmp_path):
    track = TrackRequest("mlflow", sent.database, sent.name)
    mirror = Mirror(track, tmp_path, Console())
    mirror.begin(RecordedRequest(command="c1"), connect)
    until(lambda: sent.find(sent.name)["parents"], "the command's run")
    mirror.abandon()
    assert sent.parent.info.status == "KILLED"


@pytest.mark.slow
@pytest.mark.parametrize("is_later", [False, True])
def test_an_interrupted_command_is_incomplete_whoever_sends_it(sent, script, is_later):
    script.outcomes = {"two_shot": KeyboardInterrupt()}
    done = sent.symlab("sizes=[8,16]") if is_later else sent.run("sizes=[8,16]")
    assert done.code == 130
    assert not is_later or sent.later(done.folder / "records") == 0
    tags, metrics = sent.parent.data.tags, sent.parent.data.metrics
    assert (sent.parent.info.status, tags["status"]) == ("KILLED", "INCOMPLETE")
    assert (tags["outcome"], tags[tracking.COMPLETE_TAG]) == ("interrupted", "false")
    assert [metrics[f"cases/{key}"] for key in ("run", "requested", "not_run")] == [1, 4, 3]
    (child,) = sent.children
    assert (child.info.status, child.data.tags["passed"]) == ("KILLED", "1/2")


@pytest.mark.slow
def test_a_killed_command_is_incomplete(sent):
    done = sent.symlab("sizes=[8]")
    (path,) = done.folder.glob("records/*/command.json")
    document = json.loads(path.read_text())
    for key in ("ended", "exit_code", "outcome", "why", "counts", "cases_not_run"):
        del document[key]
    path.write_text(json.dumps(document))
    record_files(done.folder)[0].unlink()
    assert [sent.later(done.folder / "records"), sent.later(done.folder / "records")] == [0, 0]
    tags = sent.parent.data.tags
    assert (sent.parent.info.status, tags["status"], tags["outcome"]) == ("KILLED", "INCOMPLETE", "killed")


@pytest.mark.slow
def test_times_and_user_are_those_of_the_records(sent):
    done = sent.symlab("sizes=[8]")
    time.sleep(0.2)
    assert sent.later(done.folder / "records") == 0
    begun, ended = done.records[0]["started"], max(record["ended"] for record in done.records)
    for run in sent.runs:
        assert run.data.tags["mlflow.user"] == "somebody"
        assert run.info.end_time < datetime.fromisoformat(ended).timestamp() * 1000 + 150
    child = min(sent.children, key=lambda run: run.info.start_time)
    assert child.info.start_time == pytest.approx(datetime.fromisoformat(begun).timestamp() * 1000, abs=1)
    assert sent.parent.info.start_time <= child.info.start_time
    assert not any("bound_used" in key for key in child.data.metrics)
    assert child.data.params["sizes"] == "8"
    assert child.data.tags["counters"] == "sums over all ranks and all launches"
    assert child.data.tags["source_digest"].startswith("sha256:")


def test_a_bad_file_among_records_is_left_out(sent, capsys):
    done = sent.symlab("sizes=[8]")
    (record_files(done.folder)[0].parent / "bad.json").write_text("{")
    assert sent.later(done.folder / "records") == 1
    assert "warning: left out" in capsys.readouterr().err
    assert sent.parent.info.status == "FINISHED"


def test_a_follower_holds_a_lock_once_no_other_has_it(tmp_path):
    with FolderLock(tmp_path, MIRROR_LOCK_NAME) as lock:
        connection = in_process(tmp_path)
        connection.messages.close()
        connection.wait(SOON_S)
        process = connection.wait.__closure__[0].cell_contents
        assert process.poll() is None, "it has not begun"
        lock.release()
    connection.wait(PATIENCE_S)
    assert process.returncode == 0
    connection = in_process(tmp_path)
    until(lambda: (tmp_path / MIRROR_LOCK_NAME).exists(), "the follower's lock")
    with refused(FolderInUse, r"process \d+ on \S+"):
        FolderLock(tmp_path, MIRROR_LOCK_NAME)
    FolderLock(tmp_path).release()
    connection.messages.close()
    connection.wait(PATIENCE_S)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_follower_is_gone_when_the_command_is(tmp_path, database):
    connection = in_process(tmp_path)
    track = TrackRequest("mlflow", database, "gone")
    mirror = Mirror(track, tmp_path, Console())
    mirror.begin(RecordedRequest(command="c2"), lambda: connection)
    mirror.finish()
    assert connection.wait(0) is None
    assert connection.wait.__closure__[0].cell_contents.returncode == 0


def test_what_another_process_sends_is_left_to_it(sent, capsys):
    done = sent.symlab("sizes=[8]")
    (folder,) = (done.folder / "records").iterdir()
    with FolderLock(folder, MIRROR_LOCK_NAME):
        assert sent.later(folder) == 0
    assert "another process sends its records now: nothing done" in capsys.readouterr().out
    assert sent.later(folder) == 0
    assert "2 records sent" in capsys.readouterr().out


ADDRESS = r"(?<=127\.0\.0\.1:)\d+|\d{8}T\d{6}\S*|\b(?:process )?\d+(?:\.\d+)? m?s\b"
"""What changes from run to run: ports, folders of records, and seconds."""
CHANGING = (
    r"\b(?:[0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{16}|[0-9a-f]{8})\b",
    r"\d{4}-?\d\d-?\d\dT[0-9:]+\S*",
    r"(?<=experiments/)\d+",
)
"""Digests, identities, times and numbers of experiments."""
