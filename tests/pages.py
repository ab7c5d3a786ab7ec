"""What tests of the pages (README.md, CONTRIBUTING.md and the folders' READMEs) share: a page carried out in a copy.

A fenced block's info string says what it is: `python PATH` and `yaml PATH` are files, `diff PATH` a change to a file
that is there, `console` commands, each with lines that its output has (by their words: spaces don't count). A command
whose comment is `exit code N` ends with that.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.patience import NEVER_S

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("README.md", "CONTRIBUTING.md", "*/README.md", "*/*/README.md", "symlab/*/*/README.md")
    for path in ROOT.glob(pattern)
    if not path.relative_to(ROOT).parts[0].startswith((".", "records"))
)

_BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COPIED = ("cases", "conf", "kernels", "memory", "reports", "runner", "simulator", "symlab", "tests")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page: its kind, the path it is about ("" for commands), and its text."""

    kind: str
    path: str
    text: str


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(text):
    return [Block(*found) for found in _BLOCK.findall(text)]


def commands(block):
    """The commands of a console block: each with its exit code and the lines to be found in its output."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            command, _, comment = line[2:].partition("    # ")
            code = re.fullmatch(r"exit code (\d)", comment)
            found.append((command, int(code[1]) if code else 0, []))
        else:
            found[-1][2].append(line)
    return found


def patched(text, difference):
    """A text changed by a difference, whose lines begin with a space, a plus or a minus; it fits at one place only."""
    old = "".join(f"{line[1:]}\n" for line in difference.splitlines() if line[0] != "+")
    new = "".join(f"{line[1:]}\n" for line in difference.splitlines() if line[0] != "-")
    assert text.count(old) == 1, difference
    return text.replace(old, new)


def copied(folder):
    """A copy of the project in a folder, with `symlab` and `python` in tools/."""
    for name in _COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "published"))
    for name in ("README.md", "CONTRIBUTING.md", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    module, _, function = tomllib.loads(text_of("pyproject.toml"))["project"]["scripts"]["symlab"].partition(":")
    program = f"import sys; sys.argv[0] = 'symlab'; from {module} import {function}; {function}()"
    (folder / "tools").mkdir()
    for name, words in (("python", '"$@"'), ("symlab", f'-c "{program}" "$@"')):
        (folder / "tools" / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}\n')
        (folder / "tools" / name).chmod(0o755)
    return folder


def carried_out(checkout, block):
    """Write the block's file, change it, or run its commands. AssertionError for what is not as the page says."""
    target = checkout / block.path
    if block.kind in ("python", "yaml"):
        assert not target.exists(), f"{block.path}: a page adds files that are not in the project yet"
        target.write_text(block.text, encoding="utf-8")
    elif block.kind == "diff":
        target.write_text(patched(target.read_text(encoding="utf-8"), block.text), encoding="utf-8")
    else:
        assert block.kind == "console", block.kind
        for command, code, expected in commands(block.text):
            _ran_as_said(checkout, command, code, expected)


def _ran_as_said(checkout, command, code, expected):
    environment = {
        "HOME": str(checkout),
        "PATH": f"{checkout / 'tools'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(checkout),
        "COLUMNS": "200",
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        timeout=NEVER_S,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == code, f"{command}\n{said}"
    for line in expected:
        assert _words(line) in _words(said), f"{command}: {line}\n{said}"


def _words(text):
    return " ".join(text.split())
