"""--help: whatever there is, is in it, and it comes at once."""

import os
import re
import shlex
from enum import Enum

import pytest
import yaml
from omegaconf import OmegaConf

from cases.ops import OPS
from kernels.baselines import BASELINES
from kernels.catalogue import ALL_SPECS
from runner.case.cases import check_against_catalogue
from runner.request.compose import compose_jobs, hydra_over
from runner.request.composer import composed
from runner.request.experiments import CONF, experiments
from runner.request.schema import KEYS
from runner.request.usage import page, usage
from tests.runner.conftest import on_its_fabric


def test_every_experiment_has_its_line():
    body = " ".join(usage().partition("experiments:\n")[2].partition("\nops")[0].split())
    named = experiments()
    assert set(named) == {path.stem for path in (CONF / "exp").glob("*.yaml")}
    for name, text in named.items():
        assert f"+exp={name} {text}" in body
        assert 10 < len(text) <= 120


def test_another_folders_experiments_are_listed_too(tmp_path):
    (tmp_path / "exp").mkdir()
    for name in ("mine", "barrier"):
        (tmp_path / "exp" / f"{name}.yaml").write_text("# @package _global_\n# what mine does\nop: all_reduce\n")
    listed = experiments(tmp_path)
    assert listed["mine"] == "what mine does"
    assert listed["barrier"] == experiments()["barrier"], "Hydra reads that of conf/"
    assert re.search(r"^  \+exp=mine +what mine does$", usage(tmp_path), re.MULTILINE)


def test_what_is_no_readable_experiment_is_listed_as_such(tmp_path):
    folder = tmp_path / "exp"
    folder.mkdir()
    (folder / "latin.yaml").write_bytes("# größte Werte\n".encode("latin-1"))
    (folder / ".#locked.yaml").symlink_to("somebody@host.1234")
    (folder / "folder.yaml").mkdir()
    (folder / os.fsdecode(b"bytes\xff.yaml")).write_text("# what it does\n")
    assert re.search(r"\+exp=bytes\\xff +what it does", usage(tmp_path))
    for name in ("latin", ".#locked", "folder"):
        assert re.search(rf"\+exp={re.escape(name)} +\(unreadable\)", usage(tmp_path)), name


def test_defaults_are_those_of_the_configuration_and_every_key_is_there():
    with hydra_over():
        config = composed([])
    found = [
        re.findall(
            r"^  ([a-z0-9_.]+)=(\S+)", usage(None, every).partition("keys, with")[2].partition("\noptions")[0], re.M
        )
        for every in (False, True)
    ]
    first, said = map(dict, found)
    expected = {key: OmegaConf.select(config, key) for key in KEYS}
    assert {key: yaml.safe_load(text) for key, text in said.items()} == {
        key.removesuffix(".name"): str(value) if isinstance(value, Enum) else value for key, value in expected.items()
    }
    assert first.items() < said.items()
    assert len(first) <= 40


def test_the_page_of_keys_is_made_from_the_table():
    written = (CONF.parent / "runner" / "KEYS.md").read_text(encoding="utf-8")
    assert written == page(), "write it again: python -m runner.request.usage"


def examples():
    body = usage().partition("\nexamples")[2].partition("\n\n")[0]
    return [line.strip() for line in body.splitlines() if line.startswith("  ")]


@pytest.mark.parametrize("line", examples())
def test_each_example_can_be_run(line):
    program, verb, *arguments = shlex.split(line)
    assert (program, verb) == ("symlab", "run")
    with hydra_over():
        jobs = compose_jobs([one for one in arguments if one != "-m"], "-m" in arguments)
    for job in jobs:
        check_against_catalogue(on_its_fabric(job.request))


def test_every_algorithm_and_baseline_stands_with_its_op():
    body = usage().partition("\nops, our")[2].partition("\nkeys")[0]
    found = {}
    for line in body.splitlines()[1:]:
        if line.startswith("  ") and not line.startswith("   "):
            op = line.split()[0]
            found[op] = []
        found[op] += [word.strip(",;") for word in line.split() if word not in (op, "baselines")]
    assert set(found) == set(OPS)
    for op, names in found.items():
        ours = [spec.algorithm for spec in ALL_SPECS if spec.op == op]
        assert names == ours + [one.algorithm for one in BASELINES if op in one.ops]
