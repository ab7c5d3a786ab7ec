"""Ops that multiply, as the command runs, refuses, records and sweeps them."""

import pytest

import symlab
from cases.record.record import from_json
from kernels.catalogue import MATMUL_FILES, find
from kernels.matmul.ranks import FusedMatmul
from reports.record.bundle import read
from runner.__main__ import main
from symlab.command import main as command
from tests.golden import same_text
from tests.patience import NEVER_S
from tests.runner.conftest import agrees_and_replays, refusals

SIMULATED = ("fabric=simulator", "track=none", f"deadline_s={NEVER_S}")
SMALL = ("m=140", "n=128", "k=72", *SIMULATED)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*arguments):
    return main([*SMALL, *arguments])


def ended(name, *more):
    """The exit code of a kernel."""
    op, algorithm = name.split("/")
    return main([f"op={op}", f"algorithms=[{algorithm}]", *SIMULATED, *more])


@pytest.mark.parametrize(("op", "kind"), [("matmul_reduce_scatter", "exact"), ("all_gather_matmul", "normal")])
def test_an_op_runs_and_its_records_are_read_again(op, kind, capsys):
    assert run(f"op={op}", f"inputs={kind}") == 0
    assert "2 ranks, M 140, N 128, K 72" in capsys.readouterr().out
    records = read(["records"])
    assert [one.case.name for one in records] == [name for name in MATMUL_FILES if name.startswith(op)]
    for record in records:
        assert record.verified
        assert record.case.gemm == (140, 128, 72)
        assert record.id.endswith("-m140n128k72")
        assert record.check.launches_equal_promised == (find(record.case.name).fold != "unordered" or kind == "exact")
        assert from_json(record.to_json()) == record
    assert {one.check.method for one in records} == {"bitwise" if kind == "exact" else "bound"}


@pytest.mark.slow
@pytest.mark.parametrize("name", MATMUL_FILES)
@pytest.mark.parametrize(("ranks", "kind", "dtype"), [(2, "normal", "bfloat16"), (3, "exact", "float16")])
def test_every_kernel_passes_without_races(name, ranks, kind, dtype):
    """With a depth at which exact sums of two ranks are rounded to bfloat16, and a fold in the stated order is
    demanded."""
    asked = (f"world_size={ranks}", f"inputs={kind}", f"dtype={dtype}", "check.races=true")
    assert ended(name, "m=210", "n=72", "k=264", *asked) == 0
    (record,) = read(["records"])
    assert (str(record.status), record.findings) == ("PASSED", ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "stress"), [(name, stress) for name in MATMUL_FILES for stress in sorted(find(name).promises)]
)
def test_every_kernel_keeps_its_promises(name, stress):
    assert ended(name, "m=72", "n=72", "k=72", "inputs=exact", f"stress={stress}") == 0


@pytest.mark.slow
def test_a_rank_that_tells_nothing_is_a_deadlock_with_the_line_of_the_wait(monkeypatch):
    monkeypatch.setattr(FusedMatmul, "tell", lambda *_: None)
    assert ended("matmul_reduce_scatter/inbox", "m=132", "n=64", "k=64") == 1
    (record,) = read(["records"])
    assert str(record.status) == "DEADLOCK"
    assert "kernels/dsl/rank_barriers.py" in record.reason, record.reason
    assert "/* at " not in find(record.case.name).made(record.case, "sm_90a").ptx


LARGER = "fabric=simulator m=256 n=128 k=128 dtype=bfloat16"
REFUSED = [
    *("op=all_gather m=256 fabric=simulator", "op=all_gather_matmul m=256 k=128 fabric=simulator"),
    *(f"{LARGER} op=all_gather_matmul {one}" for one in ("sizes=[1K]", "m=257", "m=0")),
    *(
        f"{LARGER} op=matmul_all_reduce {one}"
        for one in ("inputs=edge", "dtype=float32", "timing.dependent_launch=true")
    ),
    *(f"{LARGER} op=matmul_all_reduce algorithms={one}" for one in ("best", "[inbox@d]")),
]
BY_ALL_KERNELS = [
    f"{LARGER} op=all_gather_matmul n=12",
    *(f"{LARGER} op=matmul_all_reduce {one}" for one in ("offset=1", "world_size=1", "fabric.heap_bytes=64K")),
]


def test_what_does_not_belong_together_is_refused_in_one_line():
    same_text(refusals(" / ".join(REFUSED)))


@pytest.mark.parametrize("line", BY_ALL_KERNELS)
def test_what_no_kernel_takes_is_refused_in_one_line(line, capsys):
    assert main([*line.split(), "track=none"]) == 2
    same_text(capsys.readouterr().err)


@pytest.mark.slow
def test_records_are_audited_and_replayed_to_the_bit(capsys):
    assert run("op=matmul_all_reduce", "inputs=exact") == 0
    agrees_and_replays(capsys)


def test_a_case_has_gemm_in_place_of_a_size():
    found = symlab.case("all_gather_matmul/push", gemm=(256, 128, 64))
    assert (found.gemm, found.dtype, found.size_bytes) == ((256, 128, 64), "bfloat16", 2 * 256 * 128)
    with pytest.raises(ValueError, match="give a number of bytes, or gemm"):
        symlab.case("all_gather_matmul/push")


@pytest.mark.parametrize("verb", ["tune", "predict"])
def test_what_is_not_simulated_is_refused(verb):
    assert command([verb, "op=all_gather_matmul", "m=256", "n=128", "k=64", "fabric=simulator"]) == 2
