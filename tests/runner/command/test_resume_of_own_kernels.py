"""An interrupted sweep with a user's kernel goes on, and says so if the kernel's files changed in between."""

import json

import pytest

from reports.record.bundle import read
from runner.__main__ import main
from tests.kernels.own_kernel import write_ring
from tests.processes import ran

ASKED = ["op=send_recv", "algorithms=[my/ring.py:SPEC]", "sizes=[1K,2K]", "fabric=simulator", "track=none"]


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """The folder of records of a sweep whose second case has none, and which did not end. Its kernel is my/ring.py."""
    monkeypatch.chdir(tmp_path)
    write_ring(tmp_path / "my")
    assert main(ASKED) == 0
    (folder,) = (tmp_path / "records").iterdir()
    next(folder.glob("*2048B*.json")).unlink()
    document = json.loads((folder / "command.json").read_text())
    (folder / "command.json").write_text(json.dumps({**document, "end": None}))
    (folder / "manifest.sha256").unlink()
    return folder


def resumed(folder):
    """Resume in a process of its own: this one has read the kernel's files."""
    return ran("-m", "runner", "resume", str(folder))


@pytest.mark.slow
def test_it_goes_on_with_the_same_files(interrupted, capsys):
    assert main(["resume", str(interrupted)]) == 0
    assert "1 of 2 cases left" in capsys.readouterr().out
    first, second = read([interrupted])
    assert (first.verified, second.verified) == (True, True)
    assert first.request.brought == second.request.brought
    assert json.loads((interrupted / "command.json").read_text())["resumed"][0]["changed"] == []


@pytest.mark.slow
def test_a_changed_file_is_said_and_kept(interrupted, tmp_path):
    file = tmp_path / "my" / "ring.py"
    file.write_text(file.read_text().replace("    frame.leave()\n", "    frame.meet()\n    frame.leave()\n"))
    done = resumed(interrupted)
    assert done.returncode == 0, done.stderr
    assert "changed since the first part" in done.stdout
    assert "kernel send_recv/ring: its files changed" in done.stdout
    entry = json.loads((interrupted / "command.json").read_text())["resumed"][0]
    assert any("send_recv/ring" in line for line in entry["changed"])
    digests = {one.request.brought["ring"]["digest"] for one in read([interrupted])}
    assert len(digests) == 2, "each record has the digest of the files that ran"


@pytest.mark.slow
def test_a_missing_file_is_said_and_nothing_runs(interrupted, tmp_path):
    (tmp_path / "my" / "ring.py").unlink()
    before = sorted(interrupted.rglob("*"))
    done = resumed(interrupted)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "my/ring.py" in line
    assert "there is no file" in line
    assert sorted(interrupted.rglob("*")) == before
