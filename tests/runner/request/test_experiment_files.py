"""Files of experiments that can't be used: what is wrong is said with the file and what would be right."""

import os

import pytest
from hydra._internal.core_plugins.file_config_source import FileConfigSource

from runner.request.compose import compose_jobs, hydra_over
from runner.request_error import RequestError
from tests.golden import same_text

HEADER = "# @package _global_\n"


def refusals(folder, *names):
    """What is said of experiments in a folder."""
    said = []
    with hydra_over(folder):
        for name in names:
            with pytest.raises(RequestError) as caught:
                compose_jobs([f"+exp={name}"], multirun=False)
            said.append(str(caught.value))
    return "\n".join(said)


def write(folder, name, text):
    path = folder / "exp" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(HEADER + text)
    return path


def test_a_file_without_permission_is_not_a_file_of_another_form(tmp_path, monkeypatch):
    write(tmp_path, "mine.yaml", "seed: 1\n")
    real = FileConfigSource.load_config

    def load(self, config_path):
        if "mine" in config_path:
            raise PermissionError(13, os.strerror(13), "exp/mine.yaml")  # root can read any file, so no mode does it
        return real(self, config_path)

    monkeypatch.setattr(FileConfigSource, "load_config", load)
    same_text(refusals(tmp_path, "mine"))


FILES = {
    "unknown": "defaults: [nothing]",
    "near": "defaults: [allreduce_bf61]",
    "fabric": "defaults: [{/fabric: simulater}]",
    "itself": "defaults: [/exp/itself]",
    "round": "defaults: [/exp/trip]",
    "trip": "defaults: [/exp/round]",
    "number": "check: {results: 3}",
    "share": "timing: {min_busbw_gbps: little}",
    "colon": "algorithms: [one_shot\nseed: 1",
}


def test_what_is_wrong_in_a_file_is_said_with_its_name(tmp_path):
    for name, text in FILES.items():
        write(tmp_path, f"{name}.yaml", f"{text}\n")
    write(tmp_path, "odd.yml", "seed: 1\n")
    (tmp_path / "exp" / "latin.yaml").write_bytes(f"{HEADER}# größte Werte\n".encode("latin-1"))
    same_text(refusals(tmp_path, *FILES, "odd", "odd.yml", "latin"))
