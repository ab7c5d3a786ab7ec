"""A command that was cut short is resumed: what is left runs, and nothing else; what can't be the same is refused."""

import errno
import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from cases.record.record import load
from cases.record.request import RecordedEnvironment
from reports.record.seal import MANIFEST, broken
from runner.__main__ import main
from runner.command import unfinished_cases
from runner.command.resume import resume
from runner.command.resumption import changed_since
from runner.interrupt import Interrupted
from runner.records.command_json import COMMAND_JSON
from runner.records.command_json import command_document_of as document_of
from runner.records.lock import FolderLock
from runner.request_error import RequestError
from runner.world.launcher import Outer
from tests.golden import refused, same_text
from tests.patience import PATIENCE_S
from tests.processes import ran
from tests.reports.synthetic import record as synthetic_record
from tests.runner.conftest import BAD, TWO, Script, record_files, started

SWEEP = ("-m", "world_size=2,3", "sizes=[8,16]")
"""Two jobs of four cases each."""

AT_SIXTH = "two_shot-float32-float32-sum-n3-8B"


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The folder of a sweep that Ctrl-C ended at its sixth case; a test takes a copy."""
    place, script = tmp_path_factory.mktemp("swept"), Script({AT_SIXTH: KeyboardInterrupt()})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert main([*SWEEP, TWO, "track=none"], script.tools()) == 130
    return next((place / "records").iterdir())


@pytest.fixture
def folder(swept, tmp_path, monkeypatch):
    """A folder of the sweep, in the working folder's records."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(swept, tmp_path / "records" / swept.name))


@pytest.fixture
def cut(symlab, script):
    """cut("two_shot-.*", ...): a sweep that Ctrl-C ends at the first case with this part in its id; its folder."""

    def run(part, *arguments, track=False):
        script.outcomes = {part: KeyboardInterrupt()}
        done = symlab(*arguments, track=track)
        assert done.code == 130
        script.outcomes = {}
        script.ran.clear()
        (folder,) = (done.folder / "records").iterdir()
        return folder

    return run


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def unsealed(folder, change=lambda text: text):
    """What is in a folder without its manifest, once command.json is changed."""
    path = folder / COMMAND_JSON
    path.write_text(change(path.read_text()))
    (folder / MANIFEST).unlink()
    return files(folder)


def last_record(folder):
    return max((load(path) for path in folder.glob("0*-all*.json")), key=lambda one: one.started)


COMMAND = r"\d{8}T\d{6}Z-all_reduce-[0-9a-f]{8}"


def test_only_what_is_left_runs(folder, script, capsys):
    before = files(folder)
    assert resume(folder, tools=script.tools()) == 0
    assert [one.split("-")[1:] for one in script.ran] == [
        f"{name}-float32-float32-sum-n3-{size}B-out_of_place-normal-s0".split("-")
        for name, size in (("two_shot", 8), ("one_shot", 16), ("two_shot", 16))
    ]
    after = files(folder)
    assert {name: data for name, data in after.items() if name in before and data != before[name]}.keys() == {
        COMMAND_JSON,
        MANIFEST,
    }
    assert broken(folder) == []
    document = document_of(folder)
    assert (document.outcome, document.end.exit_code, document.end.counts) == ("complete", 0, {"PASSED": 8})
    (resumption,) = document.resumed
    assert (resumption.after, resumption.cases_left, resumption.commit) == ("interrupted", 3, "0123abc")
    said = capsys.readouterr().out
    assert f"symlab resume: {folder.name}, interrupted: 3 of 8 cases left" in said
    assert "[3/3] two_shot 16 n3 PASSED" in said
    assert "8 cases: 8 passed" in said


def test_a_missing_and_a_torn_record_are_made_again(folder, script, capsys, monkeypatch):
    assert resume(folder, tools=script.tools()) == 0
    paths = sorted(folder.glob("0*-all_reduce*.json"))
    paths[1].unlink()
    paths[4].write_bytes(paths[4].read_bytes()[:500])
    script.ran.clear()
    assert resume(folder, tools=script.tools()) == 0
    assert len(script.ran) == 2
    assert all(load(path).verified for path in paths)
    assert (folder / f"{paths[4].name}.set_aside").stat().st_size == 500
    assert broken(folder) == []
    assert document_of(folder).resumed[-1].set_aside == (paths[4].name,)
    assert f"set aside: {paths[4].name}" in capsys.readouterr().out


@pytest.mark.parametrize(("outcomes", "code"), [({}, 0), ({"two_shot": BAD}, 1)])
def test_a_complete_command_has_nothing_left(symlab, script, capsys, outcomes, code):
    script.outcomes = outcomes
    (folder,) = (symlab("sizes=[8]").folder / "records").iterdir()
    before = files(folder)
    assert resume(folder, tools=script.tools()) == code
    assert resume(folder, "sqlite:///x.db", script.tools()) == code
    same_text(capsys.readouterr().out, COMMAND)
    assert files(folder) == before
    document = document_of(folder)
    (folder / COMMAND_JSON).write_text(replace(document, end=None).to_json())  # killed after its last case
    (folder / MANIFEST).unlink()
    (folder / ".0123456789abcdef.tmp").write_text("half")
    script.ran.clear()
    assert resume(folder, tools=script.tools()) == code
    assert script.ran == []
    assert (document_of(folder).outcome, broken(folder)) == ("complete", [])
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("bad", [BAD, None])
@pytest.mark.parametrize("left", [0, 2])
def test_wrong_cases_are_not_run_again_and_count(folder, script, capsys, bad, left):
    first, *others = [path for path in folder.glob("00-all_reduce*.json")]
    case = load(first).id
    first.unlink()
    script.outcomes = {case: bad} if bad else {}
    code = 1 if bad else 0
    assert resume(folder, tools=script.tools()) == code
    for path in others[:left]:
        path.unlink()
    capsys.readouterr()
    assert resume(folder, tools=script.tools()) == code
    same_text("\n".join(one for one in capsys.readouterr().out.splitlines() if "not run again" in one))


def test_a_quiet_resumption_says_only_the_last_lines(folder, capsys, script):
    assert main(["resume", str(folder), "--quiet", "--uri", "none"], script.tools()) == 0
    (line, records) = capsys.readouterr().out.splitlines()
    assert line.startswith("8 cases: 8 passed")
    assert folder.name in records


def test_an_interrupted_resumption_can_be_resumed(folder, script):
    script.outcomes = {"one_shot-float32-float32-sum-n3-16B": Interrupted(signal.SIGTERM)}
    assert resume(folder, tools=script.tools()) == 143
    assert document_of(folder).outcome == "interrupted"
    script.outcomes = {}
    assert resume(folder, tools=script.tools()) == 0
    document = document_of(folder)
    assert [(one.after, one.cases_left) for one in document.resumed] == [("interrupted", 3), ("interrupted", 2)]
    parts = [load(path).request.resumed for path in folder.glob("0*-all*.json")]
    assert (parts.count(1), parts.count(2)) == (1, 2)
    assert broken(folder) == []


def test_under_a_launcher_all_ranks_hear_of_its_end(folder, script):
    """A simulated command needs one process, and a launcher has started several."""
    leader = Mock(outer=Outer("torchrun", 0, 3, 0, "127.0.0.1", 1))
    assert resume(folder, tools=script.tools(), leader=leader) == 0
    leader.tell_end.assert_called_once_with(0)
    assert document_of(folder).outcome == "complete"


def test_no_file_that_lies_with_the_records_is_loaded(folder, script):
    (folder / "ring.py").write_text("raise SystemExit('it ran')\n")
    document = folder / COMMAND_JSON
    said = json.loads(document.read_text())
    said["plan"]["configuration"]["algorithms"] = [f"{folder / 'ring.py'}:SPEC"]
    document.write_text(json.dumps(said))
    (folder / MANIFEST).unlink()
    with refused(RequestError, COMMAND):
        resume(folder, "none", script.tools())


def test_a_command_that_still_runs_is_not_resumed(folder, script):
    before = files(folder)
    with FolderLock(folder), refused(RequestError, COMMAND, r"process \d+ on \S+"):
        resume(folder, tools=script.tools())
    assert files(folder) == before


def test_a_running_command_holds_the_lock(symlab, script, tmp_path):
    found = []

    def capture(root):
        (folder,) = (tmp_path / "records").iterdir()
        with pytest.raises(RequestError) as caught:
            resume(folder)
        found.append(str(caught.value))
        return {}

    assert main(["sizes=[8]", "algorithms=[one_shot]", "track=none"], replace(script.tools(), capture=capture)) == 0
    assert "still works in" in found[0]


@pytest.mark.parametrize(
    ("place", "more"), [("gone", []), ("records", []), (".", []), ("records/*", ["--uri", "sqlite:///no/x.db"])]
)
def test_what_can_not_be_resumed_is_one_line(folder, capsys, place, more):
    assert main(["resume", str(folder) if "*" in place else place, *more]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    same_text(error, COMMAND)


def test_a_place_for_reading_only(folder, script, monkeypatch):
    monkeypatch.setattr("runner.command.resume.FolderLock", Mock(side_effect=OSError(errno.EROFS, "Read-only file")))
    with refused(RequestError, COMMAND):
        resume(folder, tools=script.tools())


def test_jobs_are_counted_from_1_and_of_the_whole_command(folder, script, monkeypatch):
    """What is left is in job 2 of 2."""
    refuse = Mock(side_effect=RequestError("too much memory"))
    monkeypatch.setattr("runner.case.host_memory.check_host_memory", refuse)
    with refused(RequestError):
        resume(folder, tools=script.tools())
    unsealed(folder, lambda text: text.replace('"fabric": {', '"cloth": {', 1))
    with refused(RequestError, COMMAND):
        resume(folder, tools=script.tools())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("-n3-16B-", "-n3-24B-"),
        ('"fabric": "simulator"', '"fabric": "nvshmem"'),
        ('"launches"', '"lunches"'),
        ('"plan": {', '"other": {'),
        ('"jobs": [', '"jobs": [], "gone": ['),
        ("{", "{{"),
    ],
)
def test_a_plan_that_is_not_possible_here_is_refused(folder, script, old, new):
    before = unsealed(folder, lambda text: text.replace(old, new))
    with refused(RequestError, COMMAND, r"no [^(]* \(fabric=nvshmem\)[^;]*"):
        resume(folder, tools=script.tools())
    assert (files(folder), script.ran) == (before, [])


def test_a_changed_record_is_not_sealed_anew_and_another_commands_is_refused(folder, script):
    path = sorted(folder.glob("00-all*.json"))[0]
    text = path.read_text()
    path.write_text(text.replace('"max_ulp_error": 0', '"max_ulp_error": 1'))
    with refused(RequestError, COMMAND, r"\b[0-9a-f]{12}\b"):
        resume(folder, tools=script.tools())
    path.write_text(text)
    (folder / "zz.json").write_text(load(path).to_json().replace(folder.name, "20260101T000000Z-x-00000000"))
    with refused(RequestError, COMMAND):
        resume(folder, tools=script.tools())
    assert script.ran == []


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("{}")])
@pytest.mark.parametrize("is_sealed", [True, False])
def test_without_the_environment_that_records_refer_to_nothing_is_run_again(folder, script, damage, is_sealed):
    if not is_sealed:
        (folder / MANIFEST).unlink()
    said = set()
    for path in sorted((folder / "shared").iterdir()):
        text = path.read_text()
        damage(path)
        before = files(folder)
        with pytest.raises(RequestError) as caught:
            resume(folder, tools=script.tools())
        said.add(str(caught.value).replace(path.name, "FILE").partition(".json: ")[2])
        assert (files(folder), script.ran) == (before, [])
        path.write_text(text)
    same_text("\n".join(said), COMMAND)
    assert resume(folder, tools=script.tools()) == 0


def test_changed_code_is_said_and_kept(folder, script, capsys):
    tools = replace(script.tools(), capture=lambda root: {"git": {"commit": "fedcba9876543210", "diff": "+ a line\n"}})
    assert resume(folder, tools=tools) == 0
    said = capsys.readouterr().out
    changed = "commit: fedcba9876543210, was 0123abc"
    assert said.index("changed since the first part") < said.index(f"  {changed}\n") < said.index("[1/3]")
    (resumption,) = document_of(folder).resumed
    assert (resumption.commit, resumption.changed) == ("fedcba9876543210", (changed,))


def test_what_can_not_be_captured_costs_no_result(folder, script):
    capture = Mock(side_effect=OSError("no /proc here"))
    assert resume(folder, tools=replace(script.tools(), capture=capture)) == 0
    assert document_of(folder).resumed[0].commit == ""
    assert last_record(folder).environment.problem == "OSError: no /proc here"


def test_a_difference_of_the_sources_is_kept_beside_the_first_ones(folder, script):
    (folder / "source.diff").write_text("+ one\n")
    unsealed(folder)
    tools = replace(script.tools(), capture=lambda root: {"git": {"commit": "0123abc", "diff": "+ two\n"}})
    assert resume(folder, tools=tools) == 0
    assert (folder / "source.diff").read_text() == "+ one\n"
    assert (folder / "source.2.diff").read_text() == "+ two\n"
    git = last_record(folder).environment.git
    assert git["kept_diff"]["file"] == "source.2.diff"


def test_what_was_interrupted_before_it_was_timed_is_left():
    timed = synthetic_record()
    asked = replace(timed.request, configuration={"timing": {"mode": "graph"}})
    untimed = replace(timed, timing=None, request=asked)
    assert unfinished_cases._is_untimed(untimed)
    assert not unfinished_cases._is_untimed(timed)
    never = replace(asked, configuration={"timing": {"mode": "none"}})
    assert not unfinished_cases._is_untimed(replace(untimed, request=never))
    assert not unfinished_cases._is_untimed(replace(untimed, fabric=replace(untimed.fabric, simulated=True)))


@pytest.mark.slow
def test_what_mlflow_never_got_is_sent_by_the_resumption(folder, script, database, mlflow_runs):
    assert resume(folder, database, script.tools()) == 0
    runs = mlflow_runs("symlab")
    own = [run for run in runs["children"] if run.data.tags["symlab.command"] == folder.name]
    assert len(own) == 4
    assert {run.data.tags["passed"] for run in own} == {"2/2"}


def test_a_password_has_to_be_given_again(cut, script):
    folder = cut(AT_SIXTH, *SWEEP, "track.uri=http://me:hunter2@127.0.0.1:9", track=True)
    with refused(RequestError, COMMAND):
        resume(folder, tools=script.tools())
    assert resume(folder, "none", script.tools()) == 0


def test_mlflow_is_found_from_any_folder_but_where_that_is_unknown(cut, script, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("runner.track.problems.problem_of", lambda uri: asked.append(uri) or "MLflow is looked for")
    folder = cut(AT_SIXTH, *SWEEP, "track.uri=sqlite:///own.db", track=True)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(folder, elsewhere / folder.name)
    monkeypatch.chdir(elsewhere)
    assert resume(folder, tools=script.tools()) == 0
    assert asked == ["sqlite:///own.db", f"sqlite:///{tmp_path}/own.db"]
    assert not (elsewhere / "records").exists()
    with refused(RequestError, COMMAND):
        resume(elsewhere / folder.name, tools=script.tools())


REAL = """
    import sys
    from runner.__main__ import main
    sys.exit(main(sys.argv[1:]))
"""
ARGUMENTS = ("-m", "world_size=2,3,4", "algorithms=[one_shot,two_shot]", "sizes=[1K,4K]", "cache_dir=../cache")


def command(folder, *arguments, until="", number=0):
    """Run a command line in a process; with until, send it a signal once it has said that."""
    folder.mkdir(exist_ok=True)
    process = started(folder, REAL, *arguments)
    said = ""
    try:
        for line in process.stdout:
            said += line
            if until and until in line:
                process.send_signal(number)
                until = ""
        process.wait(PATIENCE_S)
    finally:
        process.kill()
    return process.returncode, said


def digests(folder):
    found = {}
    for path in record_files(folder):
        record = load(path)
        found[f"{record.request.job} {record.id}"] = record.check.input_digests, record.check.output_digests
    return found


def runs_of(folder):
    """Status and metrics of the runs that MLflow has of one command, by name."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("symlab").experiment_id])
    assert sum("mlflow.parentRunId" not in run.data.tags for run in runs) == 1
    return {run.info.run_name: (run.info.status, dict(run.data.metrics)) for run in runs}


@pytest.mark.slow
def test_a_real_sweep_that_was_interrupted_and_killed_and_resumed_is_as_a_whole_one(tmp_path):
    code, said = command(tmp_path / "whole", *ARGUMENTS)
    assert (code, "12 cases: 12 passed" in said) == (0, True), said
    folder = tmp_path / "cut"
    assert command(folder, *ARGUMENTS, until="[2/12]", number=signal.SIGINT)[0] == 130
    (records,) = (folder / "records").iterdir()
    code, said = command(folder, "resume", str(records), until="[3/", number=signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert (document_of(records).outcome, len(document_of(records).resumed)) == ("killed", 1)
    assert 0 < len(digests(folder)) < 12
    code, said = command(folder, "resume", str(records))
    assert (code, "12 cases: 12 passed" in said) == (0, True), said
    assert "code: as in the first part (commit, sources and packages)" in said
    assert digests(folder) == digests(tmp_path / "whole")
    one = runs_of(folder)
    assert one == runs_of(tmp_path / "whole")
    assert {status for status, _ in one.values()} == {"FINISHED"}
    assert broken(records) == []
    audit = ran("-m", "reports", "audit", str(records), "--rerun", "12", cwd=folder, timeout=None)
    assert audit.returncode == 0, audit.stdout


def test_code_that_changed_is_named_and_what_one_side_alone_captured_is_not():
    def said(was, is_now):
        environments = [RecordedEnvironment(**one) for one in (was, is_now)]
        left = SimpleNamespace(kept=[SimpleNamespace(record=replace(synthetic_record(), environment=environments[0]))])
        return changed_since(left, SimpleNamespace(jobs=()), environments[1])

    was = {
        "git": {"commit": "a", "diff_digest": None},
        "packages": {"ml_dtypes": "0.5", "nccl": None, "gone": "1", "torch": "2.11"},
        "sources": {"cases": "sha256:1"},
    }
    is_now = {
        "git": {"commit": "b", "diff_digest": None},
        "packages": {"ml-dtypes": "0.5", "new": "2", "torch": "2.13"},
        "sources": {"cases": "sha256:2"},
    }
    assert said(was, was) == []
    same_text("\n".join(said(was, is_now)))
    assert said({}, is_now) == said(was, {}) == []
