"""check: a section, whose name alone is short for check.results on the command line, in files and in older records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.record.request import as_today
from runner.request.compose import compose_jobs, hydra_over
from runner.request.composer import Composer
from runner.request.configured import configured
from runner.request.validate import validate


def checks(*lines: str, config_dir: Path | None = None, multirun: bool = False) -> list[tuple[bool, bool]]:
    """Of each job that a command line asks for, whether results and races are checked."""
    with hydra_over(config_dir):
        jobs = compose_jobs(lines, multirun)
    return [(job.request.check, job.request.fabric.races) for job in jobs]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], (True, False)),
        (["check=false"], (False, False)),
        (["check=true", "check.races=true"], (True, True)),
        (["check.races=true", "check=false"], (False, True)),
        (["check.results=false"], (False, False)),
        (["check={races: true}"], (True, True)),
        (["check={results: false, races: true}"], (False, True)),
    ],
)
def test_on_the_command_line(lines: list[str], expected: tuple[bool, bool]) -> None:
    assert checks(*lines) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("check: false", (False, False)),
        ("check: {races: true}", (True, True)),
        ("check: {results: false, races: true}", (False, True)),
    ],
)
def test_in_a_file(tmp_path: Path, text: str, expected: tuple[bool, bool]) -> None:
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "mine.yaml").write_text(f"# @package _global_\n{text}\n")
    assert checks("+exp=mine", config_dir=tmp_path) == [expected]
    assert checks("+exp=mine", "check=true", config_dir=tmp_path) == [(True, expected[1])]


def test_in_a_sweep() -> None:
    assert checks("check=true,false", multirun=True) == [(True, False), (False, False)]
    assert checks("check.races=true,false", multirun=True) == [(True, True), (True, False)]


@pytest.mark.parametrize("value", [True, False])
def test_of_an_older_record(value: bool) -> None:
    """Their configurations, and the overrides that an audit composes again."""
    request = validate(configured({"check": value, "seed": 3}))
    assert (request.check, request.fabric.races, request.seed) == (value, False, 3)
    with hydra_over():
        again = Composer().composition([f"check={str(value).lower()}"])
    assert validate(again.config).check == value


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ({"check": True, "op": "x"}, {"check": {"results": True, "races": False}, "op": "x"}),
        ({"check": {"results": False, "races": True}}, {"check": {"results": False, "races": True}}),
        ({"op": "x"}, {"op": "x"}),
    ],
)
def test_an_older_configuration_in_todays_form(configuration: dict[str, Any], expected: dict[str, Any]) -> None:
    assert as_today(configuration) == expected
