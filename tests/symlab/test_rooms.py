"""The rooms beside the core can be taken away: their table, what is refused without them, and what goes on."""

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import symlab as api
from symlab import rooms, verbs
from symlab.command import main
from symlab.verbs import VERBS
from tests.golden import refused, same_text
from tests.patience import NEVER_S

ROOT = Path(api.__file__).resolve().parents[1]
SMALL = ("op=all_reduce", "sizes=[64]", "world_size=2", "track=none")


@pytest.fixture
def bare(monkeypatch):
    monkeypatch.setattr(rooms, "is_here", lambda room: False)


@pytest.mark.parametrize("name", rooms.ROOMS)
def test_all_that_the_table_names_is_in_the_room(name):
    if not rooms.is_here(name):
        pytest.skip(f"symlab/{name} is not installed")
    room = rooms.ROOMS[name]
    for place in (*(verb.place for verb in room.verbs), *room.parts.values()):
        module, _, what = place.partition(":")
        assert module.startswith(f"symlab.{name}.")
        assert callable(getattr(import_module(module), what))
    assert all(verb.name in VERBS for verb in room.verbs)


def test_what_works_without_rooms_is_in_none():
    """A verb that is listed without a room would end in a traceback if its module were in the room."""
    for verb in VERBS.values():
        part = verb.module.split(".")[1]
        assert part not in rooms.ROOMS or verb in rooms.ROOMS[part].verbs


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("word", ["check.races=true", "algorithms=best", "+exp=races"])
def test_a_key_of_an_absent_room_is_one_line(symlab, word):
    outcome = symlab(*SMALL, word)
    assert (outcome.code, outcome.err.count("\n"), outcome.records) == (2, 1, [])
    same_text(outcome.err)


@pytest.mark.usefixtures("bare")
def test_a_name_of_an_absent_room_is_one_line():
    vars(api).pop("explore", None)
    with refused(AttributeError):
        _ = api.explore


def test_a_verb_of_an_absent_room_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(rooms, "is_here", lambda room: False)
    monkeypatch.setattr(verbs, "VERBS", {name: verb for name, verb in VERBS.items() if name != "audit"})
    assert main(["audit", "records"]) == 2
    same_text(capsys.readouterr().err)


def bare_copy(folder):
    """Copy the project without its rooms and their tests. Returns the environment of commands there."""
    names = ("cases", "conf", "kernels", "memory", "reports", "runner", "simulator", "symlab", "tests")
    gone = shutil.ignore_patterns("__pycache__")
    for name in names:
        shutil.copytree(ROOT / name, folder / name, ignore=gone)
    for path in (*ROOT.glob("*.md"), ROOT / "pyproject.toml", ROOT / "Makefile"):
        shutil.copy(path, folder)
    for room in rooms.ROOMS:
        for above in ("symlab", "tests/symlab"):
            shutil.rmtree(folder / above / room, ignore_errors=True)
    for path in (folder / "tests" / "foreign").glob("test_*.py"):
        path.unlink()  # symlab/checks says what others' kernels lack
    return {**os.environ, "PYTHONPATH": str(folder)}


def run(folder, environment, *words):
    line = [sys.executable, "-m", *words]
    return subprocess.run(
        line, cwd=folder, env=environment, capture_output=True, text=True, timeout=NEVER_S, check=False
    )


@pytest.mark.slow
def test_the_core_runs_without_the_rooms(tmp_path):
    environment = bare_copy(tmp_path)
    done = run(tmp_path, environment, "runner", "+exp=allreduce_bf16", "track=none")
    assert (done.returncode, done.stderr) == (0, "")
    assert "24 cases: 24 passed; races: not looked for" in done.stdout
    for words in (["runner", "check.races=true"], ["symlab", "predict"], ["runner", "replay", "records"]):
        done = run(tmp_path, environment, *words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "which is not installed" in done.stderr
    assert "explore" not in run(tmp_path, environment, "symlab", "--help", "--all").stdout


@pytest.mark.slow
def test_the_cores_tests_are_collected_without_the_rooms_and_some_pass(tmp_path):
    environment = bare_copy(tmp_path)
    quick = ["pytest", "-q", "-p", "no:cacheprovider", "-m", "not gpu and not slow"]
    done = run(tmp_path, environment, *quick, "--collect-only")
    assert done.returncode == 0, done.stdout[-2000:]
    some = ["tests/simulator/number", "tests/runner/request", "tests/symlab/test_rooms.py"]
    done = run(tmp_path, environment, *quick, *some)
    assert done.returncode == 0, done.stdout[-2000:]
