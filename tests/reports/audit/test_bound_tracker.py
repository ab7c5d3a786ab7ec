"""Records are compared with what MLflow has of them: what was edited there, or here, is named with both values."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import reports
from reports.__main__ import main
from reports.audit import worker
from reports.audit.checklist import Audit, check
from reports.audit.items import Ground, Outcome
from reports.audit.vouching import signed_with
from reports.record.bundle import read, write
from reports.record.record import Record
from reports.record.seal import seal
from reports.tracked import Tracker, fetch
from runner.track import artifacts
from runner.track.__main__ import main as send
from tests.reports.audit.complete_set import answer, evidence
from tests.reports.audit.tampered_kinds import KINDS
from tests.reports.audit.tampering import NOWHERE, Kind, every, make_measured, name_of, put, reseal, scaled

EXPERIMENT = "compared"
COMMAND = name_of(0)


@dataclass(frozen=True)
class Place:
    """A folder of records and the database that they were sent to."""

    folder: Path

    @property
    def records(self) -> Path:
        return self.folder / "records"

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.folder}/mlflow.db"

    def sql(self, *statements: str) -> None:
        with sqlite3.connect(self.folder / "mlflow.db") as connection:
            for statement in statements:
                assert connection.execute(statement).rowcount, f"changes nothing: {statement}"

    def run(self, series: str) -> str:
        """The id of the run of a series, of the command's for ""."""
        with sqlite3.connect(self.folder / "mlflow.db") as connection:
            found = connection.execute("select run_uuid from tags where key = 'symlab.series' and value = ?", (series,))
            ((run_id,),) = found.fetchall()
        return str(run_id)

    def artifact(self, run: str, pattern: str) -> Path:
        (found,) = (self.folder / "mlartifacts" / run).rglob(pattern)
        return found

    def audited(self, source: str = "") -> Audit:
        records = read([self.records])
        places = [] if source else [self.records]
        return check(records, places, source=source, ask=lambda *_: (answer(), ""), tracker=Tracker(self.uri))

    def findings(self) -> dict[int, str]:
        audit = self.audited()
        return {item.number: text for item in audit.items if (text := evidence(audit, item.number, Outcome.FINDING))}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """One command, two series, sent without pictures."""
    place = Place(tmp_path_factory.mktemp("compared"))
    make_measured(place.records)
    for world in (1, 2, 3):
        shutil.rmtree(place.records / name_of(world))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_page", "_figures"):
            patch.setattr(artifacts, name, lambda *_: "")
        assert send([str(place.records), "--uri", place.uri, "--experiment", EXPERIMENT]) == 0
    return place


@pytest.fixture
def place(base: Place, tmp_path: Path) -> Place:
    """The same, to be changed."""
    copied = Place(Path(shutil.copytree(base.folder, tmp_path / "copied")))
    for table in ("runs", "experiments"):
        column = "artifact_uri" if table == "runs" else "artifact_location"
        copied.sql(f"update {table} set {column} = replace({column}, '{base.folder}', '{copied.folder}')")
    return copied


needs_ssh_keygen = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is missing")


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """One command, signed by alice, and then sent; keys of alice and eve, and a list of alice alone."""
    place = Place(tmp_path_factory.mktemp("signed"))
    make_measured(place.records)
    for world in (1, 2, 3):
        shutil.rmtree(place.records / name_of(world))
    for name in ("alice", "eve"):
        line = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(place.folder / name)]
        subprocess.run(line, check=True, capture_output=True)
    (place.folder / "signers").write_text(f"alice {(place.folder / 'alice.pub').read_text()}", encoding="utf-8")
    signed_with(place.records / COMMAND, place.folder / "alice")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_page", "_figures"):
            patch.setattr(artifacts, name, lambda *_: "")
        assert send([str(place.records), "--uri", place.uri, "--experiment", EXPERIMENT]) == 0
    return place


def vouched(place: Place, records: list[Record] | None = None) -> tuple[str, str]:
    """Who vouches for records from MLflow, and the finding of item 21."""
    records = fetch(place.uri, [EXPERIMENT]) if records is None else records
    signers, tracker = place.folder / "signers", Tracker(place.uri)
    audit = check(records, source="MLflow", ask=lambda *_: (answer(), ""), signers=signers, tracker=tracker)
    return audit.level.signed, evidence(audit, 21, Outcome.FINDING)


@pytest.mark.slow
@needs_ssh_keygen
def test_signatures_in_mlflow_are_verified(signed: Place) -> None:
    assert vouched(signed) == ("signed by alice", "")
    records = fetch(signed.uri, [EXPERIMENT])
    changed = [dataclasses.replace(records[0], duration_s=records[0].duration_s + 0.001), *records[1:]]
    assert vouched(signed, changed) == ("signed in part by alice", ""), "no signature is of the other record"


@pytest.mark.slow
@needs_ssh_keygen
def test_a_signature_in_mlflow_of_other_records_or_by_a_stranger_is_a_finding(signed: Place, tmp_path: Path) -> None:
    run = signed.run("")
    statement = signed.artifact(run, "signed.txt")
    bundle = signed.artifact(run, "records.jsonl.xz")
    kept = {path: path.read_bytes() for path in (statement, statement.with_name("signed.txt.sig"), bundle)}
    records = read([bundle])
    try:
        write([dataclasses.replace(records[0], duration_s=9.0), *records[1:]], bundle)
        assert "changed after signing: " in vouched(signed)[1]
        bundle.write_bytes(kept[bundle])
        statement.write_text("I vouch for everything\n", encoding="ascii")
        assert "not a statement of symlab sign" in vouched(signed)[1]
        statement.write_bytes(kept[statement])
        other = Path(shutil.copytree(signed.records, tmp_path / "other")) / COMMAND
        statement.with_name("signed.txt.sig").unlink()
        assert vouched(signed) == ("unsigned", "")
        for path in other.glob("signed.txt*"):
            path.unlink()
        signed_with(other, signed.folder / "eve")
        shutil.copy(other / "signed.txt.sig", statement.with_name("signed.txt.sig"))
        assert "unknown signer" in vouched(signed)[1]
    finally:
        for path, data in kept.items():
            path.write_bytes(data)


OURS = "0/all_reduce/one_shot"


@pytest.mark.slow
def test_what_was_not_changed_is_verified(base: Place) -> None:
    audit = base.audited()
    assert base.findings() == {}
    for item, says in (
        (12, "metrics, tags and parameters of 3 runs"),
        (18, "4 copies of records among the artifacts are as"),
    ):
        (point,) = [one for one in audit.items[item - 1].points if one.evidence.startswith("MLflow: ")]
        assert says in point.evidence
        assert (point.outcome, point.ground) == (Outcome.VERIFIED, Ground.COMPARED)
    assert audit.items[11].outcome is Outcome.VERIFIED
    assert 12 in audit.level.verified


@pytest.mark.slow
def test_records_of_mlflow_that_agree_with_its_runs_are_captured(base: Place) -> None:
    audit = base.audited("MLflow's run")
    assert "3 runs are as the records of 1 command give them" in evidence(audit, 12, Outcome.CAPTURED)
    assert not [text for number in (12, 18) if (text := evidence(audit, number, Outcome.VERIFIED))]


def metric(table: str, key: str, value: str) -> str:
    return f"update {table} set value = {value} where key = '{key}'"


EDITS = [
    (metric("metrics", "latency/time_us", "1.5"), 12, "latency/time_us at 1,024 is 1.5, the records give 1"),
    (metric("latest_metrics", "latency/time_us", "1.5"), 12, "latency/time_us is 1.5 at last, the records give"),
    (metric("metrics", "bandwidth/busbw_gbps", "value * 1.000001"), 12, "bandwidth/busbw_gbps at 1,024 is"),
    (metric("metrics", "errors/wrong", "3"), 9, "errors/wrong at 1,024 is 3.0, the records give 0.0"),
    (metric("latest_metrics", "cases/failed", "1"), 16, "cases/failed is 1.0, the records give 0"),
    ("update metrics set step = 2048 where key = 'latency/time_us'", 12, "at 2,048 is 1"),
    (
        "update metrics set timestamp = 1 where key = 'latency/time_us'",
        17,
        "has the time 1 ms, the records give 17",
    ),
    ("delete from metrics where key = 'latency/time_us_p99'", 12, "latency/time_us_p99 at 1,024 is missing"),
    ("delete from latest_metrics where key = 'latency/time_us_p99'", 12, "time_us_p99 at 1,024 is missing"),
    ("update params set value = '8' where key = 'world_size'", 1, "parameter world_size is 8, the records give 4"),
    ("delete from params where key = 'dtype'", 1, "the parameter dtype is nothing, the records give bfloat16"),
    ("update params set value = 'x' where key = 'command_line'", 17, "command_line is x, the records give python"),
    ("update tags set value = 'FAILED' where key = 'status'", 16, "tag status is FAILED, the records give PASSED"),
    ("update tags set value = '2/2' where key = 'passed'", 16, "tag passed is 2/2, the records give 1/1"),
    ("update tags set value = 'NCCL 9' where key = 'library'", 4, "is NCCL 9, the records give NCCL 2.28.9"),
    ("update tags set value = 'x' where key = 'ptx_digest'", 3, "ptx_digest is x, the records give sha256:"),
    ("update tags set value = 'true' where key = 'simulated'", 5, "simulated is true, the records give false"),
    ("update tags set value = 'x' where key = 'mlflow.source.git.commit'", 2, "is x, the records give 000"),
    ("update tags set value = 'x' where key = 'symlab.manifest'", 18, "symlab.manifest is x, the records give sha"),
    ("update tags set value = 'x' where key = 'symlab.sent'", 18, "the tag symlab.sent has x"),
    ("update runs set status = 'FAILED'", 16, "its status is FAILED, the records give FINISHED"),
]
"""Statements of SQL, the item that finds each, and what it says."""

QUICK = (0, 3, 7)
"""Edits that are tried in each run of the tests; the others take a second each."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "item", "says"),
    [
        pytest.param(*edit, marks=[] if number in QUICK else [pytest.mark.slow], id=f"{number}, item {edit[1]}")
        for number, edit in enumerate(EDITS)
    ],
)
def test_what_was_edited_in_mlflow_is_named(place: Place, statement: str, item: int, says: str) -> None:
    place.sql(statement)
    found = place.findings()
    assert says in found[item]
    assert set(found) == {item}
    assert COMMAND in found[item]
    assert not [one for one in place.audited().items[11].points if one.outcome is Outcome.VERIFIED] or item == 18


@pytest.mark.slow
def test_a_value_that_no_record_gives_is_named(place: Place) -> None:
    columns = "key, value, timestamp, run_uuid, step, is_nan"
    place.sql(
        f"insert into metrics ({columns}) select key, 1.0, timestamp, run_uuid, 4096, is_nan from metrics "
        f"where key = 'latency/time_us' and run_uuid = '{place.run(OURS)}'"
    )
    assert "latency/time_us at 4,096 is 1.0, and no record gives it" in place.findings()[12]


@pytest.mark.slow
def test_metrics_of_others_are_theirs(place: Place) -> None:
    columns = "key, value, timestamp, run_uuid, step, is_nan"
    for table in ("metrics", "latest_metrics"):
        place.sql(f"insert into {table} ({columns}) values ('mine/x', 1, 1, '{place.run(OURS)}', 0, 0)")
    assert place.findings() == {}


def _without_run(place: Place, run: str) -> None:
    tables = ("metrics", "latest_metrics", "params", "tags")
    place.sql(*(f"delete from {table} where run_uuid = '{run}'" for table in tables))
    place.sql(f"delete from runs where run_uuid = '{run}'")


@pytest.mark.parametrize(
    ("series", "says"), [(OURS, f"the run of {OURS} is missing in MLflow"), ("", f"{COMMAND}: no run of it in MLflow")]
)
def test_a_run_that_is_gone_is_named(place: Place, series: str, says: str) -> None:
    _without_run(place, place.run(series))
    found = place.findings()
    assert set(found) == {16}
    assert says in found[16]


@pytest.mark.slow
@pytest.mark.parametrize("series", [OURS, ""])
def test_a_run_that_was_deleted_is_named(place: Place, series: str) -> None:
    place.sql(f"update runs set lifecycle_stage = 'deleted' where run_uuid = '{place.run(series)}'")
    assert "was deleted in MLflow" in place.findings()[16]


@pytest.mark.slow
@pytest.mark.parametrize("series", [OURS, ""])
def test_a_run_that_is_there_twice_is_named(place: Place, series: str) -> None:
    run, other = place.run(series), "f" * 32
    with sqlite3.connect(place.folder / "mlflow.db") as connection:
        for table in ("runs", "tags", "params", "metrics", "latest_metrics"):
            names = [row[1] for row in connection.execute(f"pragma table_info({table})")]
            chosen = ", ".join(f"'{other}'" if name == "run_uuid" else name for name in names)
            connection.execute(f"insert into {table} select {chosen} from {table} where run_uuid = '{run}'")
    assert "2 runs in MLflow's experiment 1" in place.findings()[16]


def test_a_record_that_was_edited_among_the_artifacts_is_named(place: Place) -> None:
    path = place.artifact(place.run(OURS), "records/*.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    document["environment"]["host"]["name"] = "elsewhere"
    path.write_text(json.dumps(document), encoding="utf-8")
    found = place.findings()
    assert set(found) == {18}
    assert "environment.host.name is elsewhere there, vm here" in found[18]
    assert "all_reduce-one_shot" in found[18]


@pytest.mark.slow
def test_a_bundle_that_was_edited_is_named(place: Place) -> None:
    path = place.artifact(place.run(""), "records.jsonl.xz")
    records = read([path])
    path.unlink()
    write(records[:1], path)
    found = place.findings()
    assert set(found) == {18}
    assert f"has not the record {records[1].id} begun at 2026-01-01T00:00:00Z" in found[18]
    assert "the tag symlab.sent has" in found[18]


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["records.jsonl.xz", "records/*.json"])
def test_records_that_are_gone_or_can_not_be_read_are_named(place: Place, pattern: str) -> None:
    path = place.artifact(place.run("" if pattern.endswith("xz") else OURS), pattern)
    path.write_bytes(b"no record")
    assert re.search("can't be read|not JSON", place.findings()[18])
    path.unlink()
    assert "it is gone" in place.findings()[18]


@pytest.mark.slow
def test_a_giant_among_the_artifacts_is_not_read(place: Place) -> None:
    with place.artifact(place.run(""), "records.jsonl.xz").open("wb") as file:
        file.truncate(1 << 40)
    assert "has 1,099,511,627,776 bytes, at most" in place.findings()[18]


def _noisy(folder: Path) -> None:
    """Other samples everywhere, which nothing else finds, and a new seal."""
    every(put("timing.samples_us", scaled(0.97)))(folder)
    reseal(folder)


def _fewer(folder: Path) -> None:
    next(folder.rglob("*nccl*.json")).unlink()
    reseal(folder)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_noisy, {12: "bandwidth/busbw_gbps at 1,024 is", 18: "timing.samples_us.0.0 is"}),
        (_fewer, {16: "has 1 record that this set has not: all_reduce-nccl"}),
        (lambda folder: seal(folder / COMMAND), {}),
    ],
    ids=["samples", "a record", "nothing"],
)
def test_what_was_changed_here_and_sealed_again_is_named(
    place: Place, change: Callable[[Path], object], says: dict[int, str]
) -> None:
    change(place.records)
    found = place.findings()
    for item, text in says.items():
        assert text in found[item]
    assert bool(found) == bool(says)


@pytest.fixture(scope="module")
def all_worlds(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """All four worlds of the invented set, sent."""
    place = Place(tmp_path_factory.mktemp("worlds"))
    make_measured(place.records)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_page", "_figures"):
            patch.setattr(artifacts, name, lambda *_: "")
        assert send([str(place.records), "--uri", place.uri, "--experiment", EXPERIMENT]) == 0
    return place


LEFT_OUT = "a slow world left out"


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=kind.name) for kind in KINDS if kind.found == NOWHERE and kind.of == "measured"]
)
def test_what_nothing_here_finds_is_found_by_comparing_with_what_was_sent_before(
    kind: Kind, all_worlds: Place, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(all_worlds.records, tmp_path / "records"))
    before = {path: path.read_bytes() for path in folder.rglob("*.json")}
    kind.change(folder)
    is_of_records = before != {path: path.read_bytes() for path in folder.rglob("*.json")}
    reseal(folder)
    audit = check(read([folder]), [folder], ask=lambda *_: (answer(), ""), tracker=Tracker(all_worlds.uri))
    found = evidence(audit, 18, Outcome.FINDING)
    assert bool(found) == (is_of_records and kind.name != LEFT_OUT)


def test_the_page_says_so() -> None:
    text = " ".join((Path(reports.__file__).parent / "audit" / "README.md").read_text(encoding="utf-8").split())
    assert "`--mlflow` finds all that change records, and all but the world that was left out" in text
    assert f"{len(EDITS)} edits of its database" in text


@pytest.mark.slow
def test_a_command_that_was_cut_short_is_as_it_was_sent(tmp_path: Path) -> None:
    place = Place(tmp_path)
    make_measured(place.records)
    for world in (1, 2, 3):
        shutil.rmtree(place.records / name_of(world))
    next(place.records.rglob("*nccl*.json")).unlink()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_page", "_figures"):
            patch.setattr(artifacts, name, lambda *_: "")
        assert send([str(place.records), "--uri", place.uri, "--experiment", EXPERIMENT]) == 0
    assert not [text for text in place.findings().values() if "MLflow" in text]


@pytest.mark.slow
def test_a_part_of_a_command_is_compared_as_far_as_it_goes(base: Place) -> None:
    path = next((base.records / COMMAND).glob("*one_shot*.json"))
    audit = check(read([path]), [path], ask=lambda *_: (answer(), ""), tracker=Tracker(base.uri))
    assert not [
        item.number for item in audit.items if "MLflow differs" in evidence(audit, item.number, Outcome.FINDING)
    ]
    assert "has 1 more record: tags and counts are not compared" in evidence(audit, 12, Outcome.NOT_COMPARABLE)


@pytest.mark.slow
@pytest.mark.parametrize(("tag", "says"), [("symlab.layout", "another version"), ("symlab.sent", "not sent to its")])
def test_what_was_sent_in_another_way_is_not_comparable(place: Place, tag: str, says: str) -> None:
    place.sql(f"update tags set value = '' where key = '{tag}'")
    audit = place.audited()
    assert says in evidence(audit, 12, Outcome.NOT_COMPARABLE)
    assert audit.items[11].outcome is Outcome.NOT_COMPARABLE


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's answer without a process."""
    monkeypatch.setattr(worker, "ask", lambda *_, **__: (answer(), ""))


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_the_command_compares_a_folder(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(place.records), "--mlflow", place.uri, "--format", "json"]) == 0
    assert '"MLflow: ' in capsys.readouterr().out
    place.sql(metric("metrics", "latency/time_us", "1.5"))
    for named in (str(place.records), EXPERIMENT):
        assert main(["audit", named, "--mlflow", place.uri, "--format", "json"]) == 1
        assert "latency/time_us at 1,024 is 1.5, the records give 1" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_name_that_mlflow_has_is_mlflows(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place.folder)
    (place.folder / EXPERIMENT).mkdir()
    assert main(["audit", EXPERIMENT, "--mlflow", "sqlite:///mlflow.db"]) == 0
    assert "no files, so no manifest" in " ".join(capsys.readouterr().out.split())
    assert main(["audit", "records", "--mlflow", "sqlite:///mlflow.db"]) == 0
    assert "no files, so no manifest" not in " ".join(capsys.readouterr().out.split())


def test_a_server_that_is_down_is_one_line(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert main(["audit", str(place.records), "--mlflow", f"http://127.0.0.1:{port}"]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert f"http://127.0.0.1:{port}: can't be read" in captured.err
