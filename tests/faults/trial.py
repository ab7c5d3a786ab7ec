"""One fault in a copy of the tree, and the tests that reach it, the closest first, up to the first that fails."""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

LAYERS = {"quick": "not slow and not gpu", "full": "slow and not gpu"}
"""Which tests a layer adds to those before it: what `pytest -m` takes. The only place that says what is quick."""

GROUPS = (12, 60, 400)
"""Numbers of test functions that one process runs: a few of the closest, then more. The last number repeats."""

LEAST_S, FACTOR = 120.0, 10.0
"""A group may take LEAST_S, and FACTOR times as long as when it was recorded; what takes longer hangs."""

MOST_S = 3600.0
"""What it may take without the fault, where nothing hangs."""

KEPT_KERNELS = "d/compiled-kernels"
"""The folder of compiled kernels (tests/compiled_kernels.py) in pytest's cache."""

COMPILING = ("kernels/", "memory/", "cases/")
"""What decides how kernels compile, beyond the sources that name an entry: its faults find no compiled kernels."""

_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?: - .*)?$", re.MULTILINE)
_MISSING = re.compile(r"^ERROR: (?:not found: |found no collectors for )(\S+)", re.MULTILINE)
NOTHING, WRONG_REQUEST = 5, 4
"""Exit codes of pytest: no test was collected; a test that was asked for is not there."""


@dataclass(frozen=True, slots=True)
class Found:
    """How a layer found a fault: "failed" by a test, "hang" of its tests, or "import" if none could be collected; ""
    if no test noticed. tests: how many functions reach it in this layer; seconds: what looking took."""

    how: str
    by: str
    tests: int
    seconds: float


@contextlib.contextmanager
def copy_of(root):
    """Yield a copy of the tree as it is committed, which goes with the block: git's own, so that tests of git run."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        copy = Path(folder, "tree")
        git = ["git", "-C", str(root), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(copy), "HEAD"], check=True)
        if (kept := root / ".pytest_cache" / KEPT_KERNELS).is_dir():
            shutil.copytree(kept, Path(folder, "kernels"))
        try:
            yield copy
        finally:
            subprocess.run([*git, "remove", "--force", str(copy)], check=False)


@contextlib.contextmanager
def cache_of(copy, fault):
    """Yield a cache of pytest for one fault's runs, with the kernels that the tree's runs compiled. It goes with the
    block, so that nothing that was compiled with a fault is there for another one."""
    with tempfile.TemporaryDirectory(prefix="cache-", dir=copy.parent) as folder:
        if not fault.path.startswith(COMPILING) and (kept := copy.parent / "kernels").is_dir():
            shutil.copytree(kept, Path(folder, KEPT_KERNELS))
        yield Path(folder)


def tried(copy, fault, reached, layer, ends_s=float("inf")):
    """Make a fault in a copy of the tree, and look whether a layer's tests find it. The copy is then as it was.

    A test that fails without the fault, too, tells nothing: others are asked. None if the time (monotonic) is over
    before all have been.
    """
    with cache_of(copy, fault) as cache:
        return _tried(copy, cache, fault, reached, layer, ends_s)


def _tried(copy, cache, fault, reached, layer, ends_s):
    began_s, left = time.monotonic(), reached.tests(fault)
    run, groups = 0, list(GROUPS)
    while left:
        group, left = left[: groups[0]], left[groups[0] :]
        groups = groups[1:] or groups
        limit_s = LEAST_S + FACTOR * reached.seconds_of(group)
        if time.monotonic() + min(limit_s, LEAST_S) > ends_s and run:
            return None
        with made(copy, fault):
            how, by, group = _look(copy, cache, group, layer, limit_s)
        run += len(group)
        if how and not _look(copy, cache, [by] if by else group, layer, MOST_S)[0]:
            return Found(how, by, run, time.monotonic() - began_s)
        if how == "failed":
            left = [one for one in group if one != by] + left  # pytest ended at it
    return Found("", "", run, time.monotonic() - began_s)


@contextlib.contextmanager
def made(copy, fault):
    """A fault in a copy, within the block. Its bytecode goes, too: Python tells files apart by seconds and sizes."""
    path = copy / fault.path
    text = path.read_bytes()
    compiled = Path(importlib.util.cache_from_source(str(path)))
    compiled.unlink(missing_ok=True)
    path.write_text(fault.applied(text.decode()), encoding="utf-8")
    try:
        yield
    finally:
        path.write_bytes(text)
        compiled.unlink(missing_ok=True)


def _look(copy, cache, group, layer, limit_s):
    """Run test functions up to the first that fails: how it ended, by which, and which functions there are."""
    tests = list(group)
    while tests:
        code, said = _pytest(copy, cache, tests, layer, limit_s)
        if code is None:
            return "hang", "", tests
        missing = {one.removeprefix(f"{copy}/") for one in _MISSING.findall(said)}
        if code == WRONG_REQUEST and missing & set(tests) and not _is_broken(said):
            tests = [one for one in tests if one not in missing]
            continue
        if code in (0, NOTHING):
            return "", "", tests
        failed = _FAILED.findall(said)
        named = failed[0].partition("[")[0] if code == 1 and failed else ""
        return ("failed", named, tests) if "::" in named else ("import", "", tests)
    return "", "", tests


def _is_broken(said):
    """Whether files could not be imported, rather than lack a test."""
    return "found no collectors for" in said or "error during collection" in said or "errors during collection" in said


def _pytest(copy, cache, tests, layer, limit_s):
    """Exit code (None if it was stopped at the limit) and output of pytest in a copy."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-o", f"cache_dir={cache}", "-n", "0", "-m", LAYERS[layer]]
    environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
    process = subprocess.Popen(
        [*command, "--tb=no", "-rfE", *tests],
        cwd=copy,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # what it starts ends with it
    )
    try:
        said, _ = process.communicate(timeout=limit_s)
        return process.returncode, said
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
