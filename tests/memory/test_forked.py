"""A step in a copy of this process: what comes back, and what is said of a copy that ends or hangs."""

import ctypes
import logging
import os
import sys
import tempfile
import threading
import time

import pytest

from memory.forked import ProcessEnded, forked
from tests.golden import refused
from tests.patience import NEVER_S, within


class Unknown(Exception):
    """One that pickle can't make again."""

    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")


def raises(error):
    def step():
        raise error

    return step


def test_what_a_step_returns_comes_back_and_what_it_changes_does_not():
    held = [1]
    content = forked(lambda: (held.append(2), bytes(5 << 20), os.getpid()))
    assert (content[1], held) == (bytes(5 << 20), [1])
    assert content[2] != os.getpid()


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (ValueError("no"), ValueError),
        (Unknown(1, 2), RuntimeError),
        (SystemExit(4), RuntimeError),
        (KeyboardInterrupt(), RuntimeError),
    ],
)
def test_what_a_step_raises_is_raised_here(given, kind):
    with refused(kind):
        forked(raises(given))


@pytest.mark.parametrize("end", [lambda: ctypes.string_at(0), os.abort, lambda: os._exit(0), lambda: os._exit(3)])
def test_the_end_of_a_copy_is_an_error_here_with_its_place(end, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def step():
        tempfile.mkdtemp()
        end()

    with refused(ProcessEnded) as caught:
        forked(step)
    assert [one.function for one in caught.value.frames if one.file == __file__][:2] in (
        ["step", "test_the_end_of_a_copy_is_an_error_here_with_its_place"],
        ["<lambda>", "step"],
    )
    assert not list(tmp_path.iterdir()), "what it left in its temporary folder is removed"


def test_a_copy_that_waits_for_a_lock_of_another_thread_is_given_up(caplog):
    lock, held, done = threading.Lock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            done.wait(NEVER_S)

    def step():
        if os.getpid() == parent:
            done.set()
        with lock:
            return os.getpid()

    parent = os.getpid()
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(NEVER_S)
    with caplog.at_level(logging.WARNING), within():
        assert forked(step, hung_s=1) == parent
    thread.join()
    assert "had no processor time for 1 s: going on in this one" in caplog.text


def test_a_copy_that_computes_or_writes_is_not_given_up():
    def step():
        ends_s = time.monotonic() + 2.5
        while time.monotonic() < ends_s:
            pass
        return os.getpid()

    assert forked(step, hung_s=2) != os.getpid()


def test_a_text_that_waits_to_be_written_is_written_once(capfd):
    with open(1, "w", closefd=False) as stream:  # buffered, as standard output to a file is
        before, sys.stdout = sys.stdout, stream
        try:
            print("before")
            forked(lambda: print("within"))
        finally:
            sys.stdout = before
    assert capfd.readouterr().out == "before\nwithin\n"
