"""The table of what was timed: figures worked out by hand, marks and captions that can be wrong."""

import csv
import dataclasses
import io
import json
import re

import pytest

from cases.record.record import CHECK_WAS_OFF, Check, FabricInfo, Mismatch, Status
from cases.record.request import RecordedRequest
from cases.record.timing import LinkLimit
from reports.sent import metrics_of
from reports.table.compare import rows, split
from reports.table.table import console_table, markdown, plain, values
from reports.table.text import csv_of, json_of
from reports.table.timed_table import captions
from tests.golden import same_text
from tests.reports.synthetic import KIB, REFUSAL, record, refused, with_case, with_environment, with_request

MB = 1_000_000


def timed(algorithm, time_us, size_bytes=MB, **changes):
    """Every sample of the first rank takes time_us, the other three ranks are quicker."""
    samples = [[time_us] * 4, *[[time_us / 2] * 4] * 3]
    return record(algorithm, size_bytes, samples_us=samples, **changes)


def cells(text, algorithm):
    (line,) = [line for line in text.splitlines() if re.search(rf" {re.escape(algorithm)} ", line)]
    return line.split()


def test_columns_are_those_of_nccl_tests():
    """1 MB in 20 us: 50 GB/s, times 1.5 over 400."""
    same_text(plain([timed("one_shot", 20.0), timed("nccl", 25.0)]))


def test_figures_are_the_median_and_the_percentiles_of_the_maxima():
    samples = [[float(value)] + [1.0] * 3 for value in range(100, 0, -1)]
    text = plain([record(samples_us=list(zip(*samples, strict=True)))])
    assert cells(text, "one_shot")[5:10] == ["50.50", "*", "1.00", "95.00", "99.00"]


def test_what_multiplies_has_its_operations_a_second():
    """2 * 1000 * 500 * 4000 operations in 20 us are 200 TFLOP/s."""
    one = timed("inbox", 20.0)
    one = with_case(one, op="matmul_all_reduce", gemm=(1000, 500, 4000), size_bytes=MB)
    text = plain([one])
    assert "TFLOP/s" in text
    assert "200.0" in cells(text, "inbox")
    (found,) = values([one])
    assert (found["gemm"], found["tflops"]) == ([1000, 500, 4000], pytest.approx(200.0))
    assert metrics_of(one)["bandwidth/tflops"] == pytest.approx(200.0)
    assert "TFLOP/s" not in plain([timed("one_shot", 20.0)])


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


@pytest.mark.parametrize("algorithm", ["one_shot", "nccl"])
def test_there_is_no_ratio_with_one_side_only(algorithm):
    assert "ours/base" not in plain([timed(algorithm, 20.0)])


def test_what_was_not_timed_is_never_the_best():
    bare = timed("two_shot", 1.0, is_timed=False)
    unchecked = timed("multimem_one_shot", 1.0, is_timed=False, check=None, reason=CHECK_WAS_OFF)
    text = plain([timed("one_shot", 20.0), bare, unchecked, timed("nccl", 25.0)])
    assert "*" in cells(text, "one_shot")
    assert cells(text, "two_shot")[5:8] == ["PASSED", "-", "-"]
    assert "PASSED (unchecked)" in text


def test_baselines_stand_beside_the_accumulator_that_was_asked_for():
    records = [timed(name, 20.0, accumulator=one) for one in ("float32", "native") for name in ("one_shot", "nccl")]
    found, rest = split(records)
    assert [(section.heading.split(", ")[1], len(section.records)) for section in found] == [
        ("accumulator float32", 2),
        ("accumulator native", 2),
    ]
    assert rest == []


def test_records_of_one_command_are_not_called_new_worlds():
    again = [timed("one_shot", time_us, world=1) for time_us in (5.0, 6.0)]
    text = plain(again)
    assert "2 runs a case, not each in a world of its own; every figure is the median over them" in text
    assert "new worlds" not in text


def test_worlds_are_one_row_with_their_median_and_their_spread():
    """Of 22, 20 and 40 us: 20 us apart, over 22."""
    records = [timed("one_shot", time_us, world=world) for world, time_us in enumerate((22.0, 20.0, 40.0))]
    same_text(plain([*records, timed("nccl", 30.0)]))
    assert "worlds" not in plain(records[:1])


def test_worlds_that_failed_do_not_vanish_among_those_that_passed():
    broken = timed("one_shot", 20.0, world=1, is_timed=False, status=Status.TIMEOUT, check=None, reason="rank 2 hung")
    text = plain([timed("one_shot", 20.0), broken])
    assert text.count(" one_shot ") == 2
    assert "TIMEOUT [1]" in text
    assert "[1] rank 2 hung" in text


def test_a_library_that_did_not_finish_is_a_line_with_its_deadline():
    reason = "while timing: work launched on rank 1 is still running"
    late = record("nvshmem", MB, status=Status.TIMEOUT, check=None, is_timed=False, reason=reason)
    late = with_request(late, configuration={"accumulator": "float32", "deadline_s": 60.0})
    ours = timed("one_shot", 20.0)
    same_text(plain([ours, late]))
    assert "> 60 s [1]" in plain([ours, late], is_wide=True)
    told = console_table([ours, late], styled=False, elsewhere="told elsewhere")
    assert "[1] while timing: work launched" in told, "no list of failures has it"
    kernel = with_case(dataclasses.replace(late, library=""), algorithm="two_shot", accumulator="float32")
    assert "> 60 s" not in plain([ours, kernel])


def test_wrong_elements_are_counted_and_have_no_time():
    check = Check(
        "bitwise", 64, 7, 1.0, 1, 0.1, True, 2, True, first_mismatch=Mismatch(0, 0, 1, 1.0, 2.0, "0x1", "0x2")
    )
    text = plain([timed("nccl", 20.0), timed("one_shot", 1.0, is_timed=False, status=Status.WRONG, check=check)])
    found = cells(text, "one_shot")
    assert found[5:7] == ["WRONG", "[1]"]
    assert "7" in found
    assert "7 of 64 elements are wrong" in text


def test_refused_contestants_are_told_once_with_their_reason():
    records = [timed("one_shot", 20.0), timed("one_shot", 20.0, KIB)]
    records += [refused("torch/multimem", MB), refused("torch/multimem", KIB), refused("nvshmem", KIB, reason="no int")]
    records += [timed("nvshmem", 50.0)]
    lines = plain(records).splitlines()
    assert f"refused: torch/multimem: {REFUSAL}" in lines
    assert "refused: nvshmem (1 KiB): no int" in lines
    assert not any(re.search(r"^ .*torch/multimem", line) for line in lines)


def test_placement_is_shown_where_it_differs():
    text = plain([timed("one_shot", 20.0), timed("torch/two_shot", 30.0)])
    assert cells(text, "one_shot")[5] == "out"
    assert cells(text, "torch/two_shot")[5] == "in"
    assert "place: out of place or in place" in text
    assert "place" not in plain([timed("one_shot", 20.0)])


def test_captions_say_how_and_against_what():
    timing = {"slots": 8, "calls_per_sample": 5, "limit": LinkLimit(390.0, 370.0, 1 << 28)}
    records = [timed("one_shot", 20.0), timed("nccl", 20.0, KIB, timing=timing)]
    same_text("\n".join(captions(split(records)[0])))


def test_rotating_slots_that_fit_in_the_cache_are_not_passed_off_as_rotating_through_memory():
    cache = {"l2_bytes": 50 << 20}
    large = timed("one_shot", 20.0, 1 << 20, timing=cache)
    small = [timed("one_shot", 5.0, size_bytes, timing=cache) for size_bytes in (KIB, 4 * KIB)]
    note = "L2 rotate: up to 4 KiB a contestant's slots fit in the L2 cache (50 MiB) together"
    assert note in "\n".join(captions(split([large, *small])[0]))
    for others in ([large], [timed("one_shot", 5.0, KIB, timing={"l2_bytes": 0})]):
        assert "fit in the L2 cache" not in "\n".join(captions(split(others)[0]))
    hot = timed("one_shot", 5.0, KIB, timing={**cache, "l2": "hot"})
    assert "fit in the L2 cache" not in "\n".join(captions(split([hot])[0])), "that says it by its name"


def test_captions_say_what_the_libraries_were_told():
    def told(**allowed):
        one = timed("nccl", 20.0)
        return with_environment(one, variables={"allowed": allowed, "withheld": 3})

    records = [told(NCCL_NVLS_ENABLE="0", NCCL_VERSION="2.0"), told(NVSHMEM_DISABLE_NVLS="1", CUDA_HOME="/x")]
    text = "\n".join(captions(split(records)[0]))
    assert "set in the environment: NCCL_NVLS_ENABLE=0, NVSHMEM_DISABLE_NVLS=1\n" in text
    assert "set in the environment" not in "\n".join(captions(split([timed("nccl", 20.0)])[0]))


def test_without_a_limit_there_is_no_share_of_it():
    text = plain([timed("one_shot", 20.0, timing={"limit": None})])
    assert "link %" not in text
    assert "the link's limit was not measured" in text


def test_what_was_timed_otherwise_is_not_compared():
    hot = timed("one_shot", 5.0, timing={"l2": "hot"})
    found, _ = split([timed("one_shot", 20.0), hot])
    assert [section.heading.rpartition("inputs, ")[2] for section in found] == [
        "graph, window kernel, L2 rotate",
        "graph, window kernel, L2 hot",
    ]
    assert plain([timed("one_shot", 20.0), hot]).count(" *\n") == 0
    assert len(re.findall(r"\d \* ", plain([timed("one_shot", 20.0), hot]))) == 2  # one a section


def test_devices_are_not_compared_with_one_another():
    other = timed("one_shot", 5.0, environment={"gpus": [{"model": "Another GPU"}]})
    found, _ = split([timed("one_shot", 20.0), other])
    assert [section.heading.rpartition(", ")[2] for section in found] == ["Invented GPU", "Another GPU"]


def test_other_numbers_of_calls_are_no_other_worlds_of_a_case():
    jobs = [
        timed("one_shot", time_us, world=calls, timing={"calls_per_sample": calls}, request={"overrides": overrides})
        for calls, time_us, overrides in [(4, 20.0, ["timing.calls=4"]), (1, 30.0, ["timing.calls=1"])]
    ]
    sections, _ = split(jobs)
    assert [section.heading.rpartition(", ")[2] for section in sections] == ["timing.calls=4", "timing.calls=1"]
    assert "new worlds" not in plain(jobs)
    same = [dataclasses.replace(job, request=RecordedRequest(overrides=("timing.limit=none",))) for job in jobs]
    assert len(split(same)[0]) == 1


def test_simulated_records_keep_their_own_table():
    simulator = FabricInfo("simulator", "sm_90a", 4, 1 << 28, True, "", True)
    simulated = record(is_timed=False, fabric=simulator, counters={"instructions": 5_000_000})
    alone = plain([simulated])
    assert "PTX instr (M)" in alone
    assert not re.search(r"time \(us\)|busbw|GB/s", alone)
    other = with_case(simulated, dtype="float16")
    both = plain([timed("one_shot", 20.0), other])
    assert both.index("busbw") < both.index("PTX instr (M)")


def test_wide_has_a_line_a_size_and_says_who_was_called_in_place():
    records = [
        timed(name, time_us, size) for size in (KIB, MB) for name, time_us in (("one_shot", 20.0), ("nccl", 16.0))
    ]
    same_text(plain([*records, timed("torch/two_shot", 25.0)], is_wide=True))
    assert "in place" not in plain(records, is_wide=True)


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


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 120])
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


def test_a_reason_that_names_the_cases_size_is_said_once():
    limit = "all_reduce/ll is for small messages: up to 1024 bytes, not {}; take all_reduce/two_shot"
    records = [timed("one_shot", 5.0, size) for size in (2048, 4096)]
    records += [refused("ll", size, reason=limit.format(size)) for size in (2048, 4096)]
    lines = plain(records).splitlines()
    assert [line for line in lines if line.startswith("refused: ")] == [
        "refused: all_reduce/ll is for small messages: up to 1024 bytes; take all_reduce/two_shot"
    ]


def both(algorithm, out_us, in_us, size_bytes=MB, **changes):
    """An algorithm in both placements."""
    made = [timed(algorithm, time_us, size_bytes, **changes) for time_us in (out_us, in_us)]
    places = ("out_of_place", "in_place")
    return [with_case(one, placement=place) for one, place in zip(made, places, strict=True)]


def test_both_placements_stand_side_by_side_as_in_nccl_tests():
    """And the ratio says which of them it is of."""
    same_text(plain([*both("two_shot", 20.0, 25.0), timed("one_shot", 40.0), timed("torch/two_shot", 10.0)]))
    records = [*both("two_shot", 25.0, 20.0), timed("one_shot", 40.0), *both("nccl", 10.0, 40.0)]
    same_text(plain(records))
    same_text(plain(records, is_wide=True))


def test_a_placement_that_was_refused_or_wrong_says_so_and_worlds_are_kept_apart():
    wrong = Check(
        "bitwise", 64, 7, 1.0, 1, 0.1, True, 2, True, first_mismatch=Mismatch(0, 0, 1, 1.0, 2.0, "0x1", "0x2")
    )
    bad = timed("two_shot", 1.0, is_timed=False, status=Status.WRONG, check=wrong)
    records = [timed("two_shot", 20.0), with_case(bad, placement="in_place"), timed("one_shot", 30.0)]
    records.append(with_case(refused("one_shot", MB, reason="overwritten"), placement="in_place"))
    records += [one for world in (0, 1) for one in both("ll", 20.0 + world, 30.0 + world, world=world)]
    same_text(plain(records))


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_paired_table_fits_its_terminal(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = console_table([*both("multimem_two_shot", 20.0, 25.0), timed("nccl", 30.0)], styled=False)
    assert max(map(len, text.splitlines())) <= columns
    for word in ("multimem_two_shot", "20.00 *", "25.00", "30.00"):
        assert word in text
