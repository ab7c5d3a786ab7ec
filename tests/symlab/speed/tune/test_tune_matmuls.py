"""`symlab tune` for ops that multiply: the search on a synthetic machine, and what its table then runs, simulated."""

import math
from dataclasses import dataclass, replace

import pytest

import symlab
from kernels.catalogue import find
from kernels.fused import tuning_of
from memory.fabric import Traits
from reports.record.bundle import read as read_records
from runner.__main__ import main
from runner.command.plan import prepare
from runner.records.store import Store
from runner.request_error import RequestError
from symlab.speed.tune.candidates import Candidates
from symlab.speed.tune.command import Options, tune
from symlab.speed.tune.entries import is_own
from symlab.speed.tuned.table import Table, read
from tests.golden import refused, same_text
from tests.reports.synthetic import record, with_environment
from tests.runner.conftest import agrees_and_replays
from tests.symlab.speed.tune.test_tune_on_gpus import GPU, TURNS, Clocked, Finals, machine, on_gpus
from tests.symlab.speed.tuned.test_tuned_table import entry

SHAPE = {"m": 4096, "n": 8192, "k": 4096}
GEMM = tuple(SHAPE.values())
OP = "matmul_reduce_scatter"
LIBRARY_US = 130.0
BEST = "inbox@c192s3k3p512f4x1m8b132"


def true_us(case):
    """The law: tiles of 192 columns, 3 stages and 4 pieces of 512 bytes in flight are best, in this world's inbox."""
    one = tuning_of(case)
    steps = (math.log2(one.piece_bytes / 512), math.log2(one.in_flight / 4), one.stages - 3, (one.columns - 192) / 64)
    others = 3 * (one.cluster - 1) + 2 * (one.along == "n") + abs(math.log2(one.panel / 8)) + (132 - one.blocks) / 8
    return 100.0 + 4 * sum(map(abs, steps)) + others + 6 * case.algorithm.startswith("adding")


def slower_where_tuned(case):
    """Another day's law: all but the catalogue's own tunings take a tenth longer."""
    return true_us(case) if is_own(case.algorithm) else 1.1 * max(true_us(case), 125.0)


@dataclass
class MatmulFinals(Finals):
    """Records of all cases of a job, libraries among them."""

    def __call__(self, given, composed):
        self.composed += composed
        store = Store(self.folder / f"run{len(list(self.folder.glob('run*')))}")
        for job in prepare(given, composed, machine=machine).jobs:
            for case in job.cases:
                us = LIBRARY_US if case.accumulator == "library" else self.us(case)
                made = record(case.algorithm, world_size=2, samples_us=[[us * part for part in TURNS]] * 2)
                made = with_environment(replace(made, case=case, id=case.id), gpus=({"model": GPU},))
                made = replace(made, request=replace(made.request, job=job.composed.number))
                store.write(made, f"{job.composed.number:02d}")
        return store.folder


def searched(folder, *more, law=true_us, final_law=None, op=OP, **options):
    bench, finals = Clocked(law), MatmulFinals(folder, us=final_law or law)
    _, seams = on_gpus(finals, bench=lambda *_: bench)
    asked = [f"op={op}", *(f"{key}={size}" for key, size in SHAPE.items()), "fabric=nvshmem", *more]
    code = tune(Options(asked, **{"output": folder / "t.json", "processes": 1} | options), asked, seams)
    return code, bench, finals


def candidates(op=OP, algorithms=("inbox", "adding")):
    case = symlab.case(f"{op}/{algorithms[0]}", gemm=GEMM, ranks=1 if op == "matmul" else 2)
    traits = Traits("nvshmem", "sm_90a", case.world_size, 1 << 36, False)
    return Candidates(replace(case, algorithm="best"), algorithms, traits)


def test_the_search_finds_what_is_fastest_and_its_table_has_it(tmp_path, capsys):
    code, bench, finals = searched(tmp_path)
    assert code == 0
    (one,) = read(tmp_path / "t.json").entries
    assert (one.op, one.gemm, one.ranks, one.dtype) == (OP, GEMM, 2, "bfloat16")
    assert one.from_bytes == one.size_bytes == one.up_to_bytes == 2 * 4096 * 8192
    (names,) = bench.names.values()
    assert {"inbox", "adding"} <= names
    assert one.choice.name == min(names, key=lambda name: true_us(candidates().case(name))) == BEST
    assert one.choice.value == pytest.approx(true_us(candidates().case(BEST)))
    assert (one.searched.how, one.searched.timed) == ("exhaustive", len(names))
    assert one.library.value == LIBRARY_US
    (final,) = finals.composed
    assert {BEST, "inbox", "adding"} <= set(final.request.algorithms)
    assert (final.request.gemm, final.request.baselines) == (GEMM, "auto")
    said = capsys.readouterr().out
    assert f"all candidates are measured: the model does not rank tunings of {OP} (op)\n" in said
    assert "4096x8192x4096" in said


def test_a_tuning_that_loses_to_the_catalogues_own_in_the_finals_is_no_choice(tmp_path):
    assert searched(tmp_path, final_law=slower_where_tuned)[0] == 0
    (one,) = read(tmp_path / "t.json").entries
    assert one.choice.name == "inbox"
    assert one.choice.value < one.runner_up.value


def test_a_table_has_an_entry_for_each_shape(tmp_path):
    searched(tmp_path, "algorithms=[adding]")
    code, _, finals = searched(tmp_path, "m=512,8192", multirun=True)
    assert (code, [one.request.gemm[0] for one in finals.composed]) == (0, [512, 8192])
    table = read(tmp_path / "t.json")
    names = {512: BEST, 4096: "adding@c192s3k3p2048f4x1m8b132", 8192: BEST}
    assert {one.gemm[0]: one.choice.name for one in table.entries} == names
    for rows, name in names.items():
        case = symlab.case(f"{OP}/inbox", gemm=(rows, *GEMM[1:]), ranks=2)
        found = table.choice(case, "sm_90a", GPU)
        assert (found.name, found.nearest) == (name, "")
    four = table.choice(symlab.case(f"{OP}/inbox", gemm=(8192, *GEMM[1:]), ranks=4), "sm_90a", GPU)
    assert (four.name, four.nearest) == (BEST, "searched for ranks 2, not 4")
    with refused():
        table.choice(symlab.case(f"{OP}/inbox", gemm=(2048, *GEMM[1:]), ranks=2), "sm_90a", GPU)


@pytest.mark.parametrize("options", [{"sample": 3}, {"unseen": True}], ids=lambda options: next(iter(options)))
def test_what_has_no_meaning_for_matmuls_is_refused(tmp_path, options):
    with refused(RequestError):
        searched(tmp_path, **options)


@pytest.mark.parametrize(
    ("op", "algorithms"),
    [
        ("matmul", ["tiles"]),
        ("all_gather_matmul", ["push"]),
        (OP, ["inbox", "adding"]),
        ("matmul_all_reduce", ["inbox"]),
    ],
)
def test_candidates_are_other_code_or_blocks_and_what_kernels_take(op, algorithms):
    place = candidates(op, algorithms)
    first = place.first()
    assert [one.algorithm for one in first[: len(algorithms)]] == algorithms
    near = place.near([one.algorithm for one in first])
    keys = set()
    for case in (*first, *near):
        spec, one = find(case.name), tuning_of(case)
        spec.build(case)
        unused = {"matmul": ("piece_bytes", "in_flight")}.get(op, ()) or ("piece_bytes",) * (case.algorithm[0] == "a")
        values = {key: value for key, value in one.values().items() if key not in unused}
        keys.add((case.algorithm.partition("@")[0], *values.items()))
        assert spec.launch(case).blocks <= one.blocks
    assert len(keys) == len(first) + len(near) > 12
    every = [tuning_of(one) for one in (*first, *near)]
    assert place.named([f"{algorithms[-1]}@c64s4k1p8192f1x1m1b1"]) == [] or op != "all_gather_matmul"
    assert {one.columns for one in every} == {256, 192, 128}
    for key in ("stages", "chunks", "cluster", "along", "panel", "blocks", *(("in_flight",) if op != "matmul" else ())):
        assert len({getattr(one, key) for one in every}) > 1, key


# What runs

TUNING = "c64s3k1p1024f2x1n2b3"
VALUES = {
    **{"columns": 64, "stages": 3, "chunks": 1, "piece_bytes": 1024, "in_flight": 2},
    **{"cluster": 1, "along": "n", "panel": 2, "blocks": 3},
}
LINE = ("m=140", "n=128", "k=72", "fabric=simulator", "track=none")


def table_of(name, op=OP):
    shape = (140, 128, 72)
    size = 2 * shape[0] * shape[1]
    return Table(GPU, "sm_90a", {}, (entry(name, size, size, size, op=op, gemm=shape, runner_up=None),))


def test_best_runs_the_tuning_of_the_table_and_its_record_names_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.json").write_text(table_of(f"inbox@{TUNING}").text())
    assert main([*LINE, f"op={OP}", "algorithms=[best,inbox]", "inputs=exact", "tuned=t.json"]) == 0
    usual, tuned = sorted(read_records(["records"]), key=lambda one: len(one.case.algorithm))
    assert tuned.case.algorithm == f"inbox@{TUNING}"
    assert tuned.verified
    given = tuned.request.kernel
    assert given["tuning"] == VALUES
    assert given["choices"].items() >= {key: value for key, value in VALUES.items() if key != "blocks"}.items()
    assert given["chosen"]["searched"]["gemm"] == [140, 128, 72]
    assert "tuning" not in usual.request.kernel
    assert tuned.kernel.code_digest != usual.kernel.code_digest
    assert (tuned.kernel.grid, usual.kernel.grid) == (3, 2)
    assert main([*LINE, f"op={OP}", "algorithms=best", "tuned=t.json", "m=280"]) == 2
    same_text(capsys.readouterr().err)


@pytest.mark.slow
def test_audits_and_replay_compile_the_tuning_again_without_the_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.json").write_text(table_of(f"adding@{TUNING}").text())
    assert main([*LINE, f"op={OP}", "algorithms=best", "inputs=exact", "tuned=t.json"]) == 0
    (tmp_path / "t.json").unlink()
    agrees_and_replays(capsys)


@pytest.mark.slow
@pytest.mark.parametrize("tuning", ["c128s2k2p256f3x2n3b5", "c64s4k1p4096f1x1m1b1"])
@pytest.mark.parametrize(
    "name", ["matmul/tiles", "all_gather_matmul/push", f"{OP}/inbox", f"{OP}/adding", "matmul_all_reduce/inbox"]
)
def test_every_kernel_is_right_with_other_tunings(name, tuning, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    op, algorithm = name.split("/")
    assert main(["m=300", *LINE[1:], f"op={op}", f"algorithms=[{algorithm}@{tuning}]", "inputs=exact"]) == 0


def test_blocks_are_of_the_launch_and_not_of_the_code():
    case = symlab.case(f"{OP}/inbox", gemm=(1024, 512, 64), ranks=2)
    few, many = (replace(case, algorithm=f"inbox@c128s6k2p128f2x1m8b{blocks}") for blocks in (8, 132))
    made = [find(one.name).made(one, "sm_90a") for one in (few, many)]
    assert made[0].ptx == made[1].ptx
    assert [one.host.launch.grid for one in made] == [find(one.name).launch(one).grid for one in (few, many)]
    assert [math.prod(one.host.launch.grid) for one in made] == [8, 32]
    assert [one.name for one in made] == [few.name, many.name]
