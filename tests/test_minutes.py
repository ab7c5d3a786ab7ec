"""A run of limited time: what would begin too late is skipped and says so, and the order of files is drawn."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
FILES = [
    "tests/reports/record/test_leaves.py",
    "tests/runner/world/test_loopback.py",
    "tests/simulator/litmus/test_meet.py",
]


def ran(minutes: str, run: str) -> str:
    """What pytest says of three files in a run of that name."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-rs", "-p", "no:cacheprovider", "--minutes", minutes, *FILES],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTEST_XDIST_TESTRUNUID": run},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def order(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"^(tests/\S+?)::", text, re.MULTILINE)))


def test_what_would_begin_too_late_is_skipped_and_says_so() -> None:
    text = ran("0", "a")
    assert " passed" not in text
    assert "it would begin after the 0 minutes of --minutes" in text


def test_in_time_all_run_in_an_order_that_is_drawn_by_the_run() -> None:
    texts = [ran("60", run) for run in ("a", "b", "a")]
    assert not any("SKIPPED" in text for text in texts)
    orders = [order(text) for text in texts]
    assert [sorted(one) for one in orders] == [sorted(FILES)] * 3
    assert orders[0] == orders[2] != orders[1]
