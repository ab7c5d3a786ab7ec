"""Records come back from MLflow as they were sent; nothing there is changed; what can't be read is one line."""

import hashlib
import socket
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cases.record.record import Record
from reports.__main__ import main
from reports.record.bundle import line_of, merged
from reports.table.table import plain
from reports.tracked import fetch
from runner.track.__main__ import main as send
from tests.patience import within
from tests.reports.synthetic import KIB, record, refused
from tests.rooms import needs

EXPERIMENT = "read back"


@dataclass(frozen=True)
class Sent:
    """A database that records were sent to."""

    folder: Path
    records: list[Record]

    @property
    def uri(self):
        return f"sqlite:///{self.folder}/mlflow.db"

    def run(self, tag, value):
        """The one run with this tag."""
        with sqlite3.connect(self.folder / "mlflow.db") as connection:
            found = connection.execute("select run_uuid from tags where key = ? and value = ?", (tag, value))
            ((run_id,),) = found.fetchall()
        return str(run_id)

    def command(self, name):
        """The run of a command."""
        with sqlite3.connect(self.folder / "mlflow.db") as connection:
            found = connection.execute(
                "select a.run_uuid from tags a join tags b on a.run_uuid = b.run_uuid "
                "where a.key = 'symlab.command' and a.value = ? and b.key = 'symlab.series' and b.value = ''",
                (name,),
            )
            ((run_id,),) = found.fetchall()
        return str(run_id)

    def state(self):
        """What is there, to the byte: files and when the database was changed."""
        names = sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*"))
        database = self.folder / "mlflow.db"
        return names, hashlib.sha256(database.read_bytes()).hexdigest(), database.stat().st_mtime_ns


def kept(folder, records):
    for number, one in enumerate(records):
        place = folder / str(one.request.command)
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.json").write_text(one.to_json(), encoding="utf-8")
    return list(records)


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """Two commands with two series each, and a study over three world sizes."""
    folder = tmp_path_factory.mktemp("tracked")
    records = [
        made
        for world in (0, 1)
        for size_bytes in (KIB, 4 * KIB)
        for made in (record("one_shot", size_bytes, world=world), refused("multimem_one_shot", size_bytes, world=world))
    ]
    for job, world_size in enumerate((2, 4, 8)):
        for accumulator in ("native", "float32"):
            plain_record = record(world_size=world_size, accumulator=accumulator, is_timed=False, world=2)
            number = 2 * job + (accumulator == "native")
            overrides = (f"world_size={world_size}",)
            request = replace(plain_record.request, job=number, overrides=overrides)
            records.append(record(world_size=world_size, accumulator=accumulator, is_timed=False, request=request))
    kept(folder / "records", records)
    done = Sent(folder, records)
    assert send([str(folder / "records"), "--uri", done.uri, "--experiment", EXPERIMENT]) == 0
    return done


def same(found, expected):
    """Whether these are the same, each once. Synthetic records are begun at the same time: their order is not told."""
    return sorted(map(line_of, found)) == sorted(map(line_of, expected))


@pytest.mark.slow
def test_a_commands_run_has_its_records(sent):
    own = [one for one in sent.records if one.request.command == "command0"]
    assert len(own) == 4
    assert same(fetch(sent.uri, [sent.command("command0")]), own)


@pytest.mark.slow
def test_a_run_of_a_series_has_that_series_records(sent):
    with sqlite3.connect(sent.folder / "mlflow.db") as connection:
        runs = connection.execute("select run_uuid from tags where value = '0/all_reduce/multimem_one_shot'").fetchall()
    assert len(runs) == 2
    found = fetch(sent.uri, [run_id for (run_id,) in runs])
    assert same(found, [one for one in sent.records if one.case.algorithm == "multimem_one_shot"])


def test_a_studys_curve_has_the_records_it_is_made_of(sent):
    name = "study/all_reduce/one_shot bfloat16/native sum, normal inputs"
    found = fetch(sent.uri, [sent.run("symlab.series", name)])
    assert [(one.case.accumulator, one.case.world_size) for one in found] == [("native", size) for size in (2, 4, 8)]


@pytest.mark.parametrize("name", [EXPERIMENT, "1"])
def test_an_experiment_has_those_of_all_its_commands(sent, name):
    before = sent.state()
    assert same(fetch(sent.uri, [name]), sent.records)
    assert sent.state() == before


def test_what_is_named_twice_counts_once(sent):
    assert same(fetch(sent.uri, [EXPERIMENT, sent.command("command1"), "1"]), sent.records)


def test_a_relative_database_is_found_from_the_working_folder(sent, monkeypatch):
    monkeypatch.chdir(sent.folder)
    before = sent.state()
    assert same(fetch("sqlite:///mlflow.db", [EXPERIMENT]), sent.records)
    assert sent.state() == before


@pytest.mark.parametrize("one", ["gone", "0" * 32, "77", "9" * 40, "a" * 32])
def test_an_id_that_is_not_there_is_one_line(sent, one):
    with pytest.raises(ValueError, match="there is no such run or experiment") as caught:
        fetch(sent.uri, [EXPERIMENT, one])
    assert str(caught.value).startswith(f"{sent.uri}: {one}: ")
    assert "\n" not in str(caught.value)


def test_an_experiment_without_records_is_one_line(sent):
    with pytest.raises(ValueError, match=f"^{sent.uri}: Default: no records there"):
        fetch(sent.uri, ["Default"])


def test_a_database_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(ValueError, match=r"gone/mlflow.db: there is no database"):
        fetch(f"sqlite:///{tmp_path}/gone/mlflow.db", ["1"])
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("not a database", encoding="utf-8")
    with pytest.raises(ValueError, match="notes.txt: can't be read"):
        fetch(f"sqlite:///{tmp_path}/notes.txt", ["1"])
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == "not a database"


@pytest.mark.parametrize("uri", ["mlflow.db", "file:///x", "sqlite:///", "http:"])
def test_what_is_no_uri_is_one_line(uri):
    with pytest.raises(ValueError, match=f"^'{uri}' is no tracking URI"):
        fetch(uri, ["1"])


def test_a_server_that_is_down_costs_seconds_and_shows_no_password():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with within(), pytest.raises(ValueError, match="can't be read") as caught:
        fetch(f"http://me:hunter2@127.0.0.1:{port}", ["1"])
    assert "hunter2" not in str(caught.value)


def test_a_table_from_mlflow(sent, capsys):
    assert main(["table", "--mlflow", sent.uri, sent.command("command0")]) == 0
    own = [one for one in sent.records if one.request.command == "command0"]
    assert capsys.readouterr().out == plain(merged(own)) + "\n"


@needs("evidence")
def test_a_bundle_from_mlflow_is_the_bundle_of_the_files(sent, tmp_path):
    there, here = tmp_path / "there.jsonl.xz", tmp_path / "here.jsonl.xz"
    assert main(["bundle", "--mlflow", sent.uri, EXPERIMENT, "-o", str(there)]) == 0
    assert main(["bundle", str(sent.folder / "records"), "-o", str(here)]) == 0
    assert there.read_bytes() == here.read_bytes()


def test_an_unknown_run_ends_the_command_in_one_line(sent, capsys):
    assert main(["table", "--mlflow", sent.uri, "gone"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert f"{sent.uri}: gone: there is no such run" in captured.err
