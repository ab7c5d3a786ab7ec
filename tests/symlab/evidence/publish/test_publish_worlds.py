"""symlab publish with real worlds, in the simulator: records, level, kills, interrupts."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from reports.record.bundle import PLAN_NAME, read
from runner.request_error import RequestError
from symlab.evidence.publish.running import run_world
from symlab.speed.predict import recorded_kernels
from tests.golden import refused
from tests.patience import NEVER_S, until
from tests.reports.synthetic import with_environment

ROOT = Path(__file__).parents[4]
TINY = ("fabric=simulator", "op=barrier", "world_size=2", "algorithms=[push]", "launches=1")
EXPERIMENT = "# @package _global_\n# a barrier\nop: barrier\nworld_size: 2\nalgorithms: [push]\nlaunches: 1\n"


def environment():
    return os.environ | {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def own(tmp_path):
    """A folder of configurations with one tiny experiment."""
    folder = tmp_path / "own"
    (folder / "exp").mkdir(parents=True)
    (folder / "exp" / "tiny.yaml").write_text(EXPERIMENT)
    return folder


def asked(folder, own):
    options = ["-e", "tiny", "--worlds", "2", "--config-dir", str(own), "fabric=simulator"]
    return [sys.executable, "-P", "-m", "symlab", "publish", str(folder), *options]


def ended(line):
    """How a command ended."""
    return subprocess.run(
        line, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=NEVER_S
    )


def shadow(folder, main):
    """A package that shadows symlab with what main does."""
    (folder / "symlab").mkdir()
    (folder / "symlab" / "__init__.py").write_text("")
    (folder / "symlab" / "__main__.py").write_text(main)


@pytest.mark.slow
def test_a_world_gives_its_records_and_leaves_no_path(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ran = run_world(ROOT, [*TINY, "track=none"])
    assert (ran.exit_code, ran.why, len(ran.records)) == (0, "", 1)
    assert not list(tmp_path.glob("symlab-publish-*"))
    assert "symlab-publish-" not in ran.records[0].to_json()


@pytest.mark.slow
def test_kernels_are_compiled_by_the_code_that_ran_and_by_no_other(tmp_path):
    (record,) = run_world(ROOT, [*TINY, "track=none"]).records
    found = recorded_kernels.compiled([record], tmp_path)
    assert found["commit"] == record.environment.git["commit"]
    assert set(found["kernels"]) == {record.kernel.ptx_digest}
    (key,) = found["launches"]
    recorded_kernels.write(found, tmp_path / "kernels.json.xz")
    launch = recorded_kernels.read(tmp_path / "kernels.json.xz").launches[key]
    assert (launch.case, launch.blocks, launch.threads) == (record.case, record.kernel.grid, record.kernel.block)
    other = replace(record, kernel=replace(record.kernel, ptx_digest=f"sha256:{'0' * 64}"))
    with refused(RequestError, r"[0-9a-f]{12}", r"(?<=compiler, ).*"):
        recorded_kernels.compiled([other], tmp_path)
    elsewhere = with_environment(record, git={"commit": "0" * 40})
    with refused(RequestError, r"[0-9a-f]{40}"):
        recorded_kernels.compiled([record, elsewhere], tmp_path)


@pytest.mark.slow
def test_a_refused_world_says_why_in_one_line():
    ran = run_world(ROOT, ["op=barrier", "algorithms=[no_such]", "fabric=simulator", "track=none"])
    assert (ran.exit_code, ran.records) == (2, ())
    assert "no_such" in ran.why
    assert "\n" not in ran.why


def test_a_world_without_the_project_fails(tmp_path, monkeypatch):
    """As a commit of before there was symlab: a folder that shadows it with nothing."""
    (tmp_path / "symlab").mkdir()
    (tmp_path / "symlab" / "__init__.py").write_text("")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    ran = run_world(tmp_path, [*TINY, "track=none"])
    assert ran.records == ()
    assert "symlab" in ran.why


def test_why_a_world_failed_names_no_place_of_this_machine(tmp_path, monkeypatch):
    """Neither its temporary folder nor a home folder: publish.json and the page are published."""
    shadow(tmp_path, "import os\nraise SystemExit(f'{os.getcwd()}/x and {os.environ[\"HOME\"]}/y are missing')\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "somebody"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    ran = run_world(tmp_path, [*TINY, "track=none"])
    assert ran.records == ()
    assert "/x and ~/y are missing" in ran.why
    assert "symlab-publish-" not in ran.why


@pytest.mark.slow
def test_after_a_kill_the_next_call_goes_on(tmp_path, own):
    folder = tmp_path / "set"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(asked(folder, own), env=environment(), text=True, **pipes)
    next(line for line in process.stdout if line.startswith("[2/2] tiny-world2: running"))
    until(lambda: children_of(process.pid), "a process of the world")
    process.kill()
    process.communicate(timeout=NEVER_S)
    first = (folder / "tiny-world1.jsonl.xz").read_bytes()
    done = ended(asked(folder, own))
    assert done.returncode == 0, done.stderr + done.stdout
    assert "2 worlds, 1 to run" in done.stdout
    assert (folder / "tiny-world1.jsonl.xz").read_bytes() == first
    names = {path.name for path in folder.iterdir()}
    assert names == {"tiny-world1.jsonl.xz", "tiny-world2.jsonl.xz", PLAN_NAME, "README.md", "table.md"}
    records = read([folder])
    assert len({one.request.command for one in records}) == 2
    assert {one.check.output_digests != () for one in records if one.check is not None} == {True}


AT_FORK = """
import os, signal, sys
from pathlib import Path
from runner.interrupt import exit_code_of, interruptible
from symlab.evidence.publish.running import run_world
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))
try:
    with interruptible():
        print(run_world(Path(sys.argv[1]), []))
except KeyboardInterrupt as interrupt:
    print(Path(f"/proc/self/task/{os.getpid()}/children").read_text())
    sys.exit(exit_code_of(interrupt))
"""


@pytest.mark.slow
def test_a_kill_leaves_no_world_behind(tmp_path):
    """The world would go on for ever."""
    begun = tmp_path / "begun"
    shadow(tmp_path, f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep({NEVER_S})\n")
    program = "import pathlib; from symlab.evidence.publish.running import run_world; run_world(pathlib.Path({!r}), [])"
    process = subprocess.Popen([sys.executable, "-c", program.format(str(tmp_path))], cwd=ROOT, env=environment())
    until(begun.exists, "the beginning of the world")
    (world,) = children_of(process.pid)
    process.kill()
    process.wait(NEVER_S)
    until(lambda: is_gone(world), "the end of the world without its command")


def test_an_interrupt_while_a_world_starts_ends_it(tmp_path):
    """Python drops an exception that a signal raises in a callback of fork(): the command went on, to exit code 0."""
    shadow(tmp_path, f"import time\ntime.sleep({NEVER_S})\n")
    done = ended([sys.executable, "-c", AT_FORK, str(tmp_path)])
    assert (done.returncode, done.stdout.strip(), done.stderr) == (143, "", "")


def children_of(process):
    """The processes that a process has started, by /proc."""
    place = Path(f"/proc/{process}/task/{process}/children")
    return [int(one) for one in place.read_text().split()]


def is_gone(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except OSError:
        return True
