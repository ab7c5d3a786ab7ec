"""symlab predict: what it prints is marked as predicted, in both formats, and wrong requests say what is right."""

import dataclasses
import json

import pytest

from cases.case import Case
from kernels.catalogue import find
from reports.record.bundle import PUBLISHED as PLACE
from reports.record.bundle import read
from runner.gpu.reading import gpu_type
from runner.request.experiments import CONF
from runner.world.world import WorldFailure
from simulator.clock.costs import H200_TRIAL
from symlab.__main__ import main
from symlab.speed.predict import asking, command, profile_cache, profiling, shown
from symlab.speed.predict.evidence import is_evidence
from symlab.speed.predict.model import Fitted
from symlab.speed.predict.predicting import predicted
from symlab.speed.predict.rates import rates_of
from symlab.speed.predict.stored_score import PLACE as SCORE
from symlab.speed.predict.stored_score import stored
from tests.golden import same_text
from tests.patience import NEVER_S
from tests.symlab.speed.tuned.test_tuned_table import TABLE

REQUEST = (
    "op=all_reduce", "dtype=bfloat16", "world_size=2", "sizes=[1K,1M]", "algorithms=[one_shot,lamport]",
)  # fmt: skip

PUBLISHED = str(CONF.parent / PLACE / "h200-x2" / "all_reduce-world1.jsonl.xz")

FLAGGED = "algorithms=[one_shot,ll]"
"""On 2 ranks ll refuses 1 MiB, which lamport takes."""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def _asked(cache, *words):
    return main(["predict", *REQUEST, f"cache_dir={cache}", *words])


def test_text_and_json_say_the_same_and_that_it_is_predicted(cache, capsys):
    said = {}
    for form in ("text", "json"):
        assert _asked(cache, "fabric.gpu=h200", FLAGGED, "--format", form) == 0
        said[form] = capsys.readouterr().out
    lines = json.loads(said["json"])
    assert said["text"].startswith("PREDICTED, not measured: all_reduce bfloat16, accumulator float32, sum, 2 ranks of")
    assert {one["predicted"] for one in lines} == {True}
    for one in (one for one in lines if not one["refused"]):
        assert one["low_us"] < one["high_us"]
        assert f"{one['time_us']:.2f} (" in said["text"]
        assert one["busbw_gbps"] == pytest.approx(one["size_bytes"] / one["time_us"] / 1e3)
    small = [one for one in lines if one["size_bytes"] == 1024]
    assert [(one["algorithm"], one["rank"]) for one in small] == [("ll", 1), ("one_shot", 2)]
    assert "refused: all_reduce/ll 1M" in said["text"]
    (refused,) = (one for one in lines if one["refused"])
    assert (refused["algorithm"], refused["size_bytes"], refused["time_us"]) == ("ll", 1 << 20, None)
    assert "up to 524288 bytes, not 1048576" in refused["refused"]


MATMUL = ("m=4096", "n=5120", "k=8192", "dtype=bfloat16")


def test_a_matmul_is_predicted_where_it_was_measured_and_nothing_is_simulated(capsys):
    assert main(["predict", "op=matmul_reduce_scatter", "world_size=8", *MATMUL, "fabric.gpu=h200"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    same_text(said.out)
    assert main(["predict", "op=matmul", "world_size=1", *MATMUL, "fabric.gpu=h100"]) == 2
    same_text(capsys.readouterr().err)


def test_a_matmul_that_was_not_measured_is_refused_and_operations_a_second_are_told(capsys, tmp_path):
    copied = "from dataclasses import *\nSPEC = replace(find('matmul/tiles'), algorithm='x')"
    (tmp_path / "own.py").write_text(f"from kernels.catalogue import find\n{copied}")
    alone = ["predict", "op=matmul", "world_size=1", *MATMUL, "fabric.gpu=h200"]
    brought = f"algorithms=[tiles,{tmp_path}/own.py:SPEC]"
    assert main([*alone, brought]) == 0
    assert "refused: matmul/x 40M" in capsys.readouterr().out
    assert main([*alone, "--format", "json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert line["tflops"] == pytest.approx(2 * 4096 * 5120 * 8192 / line["time_us"] / 1e6)


def test_an_uncalibrated_type_gives_the_order_and_says_why(cache, capsys):
    assert _asked(cache, *SMALL, "fabric.gpu=a100", "fabric.arch=sm_80") == 2
    same_text(capsys.readouterr().err)
    known = rates_of(gpu_type("b200"))
    assert not known.is_calibrated
    small = predicted(ONE, find(ONE.name), known, stored(), "sm_90a", cache, 1)
    assert not small.is_worth_telling
    assert small.remarks == ("uncalibrated: no floors of b200, launches and waits are those of h200",)


def test_a_profile_is_simulated_once_by_a_simulator(cache, monkeypatch):
    first = profile_cache.work_of(ONE, find(ONE.name), "sm_90a", cache)
    monkeypatch.setattr(profile_cache, "profiled", lambda *_: pytest.fail("simulated anew"))
    assert profile_cache.work_of(ONE, find(ONE.name), "sm_90a", cache) == first
    monkeypatch.setattr(profile_cache, "simulator_digest", lambda: "sha256:other")
    monkeypatch.setattr(profile_cache, "least_steps", lambda *_: {})
    with pytest.raises(pytest.fail.Exception, match="simulated anew"):
        profile_cache.work_of(ONE, find(ONE.name), "sm_90a", cache)


def test_the_interval_is_that_of_the_regime(cache):
    intervals = {"latency": (0.5, 2.0), "mixed": (0.9, 1.1), "bandwidth": (0.95, 1.05)}
    score = dataclasses.replace(stored(), cases=1, constants=Fitted(0.4, 0.9, 1.1, 0.5), intervals=intervals)
    one = predicted(ONE, find(ONE.name), rates_of(gpu_type("h200")), score, "sm_90a", cache, 1)
    assert (one.regime, one.low_us, one.high_us) == ("latency", one.time_us / 2, one.time_us * 2)


WRONG = [
    *([f"fabric.gpu={one}"] for one in ("null", "h999")),
    *([f"timing.{one}"] for one in ("mode=eager", "mode=none", "l2=hot")),
    *([f"algorithms={one}"] for one in ("[one_shot,nccl]", "[nccl]")),
    *(["stress=late_rank"], ["baselines=[nccl]"], ["world_size=16"], ["world_size=1"]),
    *(["algorithms=[lamport]", "sizes=[4M]"], ["--score"], ["--score", "--format", "json"]),
]


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_wrong_requests_say_what_is_right(cache, capsys, words):
    assert _asked(cache, "fabric.gpu=h200", *words) == 2
    same_text(capsys.readouterr().err)


FLOORS = (
    "floors:\n  source: 'measured: 2026-12-01, a test'\n  ranks: 2\n  records: ['sha256:00']\n"
    "  empty_node_us: {1: 5.0}\n  relaxed_us: 7.0\n  release_acquire_us: {0: 13.0}\n  load_own_l2_us: 3.0\n"
    "  load_remote_hot_us: 9.0\n"
)
"""Ten times what an H200 takes."""


@pytest.fixture
def lines_of(cache, capsys):
    """Returns the predictions of a command line, as JSON has them."""

    def asked(*words):
        assert _asked(cache, *words, "--format", "json") == 0
        return json.loads(capsys.readouterr().out)

    return asked


@pytest.fixture
def one(lines_of):
    """Returns the prediction of one small case, as JSON has it."""

    def asked(*words):
        (line,) = lines_of("sizes=[1K]", "algorithms=[one_shot]", *words)
        return line

    return asked


@pytest.mark.slow
def test_floors_of_a_file_of_ones_own_count(one, tmp_path):
    """By its path, and by its name in a folder of configurations."""
    usual = one("fabric.gpu=h200")
    (tmp_path / "gpu").mkdir()
    place = tmp_path / "gpu" / "slow.yaml"
    place.write_text(f"like: h200\n{FLOORS}")
    same_name = tmp_path / "mine.yaml"
    same_name.write_text(f"like: h200\nname: h200\n{FLOORS}")
    folder = ("--config-dir", str(tmp_path))
    for name, words in (
        ("slow", (f"fabric.gpu={place}",)),
        ("h200", (f"fabric.gpu={same_name}",)),
        ("slow", (*folder, "fabric.gpu=slow")),
    ):
        slow = one(*words)
        assert slow["gpu"] == name
        assert slow["time_us"] > 5 * usual["time_us"]
        assert slow["remark"].startswith("constants and interval of h200")
    assert (usual["gpu"], usual["remark"]) == ("h200", "")


@pytest.mark.slow
def test_placements_are_told_apart(cache, lines_of, capsys):
    words = ("fabric.gpu=h200", "sizes=[1K]", "algorithms=[two_shot,two_shot@t256b16l4]", "placement=both")
    lines = lines_of(*words)
    assert sorted(one["placement"] for one in lines) == ["in_place"] * 2 + ["out_of_place"] * 2
    first = [one["placement"] for one in lines if one["rank"] == 1]
    assert set(first) == {"in_place", "out_of_place"}
    assert {(one["accumulator"], one["reduction"], one["root"]) for one in lines} == {("float32", "sum", 0)}
    assert _asked(cache, *words) == 0
    text = capsys.readouterr().out
    assert "all_reduce bfloat16, accumulator float32, sum, in_place, 2 ranks of h200" in text
    assert "all_reduce bfloat16, accumulator float32, sum, out_of_place, 2 ranks of h200" in text
    assert text.count("*") == len(first) + text.count("* the shortest")
    for one in lines:
        assert f"{one['time_us']:.2f} (" in text


def test_equal_times_have_one_rank_and_one_mark(cache):
    known = rates_of(gpu_type("h200"))
    first = predicted(ONE, find(ONE.name), known, stored(), "sm_90a", cache, 1)
    names = ("one_shot", "two_shot", "ll")
    same = [dataclasses.replace(first, case=dataclasses.replace(ONE, algorithm=name)) for name in names]
    later = dataclasses.replace(same[2], time_us=first.time_us * 2)
    series = shown.Series(known, (later, *same[:2]))
    assert [rank for rank, _ in series.ranked()] == [1, 1, 3]
    (table,) = shown.tables(series)
    assert table.columns == ("size", "ll", "one_shot", "two_shot"), "in the job's order"
    ((line,),) = table.groups
    assert [line.cells[name].endswith("*") for name in names] == [True, True, False]


MEASURED = (
    "limits: {arch: {value: sm_90, source: 'assumed: a test'}}\n"
    "floors: {source: 'measured: 2026-12-01, a test', ranks: 2, empty_node_us: {1: 0.9}, relaxed_us: 0.6, "
    "release_acquire_us: {0: 2.1}, load_remote_hot_us: 0.9}\n"
)


def test_lines_have_what_was_assumed(one, tmp_path):
    place = tmp_path / "tried.yaml"
    place.write_text(f"like: b200\n{MEASURED}")
    assert "load_own_l2_us" in one(f"fabric.gpu={place}")["assumed"], "few floors were measured"
    assert "load_own_l2_us" not in one("fabric.gpu=h200")["assumed"]


@pytest.mark.slow
def test_every_remark_is_said(one):
    same_text(one("fabric.gpu=h100", "world_size=3", "algorithms=[multimem_one_shot]")["remark"])
    assert "ranks" not in one("fabric.gpu=h200", "world_size=4")["remark"]


@pytest.mark.slow
def test_best_is_what_the_table_has(one, tmp_path):
    """What it chooses is predicted, and the remark says so."""
    place = tmp_path / "table.json"
    place.write_text(TABLE.text())
    found = one("fabric.gpu=h200", "algorithms=best", f"tuned={place}")
    assert found["algorithm"] == TABLE.entries[0].choice.name
    assert f"best: {place}" in found["remark"]


def test_a_folder_that_cannot_be_written_to_costs_the_cache_alone(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)

    def full(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(profile_cache, "replacing", full)
    assert profile_cache.work_of(ONE, find(ONE.name), "sm_90a", tmp_path).least
    assert not list(tmp_path.glob("profile-*"))


def test_score_prints_the_table(capsys, monkeypatch):
    monkeypatch.setattr(command, "scored", lambda _: stored())
    monkeypatch.setattr(command.published, "evidence", lambda _: ())
    assert main(["predict", "--score"]) == 0
    assert "unseen op x algorithm" in capsys.readouterr().out
    assert main(["predict", "--score", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(SCORE.read_text())


LATE = profiling.NotSimulated("TIMEOUT", 0, "not simulated within 300 s")
FAULT = WorldFailure("FAILED", 0, "store of 16 bytes past the end")


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [(LATE, "unfinished", "; deadline_s gives it more"), (FAULT, "failed", "")],
    ids=["unfinished", "failed"],
)
def test_what_can_not_be_simulated_is_no_refusal(cache, tmp_path, monkeypatch, capsys, error, kind, said):
    """It is said, in both forms; the size has no range, and the exit code is 1."""
    usual, said = asking.predicted, f"{error.message}{said}"

    def faulty(case, *rest):
        if case.algorithm == "lamport" and case.size_bytes == 1024:
            raise error
        return usual(case, *rest)

    monkeypatch.setattr(asking, "predicted", faulty)
    words = ("fabric.gpu=h200", "sizes=[1K,4K]")
    assert _asked(cache, *words) == 1
    shown = capsys.readouterr()
    assert f"{kind}: all_reduce/lamport 1K: {said}" in shown.out
    assert f"symlab: all_reduce/lamport 1K: {said}\n" in shown.err
    assert "refused" not in shown.out + shown.err
    assert _asked(cache, *words, "--format", "json") == 1
    (line,) = [one for one in json.loads(capsys.readouterr().out) if one[kind]]
    assert (line["algorithm"], line["size_bytes"], line["time_us"], line["refused"]) == ("lamport", 1024, None, "")
    assert _asked(cache, "fabric.gpu=h200", "sizes=[1K]", "algorithms=[lamport]") == 1
    shown = capsys.readouterr()
    assert (shown.out, said in shown.err) == ("", True)


def test_a_request_gives_simulations_more_time(tmp_path, monkeypatch, capsys):
    """deadline_s, of which no simulation has less than DEADLINE_S. What is unfinished or failed is said at once."""
    given = []

    def noted(case, *rest):
        given.append(rest[-1].keywords["limit_s"])
        raise WorldFailure("FAILED", 0, "noted")

    monkeypatch.setattr(asking, "predicted", noted)
    for words in ((), ("deadline_s=1800",)):
        assert _asked(tmp_path, *SMALL, "algorithms=[lamport]", *words) == 1
        said = capsys.readouterr()
        assert (said.out, said.err.splitlines()[-1]) == ("", "symlab: all_reduce/lamport 1K: noted")
    assert given == [asking.DEADLINE_S, 1800]


def test_only_a_deadline_that_ended_is_the_hosts(monkeypatch, compile_cache):
    """A limit of steps is a failure of the kernel, whatever the time."""

    def failing(self, program, runnable, limit_s):
        raise WorldFailure("TIMEOUT", 0, "rank 0: the step limit")

    monkeypatch.setattr(profiling.ThreadWorld, "run", failing)
    runnable = profile_cache.runnable_of(ONE, find(ONE.name), "sm_90a", compile_cache)
    for limit_s, kind in ((NEVER_S, WorldFailure), (0.0, profiling.NotSimulated)):
        with pytest.raises(WorldFailure) as raised:
            profiling.clocked(runnable, H200_TRIAL, limit_s)
        assert type(raised.value) is kind


def test_only_what_the_model_is_of_is_evidence():
    """Warm buffers are another measurement."""
    record = next(one for one in read([PUBLISHED]) if is_evidence(one))
    assert not is_evidence(dataclasses.replace(record, timing=dataclasses.replace(record.timing, l2="hot", slots=1)))


@pytest.mark.slow
def test_experiments_of_gpus_are_predicted_without_naming_the_simulator(cache, capsys):
    words = ("+exp=allreduce_gpus", "fabric.gpu=h200", "world_size=2", "dtype=bfloat16", f"cache_dir={cache}")
    assert main(["predict", *words, "algorithms=[one_shot]", "sizes=[1K]", "--format", "json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert (line["algorithm"], line["size_bytes"], line["refused"]) == ("one_shot@d", 1024, "")
    assert main(["predict", *words, "fabric=nvshmem"]) == 2
    assert "fabric" in capsys.readouterr().err


def test_libraries_beside_take_part_of_the_cache(one):
    case = dataclasses.replace(ONE, size_bytes=65536)
    names = asking.libraries_beside(case)
    assert {"nccl", "torch/one_shot", "torch/two_shot", "nvshmem"} <= set(names)
    assert "torch/multimem" not in names, "it needs multicast"
    others = asking.libraries_beside(dataclasses.replace(case, dtype="float16"))
    assert not {"torch/one_shot", "torch/two_shot"} & set(others)
    words = ("fabric.gpu=h200", "sizes=[64K]")
    assert one(*words, "baselines=auto")["time_us"] > one(*words, "baselines=none")["time_us"]


def test_an_interrupt_says_when_it_came(cache, monkeypatch, capsys):
    """After the first simulation something did run, and its profile is kept."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(asking, "predicted", interrupted)
    assert _asked(cache, "fabric.gpu=h200", "sizes=[1K]") == 130
    said = capsys.readouterr()
    assert said.out == ""
    same_text(said.err.splitlines()[-1])


ONE = Case("all_reduce", "one_shot", "bfloat16", "float32", "sum", 1 << 10, 2)


SMALL = ("fabric.gpu=h200", "algorithms=[one_shot]", "sizes=[1K]")
