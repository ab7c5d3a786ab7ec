"""symlab: its verbs, how it answers wrong command lines, and how every command ends that can't write its output."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kernels.__main__ import main as kernels_door
from reports.__main__ import main as reports_door
from reports.record import bundle
from runner.__main__ import main as runner_door
from symlab import command
from symlab.command import SETTINGS, carry_out, loaded, main
from symlab.verbs import RARE, VERBS, version
from tests.golden import refused, same_text
from tests.reports.synthetic import KIB, study

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("name", VERBS)
def test_each_verb_is_listed_with_what_its_own_help_says_first(name, capsys):
    found = loaded(VERBS[name].place)
    assert found.name == name
    assert found.get_short_help_str(200) == VERBS[name].line
    assert main([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert f"symlab {name}" in said
    assert max(map(len, said.splitlines())) <= SETTINGS["max_content_width"]


def test_help_lists_the_verbs_by_what_they_are_for(capsys):
    usual = [verb for verb in VERBS.values() if verb.heading not in RARE]
    assert len(usual) <= 14
    for arguments, shown in ((["--help"], usual), (["--help", "--all"], list(VERBS.values()))):
        assert main(arguments) == 0
        said = capsys.readouterr().out
        assert re.findall(r"^  ([a-z]+)  +", said, re.M) == [verb.name for verb in shown]
        assert all(f"\n{verb.heading}:\n" in said for verb in shown)


def test_help_imports_no_verb(tmp_path):
    code = (
        "import sys; from symlab.command import main; main(['--help']); main(['--version']); "
        "print(*sorted({'runner', 'kernels', 'reports', 'simulator', 'memory', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == ""


def test_before_the_command_line_is_carried_out_nothing_is_imported_that_takes_time():
    """A Ctrl-C meanwhile would be a traceback."""
    code = (
        "import sys, symlab.command; print({'click', 'runner', 'argparse', 'typing'} & set(sys.modules) - {'typing'})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"symlab {version()}\n"


WRONG = (
    "",
    "+exp=barrier",
    "op=barrier 'sizes=[1K, 2K]'",
    "~hydra.mode",
    "-m +exp=a,b",
    "--cfg job",
    "--config-dir=x",
    "rnu",
    "--bogus",
    "table",
    "track nowhere",
    "track x --uri here",
    "completion fish",
    *(f"run {flag}" for flag in ("--cgf job", "--helpp", "--hydra-hel", "--config", "--cfg jobs", "--config-dir")),
    *(f"run {flag}" for flag in ("--cfg job --plan", "--run", "--config-path x", "--version")),
)


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_line_is_one_line_and_2(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("symlab: error: ")
    assert said.err.count("\n") == 1
    same_text(said.err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("door", "arguments", "program"),
    [
        (runner_door, ["--bogus"], "python -m runner"),
        (runner_door, ["replay", "--bogus"], "python -m runner replay"),
        (reports_door, ["table", "--bogus"], "python -m reports table"),
        (kernels_door, ["--bogus"], "python -m kernels"),
    ],
)
def test_the_modules_name_themselves(door, arguments, program, capsys):
    assert callable(door)
    assert door(arguments) == 2
    assert capsys.readouterr().err.endswith(f"(see {program} --help)\n")


def in_the_wake_of(interrupt, error):
    """What a library raises that was cut off by an interrupt, and stumbles on its way out."""
    error.__context__ = RuntimeError("cleaning up")
    error.__context__.__context__ = interrupt
    return error


def raising(error):
    def body():
        raise error

    return click.Command("made", callback=body)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ValueError("two\nlines"), 2, "symlab: error: two lines\n"),
        (KeyboardInterrupt(), 130, "symlab: interrupted\n"),
        (in_the_wake_of(KeyboardInterrupt(), AttributeError("_flags")), 130, "symlab: interrupted\n"),
        (in_the_wake_of(KeyboardInterrupt(), ValueError("half")), 130, "symlab: interrupted\n"),
    ],
)
def test_errors_of_a_command(error, code, said, monkeypatch, capsys):
    monkeypatch.setattr(command, "made", raising(error), raising=False)
    assert carry_out("symlab.command:made", "made", []) == code
    assert capsys.readouterr().err == said


def test_a_defect_is_a_traceback(monkeypatch):
    monkeypatch.setattr(command, "made", raising(KeyError("ours")), raising=False)
    with pytest.raises(KeyError):
        carry_out("symlab.command:made", "made", [])
    monkeypatch.setattr("runner.command.start.start", lambda *_: int("not a request"))
    with refused(AssertionError):
        main(["run"])


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "all.jsonl.xz"
    bundle.write(study(("one_shot",), (KIB,), worlds=2), path)
    return path


PUBLISHED = str(ROOT / "reports/published")
PRESSED = """
import os, signal, sys
event, *sys.argv[1:] = sys.argv[1:]
kind, _, name = event.partition(" ")
pressed = []

def seen(happens, arguments):
    if happens == kind and not pressed and str(arguments[0]).endswith(name):
        pressed.append(event)
        print("pressed", file=sys.stderr)
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(seen)
from symlab.command import command
command()
"""
"""The command, with a Ctrl-C as something happens: "import <module>" or "open <end of a name>"."""

COMMANDS = {
    "version": "symlab --version",
    "help": "symlab --help",
    "help of run": "symlab run --help",
    "configuration": "symlab run --cfg job",
    "run": "symlab run sizes=[8] track=none",
    "table": "symlab table RECORDS",
    "csv": "symlab table RECORDS --format csv",
    "html": "symlab html RECORDS -o report.html",
    "audit": "symlab audit RECORDS RECORDS",
    "kernels": "symlab kernels",
    "completion": "symlab completion zsh",
    "python -m runner": "runner --cfg job",
    "python -m reports": "reports table RECORDS",
    "python -m kernels": "kernels",
}


def shell(line, records, folder):
    text = f"{sys.executable} -m {line.replace('RECORDS', str(records))}"
    return subprocess.run(
        ["/bin/bash", "-c", text], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("output", "problem"),
    [(">/dev/full", "can't write to standard output: No space left on device"), (">&-", "standard output is closed")],
)
def test_an_output_that_takes_nothing(name, output, problem, records, tmp_path):
    done = shell(f"{COMMANDS[name]} {output}", records, tmp_path)
    assert (done.returncode, done.stderr) == (1, f"symlab: error: {problem}\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_reader_that_leaves(name, records, tmp_path):
    done = shell(f"{COMMANDS[name]} | true; exit ${{PIPESTATUS[0]}}", records, tmp_path)
    audits = name == "audit"
    assert (done.returncode, done.stderr) == (2 if audits else 0, "")


@pytest.mark.slow
def test_errors_with_stderr_closed_do_not_go_to_stdout(records, tmp_path):
    done = shell("symlab run op=nothing 2>&-", records, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "event"),
    [
        (["run", "sizes=[8]"], "import runner.request.options"),
        (["run", "sizes=[8]"], "import hydra"),
        (["run", "sizes=[8]"], "import hydra.core.hydra_config"),
        (["table", PUBLISHED], "import cases.record.reading"),
        (["table", PUBLISHED], "import reports.table.timed_table"),
        (["table", PUBLISHED], "open .jsonl.xz"),
    ],
)
def test_ctrl_c_at_any_time_is_one_line(line, event, tmp_path):
    """While modules are imported, or while files are read."""
    command = [sys.executable, "-c", PRESSED, event, *line]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 130, done.stderr
    assert "pressed\n" in done.stderr, f"it never came to {event}"
    said = done.stderr.replace("pressed\n", "")
    assert "Traceback" not in said
    assert said.count("\n") <= 1


def test_a_file_that_fails_is_named():
    code = "from symlab.command import leave; leave(lambda: open('/nowhere/here'))"
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "symlab: error: /nowhere/here: No such file or directory\n")
