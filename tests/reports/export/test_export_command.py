"""`symlab export`: files, refusals, and that simulated and wrong records never become a table."""

import pytest

from reports.commands import CONSUMERS, export
from reports.export import command
from reports.record import bundle
from tests.reports.export.serving import serving
from tests.reports.export.sweeps import OWN, sweep
from tests.reports.export.tuner_reader import choice


@pytest.fixture
def records(tmp_path):
    place = tmp_path / "sweep.jsonl.xz"
    bundle.write(sweep(), place)
    return str(place)


def run(*arguments):
    export([*arguments], standalone_mode=False)


def test_a_file_is_written_and_what_it_says_is_printed(records, tmp_path, capsys):
    output = tmp_path / "tuner.csv"
    run("--to", "nccl", records, "-o", str(output))
    said = capsys.readouterr().out
    assert "regret on sizes left out" in said
    assert said.endswith(f"{output}: written\n")
    assert choice(output.read_text(), "allreduce", 1 << 20, 4)[:2] == ("ring", "ll128")
    run("--to", "nccl", records)
    assert capsys.readouterr().out == output.read_text()


def test_the_same_records_give_the_same_file(tmp_path):
    backwards = command.WRITERS["nccl"](list(reversed(sweep())))
    assert command.WRITERS["nccl"](sweep()) == backwards
    assert command.WRITERS["vllm"](serving()) == command.WRITERS["vllm"](list(reversed(serving())))


def test_the_command_and_the_room_know_the_same_consumers():
    assert set(CONSUMERS) == set(command.WRITERS)


def test_a_place_that_cant_be_written_is_known_before_the_records_are_read(tmp_path):
    with pytest.raises(ValueError, match="no such folder"):
        run("--to", "nccl", str(tmp_path / "none"), "-o", str(tmp_path / "no" / "x.csv"))


def test_own_choice_alone_is_no_sweep(tmp_path):
    place = tmp_path / "own.jsonl.xz"
    bundle.write(sweep(settings=(OWN,)), place)
    with pytest.raises(ValueError, match=r"run symlab run \+exp=nccl_sweep"):
        run("--to", "nccl", str(place))
