"""Ctrl-C in a terminal under submitit_local: the signal comes to all processes of the terminal's foreground group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runner.launch.files import LAUNCH, LaunchFiles
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.slow

SWEEP = ("world_size=2", "sizes=[1M]", "algorithms=[one_shot]", "fabric=simulator", "track=none", "seed=1,2,3,4")


def is_one_at_work(place: Path) -> bool:
    return any(one.job is not None for folder in place.glob("records/*") for one in LaunchFiles(folder).states())


def test_ctrl_c_is_for_the_command_which_ends_its_workers(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    process = subprocess.Popen(
        [sys.executable, "-m", "symlab", "run", "-m", *SWEEP, "hydra/launcher=submitit_local"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        until(lambda: is_one_at_work(tmp_path), "a worker at work")
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "Traceback" not in said
    (folder,) = (tmp_path / "records").iterdir()
    assert not (folder / LAUNCH).exists()
