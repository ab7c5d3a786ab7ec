"""--help: whatever there is, is in it, and it comes at once."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernels.baselines import BASELINES
from kernels.catalogue import COLLECTIVES, SPECS
from kernels.numeric.dtypes import ALL, REDUCTIONS
from runner import prove
from runner.__main__ import main as runner_main
from runner.request.compose import experiments
from runner.request.schema import SECTIONS
from runner.request.usage import usage
from runner.request.validate import CONF
from runner.track.__main__ import main as track_main


def test_every_experiment_has_its_line() -> None:
    lines = usage().splitlines()
    named = experiments()
    assert set(named) == {path.stem for path in (CONF / "exp").glob("*.yaml")}
    for name, text in named.items():
        (line,) = (line for line in lines if line.split()[:1] == [f"+exp={name}"])
        assert line.endswith(f"  {text}")
        assert 10 < len(text) <= 120


def test_another_folders_experiments_are_listed_instead(tmp_path: Path) -> None:
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "mine.yaml").write_text("# @package _global_\n# what mine does\nop: all_reduce\n")
    text = usage(tmp_path)
    assert "  +exp=mine  what mine does" in text.splitlines()
    assert "+exp=accumulator_study " not in text


def test_every_algorithm_and_baseline_stands_with_its_op() -> None:
    body = usage().partition("ops and their algorithms")[2].partition("\nkeys")[0]
    found: dict[str, list[str]] = {}
    for line in body.splitlines()[1:]:
        if line.startswith("  ") and not line.startswith("   "):
            op = line.split()[0]
            found[op] = []
        found[op] += [word.strip(",;") for word in line.split() if word not in (op, "baselines")]
    assert set(found) == {collective.op for collective in COLLECTIVES}
    for op, names in found.items():
        ours = [spec.algorithm for spec in SPECS if spec.op == op]
        assert names == ours + [one.algorithm for one in BASELINES if op in one.ops]


@pytest.mark.parametrize("section", [name for name in SECTIONS if name])
def test_every_section_is_there(section: str) -> None:
    assert f"{section}." in usage() or f"{section}=" in usage()


def test_every_key_value_and_type_is_there() -> None:
    text = usage()
    keys = {member.name for member in dataclasses.fields(SECTIONS[""])}
    assert [key for key in sorted(keys) if f"{key}=" not in text and f"{key}." not in text] == []
    assert [name for name in (*ALL, *REDUCTIONS) if name not in text] == []
    assert max(len(line) for line in text.splitlines() if "+exp=" not in line) <= 120


def test_it_imports_nothing_heavy() -> None:
    heavy = {"torch", "cutlass", "mlflow", "numpy", "simulator.world"}
    code = (
        f"import sys, runner.request.usage; runner.request.usage.usage(); print(*sorted({heavy!r} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=CONF.parent, capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


@pytest.mark.parametrize(
    ("main", "program"),
    [
        (runner_main, "python -m runner"),
        (lambda given: runner_main(["replay", *given]), "python -m runner replay"),
        (prove.main, "python -m runner.prove"),
        (track_main, "python -m runner.track"),
    ],
)
def test_each_command_says_in_one_line_that_its_command_line_is_wrong(
    main: Callable[[list[str]], int], program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--bogus=1"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("symlab: error: ")
    assert err.endswith(f"(see {program} --help)\n")
    assert err.count("\n") == 1
