"""Command lines of another form: what is meant is said in ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from runner.request.compose import compose_jobs, hydra_over
from runner.request.misread import misread_option
from runner.request_error import RequestError
from tests.runner.conftest import Outcome

Symlab = Callable[..., Outcome]


def refusal(*arguments: str, folder: Path | None = None) -> str:
    with hydra_over(folder), pytest.raises(RequestError) as caught:
        compose_jobs(arguments, multirun=False)
    return str(caught.value)


@pytest.mark.parametrize(
    "argument", ["mine", "conf/exp/mine.yaml", "/some/where/exp/mine.yaml", "mine.yaml", "mine.yml"]
)
def test_an_experiment_without_its_key(tmp_path: Path, argument: str) -> None:
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "mine.yaml").write_text("# @package _global_\nseed: 1\n")
    assert refusal(argument, folder=tmp_path) == f"can't read '{argument}' (command line), did you mean +exp=mine?"


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        (["all_reduce"], "did you mean op=all_reduce?"),
        (["all_reduse"], "did you mean op=all_reduce?"),
        (["barrier"], "did you mean +exp=barrier or op=barrier?"),
        (["seed=1", "bfloat16"], "did you mean dtype=bfloat16?"),
        (["two_shot"], "did you mean algorithms=[two_shot]?"),
        (["simulator"], "did you mean fabric=simulator?"),
        (["world_size", "=", "4"], "write world_size=4, without spaces around the ="),
        (["world_size=", "4"], "write world_size=4, without spaces around the ="),
        (["world_size", "=4"], "write world_size=4, without spaces around the ="),
        (["world_size"], "write overrides as key=value: world_size=.."),
        (["sizes.min"], "write overrides as key=value: sizes.min=.."),
        (["nothing of this"], "write overrides as key=value, with quotes where needed"),
    ],
)
def test_a_word_that_is_no_override(arguments: list[str], right: str) -> None:
    message = refusal(*arguments)
    assert message.startswith("can't read '")
    assert message.endswith(f"' (command line), {right}")


@pytest.mark.parametrize(
    ("argument", "right"),
    [
        ("algorithms=one_shot,two_shot", "; for a list write algorithms=[one_shot,two_shot]"),
        ("baselines=nccl,torch/one_shot", "; for a list write baselines=[nccl,torch/one_shot]"),
        ("sizes=4K,1M", "; for a list write sizes=[4K,1M]"),
        ("sizes.list=4K,1M", "; for a list write sizes.list=[4K,1M]"),
        ("sizes=[4K],[1M]", "add -m to run a sweep over them"),
        ("sizes.min=4K,1M", "add -m to run a sweep over them"),
        ("world_size=2,4", "add -m to run a sweep over them"),
    ],
)
def test_several_values_of_a_key_that_takes_a_list(argument: str, right: str) -> None:
    message = refusal(argument)
    assert "gives several values" in message
    assert message.endswith(right)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("-b 1K -e 1M", "-b is an option of nccl-tests (-b), write sizes.min=1K"),
        ("-e 1M", "-e is an option of nccl-tests (-e), write sizes.max=1M"),
        ("-b1K", "-b is an option of nccl-tests (-b), write sizes.min=1K"),
        ("-n 20", "-n is an option of nccl-tests (-n), write timing.samples=20"),
        ("--iters=20", "--iters is an option of nccl-tests (--iters), write timing.samples=20"),
        ("--minbytes 1K", "--minbytes is an option of nccl-tests (--minbytes), write sizes.min=1K"),
        ("-d half", "-d is an option of nccl-tests (-d), write dtype=float16"),
        ("seed=1 -f", "-f is an option of nccl-tests (-f), write sizes.factor=.."),
        ("--world_size 4", "--world_size is a key and not an option (world_size), write world_size=4"),
        ("--world-size=4", "--world-size is a key and not an option (world_size), write world_size=4"),
        ("--fabric.seed 4", "--fabric.seed is a key and not an option (fabric.seed), write fabric.seed=4"),
        ("--exp mine", "--exp is a key and not an option (exp), write +exp=mine"),
        ("--timing", "--timing is a key and not an option (timing), write timing.mode=.."),
        ("-G 1", "-G is an option of nccl-tests (-G), write timing.mode=graph"),
    ],
)
def test_an_option_that_is_a_key_here(symlab: Symlab, arguments: str, says: str) -> None:
    done = symlab(*arguments.split())
    assert (done.code, done.out, done.err) == (2, "", f"symlab: error: {says}\n")


def test_other_options_are_left_to_the_parser() -> None:
    assert misread_option("--cgf", ["--cgf", "job"]) == ""


@pytest.mark.parametrize(
    ("dtype", "right"),
    [("fp16", "float16"), ("bf16", "bfloat16"), ("half", "float16"), ("float", "float32"), ("fp32", "float32")],
)
def test_a_dtype_by_another_name(symlab: Symlab, dtype: str, right: str) -> None:
    done = symlab(f"dtype={dtype}")
    assert (done.code, done.out) == (2, "")
    assert done.err == f"symlab: error: unknown dtype '{dtype}' (dtype), did you mean {right}?\n"
