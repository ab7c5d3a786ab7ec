""".ci/run: the layers in their order, and an end if a tool is missing for no reason that it names. Everything that it
starts is a stub."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ["make foreign", "make check", "make test", "make audit", "make test-changed MINUTES=3"]
ALL = ("chromium", "g++", "slurmctld", "slurmd", "munged", "sbatch", "zsh", "ssh-keygen", "pdftotext")


def ran(folder, have, apt="", foreign=0, **environment):
    """The exit code, the commands that ran with what the tests would go without, and what is on standard error.

    have: programs that are there. apt: what apt-get does, as shell; "" for a machine without it.
    """
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci")
    programs = folder / "bin"
    programs.mkdir()
    log = folder / "log"
    stubs = {name: "" for name in have}
    stubs["make"] = (
        f'echo "make $*" >>{log}; [ "$1" != foreign ] || exit {foreign}; echo "$SYMLAB_TESTS_WITHOUT" >{folder}/without'
    )
    if apt:
        stubs |= {"apt-get": apt.replace("BIN", str(programs)), "apt-cache": "[ $2 != zsh ]"}
    for name, body in stubs.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    for name in ("bash", "sh", "env", "dirname", "timeout", "rm", "chmod", "touch", "cp"):
        (programs / name).symlink_to(shutil.which(name) or name)
    done = subprocess.run(
        ["bash", ".ci/run"],
        cwd=folder,
        env={"PATH": str(programs), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    commands = log.read_text().splitlines() if log.exists() else []
    without = (folder / "without").read_text().split() if (folder / "without").exists() else []
    return done.returncode, [*commands, *without], done.stderr


def test_the_layers_run_in_their_order(tmp_path):
    code, commands, said = ran(tmp_path, ALL, CI="true")
    assert (code, commands, said) == (0, LAYERS, "")


def test_a_machine_of_ones_own_is_named_as_the_reason(tmp_path):
    code, commands, said = ran(tmp_path, ALL[1:])
    assert (code, commands) == (0, [*LAYERS, "chromium"])
    assert 'without chromium: CI is not "true"' in said


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root installs")
@pytest.mark.parametrize(
    ("apt", "missing", "code", "reason"),
    [
        ("exit 100", "chromium", 0, "out of reach"),
        ("exit 0", "chromium", 1, "installation failed"),
        ("exit 0", "zsh", 0, "no package zsh"),
        ('[ "$1" != install ] || { echo >BIN/chromium; chmod 755 BIN/chromium; }', "chromium", 0, ""),
        ("", "chromium", 0, "there is no apt-get"),
    ],
)
def test_what_can_not_be_installed_ends_it_without_a_reason(apt, missing, code, reason, tmp_path):
    found, commands, said = ran(tmp_path, tuple(one for one in ALL if one != missing), apt, CI="true")
    assert found == code
    assert reason in said
    if code == 0:
        assert commands == [*LAYERS, *([missing] if reason else [])]
    else:
        assert commands == []


@pytest.mark.parametrize(("index", "code"), [("0", 1), ("1", 0)])
def test_foreign_compilers_are_there_unless_the_index_is_out_of_reach(index, code, tmp_path):
    python = tmp_path / ".venv-foreign" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\nexit {index}\n")
    python.chmod(0o755)
    found, commands, said = ran(tmp_path, ALL, foreign=2, CI="true")
    assert found == code
    assert commands == ([*LAYERS, "foreign"] if code == 0 else ["make foreign"])
    assert "without foreign" in said
