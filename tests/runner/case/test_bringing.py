"""Kernels named by their place in a request: run, planned, recorded, replayed, audited, and refused in one line."""

import json
import re
import shutil
from pathlib import Path

import pytest

from cases.record.record import load
from kernels.brought import spec_at
from kernels.compile import cache_key
from kernels.sources import digest_of
from reports.record.bundle import read
from reports.record.seal import broken, seal
from runner.__main__ import main
from runner.case.todays_code import sources
from tests.golden import same_text
from tests.kernels.own_kernel import RING, write_ring
from tests.rooms import needs

SMALL = ["op=send_recv", "sizes=[1K]", "fabric=simulator", "track=none"]
EXPERIMENT = """# @package _global_
# pull and a ring of one's own
op: send_recv
algorithms: [pull, ring.py:SPEC]
sizes: [1K]
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A folder with my/ring.py, and records of a real command that ran it, in records/."""
    folder = tmp_path_factory.mktemp("brought")
    write_ring(folder / "my")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main([*SMALL, "algorithms=[pull,my/ring.py:SPEC]"]) == 0
    return folder


@pytest.fixture
def again(done, tmp_path, monkeypatch):
    """The same folder, copied, as the working folder."""
    shutil.copytree(done, tmp_path / "again")
    monkeypatch.chdir(tmp_path / "again")
    return tmp_path / "again"


def error_of(arguments, capsys):
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def ring_json(folder):
    (path,) = folder.glob("records/*/*ring*.json")
    return path


def rewrite(path, change):
    document = json.loads(load(path).to_json())
    change(document)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    seal(path.parent)


@pytest.mark.slow
def test_it_runs_beside_ours_and_the_record_says_what_ran(done):
    pull, ring = read([done / "records"])
    assert (pull.case.name, ring.case.name) == ("send_recv/pull", "send_recv/ring")
    assert (pull.verified, ring.verified) == (True, True)
    assert pull.request.brought == ring.request.brought
    digest = f"sha256:{digest_of(spec_at(f'{done}/my/ring.py:SPEC').files)}"
    entry = ring.request.brought["ring"]
    assert (entry["place"], entry["digest"]) == ("my/ring.py:SPEC", digest)
    assert ring.kernel.source_digest == digest
    assert [one["name"] for one in entry["files"]] == ["ring.py", "steps.py"]


def test_the_text_is_kept_beside_the_record_and_sealed(done):
    folder = ring_json(done).parent
    assert broken(folder) == []
    for one in load(ring_json(done)).document()["request"]["brought"]["ring"]["files"]:
        assert (folder / one["kept"]).read_text() == (done / "my" / one["name"]).read_text()
        assert one["kept"].endswith(".py.txt"), "nothing takes it for code"


def test_a_job_without_one_says_nothing_of_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*SMALL, "algorithms=[pull]"]) == 0
    (path,) = tmp_path.glob("records/*/send_recv*.json")
    assert "brought" not in load(path).document()["request"]
    assert not (path.parent / "brought").exists()


def test_a_plan_names_it_and_says_what_it_refuses(again, capsys):
    main([*SMALL, "algorithms=[pull,my/ring.py:SPEC]", "placement=both", "--plan"])
    out = capsys.readouterr().out
    assert "kernel: send_recv/ring from my/ring.py:SPEC" in out
    assert "ring" in out.split("expected", 1)[1]
    assert "send_recv/ring does not support placement 'in_place'" in out


@pytest.mark.parametrize("place", ["ring.py", "../../my/ring.py"])
def test_in_an_experiment_paths_begin_at_its_file_and_are_shown_without_detours(tmp_path, monkeypatch, capsys, place):
    exp = tmp_path / "conf" / "exp"
    ring = write_ring((exp / place).resolve().parent)
    exp.mkdir(parents=True, exist_ok=True)
    (exp / "mine.yaml").write_text(EXPERIMENT.replace("ring.py", place))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    arguments = ["--config-dir", str(tmp_path / "conf"), "+exp=mine", "fabric=simulator", "track=none"]
    assert main([*arguments, "--plan"]) == 0
    assert f"kernel: send_recv/ring from {ring}:SPEC" in capsys.readouterr().out


@pytest.mark.slow
def test_a_sweep_may_go_over_places(again, capsys):
    assert main(["-m", *SMALL, "algorithms=[pull],[my/ring.py:SPEC]", "--plan"]) == 0
    assert "2 jobs, 2 cases" in capsys.readouterr().out


@pytest.mark.parametrize(
    "place",
    [
        "none.py:SPEC",
        "my/ring.py:SPCE",
        "my/ring.py:body",
        "my/raises.py:SPEC",
        "my/broken.py:SPEC",
        "my/bare.py:SPEC",
        "no.such.module:SPEC",
        "my/ring.py:SPEC,my/ring.py:TRIAL",
        "my/odd_op.py:SPEC",
        "my/ours.py:SPEC",
    ],
)
def test_misuse_is_one_line(again, capsys, place):
    (again / "my" / "raises.py").write_text("1 / 0\n")
    (again / "my" / "ours.py").write_text("from kernels.catalogue import find\n\nSPEC = find('all_reduce/one_shot')\n")
    (again / "my" / "broken.py").write_text("def\n")
    (again / "my" / "odd_op.py").write_text(RING.replace("send_recv/", "send_recvs/"))
    (again / "my" / "bare.py").write_text(RING.replace("from .steps import", "from steps import"))
    same_text(error_of([*SMALL, f"algorithms=[{place}]"], capsys), "(?<=is no Python).*")
    assert len(list((again / "records").iterdir())) == 1, "nothing was written"


@needs("evidence")
def test_it_is_replayed_from_its_file(again, capsys):
    assert main(["replay", "records", "--records", "new"]) == 0
    out = capsys.readouterr().out
    assert "2 BIT-EQUAL" in out
    assert "not the file that ran" not in out
    assert {one.request.brought["ring"]["place"] for one in read(["new"])} == {"my/ring.py:SPEC"}


@needs("evidence")
def test_a_replay_says_that_the_file_is_another_one(again, capsys):
    def older(document):
        document["request"]["brought"]["ring"]["digest"] = f"sha256:{'0' * 64}"

    rewrite(ring_json(again), older)
    said = "send_recv/ring: my/ring.py:SPEC is not the file that ran (recorded sha256:000000000000.., here sha256:"
    line = error_of(["replay", "records", "--records", "new"], capsys)
    assert said in line
    assert "give --changed-code" in line
    assert not (again / "new").exists()
    assert main(["replay", "records", "--records", "new", "--changed-code"]) == 0
    assert said in capsys.readouterr().out


@needs("evidence")
@pytest.mark.slow
def test_changed_files_are_not_even_imported(again, capsys):
    from tests.symlab.evidence.audit.complete_set import asked

    file = again / "my" / "ring.py"
    file.write_text(f"open({str(again / 'ran')!r}, 'w')\n{file.read_text()}")
    assert "is not the file that ran" in error_of(["replay", "records", "--records", "new"], capsys)
    assert "changed since: send_recv/ring" in asked(read(["records"]))
    assert not (again / "ran").exists()


@needs("evidence")
@pytest.mark.slow
def test_a_file_that_came_with_the_records_is_not_imported(again, capsys):
    """The folder of a stranger, with code beside its records: only who names it has it run."""
    from tests.symlab.evidence.audit.complete_set import asked

    stranger = again / "stranger"
    stranger.mkdir()
    for name in ("my", "records"):
        (again / name).rename(stranger / name)

    def there(document):
        document["request"]["brought"]["ring"]["place"] = "stranger/my/ring.py:SPEC"

    rewrite(ring_json(stranger), there)
    records, places = read(["stranger/records"]), [Path("stranger/records")]
    assert re.search("NOT COMPARABLE: .*send_recv/ring: .*name its folder with --code", asked(records, places))
    main(["replay", "stranger/records", "--records", "new"])
    assert "name its folder with --code" in capsys.readouterr().out
    said = asked(records, places, code=[Path("stranger")])
    assert "kernels VERIFIED: sources as today: send_recv/pull; send_recv/ring" in said


@needs("evidence")
def test_a_replay_without_the_file_compares_the_rest(again, capsys):
    """What a record holds may be anybody's: code is taken from this machine's files alone, and its text never run."""
    records = read(["records"])
    assert sources(records, again, print)["same"] == ["send_recv/pull", "send_recv/ring"]
    (again / "my").rename(again / "other")
    for path in again.glob("records/*/brought/*/*.txt"):
        path.write_text(f"open({str(again / 'ran')!r}, 'w')\n")
    seal(ring_json(again).parent)
    assert main(["replay", "records", "--records", "new"]) == 2
    told = capsys.readouterr().out
    assert "its kernel is not here: my/ring.py:SPEC: there is no file" in " ".join(told.split())
    same_text("\n".join(line for line in told.splitlines() if line.startswith("verdict")))
    assert not (again / "ran").exists()
    found = sources(records, again, print)
    assert (found["same"], found["gone"]) == (["send_recv/pull"], [])
    ((name, why),) = found["not_comparable"]
    assert (name, "my/ring.py:SPEC: there is no file" in why) == ("send_recv/ring", True)


@pytest.mark.slow
def test_helpers_of_the_same_name_in_two_folders_are_two_kernels(tmp_path, monkeypatch):
    """One process brings both: neither takes the other's helper, its digest, or what it compiled to."""
    monkeypatch.chdir(tmp_path)
    for name, blocks in (("one", 2), ("two", 3)):
        write_ring(tmp_path / name, blocks)
        asked = ["op=send_recv", "sizes=[64K]", "fabric=simulator", "track=none"]
        assert main([*asked, f"algorithms=[{name}/ring.py:SPEC]", f"records={name}/records"]) == 0
    (first,), (second,) = (read([f"{name}/records"]) for name in ("one", "two"))
    assert first.kernel.source_digest != second.kernel.source_digest
    assert (first.kernel.grid, second.kernel.grid) == (2, 3)
    for record in (first, second):
        assert [one["name"] for one in record.request.brought["ring"]["files"]] == ["ring.py", "steps.py"]
    specs = [spec_at(f"{tmp_path}/{name}/ring.py:SPEC") for name in ("one", "two")]
    one, two = (cache_key(spec, first.case, "sm_90a") for spec in specs)
    assert one != two
