"""Skipped tests are counted, named with what brings them, and no reason is unknown."""

import ast
from pathlib import Path

import pytest

from tests import skips

pytest_plugins = ["pytester"]
HERE = Path(__file__).parent


def literal(node):
    """The text of an expression, with X for what is only known when it runs; "" for none."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else "9" for one in node.values)
    return ""


def reasons(path):
    """Reasons that a file's skips and skipifs state as text."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "skip" and getattr(node.func.value, "id", "") == "pytest" and node.args:
                yield literal(node.args[0])
            if node.func.attr in ("skipif", "importorskip"):
                yield from (literal(word.value) for word in node.keywords if word.arg == "reason")


def test_every_reason_of_the_tests_is_listed():
    found = {text for path in HERE.rglob("*.py") if path.name != Path(__file__).name for text in reasons(path) if text}
    found = {text for text in found if text.strip("9 ")}
    assert len(found) > 25
    assert [text for text in sorted(found) if not skips.is_known(text)] == []


def test_tools_are_told_from_design():
    tool = skips.tool_of("flashinfer is not installed in .venv-foreign (make foreign)")
    assert tool.name == "foreign"
    assert skips.tool_of("this simulator has no orders by block under the checker") is None
    assert not skips.is_known("it was a Friday")


def test_a_strict_run_names_what_is_missing():
    missing = [
        "no Chromium here: none",
        "needs 4 GPUs: only its names are checked, below",
        "one core compiles in one process",
    ]
    assert skips.complaints(missing, ["chromium"]) == []
    (complaint,) = skips.complaints(missing, [])
    assert complaint.startswith("chromium is missing (apt-get install chromium)")
    (complaint,) = skips.complaints(["it was a Friday"], [tool.name for tool in skips.TOOLS])
    assert "it was a Friday" in complaint


@pytest.mark.parametrize(("arguments", "code"), [((), 0), (("--strict-skips",), 1)])
def test_the_block_at_the_end(arguments, code, pytester, monkeypatch):
    monkeypatch.delenv("SYMLAB_TESTS_WITHOUT", raising=False)
    pytester.makeconftest("from tests.skips import *")
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.parametrize("n", range(3))
        def test_page(n): pytest.skip("no Chromium here: none in PATH")
        def test_other(): pytest.skip("one core compiles in one process")
        def test_passes(): pass
        """
    )
    done = pytester.runpytest("-q", "-p", "no:cacheprovider", "-W", "ignore", *arguments)
    assert done.ret == code
    done.stdout.fnmatch_lines(["*4 tests were skipped*", "    3 for want of chromium: apt-get install chromium"])
    monkeypatch.setenv("SYMLAB_TESTS_WITHOUT", "slurm chromium")
    assert pytester.runpytest("-q", "-p", "no:cacheprovider", "-W", "ignore", *arguments).ret == 0
