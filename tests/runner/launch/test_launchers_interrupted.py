"""Ctrl-C in a terminal under joblib: the signal comes to all processes of its foreground group."""

import os
import signal
from pathlib import Path
from typing import TypeVar

import pytest

from runner.launch.files import LAUNCH, LaunchFiles
from tests.patience import NEVER_S, until
from tests.runner.launch.test_joblib_sweep import symlab

pytestmark = pytest.mark.slow

SWEEP = ("world_size=2", "sizes=[1M]", "algorithms=[one_shot]", "fabric=simulator", "track=none", "seed=range(1,60)")

Met = TypeVar("Met")


def interrupted(folder, words, met):
    """Interrupt a sweep once met(its process) is true. Return what that was, and what the sweep said."""
    process = symlab(folder, "run", "-m", *SWEEP, *words, start_new_session=True)
    found = []
    try:
        until(lambda: found.append(met(process.pid)) or found[-1], "what the interrupt waits for")
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=NEVER_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "Warning" not in said, said
    (records,) = (folder / "records").iterdir()
    assert not (records / LAUNCH).exists()
    return found[-1], said


def at_work(place):
    found = [one for folder in place.glob("records/*") for one in LaunchFiles(folder).states()]
    return [one for one in found if one.job is not None and one.process]


def blocked_by(process):
    """The signals that a process blocks, a bit each."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1], 16)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_take_an_interrupt_of_their_own(tmp_path, workers):
    """Their processes are told to end by a closed input, which interrupts them: one that blocks SIGINT would not."""
    words = ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={workers}"]
    masks, _ = interrupted(tmp_path, words, lambda _: [blocked_by(one.process) for one in at_work(tmp_path)])
    assert not any(mask & 1 << signal.SIGINT - 1 for mask in masks)
