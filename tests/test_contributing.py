"""CONTRIBUTING.md, carried out in a copy of the project: code is written, commands are run, output is as said.

A block's info string says what it is: `python PATH` is a file, `diff PATH` lines that are added after lines that are
there, `console` commands, each with lines that its output has (by their words: spaces don't count). A command whose
comment is `exit code N` ends with that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
COPIED = ("conf", "kernels", "memory", "reports", "runner", "simulator", "symlab", "tests")


def commands(block: str) -> list[tuple[str, int, list[str]]]:
    """The commands of a console block: each with its exit code and the lines to be found in its output."""
    found: list[tuple[str, int, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            command, _, comment = line[2:].partition("    # ")
            code = re.fullmatch(r"exit code (\d)", comment)
            found.append((command, int(code[1]) if code else 0, []))
        else:
            found[-1][2].append(line)
    return found


def words(text: str) -> str:
    return " ".join(text.split())


def patched(text: str, difference: str) -> str:
    """A text with the added lines of a difference, which has a line of context before and after."""
    old = "".join(f"{line[1:]}\n" for line in difference.splitlines() if line[0] != "+")
    new = "".join(f"{line[1:]}\n" for line in difference.splitlines())
    assert text.count(old) == 1, difference
    return text.replace(old, new)


def carried_out(checkout: Path, kind: str, path: str, block: str) -> None:
    if kind == "python":
        assert not (checkout / path).exists(), "an algorithm that is not in the project yet"
        (checkout / path).write_text(block, encoding="utf-8")
    elif kind == "diff":
        target = checkout / path
        target.write_text(patched(target.read_text(encoding="utf-8"), block), encoding="utf-8")
    else:
        assert kind == "console"
        for command, code, expected in commands(block):
            ran_as_said(checkout, command, code, expected)


def ran_as_said(checkout: Path, command: str, code: int, expected: list[str]) -> None:
    tools = checkout / "tools"
    tools.mkdir(exist_ok=True)
    if not (tools / "python").exists():
        (tools / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (tools / "python").chmod(0o755)
    environment = {
        "HOME": str(checkout),
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(checkout),
        "COLUMNS": "200",
    }
    done = subprocess.run(
        ["bash", "-c", command], cwd=checkout, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == code, f"{command}\n{said}"
    for line in expected:
        assert words(line) in words(said), f"{command}: {line}\n{said}"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "published"))
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_walk_through_works_as_it_is_written(checkout: Path) -> None:
    for kind, path, block in BLOCKS:
        carried_out(checkout, kind, path, block)


def test_its_blocks_are_one_file_one_line_and_commands() -> None:
    assert [kind for kind, _, _ in BLOCKS].count("python") == 1
    ((path, difference),) = ((path, block) for kind, path, block in BLOCKS if kind == "diff")
    assert path == "kernels/catalogue.py"
    assert sum(line.startswith("+") for line in difference.splitlines()) == 1
    patched((ROOT / path).read_text(encoding="utf-8"), difference)
    asked = [command for kind, _, block in BLOCKS if kind == "console" for command, _, _ in commands(block)]
    assert len(asked) >= 8
    assert all(command.startswith(("python -m ", "sed -i ")) for command in asked)


def test_its_code_is_formatted_like_ours(tmp_path: Path) -> None:
    (code,) = (block for kind, _, block in BLOCKS if kind == "python")
    path = tmp_path / "halves.py"
    path.write_text(code)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for arguments in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments, "--no-cache", str(path)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_files_it_names_are_there() -> None:
    for path in re.findall(r"`((?:kernels|runner|tests|conf)/[\w./]+)`", TEXT):
        if "halves" not in path:
            assert (ROOT / path).exists(), path
