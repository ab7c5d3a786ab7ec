"""Texts of the product, checked whole and in one place.

A test asserts kinds: an error's class and key, an exit code, a status, numbers. The words stand in texts.txt, by the
test that sees them, and are compared whole. `make golden` writes the file again; its diff shows what was reworded.

    with refused(RequestError) as error:
        validate(...)
    assert error.value.key == "sizes"

    code, said = run("tune", "op=nothing")
    assert code == 2
    same_text(said)
"""

import contextlib
import difflib
import os
import re
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from tests.golden.texts import Texts

ROOT = Path(__file__).resolve().parents[2]

WRITE_TO = "SYMLAB_GOLDEN_WRITE_TO"
"""The variable that holds the folder which texts are written to, in place of being compared."""

_TEMPORARY = re.compile(
    rf"{re.escape(tempfile.gettempdir())}/(?:pytest-of-[^/]+/pytest-\d+/(?:popen-gw\d+/)?)?[^/\s'\"`:,;)\]]+"
)
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")

_seen: Counter[str] = Counter()


@contextlib.contextmanager
def refused(kind=ValueError, *hidden):
    """Expect an error of a class in the block, and the text that is kept for this test. hidden: see same_text."""
    with pytest.raises(kind) as error:
        yield error
    text = str(error.value)
    if isinstance(error.value, AssertionError):
        text = text.partition("\nassert ")[0]  # what follows is pytest's, in modules that it has rewritten
    same_text(f"{type(error.value).__name__}: {text}", *hidden)


def same_text(text, *hidden):
    """Expect the text that is kept for this test; its second text for the second call, and so on.

    The repository, a test's temporary folder and addresses are <root>, <tmp> and <address> in what is kept.
    hidden: regular expressions of more that changes from run to run, each <hidden> there.
    """
    __tracebackhide__ = True
    key = _key()
    text = _masked(text, hidden)
    if folder := os.environ.get(WRITE_TO):
        Texts.add(Path(folder), key, text)
        return
    kept = Texts.stored().of(key)
    if kept == text:
        return
    if kept is None:
        pytest.fail(f"no text is kept for {key}: run `make golden` and read the diff. It would be:\n{text}")
    lines = difflib.unified_diff(kept.splitlines(), text.splitlines(), "kept", "now", lineterm="")
    pytest.fail(f"the text of {key} changed. If that is right, run `make golden`.\n" + "\n".join(lines))


def _key():
    """The node id of the test that runs, and from its second text on the text's number."""
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    if test not in _seen:
        _seen.clear()
    _seen[test] += 1
    return test if _seen[test] == 1 else f"{test} #{_seen[test]}"


def _masked(text, hidden):
    text = text.replace(str(ROOT), "<root>")
    text = _TEMPORARY.sub("<tmp>", text)
    text = _ADDRESS.sub("<address>", text)
    for pattern in hidden:
        text = re.sub(pattern, "<hidden>", text)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
