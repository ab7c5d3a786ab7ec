"""Files of experiments that can't be used: what is wrong is said with the file and what would be right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hydra._internal.core_plugins.file_config_source import FileConfigSource

from runner.request.compose import compose_jobs, hydra_over
from runner.request_error import RequestError

HEADER = "# @package _global_\n"


def refusal(folder: Path, *arguments: str) -> str:
    with hydra_over(folder), pytest.raises(RequestError) as caught:
        compose_jobs(arguments, multirun=False)
    return str(caught.value)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / "exp" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(HEADER + text)
    return path


def test_a_file_without_permission_is_not_a_file_of_another_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "mine.yaml", "seed: 1\n")
    real = FileConfigSource.load_config

    def load(self: FileConfigSource, config_path: str) -> object:
        if "mine" in config_path:
            raise PermissionError(13, os.strerror(13), "exp/mine.yaml")  # root can read any file, so no mode does it
        return real(self, config_path)

    monkeypatch.setattr(FileConfigSource, "load_config", load)
    message = "exp/mine.yaml: no permission to read it (exp), give this user read permission"
    assert refusal(tmp_path, "+exp=mine") == message


@pytest.mark.parametrize(
    ("defaults", "parts"),
    [
        ("[nothing]", ["unknown exp 'nothing' (defaults in exp/mine.yaml), known: accumulator_study, ", ", mine"]),
        (
            "[allreduce_bf61]",
            ["unknown exp 'allreduce_bf61' (defaults in exp/mine.yaml), did you mean allreduce_bf16"],
        ),
        (
            "[{/fabric: simulater}]",
            ["unknown fabric 'simulater' (defaults in exp/mine.yaml), did you mean simulator?"],
        ),
    ],
)
def test_what_a_defaults_list_names_is_looked_for_in_that_list(tmp_path: Path, defaults: str, parts: list[str]) -> None:
    write(tmp_path, "mine.yaml", f"defaults: {defaults}\n")
    message = refusal(tmp_path, "+exp=mine")
    assert [part for part in parts if part not in message] == [], message


@pytest.mark.parametrize("of", [{"mine": "mine"}, {"mine": "other", "other": "mine"}])
def test_defaults_that_lead_back_to_themselves_are_one_line(tmp_path: Path, of: dict[str, str]) -> None:
    for name, default in of.items():
        write(tmp_path, f"{name}.yaml", f"defaults: [/exp/{default}]\n")
    assert "(defaults)" in refusal(tmp_path, "+exp=mine")


def test_a_number_in_a_file_is_neither_true_nor_false(tmp_path: Path) -> None:
    write(tmp_path, "mine.yaml", "check: {results: 3}\n")
    assert "check.results" in refusal(tmp_path, "+exp=mine")


@pytest.mark.parametrize("name", ["odd", "odd.yml"])
def test_a_file_of_another_ending_is_named_with_the_right_one(tmp_path: Path, name: str) -> None:
    write(tmp_path, "odd.yml", "seed: 1\n")
    assert refusal(tmp_path, f"+exp={name}") == "exp/odd.yml ends in .yml (exp), name it odd.yaml"
