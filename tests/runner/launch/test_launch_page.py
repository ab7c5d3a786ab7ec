"""The commands of runner/launch/README.md run as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import runner.launch
from tests.patience import NEVER_S
from tests.runner.launch.slurm_cluster import why_not

PAGE = (Path(runner.launch.__file__).parent / "README.md").read_text(encoding="utf-8")
LINES = [line.strip() for line in re.findall(r"^    (symlab .+)$", PAGE, re.MULTILINE)]


def run(line, folder, environment):
    """What a command line of the page says; it must end well."""
    script = line.replace("symlab", f"{sys.executable} -m symlab", 1)
    environment = {**environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=NEVER_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_has_a_line_for_each_launcher():
    assert {name for line in LINES for name in re.findall("hydra/launcher=([a-z_]+)", line)} == {
        "joblib",
        "submitit_slurm",
    }


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in LINES if "submitit_slurm" not in line])
def test_a_line_for_a_laptop(line, tmp_path):
    said = run(line, tmp_path, dict(os.environ))
    assert "nothing was run (--plan)" in said if "--plan" in line else "4 cases: 4 passed" in said
    assert re.search(r"launcher: \w+, \d+ workers?\n", said)


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.parametrize("line", [line for line in LINES if "submitit_slurm" in line])
def test_a_line_for_a_cluster(line, tmp_path, slurm):
    assert "4 cases: 4 passed" in run(line, tmp_path, slurm.environment)
    assert slurm.queue() == []
