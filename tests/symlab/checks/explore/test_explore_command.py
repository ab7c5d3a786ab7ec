"""`symlab explore`: cases of experiments and custom kernels, its file, exit codes, interrupts, misuse in one line."""

import json
import os
import re
import shlex
import signal
import subprocess

import pytest

from kernels import sources
from simulator.options import Interleaving
from simulator.run.choices import text_of
from symlab.checks.explore.command import jobs_of
from symlab.checks.explore.of_case import subject_of
from symlab.checks.explore.subject import run_once
from symlab.command import main
from tests.golden import same_text
from tests.patience import PATIENCE_S
from tests.processes import begun
from tests.runner.command.test_exploration import write_push
from tests.symlab.messages_ptx import handed_over, produced

REFERENCE = """import torch


def expected(inputs):
    return [{"out": torch.tensor([42 * rank], dtype=torch.int32)} for rank in range(2)]


def others(rank, world_size):
    return rank
"""


def pulled(*order):
    """As handed_over, by a table of peers: rank 0 stores in its own memory, rank 1 looks there."""
    ptx = handed_over(*order).replace("[%rd2", "[%rd1").replace("ld.param.u64 %rd2, [other];", "")
    body = ptx.replace("ld.param.u64 %rd1, [mine];", "ld.param.u64 %rd2, [peers]; ld.global.u64 %rd1, [%rd2];")
    return body.replace(".param .u64 mine, .param .u64 other", ".param .u64 peers")


@pytest.fixture
def custom(tmp_path, monkeypatch):
    """Overrides of an experiment whose kernel stores its flag first, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hand.ptx").write_text(pulled("flag", "data"))
    (tmp_path / "hand.py").write_text(REFERENCE)
    (tmp_path / "conf" / "exp").mkdir(parents=True)
    (tmp_path / "conf" / "exp" / "hand.yaml").write_text(
        """# @package _global_
# a word handed over, its flag first
op: custom
world_size: 2
launches: 3
custom:
  kernel: hand.ptx:hand_over
  launch: {grid: 1, block: 1}
  buffers:
    mail: {dtype: int32, shape: [2], fill: zeros}
    out: {dtype: int32, shape: [1], fill: zeros}
  arguments: [{peers: mail}, {address: out}, rank]
  reference: hand.py:expected
"""
    )
    return ["--config-dir", str(tmp_path / "conf"), "+exp=hand", "track=none"]


ONE_PROCESS = ("--seeds", "60", "--processes", "1")
PRODUCED = """# @package _global_
# 64 threads hand words over to 32 of another kernel, on another stream
op: custom
world_size: 2
launches: 2
custom:
  kernel: made.ptx:produce
  launch: {grid: 1, block: 64, stream: 1}
  arguments: [{peer: [flag, 1]}, {peer: [data, 1]}]
  then:
    - kernel: made.ptx:consume
      launch: {grid: 1, block: 32, stream: 2}
      arguments: [{peer: [flag, 1]}, {peer: [data, 1]}, out]
  buffers:
    flag: {dtype: int32, shape: [1], fill: zeros}
    data: {dtype: int32, shape: [64], fill: zeros}
    out: {dtype: int32, shape: [32], fill: zeros}
  reference: hand.py:sevens
"""


def test_a_producer_and_its_consumer_in_one_case_are_explored(custom, tmp_path, capsys):
    """The second checked launch is one of the launches 2 and 3."""
    (tmp_path / "conf" / "exp" / "hand.yaml").write_text(PRODUCED)
    with (tmp_path / "hand.py").open("a") as file:
        file.write("\n\ndef sevens(inputs):\n    return [{'out': torch.full((32,), 7, dtype=torch.int32)}] * 2\n")
    (tmp_path / "made.ptx").write_text(produced("flag", "data"))
    assert main(["explore", *custom, *ONE_PROCESS, "-o", "found.json"]) == 1
    said = capsys.readouterr().out
    assert "buffer out: " in said
    assert "of rank 1 before rank" in said
    assert re.search(r"launch \d, produce, rank .*comes too late", said)
    assert re.search(r"launch \d, consume, rank .*reads the old value", said)
    assert main(["explore", "--replay", "found.json"]) == 1
    assert "the same failure" in capsys.readouterr().out


@pytest.mark.slow
def test_a_custom_kernel_is_found_shrunk_kept_and_repeated(custom, tmp_path, capsys):
    assert main(["explore", *custom, *ONE_PROCESS, "-o", "found.json"]) == 1
    said = capsys.readouterr().out
    assert "wrong output under schedule=" in said
    assert "buffer out: 1 of" in said
    assert re.search(r"shrunk to [0-3] switch", said)
    assert "rank 1, block 0, thread 0 reads mail[0] of rank 0 before rank 0, block 0, thread 0 stores it" in said
    assert "repeat it with: symlab explore --replay found.json" in said
    kept = json.loads((tmp_path / "found.json").read_text())
    assert (kept["launches"], kept["case"], kept["config_dir"]) == (1, kept["case"], str(tmp_path / "conf"))

    assert main(["explore", "--replay", "found.json"]) == 1
    assert "the same failure" in capsys.readouterr().out

    (tmp_path / "hand.ptx").write_text(pulled("data", "flag"))
    sources.read.cache_clear()  # a process reads each file once; a command is a process
    assert main(["explore", "--replay", "found.json"]) == 0
    said = capsys.readouterr().out
    assert "the kernel differs from the one of the file" in said
    assert "this order does not fail any more" in said


@pytest.mark.slow
def test_under_stress_each_seed_is_an_order_of_its_own():
    words = ["op=send_recv", "algorithms=[push]", "world_size=2", "sizes=[64]", "stress=no_host_barrier", "track=none"]
    (job,) = jobs_of(words).jobs
    subject = subject_of(job, job.cases[0])
    runs = [run_once(subject, Interleaving("random", "access", seed), records=True) for seed in (1, 2, 1)]
    assert [one.failure for one in runs] == [None] * 3
    assert text_of(runs[0].choices) == text_of(runs[2].choices) != text_of(runs[1].choices)
    assert {"input 0", "output 0", "output 2"} <= set(subject.layouts)
    again = run_once(subject, Interleaving("random", "access", 5, runs[0].choices), records=True)
    assert text_of(again.choices) == text_of(runs[0].choices)


@pytest.mark.slow
def test_a_broken_promise_is_found_and_repeated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    place = write_push(tmp_path, "early", "keep_epoch", "no_host_barrier")  # it ends before its output has come
    words = ["op=send_recv", f"algorithms=[{place}]", "sizes=[64]", "stress=no_host_barrier", "track=none"]
    words.append("check.races=false")  # with the checker the race is what is found
    assert main(["explore", *words, "--seeds", "20", "--processes", "1", "-o", "x.json"]) == 1
    assert "wrong output under schedule=" in capsys.readouterr().out
    assert main(["explore", "--replay", "x.json"]) == 1
    assert "the same failure" in capsys.readouterr().out


def test_a_right_case_gives_nothing_and_says_what_was_explored(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["op=all_reduce", "algorithms=[one_shot]", "world_size=2", "sizes=[1K,64]", "launches=1", "--case", "-64B"]
    assert main(["explore", *words, "--seeds", "3", "--first-seed", "5", "--schedule", "random"]) == 0
    said = capsys.readouterr().out
    assert "symlab explore: 1 case\n" in said
    assert re.search(r"3 runs of 1 case in [\d.]+ s \(.* a second, 1 process\): seeds 5 to 7, random\n", said)
    assert "nothing was found; this proves no absence of mistakes" in said
    assert "not tried: weak memory (fabric.memory=weak), the race checker (check.races=true)" in said
    assert list(tmp_path.iterdir()) == []
    assert main(["explore", *words, "--seeds", "1", "fabric.memory=weak", "check.races=true"]) == 0
    assert "not tried" not in capsys.readouterr().out


def test_a_mistake_of_the_fair_order_is_not_told_as_one_of_another_order(custom, tmp_path, capsys):
    (tmp_path / "hand.py").write_text(REFERENCE.replace("42", "41"))
    assert main(["explore", *custom, "--seeds", "4", "--processes", "1", "-o", "x.json"]) == 1
    assert "wrong output in the fair order, too\n" in capsys.readouterr().out


def test_runs_of_which_none_was_decided_are_no_success(capsys):
    words = ["op=all_reduce", "algorithms=[one_shot]", "world_size=2", "sizes=[64]", "fabric.step_budget=10"]
    assert main(["explore", *words, "--seeds", "1", "--processes", "1"]) == 2
    said = capsys.readouterr().out
    assert "undecided, the first: schedule=random, seed 0: " in said
    assert "no run was decided, so that nothing is known" in said
    assert "nothing was found" not in said


@pytest.mark.slow
def test_a_file_is_repeated_from_another_folder_by_the_line_that_was_printed(custom, tmp_path, monkeypatch, capsys):
    (tmp_path / "other place").mkdir()
    experiment = tmp_path / "conf" / "exp" / "hand.yaml"
    experiment.write_text(experiment.read_text().replace(" hand.p", f" {tmp_path}/hand.p"))
    words = ["--config-dir", "conf", *custom[2:], "check.races=true", *ONE_PROCESS, "--shrink", "0"]
    assert main(["explore", *words, "-o", str(tmp_path / "other place" / "found it.json")]) == 1
    line = capsys.readouterr().out.splitlines()[-1].partition("repeat it with: symlab ")[2]
    monkeypatch.chdir(tmp_path / "other place")
    assert main(shlex.split(line)) == 1
    assert "the same failure" in capsys.readouterr().out

    (tmp_path / "conf").rename(tmp_path / "moved")
    assert main([*shlex.split(line), "--config-dir", str(tmp_path / "moved")]) == 1
    assert "the same failure" in capsys.readouterr().out


@pytest.mark.slow
def test_an_undecided_repetition_is_no_success(custom, tmp_path, capsys):
    assert main(["explore", *custom, *ONE_PROCESS, "--shrink", "0", "-o", "found.json"]) == 1
    kept = json.loads((tmp_path / "found.json").read_text())
    kept["overrides"] += ["fabric.step_budget=1"]
    (tmp_path / "found.json").write_text(json.dumps(kept))
    assert main(["explore", "--replay", "found.json"]) == 2
    assert "it is undecided whether this order fails: " in capsys.readouterr().out


@pytest.mark.slow
def test_an_interrupt_says_what_was_done(custom, tmp_path):
    (tmp_path / "hand.ptx").write_text(pulled("data", "flag"))
    process = begun("-m", "symlab", "explore", *custom, "--processes", "2", cwd=tmp_path, stderr=subprocess.PIPE)
    assert "1 case" in process.stdout.readline()
    assert re.search(r"\d+ runs?, ", process.stderr.readline()), "it tells how far it is"
    process.send_signal(signal.SIGINT)
    said, complaint = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert re.search(r"\d+ runs? of 1 case in", said)
    assert "interrupted: the runs so far found nothing" in complaint
    assert "Traceback" not in complaint


KEPT = {
    **{"symlab_exploration": 4, "overrides": [], "case": "x", "config_dir": None, "digest": "", "choices": []},
    "order": {"schedule": "random", "granularity": "access", "seed": 0, "follows": None},
    "failure": {"kind": "fault", "message": "x"},
    "launches": 1,
}
FILES = {
    "other": {"format": "symlab record"},
    "list": [1, 2],
    "first": KEPT | {"symlab_exploration": 3},
    "choices": KEPT | {"choices": ["x"]},
    "launches": KEPT | {"launches": 1001},
    "seed": KEPT | {"order": KEPT["order"] | {"seed": -1}},
    "fair": KEPT | {"order": KEPT["order"] | {"schedule": "fair"}},
    "digest": KEPT | {"digest": 5},
}
DEEP = 100_000 * "["


WRONG = [
    *([one] for one in ("op=all_redcue", "check=false", "fabric=nvshmem")),
    *([f"fabric.{one}"] for one in ("schedule=random", "seed=3", "granularity=block")),
    *(["--case", "two_shout"], ["--seeds", "0"], ["--seconds", "nan"], ["--schedule", "fair"]),
    *(["--replay", one] for one in ("pipe", "missing.json", "deep.json", *(f"{name}.json" for name in FILES))),
    *(["-o", "no/such/folder/x.json"], ["--replay", "other.json", "op=barrier"]),
    ["world_size=2", "op=all_reduce", "algorithms=[multimem_one_shot]", "fabric.multicast=false"],
]


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_a_wrong_request_is_one_line(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    (tmp_path / "deep.json").write_text(DEEP)
    os.mkfifo("pipe")
    assert main(["explore", *words]) == 2
    same_text(capsys.readouterr().err)
