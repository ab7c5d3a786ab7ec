"""README.md and the pages of folders: their links, commands, keys and metrics exist; the README is short and works.

What the README has as commands with output is carried out in a copy of the project, as it stands there.
"""

import dataclasses
import re
import shlex
from collections import Counter
from dataclasses import fields, replace

import click
import pytest

from kernels.catalogue import SPECS
from kernels.matrix.codes import codes
from kernels.matrix.proofs import SHARED, proofs
from reports.mlflow_values import command_metrics, metrics_of
from runner.request.experiments import CONF
from runner.request.schema import SECTIONS
from symlab.command import loaded
from tests.matrix.cells import all_rows
from tests.pages import PAGES, ROOT, blocks, carried_out, commands, copied, text_of
from tests.reports.raced import checked
from tests.reports.synthetic import record

MAX_README_LINES = 250
KEYS = {member.name for member in dataclasses.fields(SECTIONS[""])}
NESTED = {f"{section}.{member.name}" for section in SECTIONS for member in dataclasses.fields(SECTIONS[section])}


def lines_of(page):
    """The commands of a page that begin with symlab: of console blocks, and of lines that are indented."""
    text = text_of(page)
    shown = [command for block in blocks(text) if block.kind == "console" for command, _, _ in commands(block.text)]
    shown += re.findall(r"^    (symlab .*)$", text, re.MULTILINE)
    return [line for line in shown if line.startswith("symlab ")]


LINES = [(page, line) for page in PAGES for line in lines_of(page)]


def test_the_pages_are_found():
    assert {"README.md", "CONTRIBUTING.md", "kernels/README.md", "symlab/evidence/audit/README.md"} <= set(PAGES)
    assert len(LINES) > 40


def test_the_readme_is_short():
    assert len(text_of("README.md").splitlines()) <= MAX_README_LINES


def launcher_keys():
    """Keys of Hydra's launchers, from the plugins themselves. Skips the test if they are not installed."""
    joblib = pytest.importorskip("hydra_plugins.hydra_joblib_launcher.config")
    submitit = pytest.importorskip("hydra_plugins.hydra_submitit_launcher.config")
    kinds = (joblib.JobLibLauncherConf, submitit.SlurmQueueConf, submitit.LocalQueueConf)
    found = {f"hydra.launcher.{one.name}" for kind in kinds for one in fields(kind)}
    return {"hydra/launcher", *found, "hydra.launcher.additional_parameters.exclusive"}


def unknown_in(page, line):
    """What a command line has that does not exist: a verb, an option, a key, an experiment."""
    words = shlex.split(re.sub(r"<\w[\w ]*>|\.\.\.", "X", line), comments=True)
    group = loaded("symlab.verbs:symlab")
    assert isinstance(group, click.Group)
    command = group.get_command(click.Context(group), words[1])
    if command is None:
        return [words[1]]
    options = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"-h", "--help"}
    unknown = [word for word in words[2:] if word.startswith("-") and word.partition("=")[0] not in options]
    if words[1] == "run":
        for word in (one for one in words[2:] if one[0] != "-" and "=" in one):
            key, _, value = word.lstrip("+").partition("=")
            known = key in KEYS | NESTED or "CONTRIBUTING" in page
            known = known or (key.startswith("hydra") and key in launcher_keys())
            if key == "exp":
                known = value == "mine" or (CONF / "exp" / f"{value}.yaml").is_file()
            unknown += [] if known else [word]
    return unknown


def test_commands_and_their_options_and_keys_exist():
    """Whether they do what the pages say is for tests of the command; here a renamed verb, option or key is found."""
    found = {(page, line): unknown for page, line in LINES if (unknown := unknown_in(page, line))}
    assert found == {}


def test_what_does_not_exist_is_found():
    for line, unknown in (
        ("symlab ran op=all_reduce", ["ran"]),
        ("symlab run opp=all_reduce world_size=2 +exp=no_such", ["opp=all_reduce", "+exp=no_such"]),
        ("symlab table --not-an-option records", ["--not-an-option"]),
    ):
        assert unknown_in("README.md", line) == unknown


def test_the_table_for_users_of_nccl_tests_names_keys_that_exist():
    rows = re.findall(r"^\| (`-.*|in place.*?) \| (.+?) \|$", text_of("README.md"), re.MULTILINE)
    assert len(rows) > 15
    for _, ours in rows:
        for key in re.findall(r"([a-z0-9_.]+)=", ours):
            assert key in KEYS | NESTED, ours
    flags = " ".join(theirs for theirs, _ in rows)
    assert [flag for flag in "beifdrgtnwGaIJNcuTMRmzCpDV" if f"-{flag}" not in flags] == []


def test_every_metric_is_in_the_list():
    check = replace(record().check, max_relative_error=0.5, rms_relative_error=0.5)
    made = set(metrics_of(record(check=check))) | set(command_metrics([record()], 0)) | set(metrics_of(checked()))
    listed = set()
    for line in text_of("runner/track/README.md").splitlines():
        names = re.findall(r"`([^`]+)`", line.split("|")[1]) if line.startswith("| `") else []
        section = names[0].partition("/")[0] if names and "/" in names[0] else ""
        for name in names if section else ():
            first = names[0].rpartition("_min")[0] or names[0]
            listed.add(f"{first}{name}" if name.startswith("_") else name if "/" in name else f"{section}/{name}")
    assert [name for name in sorted(made) if name not in listed and not name.startswith("cases/")] == []
    assert [name for name in sorted(listed) if name not in made and name.startswith(("latency", "bandwidth"))] == []


def test_the_readme_says_no_more_than_the_proofs():
    """Number of kernels and cases on GPUs, and of how many kernels the simulator ran all rows of the matrix with
    today's code."""
    (gpus,) = [one for one in proofs() if not one.simulated and not one.machine.endswith(SHARED)]
    (shared,) = [one for one in proofs() if one.machine.endswith(SHARED)]
    rows = {line.split("|")[1].strip(): line for line in text_of("README.md").splitlines() if line.startswith("| ")}
    peers, multimem = rows["peer-to-peer kernels"], rows["multimem kernels"]
    today = codes()
    found = []
    for proof in (gpus, shared):
        current = [name for name, tally in proof.specs.items() if tally.code == today[name].code]
        found.append((len(proof.specs), len(current), sum(one.passed for one in proof.specs.values())))
    (all_gpus, current, cases), (all_shared, current_shared, cases_shared) = found
    assert f"2 and 4 H200: {all_gpus} ({current} with today's code), in {cases:,} cases" in peers
    assert f"one H100 for 2 ranks: {all_shared} ({current_shared}), in {cases_shared:,}" in peers
    assert {ranks for one in shared.specs.values() for ranks in one.world_sizes} == {2}
    numbers = Counter(row.name for row in all_rows(SPECS))
    whole = {
        name
        for one in proofs()
        for name, tally in one.specs.items()
        if one.simulated and tally.code == today[name].code and tally.passed + tally.refused >= numbers[name]
    }
    by_multimem = {name for name in numbers if "multimem" in name}
    others = set(numbers) - by_multimem
    assert f"{len(whole & others)} of {len(others)}: every cell" in peers
    assert "| every cell |" in multimem
    assert whole >= by_multimem


def test_the_ops_that_texts_leave_out_are_those_that_experiments_lack():
    """all_to_all_v is in none of these experiments and on no published page; texts that name exceptions say so."""
    for name, words in (
        ("odd_ranks_gpus", "all ops with data but all_to_all_v,"),
        ("collectives_gpus", "Six other ops on GPUs"),
    ):
        text = (CONF / "exp" / f"{name}.yaml").read_text(encoding="utf-8")
        assert words in text
        assert "all_to_all_v" not in text[text.index("hydra:") :]
    assert "all_to_all_v" not in (CONF / "exp" / "tune_gpus.yaml").read_text(encoding="utf-8")
    tables = (ROOT / "reports/published").glob("*/table.md")
    assert not [path for path in tables if "all_to_all_v" in path.read_text(encoding="utf-8")]
    assert "NCCL, PyTorch, NVSHMEM: all ops but barrier and all_to_all_v, on 2 H200" in text_of("README.md")


def test_the_pages_name_no_experiment_that_is_missing():
    named = {name for page in PAGES for name in re.findall(r"\+exp=(\w+)", text_of(page))} - {"mine"}
    assert named
    assert {f"{name}.yaml" for name in named} <= {path.name for path in (CONF / "exp").glob("*.yaml")}


def test_the_python_example_is_that_of_the_api():
    """Whose page's examples are executed by tests/symlab/test_readme_example.py."""
    examples = [
        next(block.text for block in blocks(text_of(page)) if block.kind == "python")
        for page in ("README.md", "symlab/README.md")
    ]
    assert examples[0] == examples[1]


@pytest.mark.slow
def test_the_readme_works_as_it_is_written(tmp_path):
    checkout = copied(tmp_path)
    found = blocks(text_of("README.md"))
    assert {"yaml", "console"} <= {block.kind for block in found}
    for block in found:
        if block.kind not in ("python", "py") or block.path:  # tests/symlab executes these
            carried_out(checkout, block)
