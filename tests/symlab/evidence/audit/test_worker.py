"""The worker of audits: the real one on real records, and every way in which one can fail."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reports.record.bundle import read
from symlab.evidence.audit import worker
from symlab.evidence.audit.checklist import check
from symlab.evidence.audit.items import Outcome, Point
from symlab.evidence.audit.level import Recomputed
from symlab.evidence.audit.material import Answer, Material
from tests.patience import NEVER_S, PATIENCE_S, SOON_S, until, within
from tests.symlab.evidence.audit.complete_set import evidence, records

PUBLISHED = Path(__file__).parents[4] / "reports" / "published"


@pytest.mark.slow
def test_the_real_worker_on_published_records():
    """One job of a published command, of which one record was taken away."""
    found = [one for one in read([PUBLISHED / "h200-x2" / "all_reduce-world1.jsonl.xz"]) if one.request.job == 0]
    gone = found[3]
    told = []
    here = [record for record in found if record is not gone]
    audit = check(here, say=told.append, wanted=worker.Wanted(4096, rerun=worker.Rerun(1)))
    assert "1 of 1 jobs composed again" in evidence(audit, "configuration", Outcome.VERIFIED)
    assert f"or their command was interrupted: {gone.id}" in evidence(audit, "cases", Outcome.NOT_COMPARABLE)
    assert "checked records without any (schema 2)" in evidence(audit, "inputs", Outcome.NOT_CAPTURED)
    assert "sources " in evidence(audit, "kernels", Outcome.CAPTURED) + evidence(audit, "kernels", Outcome.VERIFIED)
    assert any(text.startswith("composing configurations") for text in told)


def program(text):
    return (sys.executable, "-c", text)


GOOD = '{"points": {"data": [["CAPTURED", "x", "stated", null]]}, "level": {"recomputed": 1, "total": 2}}'


def ask(command, say=print, patience_s=None):
    return worker.ask(Material(tuple(records())), worker.Wanted(4096), say, command, patience_s)


def test_an_answer_after_progress():
    told = []
    text = f"print('noise'); print('{{\"progress\": \"half\"}}'); print('{GOOD}')"
    answer = ask(program(text), told.append)
    assert (answer, told) == (Answer({"data": (Point(Outcome.CAPTURED, "x"),)}, Recomputed(1, 2)), ["half"])


def test_what_a_copy_wrote_that_hung_is_not_read(monkeypatch):
    monkeypatch.setattr(worker, "forked", lambda step: (step(), step()))
    text = f"import sys; assert sys.stdin.read().count('inputs_up_to_bytes') == 1; print('{GOOD}')"
    assert not worker.ask(lambda: Material(tuple(records())), worker.Wanted(4096), print, program(text)).problem


def test_it_is_given_the_records_without_timings_and_the_limit():
    text = """
import json, sys
asked, members = json.loads(sys.stdin.readline()), sys.stdin.readlines()
counts = [sum(text in one for one in members) for text in ('"samples_us"', '"started"')]
said = ["CAPTURED", f"{counts} {asked['inputs_up_to_bytes']}", "stated", None]
print(json.dumps({"points": {"data": [said]}, "level": {}}))
"""
    assert ask(program(text)).points["data"][0].evidence == "[0, 8] 4096"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (program("raise SystemExit('no torch here')"), "the worker gave no answer (no torch here)"),
        (program("raise SystemExit(3)"), "the worker gave no answer (exit code 3)"),
        (program("print('[]')"), "the worker gave no answer (exit code 0)"),
        (("/nowhere/python",), "the worker can't be started (No such file or directory)"),
    ],
)
def test_why_there_is_no_answer(command, says):
    assert ask(command) == Answer(problem=says)


def test_a_worker_that_takes_too_long_is_ended():
    with within():
        answer = ask(program(f"import time; time.sleep({NEVER_S})"), patience_s=SOON_S)
    assert answer == Answer(problem="the worker took longer than 0 s")


def test_an_interrupt_ends_the_worker():
    def interrupt(text):
        raise KeyboardInterrupt

    text = f'import time; print(\'{{"progress": "x"}}\', flush=True); time.sleep({NEVER_S})'
    with within(), pytest.raises(KeyboardInterrupt):
        ask(program(text), interrupt)


def test_an_interrupted_worker_can_clean_up(tmp_path):
    left = tmp_path / "worktree"
    text = (
        "import signal, sys, time; from pathlib import Path; from runner.interrupt import interruptible\n"
        f"left = Path({str(left)!r})\n"
        "with interruptible():\n"
        "    try:\n"
        '        left.mkdir(); print(\'{"progress": "x"}\', flush=True); time.sleep(60)\n'
        "    finally:\n"
        "        left.rmdir()\n"
    )

    def interrupt(text):
        assert left.exists()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(program(text), interrupt)
    assert not left.exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_that_ends_the_audit_ends_the_worker(tmp_path, number, code):
    place = tmp_path / "pid"
    worker_text = (
        "import os, time; from pathlib import Path\n"
        f"Path({str(place)!r}).with_suffix('.new').write_text(str(os.getpid()))\n"
        f"Path({str(place)!r}).with_suffix('.new').rename({str(place)!r})\n"
        f"time.sleep({NEVER_S})\n"
    )
    text = (  # a signal that the caller ignores, as nohup does, would end nothing
        f"import signal; signal.signal({number}, signal.SIG_DFL); "
        "import sys; from symlab.evidence.audit import worker; from symlab.evidence.audit.material import Material; "
        f"worker.ask(Material(()), worker.Wanted(), command=(sys.executable, '-c', {worker_text!r}))"
    )
    audit = subprocess.Popen([sys.executable, "-c", text])
    try:
        until(place.exists, "the worker's start")
        audit.send_signal(number)
        assert audit.wait(PATIENCE_S) == code
        with pytest.raises(ProcessLookupError):
            os.kill(int(place.read_text()), 0)
    finally:
        audit.kill()
