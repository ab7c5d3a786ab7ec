"""Completion: what a command line can go on with, and that real shells, bash and zsh, complete it so."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from symlab.command import SETTINGS, main
from symlab.completion import SHELLS, VARIABLE
from symlab.verbs import VERBS, symlab
from tests.golden import same_text
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
BREAKS = " \t\n\"'><=;|&(:"
"""COMP_WORDBREAKS as bash has it."""


def answers(line, monkeypatch, shell="zsh"):
    """The lines that a script of ours gets for a command line up to the cursor."""
    monkeypatch.setenv("_SYMLAB_LINE", line)
    monkeypatch.setenv("_SYMLAB_BREAKS", BREAKS)
    return SHELLS[shell](symlab, dict(SETTINGS), "symlab", VARIABLE).complete().splitlines()


def test_all_verbs_are_offered_with_their_lines(monkeypatch):
    assert answers("symlab ", monkeypatch) == [f"plain {verb.name}\t{verb.line}" for verb in VERBS.values()]
    assert [line.partition("\t")[0] for line in answers("symlab re", monkeypatch)] == ["plain resume", "plain replay"]


RUN = (
    "--mul",
    "--cfg ",
    "world_size=2 --config-d",
    "fabric.sch",
    "fabric.schedule=",
    "records=",
    "op=broadcast algorithms=[bulk,pu",
)
OTHERS = ("table --format j", "table ", "replay rec", "kernels --op all_g")


def test_answers_for_bash(monkeypatch):
    for line in (*(f"symlab run {rest}" for rest in RUN), *(f"symlab {rest}" for rest in OTHERS)):
        same_text("\n".join([line, *answers(line, monkeypatch, "bash")]))
    assert "resilient_parsing" not in SETTINGS, "click writes into what it gets, and commands would run no more"


def test_experiments_of_another_folder_are_offered_too(tmp_path, monkeypatch):
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "allmine.yaml").write_text("# @package _global_\n# my own\n")
    for line in (f"--config-dir {tmp_path} +exp=allm", f"seed=1 -cd {tmp_path} +exp=allm"):
        assert answers(f"symlab run {line}", monkeypatch) == ["plain +exp=allmine\tmy own"]
    assert answers("symlab run +exp=allm", monkeypatch) == []


def test_an_answer_imports_none_of_what_is_heavy():
    heavy = {"torch", "hydra", "omegaconf", "yaml", "numpy", "mlflow", "rich", "argparse"}
    seen = f"print(*sorted({heavy!r} & set(sys.modules)), file=sys.stderr)"
    code = f"import sys; from symlab.command import main; main(); {seen}"
    asked = {"_SYMLAB_COMPLETE": "bash_complete", "_SYMLAB_LINE": "symlab run +exp=", "_SYMLAB_BREAKS": "="}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert "plain barrier\n" in done.stdout
    assert done.stderr.split() == []


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_is_one(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here: its script is printed, not parsed")
    assert subprocess.run([shell, "-n"], input=script, text=True, check=False).returncode == 0


class Shell:
    """An interactive shell in a terminal; there symlab completes words, and says its arguments in place of running."""

    def __init__(self, name, folder):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed here")
        program = folder / "symlab"
        program.write_text(
            "#!/bin/sh\n"
            'case "$1$_SYMLAB_COMPLETE" in\n'
            f'completion|*_complete) PYTHONPATH={ROOT} exec {sys.executable} -m symlab "$@" ;;\n'
            "esac\n"
            'printf "<%s>" "$@"; echo END\n'
        )
        program.chmod(0o755)
        (folder / "recorded").mkdir()
        (folder / "recorded" / "records.json").write_text("{}")
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            environment = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder), "TERM": "dumb"}
            environment |= {"PS1": "$ ", "LC_ALL": "C.UTF-8"}
            options = ["--norc", "--noprofile"] if name == "bash" else ["-f"]
            os.execvpe(name, [name, *options, "-i"], environment)
        if name == "zsh":
            self.said("autoload -Uz compinit; compinit -u -D; echo READY\r", "READY\r\n")
        self.said(f"source <(symlab completion {name}); echo SOURCED\r", "SOURCED\r\n")

    def said(self, keys, end):
        """Type keys; what the shell shows up to `end`."""
        os.write(self.terminal, keys.encode())
        seen, deadline_s = "", time.monotonic() + PATIENCE_S
        while end not in seen:
            if not select.select([self.terminal], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                raise AssertionError(f"no {end!r} behind {keys!r}: {seen!r}")
            seen += os.read(self.terminal, 4096).decode(errors="replace")
        return seen

    def arguments(self, keys):
        """Type a command line and Enter; the arguments that symlab was called with."""
        found = self.said(f"{keys}\r", ">END")
        return found[found.rindex("\n<") + 2 : found.rindex(">END")].split("><")

    def end(self):
        os.close(self.terminal)
        os.waitpid(self.process, 0)


OF_ONE_SHELL = {
    "bash": {
        "symlab run op=broadcast algorithms=[mul\t": ["run", "op=broadcast", "algorithms=[multimem"],
        "symlab run algorithms=[two_shot_l\t,ll\t]": ["run", "algorithms=[two_shot_lamport,ll]"],
        "symlab run 'algorithms=[two_shot_l\t": ["run", "algorithms=[two_shot_lamport"],  # readline adds the quote
        "symlab run records=reco\t": ["run", "records=recorded/"],
    },
    "zsh": {  # where an unquoted bracket is a pattern
        "symlab run op=broadcast 'algorithms=[mul\t'": ["run", "op=broadcast", "algorithms=[multimem"],
        "symlab run algorithms=\\[two_shot_l\t,ll\\]": ["run", "algorithms=[two_shot_lamport,ll]"],
        "symlab run records=reco\t": ["run", "records=recorded"],  # zsh takes the slash away again
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_in_a_real_shell(name, tmp_path):
    shell = Shell(name, tmp_path)
    try:
        for keys, expected in {
            "symlab ru\t+exp=allreduce_b\t-m": ["run", "+exp=allreduce_bf16", "-m"],
            "symlab run fabric.sch\tra\t": ["run", "fabric.schedule=random"],
            **OF_ONE_SHELL[name],
            "symlab run --multi\tcheck.re\tfa\t": ["run", "--multirun", "check.results=false"],
            "symlab ta\treco\trec\t": ["table", "recorded/records.json"],
            "symlab table --fo\tmark\tx": ["table", "--format", "markdown", "x"],
        }.items():
            assert shell.arguments(keys) == expected, keys
    finally:
        shell.end()
