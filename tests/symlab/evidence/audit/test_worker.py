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
from symlab.evidence.audit.material import Answer
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
    assert "the records hold none (schema 2)" in evidence(audit, "data", Outcome.NOT_CAPTURED)
    assert "sources " in evidence(audit, "kernels", Outcome.CAPTURED) + evidence(audit, "kernels", Outcome.VERIFIED)
    assert any(text.startswith("composing configurations") for text in told)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Makes a module whose main(descriptor) does what a text says, with the connection to the audit."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(text):
        name = f"worker_of_{len(list(tmp_path.iterdir()))}"
        head = "import os, pickle, sys, time; from multiprocessing.connection import Connection\n"
        head += "from pathlib import Path; from runner.interrupt import interruptible\n"
        head += "from symlab.evidence.audit.items import Outcome, Point\n"
        head += "from symlab.evidence.audit.level import Recomputed\n"
        head += "from symlab.evidence.audit.material import Answer\n"
        body = "".join(f"    {line}\n" for line in text.splitlines())
        (tmp_path / f"{name}.py").write_text(f"{head}def main(descriptor):\n    audit = Connection(descriptor)\n{body}")
        return name

    return make


GOOD = "audit.send(Answer({'data': (Point(Outcome.CAPTURED, 'x'),)}, Recomputed(1, 2)))"


def ask(module, say=print, patience_s=None):
    return worker.ask((), tuple(records()), worker.Wanted(4096), say, module, patience_s)


def test_an_answer_after_progress(program):
    told = []
    answer = ask(program(f"print('noise')\naudit.send('half')\n{GOOD}"), told.append)
    assert (answer, told) == (Answer({"data": (Point(Outcome.CAPTURED, "x"),)}, Recomputed(1, 2)), ["half"])


def test_what_the_real_worker_can_not_read_is_its_answer(tmp_path):
    assert worker.ask((tmp_path / "none.json",), None, worker.Wanted()).problem.startswith(
        "the worker gave no answer ("
    )


def test_why_there_is_no_answer(program):
    assert ask(program("sys.exit(3)")) == Answer(problem="the worker gave no answer (exit code 3)")


def test_a_worker_that_takes_too_long_is_ended(program):
    with within():
        answer = ask(program(f"time.sleep({NEVER_S})"), patience_s=SOON_S)
    assert answer == Answer(problem="the worker took longer than 0 s")


def test_an_interrupted_worker_can_clean_up(program, tmp_path):
    left = tmp_path / "worktree"
    text = (
        "with interruptible():\n"
        "    try:\n"
        f"        Path({str(left)!r}).mkdir(); audit.send('x'); time.sleep({NEVER_S})\n"
        "    finally:\n"
        f"        Path({str(left)!r}).rmdir()\n"
    )

    def interrupt(text):
        assert left.exists()
        raise KeyboardInterrupt

    with within(), pytest.raises(KeyboardInterrupt):
        ask(program(text), interrupt)
    assert not left.exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_that_ends_the_audit_ends_the_worker(program, tmp_path, number, code):
    place = tmp_path / "pid"
    module = program(
        f"Path({str(place)!r}).with_suffix('.new').write_text(str(os.getpid()))\n"
        f"Path({str(place)!r}).with_suffix('.new').rename({str(place)!r})\n"
        f"time.sleep({NEVER_S})"
    )
    text = (  # a signal that the caller ignores, as nohup does, would end nothing
        f"import signal; signal.signal({number}, signal.SIG_DFL)\n"
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from runner.interrupt import exit_code_of; from symlab.evidence.audit import worker\n"
        f"try: worker.ask((), (), worker.Wanted(), module={module!r})\n"
        "except KeyboardInterrupt as interrupt: sys.exit(exit_code_of(interrupt))\n"
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
