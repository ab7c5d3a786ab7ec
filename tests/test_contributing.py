"""CONTRIBUTING.md: each walk-through is carried out in a copy of the project, as it stands there (tests/pages.py)."""

import re
import shutil
from pathlib import Path

import pytest

from tests.pages import ROOT, Block, blocks, carried_out, commands, copied, patched, text_of
from tests.processes import ran

TEXT = text_of("CONTRIBUTING.md")
WALKS = {
    title: found
    for title, text in re.findall(r"^# ([^\n]+)\n(.*?)(?=^# |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    if (found := blocks(text))
}
ADDED = {"halves.py"}


def test_there_is_a_walk_through_for_each_thing_that_is_added():
    assert list(WALKS) == [
        f"Adding {thing}" for thing in ("an algorithm", "an opcode", "a data type", "a configuration key", "a metric")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("title", WALKS)
def test_a_walk_through_works_as_it_is_written(title, tmp_path):
    checkout = copied(tmp_path)
    for block in WALKS[title]:
        carried_out(checkout, block)


@pytest.mark.parametrize("title", WALKS)
def test_its_changes_fit_the_code_as_it_is_now(title):
    """Quick, and without running anything."""
    found = {}
    for block in WALKS[title]:
        if block.kind == "diff":
            before = found.get(block.path) or text_of(block.path)
            found[block.path] = patched(before, block.text)
            assert found[block.path] != before
    asked = [command for block in WALKS[title] if block.kind == "console" for command, _, _ in commands(block.text)]
    assert asked
    assert all(command.startswith(("symlab ", "python -m ", "sed -i ")) for command in asked)


def test_a_change_that_fits_nowhere_or_twice_is_noticed():
    assert patched("a\nb\nc\n", " a\n-b\n+d\n c") == "a\nd\nc\n"
    for text in ("a\nc\n", "a\nb\na\nb\n"):
        with pytest.raises(AssertionError):
            patched(text, " a\n b\n+d")


def test_an_output_or_an_exit_code_that_is_not_as_said_is_noticed(tmp_path):
    (tmp_path / "tools").mkdir()
    carried_out(tmp_path, Block("console", "", "$ echo one  two\none two\n$ exit 3    # exit code 3\n"))
    for text in ("$ echo one\ntwo\n", "$ exit 3\n", "$ exit 3    # exit code 2\n"):
        with pytest.raises(AssertionError):
            carried_out(tmp_path, Block("console", "", text))


def test_an_algorithm_is_one_file_and_one_line():
    walk = WALKS["Adding an algorithm"]
    assert [block.kind for block in walk].count("python") == 1
    (change,) = (block for block in walk if block.kind == "diff")
    assert change.path == "kernels/catalogue.py"
    assert sum(line.startswith("+") for line in change.text.splitlines()) == 1


@pytest.mark.parametrize(
    "block",
    [block for walk in WALKS.values() for block in walk if block.kind == "python"],
    ids=lambda block: block.path,
)
def test_its_code_is_formatted_like_ours(block, tmp_path):
    path = tmp_path / Path(block.path).name
    path.write_text(block.text)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for arguments in (["check"], ["format", "--check"]):
        done = ran("-m", "ruff", *arguments, "--no-cache", str(path), cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_files_it_names_are_there():
    named = re.findall(r"`((?:kernels|runner|reports|simulator|symlab|tests|conf)/[\w./]+)`", TEXT)
    assert len(named) > 20
    missing = [path for path in named if Path(path).name not in ADDED and not (ROOT / path).exists()]
    assert missing == []
