"""The table of what was timed: figures worked out by hand, marks and captions that can be wrong."""

import csv
import dataclasses
import io
import json
import re

import pytest

from cases.record.record import CHECK_WAS_OFF, Check, FabricInfo, Mismatch, Status
from cases.record.timing import LinkLimit
from reports.mlflow_values import metrics_of
from reports.table.compare import rows, split
from reports.table.table import console_table, markdown, plain, values
from reports.table.text import csv_of, json_of
from tests.golden import same_text
from tests.reports.synthetic import KIB, REFUSAL, record, refused, with_case, with_environment, with_request

MB = 1_000_000


def timed(algorithm, time_us, size_bytes=MB, **changes):
    """Every sample of the first rank takes time_us, the other three ranks are quicker."""
    samples = [[time_us] * 4, *[[time_us / 2] * 4] * 3]
    return record(algorithm, size_bytes, samples_us=samples, **changes)


def both(algorithm, out_us, in_us, size_bytes=MB, **changes):
    """An algorithm in both placements."""
    made = [timed(algorithm, time_us, size_bytes, **changes) for time_us in (out_us, in_us)]
    places = ("out_of_place", "in_place")
    return [with_case(one, placement=place) for one, place in zip(made, places, strict=True)]


def told(**allowed):
    return with_environment(timed("nccl", 20.0), variables={"allowed": allowed, "withheld": 3})


def of_calls(calls, time_us, *overrides):
    return timed(
        "one_shot", time_us, world=calls, timing={"calls_per_sample": calls}, request={"overrides": list(overrides)}
    )


def of_job(made, library):
    """The record of a job whose ranks loaded that NCCL."""
    configuration = {**(made.request.configuration or {}), "library": {"nccl": library}}
    asked = with_request(made, overrides=("+exp=x", f"library.nccl={library}"), configuration=configuration)
    return dataclasses.replace(asked, library=f"NCCL {library}" if made.library.startswith("NCCL") else made.library)


COUNTED = Mismatch(0, 0, 1, 1.0, 2.0, "0x1", "0x2")
SEVEN = {"status": Status.WRONG, "check": Check("bitwise", 64, 7, 1.0, 1, 0.1, True, 2, True, first_mismatch=COUNTED)}
HUNG = {"is_timed": False, "status": Status.TIMEOUT, "check": None}
SIMULATED = FabricInfo("simulator", "sm_90a", 4, 1 << 28, True, "", True)
OURS, NCCL = timed("one_shot", 20.0), timed("nccl", 25.0)
LATE = record("nvshmem", MB, reason="while timing: work launched on rank 1 is still running", **HUNG)
LATE = with_request(LATE, configuration={"accumulator": "float32", "deadline_s": 60.0})
LIMIT = "all_reduce/ll is for small messages: up to 1024 bytes, not {}; take all_reduce/two_shot"
OF_2_MIB = {"l2_bytes": 2 << 20}
TABLES = {
    # 1 MB in 20 us: 50 GB/s, times 1.5 over 400
    "columns": [OURS, NCCL],
    # of 1 to 100 us
    "percentiles": [record(samples_us=[[float(value) for value in range(100, 0, -1)], *[[1.0] * 100] * 3])],
    # 2 * 1000 * 500 * 4000 operations in 20 us are 200 TFLOP/s
    "operations a second": [with_case(timed("inbox", 20.0), op="matmul_all_reduce", gemm=(1000, 500, 4000))],
    "ours alone, without a limit": [timed("one_shot", 20.0, timing={"limit": None})],
    "a library alone": [NCCL],
    # and therefore never the best
    "not timed": [
        OURS,
        timed("two_shot", 1.0, is_timed=False),
        timed("multimem_one_shot", 1.0, is_timed=False, check=None, reason=CHECK_WAS_OFF),
        NCCL,
    ],
    "one command twice": [timed("one_shot", time_us, world=1) for time_us in (5.0, 6.0)],
    # of 22, 20 and 40 us: 20 us apart, over 22
    "worlds": [
        *(timed("one_shot", time_us, world=world) for world, time_us in enumerate((22.0, 20.0, 40.0))),
        timed("nccl", 30.0),
    ],
    "a world that failed": [OURS, timed("one_shot", 20.0, world=1, reason="rank 2 hung", **HUNG)],
    "a library that did not finish": [OURS, LATE],
    "a kernel that did not finish": [
        OURS,
        with_case(dataclasses.replace(LATE, library=""), algorithm="two_shot", accumulator="float32"),
    ],
    "wrong": [NCCL, timed("one_shot", 1.0, is_timed=False, **SEVEN)],
    "refused": [
        *(timed("one_shot", 20.0, size) for size in (MB, KIB)),
        *(refused("torch/multimem", size) for size in (MB, KIB)),
        refused("nvshmem", KIB, reason="no int"),
        timed("nvshmem", 50.0),
    ],
    "refused by size": [
        *(timed("one_shot", 5.0, size) for size in (2048, 4096)),
        *(refused("ll", size, reason=LIMIT.format(size)) for size in (2048, 4096)),
    ],
    "placements": [OURS, timed("torch/two_shot", 30.0)],
    "how and against what": [
        OURS,
        timed("nccl", 20.0, timing={"slots": 8, "calls_per_sample": 5, "limit": LinkLimit(390.0, 370.0, 1 << 28)}),
    ],
    "slots that fit in the cache": [
        timed("one_shot", time_us, size, timing=OF_2_MIB)
        for size, time_us in ((1 << 20, 20.0), (KIB, 5.0), (2 * KIB, 5.0))
    ],
    "what the libraries were told": [
        told(NCCL_NVLS_ENABLE="0", NCCL_VERSION="2.0"),
        told(NVSHMEM_DISABLE_NVLS="1", CUDA_HOME="/x"),
    ],
    "timed otherwise": [OURS, timed("one_shot", 5.0, timing={"l2": "hot", "l2_bytes": 50 << 20})],
    "two devices": [OURS, timed("one_shot", 5.0, environment={"gpus": [{"model": "Another GPU"}]})],
    "numbers of calls": [of_calls(4, 20.0, "timing.calls=4"), of_calls(1, 30.0, "timing.calls=1")],
    "numbers of calls that the request does not set": [of_calls(calls, 20.0, "timing.limit=none") for calls in (4, 1)],
    "accumulators": [
        timed(name, 20.0, accumulator=one) for one in ("float32", "native") for name in ("one_shot", "nccl")
    ],
    "simulated": [
        OURS,
        record(dtype="float16", is_timed=False, fabric=SIMULATED, counters={"instructions": 5_000_000}),
    ],
    "two versions of a library": [
        of_job(record(name), version)
        for version in ("2.28.9", "2.32.3")
        for name in ("one_shot", "nccl", "torch/two_shot")
    ],
    "worlds of one version": [
        dataclasses.replace(record("nccl", world=world), library="NCCL 2.28.9") for world in (0, 1)
    ],
    # as in nccl-tests, side by side; the ratio says which of them it is of
    "both placements": [*both("two_shot", 20.0, 25.0), timed("one_shot", 40.0), timed("torch/two_shot", 10.0)],
    "the best in place": [*both("two_shot", 25.0, 20.0), timed("one_shot", 40.0), *both("nccl", 10.0, 40.0)],
    "one placement refused or wrong": [
        OURS,
        with_case(timed("one_shot", 1.0, is_timed=False, **SEVEN), placement="in_place"),
        timed("two_shot", 30.0),
        with_case(refused("two_shot", MB, reason="overwritten"), placement="in_place"),
        *(one for world in (0, 1) for one in both("ll", 20.0 + world, 30.0 + world, world=world)),
    ],
}
WIDE = [
    *(timed(name, time_us, size) for size in (KIB, MB) for name, time_us in (("one_shot", 20.0), ("nccl", 16.0))),
    timed("torch/two_shot", 25.0),
]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_says(name):
    same_text(plain(TABLES[name]))


@pytest.mark.parametrize("records", [WIDE, WIDE[:-1], TABLES["the best in place"], [OURS, LATE]], ids=range(4))
def test_wide_has_a_line_a_size_and_says_who_was_called_in_place(records):
    same_text(plain(records, is_wide=True))


def test_a_library_that_did_not_finish_is_told_where_no_list_of_failures_has_it():
    told = console_table([OURS, LATE], styled=False, elsewhere="told elsewhere")
    assert "[1] while timing: work launched" in told


def test_a_fused_matmul_stands_beside_the_matmul_alone_and_the_sequence():
    """C of 1024 x 512 on four ranks: each gets three quarters of it twice."""
    limit, link_us = {"limit": LinkLimit(50.0, 40.0, MB)}, 1.5 * 2 * 1024 * 512 / 50e3

    def of(op, algorithm, time_us, **timing):
        made = timed(algorithm, time_us, timing=limit | timing)
        return with_case(made, op=op, gemm=(1024, 512, 2048), size_bytes=2 * 1024 * 512)

    alone = [of("matmul", "tiles", 18.0), of("matmul", "cublas", 16.0), of("matmul", "cublas", 5.0, l2="hot")]
    fused = [of("matmul_all_reduce", "inbox", 40.0), of("matmul_all_reduce", "nccl", 60.0)]
    found = {one["algorithm"]: one for one in values([*alone, *fused])}
    assert found["inbox"]["of_matmul"] == pytest.approx(16 / 40)
    assert found["inbox"]["overlap"] == pytest.approx((60 - 40) / (60 - link_us))
    assert found["nccl"]["overlap"] == 0
    assert "overlap" not in found["tiles"]
    of_csv = csv.DictReader(io.StringIO(csv_of(values([*alone, *fused]))))
    assert [one["overlap"] != "" for one in of_csv] == [False, False, False, True, True]
    assert "matmul %" not in plain(alone)
    others = [dataclasses.replace(of("matmul_all_reduce", "nccl", us), library=f"NCCL 2.{us}") for us in (70, 60)]
    assert values([*alone, fused[0], *others])[3]["overlap"] == found["inbox"]["overlap"]
    text = plain([*alone, *fused])
    (line,) = (line.split() for line in text.splitlines() if " inbox " in line)
    assert line[-5:-3] == ["40.0", "70.1"]
    assert "overlap %: 0 as nccl" in text
    of_products = [
        dataclasses.replace(one, timing=dataclasses.replace(one.timing, bus_factor=0.0)) for one in (*alone, *fused)
    ]
    assert "busbw = algbw" in text
    assert "Avg bus" in text
    assert not any(words in plain(of_products) for words in ("busbw =", "Avg bus"))
    assert "algbw = size / time, 1 GB" in plain(of_products)
    for some in ([alone[0], fused[0]], [*alone, fused[0], of("matmul_all_reduce", "nccl", 30.0)]):
        assert values(some)[-1].get("overlap") is None
    assert "matmul %" not in plain(fused)


def test_the_ratio_is_of_the_best_of_each_side_at_each_size():
    records = [timed("one_shot", 30.0), timed("two_shot", 20.0), timed("nccl", 16.0), timed("torch/one_shot", 40.0)]
    records += [timed("one_shot", 10.0, KIB), timed("nccl", 40.0, KIB)]
    (section,) = split(records)[0]
    judged = {(row.algorithm, row.size_bytes): (row.best, row.ratio) for row in rows(section)}
    assert judged == {
        ("one_shot", KIB): (True, 0.25),
        ("nccl", KIB): (False, None),
        ("one_shot", MB): (False, None),
        ("two_shot", MB): (False, 1.25),
        ("nccl", MB): (True, None),
        ("torch/one_shot", MB): (False, None),
    }
    assert "ours/base: the time of our best over that of the best baseline" in plain(records)


def test_markdown_marks_the_best_in_bold_too():
    text = markdown([timed("one_shot", 20.0), timed("nccl", 16.0)], is_wide=True)
    assert "| 1000000 B | 20.00 (75.0) | **16.00 (93.8)\\*** | 1.25 |" in text.splitlines()
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert text.endswith("\n")
    assert "**16.00 \\***" in markdown([timed("one_shot", 20.0), timed("nccl", 16.0)])


def test_csv_and_json_hold_raw_values_of_all_cases():
    records = [timed("one_shot", 20.0), timed("one_shot", 30.0, world=1), timed("nccl", 50.0), refused("nvshmem", MB)]
    objects = json.loads(json_of(values(records)))
    lines = list(csv.DictReader(io.StringIO(csv_of(values(records)))))
    assert [one["algorithm"] for one in objects] == [one["algorithm"] for one in lines]
    ours, nccl, nvshmem = objects
    assert (ours["median_us"], ours["worlds"], ours["median_us_lowest"], ours["median_us_highest"]) == (25, 2, 20, 30)
    assert (ours["best"], ours["ours_over_baseline"], nccl["best"]) == (True, 0.5, False)
    assert ours["busbw_gbps"] == pytest.approx((75 + 50) / 2)
    assert (nvshmem["status"], nvshmem["reason"], nvshmem["median_us"]) == ("REFUSED", REFUSAL, None)
    assert nccl["accumulator"] == "float32"
    assert lines[2]["median_us"] == ""
    assert (csv_of(values([])), json_of(values([]))) == ("\n", "[]\n")
    ((found,), (matmul,)) = values(TABLES["operations a second"]), TABLES["operations a second"]
    assert (found["gemm"], found["tflops"]) == ([1000, 500, 4000], pytest.approx(200.0))
    assert metrics_of(matmul)["bandwidth/tflops"] == pytest.approx(200.0)


@pytest.mark.parametrize("columns", [60, 80, 100, 120])
def test_a_table_fits_its_terminal(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    records = [timed(name, 20.0, world=world) for name in ("one_shot", "nccl") for world in range(3)]
    for styled in (False, True):
        bare = re.sub(r"\x1b\[[0-9;]*m", "", console_table(records, styled=styled))
        lines = bare.splitlines()
        assert "…" not in bare
        assert max(map(len, lines)) <= columns
        figures = [line for line in lines if line.lstrip().startswith("1000000")]
        assert ["one_shot" in figures[0], "nccl" in figures[1], len(figures)] == [True, True, 2]
        said = " ".join(bare.split()).partition("hidden, as a line has")[2]
        header = next(line for line in lines if "time (us)" in line)
        for column in ("type", "redop", "p99", "busbw (GB/s)", "worlds"):
            assert (column in header) != (column in said), column


def test_a_drawn_table_needs_no_more_room_than_the_plain_one(monkeypatch):
    records = [timed(name, 20.0, size) for size in (KIB, MB) for name in ("one_shot", "torch/two_shot")]
    lines = plain(records).splitlines()
    needed = max(len(line) for line in lines[: lines.index("", 5)])
    assert needed > 100
    widths = {}
    for terminal in (needed, 300):
        monkeypatch.setenv("COLUMNS", str(terminal))
        bare = re.sub(r"\x1b\[[0-9;]*m", "", console_table(records, styled=True)).splitlines()
        widths[terminal] = max(len(line) for line in bare if "shot" in line)
    assert set(widths.values()) == {needed}


@pytest.mark.parametrize("columns", [80, 120])
def test_a_table_of_both_placements_fits_its_terminal(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = console_table([*both("multimem_two_shot", 20.0, 25.0), timed("nccl", 30.0)], styled=False)
    assert max(map(len, text.splitlines())) <= columns
    for word in ("multimem_two_shot", "20.00 *", "25.00", "30.00"):
        assert word in text
