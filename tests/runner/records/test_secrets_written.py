"""Secrets are planted wherever they could come from, commands run, and every byte that was written is read."""

import importlib.util
import lzma
import os
import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reports.record import bundle, seal
from runner.__main__ import main
from runner.command.means import usual_means
from runner.command.running import Tools
from runner.environment import capture as capture_module
from runner.environment.capture import capture
from runner.records.command_json import command_document_of
from runner.records.scrub import WITHHELD
from runner.records.store import Store, StoreError
from runner.request.experiments import CONF
from runner.world.processes import ProcessWorld
from symlab.command import main as symlab
from tests.patience import NEVER_S
from tests.processes import ran
from tests.runner.conftest import Script, in_thread
from tests.runner.environment.test_repository import git
from tests.runner.rank_programs import FileOpener

IN_A_VARIABLE = "plugh-9d41-variable"
IN_AN_ALLOWED_VARIABLE = "plugh-9d41-allowed"
IN_THE_URI = "plugh-9d41-uri"
IN_AN_OVERRIDE = "plugh-9d41-override"
IN_THE_DIFFERENCE = "plugh-9d41-difference"
SAID_BY_A_RANK = "plugh-9d41-rank"
HOME_NAME = "home-of-xyzzy"
SOMEBODY = "somebody-else-xyzzy"
SECRETS = (IN_A_VARIABLE, IN_AN_ALLOWED_VARIABLE, IN_THE_URI, IN_AN_OVERRIDE, IN_THE_DIFFERENCE, SAID_BY_A_RANK)
PLANTED = (*SECRETS, HOME_NAME, SOMEBODY)


def die(fabric, argument):
    """A rank that says too much on its way out."""
    if fabric.rank == 1:
        print(f"login with password={SAID_BY_A_RANK}", file=sys.stderr)
        print(f"or with {os.environ['XYZZY_TOKEN']}; see {Path.home()}/.netrc, /home/{SOMEBODY}/x", file=sys.stderr)
        sys.stderr.flush()
        os._exit(7)
    fabric.barrier()


@dataclass(frozen=True)
class Place:
    """Folders of a test: the home, what else is written, and a repository that differs from its commit."""

    home: Path
    written: Path
    repository: Path

    @property
    def records(self):
        return self.home / "records"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A home folder, secrets in variables, and a dirty repository with a secret in it."""
    found = Place(tmp_path / HOME_NAME, tmp_path / "written", tmp_path / "repository")
    for folder in (found.home, found.written, found.repository):
        folder.mkdir()
    git(found.repository, "init", "-q")
    (found.repository / "settings.py").write_text("KEY = None\n")
    git(found.repository, "add", ".")
    git(found.repository, "commit", "-qm", "first")
    lines = f'api_key = "{IN_THE_DIFFERENCE}"\nOTHER = "{IN_A_VARIABLE}"\nFILE = "{found.home}/x"\nKEPT = 1\n'
    (found.repository / "settings.py").write_text(lines)
    monkeypatch.setenv("HOME", str(found.home))
    monkeypatch.setenv("XYZZY_TOKEN", IN_A_VARIABLE)
    monkeypatch.setenv("NCCL_NET_PASSWORD", IN_AN_ALLOWED_VARIABLE)
    monkeypatch.setenv("TORCH_HOME", str(found.home / "torch"))
    monkeypatch.chdir(found.written)
    capture_module._kept.clear()
    return found


@dataclass
class Tale:
    """What a dying rank made of a case: the real failure of real processes."""

    folder: Path
    failures: list[str] = field(default_factory=list)

    def tools(self, repository):
        means = usual_means()

        def ran(world, contestant, request):
            if contestant.case.algorithm != "two_shot":
                return means.ran(world, contestant, request)
            dying = ProcessWorld(2, FileOpener(str(self.folder)))
            try:
                dying.run(die, None, NEVER_S)
            except Exception as error:
                self.failures.append(str(error))
                raise
            finally:
                dying.close()
            raise AssertionError("nobody died")

        return Tools(means=replace(means, ran=ran), capture=lambda root: capture(repository))


def found_in(folder):
    """Which planted strings stand in which files of a folder, by name or content; what is packed is unpacked."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        data = name.encode() + b"\0"
        if path.is_file():
            content = path.read_bytes()
            data += content + (lzma.decompress(content) if path.suffix == ".xz" else b"")
        if hits := [one for one in PLANTED if one.encode() in data]:
            found[name] = hits
    return found


def read_record(folder, part):
    (record,) = [one for one in bundle.read([folder]) if part in one.id]
    return record


@pytest.mark.slow
def test_nothing_planted_is_written_anywhere(place, tmp_path, capsys):
    configurations = tmp_path / f"conf-{IN_A_VARIABLE}"
    shutil.copytree(CONF, configurations)
    tale = Tale(tmp_path)
    places = [f"records={place.records}", f"cache_dir='{place.home}/api_key={IN_AN_OVERRIDE}/kernels'"]
    places += [f"track.uri=sqlite:///{place.written}/mlflow.db"]
    asked = ["--config-dir", str(configurations), "algorithms=[one_shot,two_shot]", "world_size=2", "sizes=[64]"]
    code = main([*asked, *places], tale.tools(place.repository))
    assert code == 1
    assert SAID_BY_A_RANK in tale.failures[0], "the test must have planted what it looks for"
    assert IN_A_VARIABLE in tale.failures[0]
    assert SOMEBODY in tale.failures[0]
    assert (place.home / f"api_key={IN_AN_OVERRIDE}" / "kernels").is_dir()

    said = capsys.readouterr()
    assert "its last words" in said.out
    assert [secret for secret in SECRETS if secret in said.out + said.err] == []

    (folder,) = place.records.iterdir()
    assert found_in(folder) == {}
    assert seal.broken(folder) == []
    reported(folder, place.written)
    assert (place.written / "mlflow.db").stat().st_size > 0
    assert any((place.written / "mlartifacts").rglob("*.json"))
    assert found_in(place.written) == {}
    what_is_needed_is_still_there(folder)


def reported(folder, written):
    """All that reports make of a folder of records."""
    asked = [["bundle", str(folder), "-o", str(written / "all.jsonl.xz")]]
    asked += [["table", str(folder), "--format", name] for name in ("markdown", "json", "csv", "text")]
    if importlib.util.find_spec("reports.html") is not None:
        asked.append(["html", str(folder), "-o", str(written / "report.html")])
    for number, arguments in enumerate(asked):
        done = ran("-m", "reports", *arguments, cwd=written)
        assert done.returncode in (0, 2) if "--format" in arguments else done.returncode == 0, done.stderr
        (written / f"said-{number}.txt").write_text(done.stdout)
    assert (written / "said-1.txt").stat().st_size > 0


def what_is_needed_is_still_there(folder):
    """Scrubbing leaves what people and replays need."""
    died = read_record(folder, "two_shot")
    assert died.reason.startswith("rank 1: its process ended with exit code 7; its last words: ")
    assert f"or with {WITHHELD}; see ~/.netrc, ~/x" in died.reason
    passed = read_record(folder, "one_shot")
    assert passed.status == "PASSED"
    configuration = passed.request.configuration
    assert configuration["records"] == "~/records"
    assert f"records={configuration['records']}" in passed.request.overrides
    variables = passed.environment.variables["allowed"]
    assert variables["NCCL_NET_PASSWORD"].startswith(WITHHELD)
    assert variables["TORCH_HOME"] == "~/torch"
    assert passed.environment.git["changed"] == ["settings.py"]
    assert "+KEPT = 1" in (folder / "source.diff").read_text()


def test_a_password_in_the_tracking_uri(place, capsys):
    uri = f"http://me:{IN_THE_URI}@127.0.0.1:9/{SOMEBODY}"
    arguments = ["algorithms=[one_shot]", "sizes=[64]", f"records={place.records}", f"track.uri={uri}"]
    tools = replace(Script().tools(), connect=in_thread)
    assert main(arguments, tools) == 0
    said = capsys.readouterr()
    assert "is not reachable" in said.err
    assert IN_THE_URI not in said.out + said.err
    (folder,) = place.records.iterdir()
    assert [name for name, hits in found_in(folder).items() if IN_THE_URI in hits] == []
    assert bundle.read([folder])[0].request.configuration["track"]["uri"] == f"http://{WITHHELD}@127.0.0.1:9/{SOMEBODY}"
    assert symlab(["track", str(folder), "--uri", uri]) == 1
    said = capsys.readouterr()
    assert IN_THE_URI not in said.out + said.err


def test_why_a_command_was_stopped(place, monkeypatch):
    def full(self, record, job=""):
        raise StoreError(f"{record.id}: can't be written in {place.records}: token={IN_AN_OVERRIDE}")

    monkeypatch.setattr(Store, "write", full)
    monkeypatch.chdir(place.home)
    arguments = ["algorithms=[one_shot]", "sizes=[64]", f"records={place.records}", "track=none"]
    assert main(arguments, Script().tools()) == 1
    (folder,) = place.records.iterdir()
    assert found_in(folder) == {}
    manifest = command_document_of(folder)
    assert manifest.working_folder == "~"
    assert manifest.end.why.endswith(f"can't be written in ~/records: token={WITHHELD}")
