"""Wrong requests: one line that says what, where and what would be right; exit code 2; nothing written."""

import errno
import os
from pathlib import Path

import pytest

from kernels.sources import ROOT
from runner.records.store import Store, StoreError
from tests.golden import same_text
from tests.processes import ran

WRONG = (
    "world_size=two / records=/dev/null/here / cache_dir=/dev/null / --cfg job world_size=2,4 / "
    "--config-dir /dev/null/here / -m sizes=[8],[7] / -m records=a,b"
)


@pytest.mark.parametrize("line", WRONG.split(" / "))
def test_one_line_two_and_nothing_written(symlab, script, line):
    done = symlab(*line.split())
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    same_text(done.err)
    assert list(done.folder.iterdir()) == []
    assert script.ran == []


def test_a_records_folder_without_permission(symlab, tmp_path, monkeypatch):
    locked = tmp_path / "locked"
    locked.mkdir()
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: False if Path(path) == locked else real(path, mode))
    done = symlab("records=locked/here")
    assert done.code == 2
    same_text(done.err)
    assert list(locked.iterdir()) == []


def test_a_records_folder_that_only_fails_when_it_is_made(symlab, monkeypatch):
    def refused(root, label):
        raise StoreError(f"records: can't be written in {root}: Read-only file system; name another folder")

    monkeypatch.setattr(Store, "create", refused)
    done = symlab("sizes=[8]")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    same_text(done.err)


def test_a_full_disk_while_storing(symlab, script, monkeypatch):
    real = os.fsync

    def full(descriptor):
        if len(script.ran) >= 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    done = symlab("-m", "world_size=2,3", "sizes=[8,16]")
    assert done.code == 1
    (line,) = [line for line in done.err.splitlines() if line.startswith("symlab: error: ")]
    same_text(line, r"\d{8}T\d{6}Z-\w+-[0-9a-f]{8}")
    assert done.statuses == ["PASSED"]
    assert len(script.ran) == 2, "the rest stops"
    assert "8 cases: 1 passed, 7 not run" in done.out
    assert [path for path in done.folder.glob("records/*/*") if path.name.endswith(".tmp")] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", [["-m", "runner"], ["-c", "from runner.__main__ import main; raise SystemExit(main())"]]
)
def test_a_process_ends_with_two_and_without_a_traceback(tmp_path, module):
    run = ran(*module, "world_size=two", cwd=tmp_path)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1)
    assert run.stderr.startswith("symlab: error: ")
    assert list(tmp_path.iterdir()) == []


def test_before_main_nothing_is_imported_that_takes_time():
    """A Ctrl-C meanwhile would be a traceback."""
    code = "import sys, runner.__main__; print({'omegaconf', 'hydra', 'yaml', 'argparse', 'click'} & set(sys.modules))"
    assert ran("-c", code, cwd=ROOT).stdout == "set()\n"
