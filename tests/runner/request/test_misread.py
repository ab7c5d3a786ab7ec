"""Command lines of another form: what is meant is said in ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from runner.request.compose import compose_jobs, hydra_over
from runner.request.misread import misread_option
from runner.request_error import RequestError
from tests.golden import same_text
from tests.runner.conftest import Outcome, refusals

Symlab = Callable[..., Outcome]


WORDS = {
    "experiments": (["mine"], ["conf/exp/mine.yaml"], ["/some/where/exp/mine.yaml"], ["mine.yaml"], ["mine.yml"]),
    "words": (["all_reduce"], ["all_reduse"], ["barrier"], ["seed=1", "bfloat16"], ["two_shot"], ["simulator"]),
    "halves": (
        ["world_size", "=", "4"],
        ["world_size=", "4"],
        ["world_size", "=4"],
        ["world_size"],
        ["sizes.min"],
        ["nothing of this"],
    ),
    "several values": (
        ["algorithms=one_shot,two_shot"],
        ["baselines=nccl,torch/one_shot"],
        ["sizes=4K,1M"],
        ["sizes.list=4K,1M"],
        ["sizes=[4K],[1M]"],
        ["sizes.min=4K,1M"],
        ["world_size=2,4"],
    ),
}


@pytest.mark.parametrize("kind", WORDS)
def test_a_word_that_is_no_override(tmp_path: Path, kind: str) -> None:
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "mine.yaml").write_text("# @package _global_\nseed: 1\n")
    said = []
    with hydra_over(tmp_path):
        for arguments in WORDS[kind]:
            with pytest.raises(RequestError) as caught:
                compose_jobs(arguments, multirun=False)
            said.append(str(caught.value))
    same_text("\n".join(said))


OPTIONS = (
    *("-b 1K -e 1M", "-e 1M", "-b1K", "-n 20", "--iters=20", "--minbytes 1K", "-d half", "seed=1 -f", "-G 1"),
    *("--world_size 4", "--world-size=4", "--fabric.seed 4", "--exp mine", "--timing"),
)


def test_an_option_that_is_a_key_here(symlab: Symlab) -> None:
    said = []
    for arguments in OPTIONS:
        done = symlab(*arguments.split())
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        said.append(done.err)
    same_text("".join(said))
    assert misread_option("--cgf", ["--cgf", "job"]) == ""


def test_a_dtype_by_another_name() -> None:
    same_text(refusals("dtype=fp16 / dtype=bf16 / dtype=half / dtype=float / dtype=fp32"))
