"""Work in a second process: the same result, its errors seen here, and none where it must not be."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from reports import second_process


def test_what_a_copy_finds_comes_back() -> None:
    here = os.getpid()
    found = second_process.started(os.getpid, is_alone=True)()
    assert (found != here) == ((os.cpu_count() or 1) > 1)
    big = second_process.started(lambda: list(range(300_000)), is_alone=True)
    assert big() == list(range(300_000))


def test_a_process_with_company_works_itself() -> None:
    assert second_process.started(os.getpid, is_alone=False)() == os.getpid()


def test_one_core_works_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert second_process.started(os.getpid, is_alone=True)() == os.getpid()


def test_errors_come_where_they_can_be_seen() -> None:
    def work() -> int:
        raise ValueError("nothing to be found")

    with pytest.raises(ValueError, match="nothing to be found"):
        second_process.started(work, is_alone=True)()


def test_ctrl_c_is_left_to_who_started_it() -> None:
    here = os.getpid()

    def work() -> str:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGINT)
            return "found in the copy"
        return "found here"

    copies = (os.cpu_count() or 1) > 1
    assert second_process.started(work, is_alone=True)() == ("found in the copy" if copies else "found here")


def test_a_copy_that_dies_is_done_without() -> None:
    here = os.getpid()

    def work() -> str:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return "found here"

    assert second_process.started(work, is_alone=True)() == "found here"


def test_a_module_runs_from_any_folder_with_this_tree(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").write_text("raise SystemExit('not this one')")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [*second_process.module_command("kernels.__main__"), "--op", "gossip"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("symlab: error: ")
    assert "gossip" in done.stderr


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core: there is no second process")
def test_the_copy_is_gone_when_its_result_is_there() -> None:
    """Every process was waited for: no zombie is left."""
    copy = second_process.started(os.getpid, is_alone=True)()
    with pytest.raises(ProcessLookupError):
        os.kill(copy, 0)
