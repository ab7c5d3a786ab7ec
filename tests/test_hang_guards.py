"""Waits of tests end with what they wait for, and name what did not happen."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import patience
from tests.patience import until, within


def test_a_wait_ends_when_it_holds() -> None:
    answers = iter([False, False, True])
    until(lambda: next(answers))
    assert list(answers) == []


def test_what_never_happens_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.01)
    with pytest.raises(AssertionError, match="the worker's start did not happen in 0 s"):
        until(lambda: False, "the worker's start")


def test_a_block_that_waited_for_its_deadline_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("tests.patience.time.monotonic", lambda: clock[0])
    with within():
        clock[0] += patience.PATIENCE_S - 1
    with pytest.raises(AssertionError, match=r"this took \d+ s, more than \d+ s"), within():
        clock[0] += patience.NEVER_S


def test_a_busy_machine_can_be_given_more_time() -> None:
    code = "from tests.patience import *; print(PATIENCE_S, NEVER_S)"
    environment = {**os.environ, "SYMLAB_TEST_PATIENCE": "3", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["360.0", "1800.0"]


def test_a_clock_of_a_test_goes_until_it_is_to_be_late() -> None:
    clock = patience.Clock()
    began = clock.monotonic()
    assert clock.monotonic() - began < patience.PATIENCE_S
    clock.skip()
    assert clock.monotonic() - began > patience.NEVER_S
    looked = patience.Clock(looks=2)
    assert looked.monotonic() - began < patience.PATIENCE_S
    assert looked.monotonic() - began < patience.PATIENCE_S
    assert looked.monotonic() - began > patience.NEVER_S
    assert clock.sleep is time.sleep, "all else is the module's"


def test_ctrl_c_comes_when_it_holds_and_never_after_the_block() -> None:
    begun, pressed = threading.Event(), list[str]()
    with patience.pressed(begun.is_set, lambda: pressed.append("pressed")):
        begun.set()
        until(lambda: pressed)
    with patience.pressed(lambda: False, lambda: pressed.append("too late")):
        pass
    threads = threading.active_count()
    begun.clear()
    with patience.pressed(begun.is_set, lambda: pressed.append("too late")):
        assert threading.active_count() == threads + 1
    begun.set()
    assert threading.active_count() == threads
    assert pressed == ["pressed"]


ROOT = Path(__file__).parents[1]
DEADLINES = {"deadline_s", "start_deadline_s", "limit_s", "patience_s", "timeout_s"}
OF_A_REQUEST = re.compile(r"deadline_s=(\d+(?:\.\d+)?|\.\d+)")
SIGNALS = {"send_signal", "kill", "killpg", "pthread_kill", "raise_signal", "interrupt_main", "terminate", "press"}

OWN_CLOCKS = {"test_publish_sets.py", "test_faults_gpu.py"}
"""Files with short deadlines: on a clock that the test sets, and of kernels on GPUs, which no busy host delays."""

WORTH_A_LOOK = re.compile(r"\b(deadline|limit|patience|timeout)_s=|_deadline_s=|Timer\(|sleep\(|run\(.*, *[.\d]+\)")
"""What a file has that can have one of the lines below."""


def is_short(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float) and 0 < node.value < 120


def called(node: ast.AST) -> str:
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def short_deadlines(tree: ast.AST) -> Iterator[int]:
    """Lines that give the product a deadline of less than PATIENCE_S in figures: a busy machine reaches it before it
    gets to what is to be found late. SOON_S says that it may; with a Clock the test says when."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            given = [word.value for word in node.keywords if word.arg in DEADLINES]
            given += node.args[2:3] if called(node) == "run" and len(node.args) == 3 else []
            yield from (node.lineno for one in given if is_short(one))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = OF_A_REQUEST.fullmatch(node.value)
            if words and 0 < float(words[1]) < 120:
                yield node.lineno


def sleeps_before_signals(tree: ast.AST) -> Iterator[int]:
    """Lines that sleep for a while and signal after it: what is to be interrupted may not have begun, or be over."""
    for node in ast.walk(tree):
        for body in (vars(node).get(name) for name in ("body", "orelse", "finalbody")):
            slept = 0
            for statement in body if isinstance(body, list) else []:
                if isinstance(statement, ast.Expr) and called(statement.value) == "sleep":
                    slept = statement.lineno
                elif slept and any(called(one) in SIGNALS for one in ast.walk(statement)):
                    yield slept


def loose_timers(tree: ast.AST) -> Iterator[int]:
    """Lines that make a threading.Timer which no `finally` cancels: a test that fails leaves it to those after it."""
    nodes = list(ast.walk(tree))
    ends = [one for node in nodes if isinstance(node, ast.Try) for end in node.finalbody for one in ast.walk(end)]
    cancelled = {
        ast.unparse(one.func.value) for one in ends if called(one) == "cancel" and isinstance(one.func, ast.Attribute)
    }
    kept = {
        id(node.value): {ast.unparse(target) for target in node.targets}
        for node in nodes
        if isinstance(node, ast.Assign)
    }
    for node in nodes:
        if called(node) == "Timer" and not kept.get(id(node), set()) & cancelled:
            yield node.lineno


@pytest.mark.parametrize(
    ("text", "deadlines", "sleeps", "timers"),
    [
        ("world.run(program, None, 0.3)\nworld.run(program, None, deadline_s=20)", [1, 2], [], []),
        ("ProcessWorld(2, opener, start_deadline_s=20.0)\nask(limit_s=5, patience_s=1)", [1, 2, 2], [], []),
        ("main(['run', 'deadline_s=2'])\nmain(['run', 'deadline_s=0', 'deadline_s=600'])", [1], [], []),
        ("world.run(program, None, NEVER_S)\nworld.run(squared, deadline_s=SOON_S)\nrun(program, 7)", [], [], []),
        ("time.sleep(3)\nprocess.send_signal(signal.SIGINT)", [], [1], []),
        ("time.sleep(0.3)\nsay()\nif x:\n    os.kill(pid, 2)", [], [1], []),
        ("while not begun():\n    time.sleep(0.05)\nos.kill(pid, 2)", [], [], []),
        ("def press():\n    sleep(delay_s)\n    _thread.interrupt_main()", [], [2], []),
        ("threading.Timer(0.5, os.kill, (pid, 2)).start()", [], [], [1]),
        ("timer = Timer(0.3, world.abort)\ntimer.start()\nrun()\ntimer.join()", [], [], [1]),
        ("timer = Timer(0.3, stop)\ntry:\n    run()\nfinally:\n    timer.cancel()", [], [], []),
        (
            "timer = Timer(0.3, stop)\nother = Timer(0.3, stop)\ntry:\n    run()\nfinally:\n    timer.cancel()",
            [],
            [],
            [2],
        ),
    ],
)
def test_what_a_busy_machine_would_refuse_is_found(
    text: str, deadlines: list[int], sleeps: list[int], timers: list[int]
) -> None:
    tree = ast.parse(text)
    found = (short_deadlines(tree), sleeps_before_signals(tree), loose_timers(tree))
    assert [sorted(lines) for lines in found] == [deadlines, sleeps, timers]


def test_tests_wait_for_events_and_not_for_a_time() -> None:
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.name == Path(__file__).name or not WORTH_A_LOOK.search(text):
            continue
        tree = ast.parse(text)
        own = path.name in OWN_CLOCKS
        lines = {
            "a short deadline: give NEVER_S and a Clock, or SOON_S": [] if own else short_deadlines(tree),
            "a sleep before a signal: press Ctrl-C with pressed(), once it has begun": sleeps_before_signals(tree),
            "a timer that no finally cancels: pressed() ends with its block": loose_timers(tree),
        }
        found += [f"{path.relative_to(ROOT)}:{line}: {what}" for what, all_ in lines.items() for line in all_]
    assert found == []
