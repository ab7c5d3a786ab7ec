"""symlab.experiment: what the command runs, with its files, its messages and its errors, in a process that goes on."""

import _thread
import threading

import pytest

import symlab
from cases.record.shared import SHARED
from reports.record.seal import MANIFEST
from runner.__main__ import main
from runner.records.command_json import COMMAND_JSON, command_document_of
from tests.golden import refused
from tests.patience import until

SMALL = ("algorithms=[one_shot]", "sizes=[1K]", "track=none")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def names(folder):
    """The names of a folder's files, sorted; those in shared/ are digests, of the command line, too."""
    paths = [path.relative_to(folder) for path in folder.rglob("*")]
    return sorted(SHARED if path.parts[0] == SHARED else path.as_posix() for path in paths)


def test_it_does_what_the_command_does(tmp_path, capsys):
    assert main([*SMALL, "records=command"]) == 0
    said = capsys.readouterr().out
    done = symlab.experiment(*SMALL, "records=api")
    (command,) = (tmp_path / "command").iterdir()
    assert done.folder.parent == tmp_path / "api"
    assert names(done.folder) == names(command)
    assert {COMMAND_JSON, MANIFEST} <= {path.name for path in done.folder.iterdir()}
    lines = [line for line in capsys.readouterr().out.splitlines() if "records: " not in line]
    assert lines == [line for line in said.splitlines() if "records: " not in line]
    assert (done.exit_code, len(done.records)) == (0, 1)
    assert list(symlab.records(done.folder)) == list(done.records)
    first, other = done.records[0].request, symlab.records(command)[0].request
    assert first.command_line == ("symlab", "run", *SMALL, "records=api")
    assert first.resolved == other.resolved


def test_a_sweep_is_quiet(capsys):
    done = symlab.experiment(*SMALL, "world_size=2,3", multirun=True, quiet=True)
    assert [record.case.world_size for record in done.records] == [2, 3]
    assert capsys.readouterr() == ("", "")


def test_what_is_refused_has_the_commands_exit_code():
    done = symlab.experiment("algorithms=[one_shot]", "sizes=[1K]", "baselines=[nccl]", "track=none", quiet=True)
    assert (done.exit_code, [str(record.status) for record in done.records]) == (0, ["PASSED", "REFUSED"])
    with refused():
        symlab.experiment("algorithms=[nccl]", "sizes=[1K]", "track=none", quiet=True)


@pytest.mark.parametrize("overrides", [("op=all_reduc",), ("sizes=[4Q]",), ("world_size=2,3",), ("colour=red",)])
def test_a_wrong_request_is_a_value_error_with_the_commands_message(overrides, capsys, tmp_path):
    assert main([*overrides, "track=none"]) == 2
    said = capsys.readouterr().err
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the message is the command's
        symlab.experiment(*overrides, "track=none")
    assert said == f"symlab: error: {caught.value}\n"
    assert not list(tmp_path.iterdir()), "nothing ran"


def test_another_folder_of_configurations(tmp_path):
    (tmp_path / "mine" / "exp").mkdir(parents=True)
    (tmp_path / "mine" / "exp" / "tiny.yaml").write_text(
        "# @package _global_\nop: send_recv\nalgorithms: [pull]\nsizes: {list: [64]}\n"
    )
    done = symlab.experiment("+exp=tiny", "track=none", config_dir=tmp_path / "mine", quiet=True)
    assert [record.case.op for record in done.records] == ["send_recv"]
    assert done.records[0].request.experiment == "tiny"
    with refused():
        symlab.experiment(config_dir=tmp_path / "other")


def test_an_interrupt_keeps_what_is_finished_and_is_raised(monkeypatch, capsys, tmp_path):
    """As in a notebook: the process goes on."""
    from runner.command.console import Console

    finished = Console.finished

    def interrupting(self, record):
        finished(self, record)
        _thread.interrupt_main()

    monkeypatch.setattr(Console, "finished", interrupting)
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        symlab.experiment("algorithms=[one_shot]", "sizes=[1K,4K,16K]", "track=none")
    (folder,) = (tmp_path / "records").iterdir()
    assert 1 <= len(symlab.records(folder)) < 3
    command = command_document_of(folder)
    assert (command.end.exit_code, command.end.outcome, command.end.why) == (130, "interrupted", "SIGINT")
    assert "interrupted; finishing what is done" in capsys.readouterr().err
    until(lambda: threading.active_count() <= before, f"the end of {threading.enumerate()}")


def test_a_second_interrupt_is_raised_and_ends_no_process(monkeypatch):
    from runner.command import ending, session

    def interrupted(*arguments):
        raise KeyboardInterrupt("again")

    def ended(code):
        raise AssertionError(f"the process was ended with {code}")

    monkeypatch.setattr(ending, "summary", interrupted)
    monkeypatch.setattr(session.os, "_exit", ended)
    with refused(KeyboardInterrupt):
        symlab.experiment(*SMALL, quiet=True)


def test_a_launchers_process_is_told_to_use_the_command(monkeypatch):
    outer = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in (outer | {"TORCHELASTIC_RUN_ID": "none"}).items():
        monkeypatch.setenv(name, value)
    with refused():
        symlab.experiment(*SMALL)
