"""The table: every figure in its place, nothing claimed that was not measured."""

import dataclasses
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cases.record.record import CHECK_WAS_OFF, Check, FabricInfo, Mismatch, Status
from cases.refusal import Refusal
from reports.table.table import captions, console_table, markdown, plain, sections, sheets_of
from reports.table.text import size_text
from tests.golden import same_text
from tests.reports.synthetic import of_case

FABRIC = FabricInfo("simulator", "sm_90a", 8, 1 << 28, True, "", True)
CHECK = Check("bound", 8192, 0, 0.0078125, 1, 0.1, True, 2, True, bound="E", bound_value=0.1, bound_used=0.5)


def record(algorithm="one_shot", size_bytes=1024, **changes):
    case = {
        "op": "all_reduce",
        "algorithm": algorithm,
        "dtype": "bfloat16",
        "accumulator": changes.pop("accumulator", "float32"),
        "reduction": "sum",
        "size_bytes": size_bytes,
        "world_size": 8,
        "placement": changes.pop("placement", "out_of_place"),
        "inputs": "normal",
        "seed": 0,
    }
    fields = {
        "status": Status.PASSED,
        "case": case,
        "started": "2026-11-20T12:00:00Z",
        "ended": "2026-11-20T12:00:01Z",
        "duration_s": 1.0,
        "fabric": FABRIC,
        "check": CHECK,
        "counters": {"instructions": 1_234_567, "steps": 4},
    }
    return of_case(**(fields | changes))


WRONG = dataclasses.replace(
    CHECK, wrong=12, first_mismatch=Mismatch(1, 0, 5, 1.0, 2.0, "0x3f80", "0x4000"), max_absolute_error=math.nan
)
REFUSED = {
    "status": Status.REFUSED,
    "check": None,
    "counters": {},
    "reason": "no multicast:\n  [no switch]",
}


def test_a_plain_table():
    same_text(plain([record(), record("multimem_two_shot", 1 << 20)]))


def test_each_reason_is_said_once_and_whole_below_the_table():
    wrong = record(status=Status.WRONG, check=WRONG)
    deadlock = record("two_shot", status=Status.DEADLOCK, check=None, reason="x" * 500)
    same_text(plain([record(), record(**REFUSED), wrong, deadlock, record("two_shot", **REFUSED)]))


def test_unchecked_is_never_shown_as_verified():
    text = plain([record(check=None, reason=CHECK_WAS_OFF)])
    assert re.search(r"PASSED \(unchecked\) +- +- +- +- ", text)
    assert "its result was not checked" in text
    assert "[1]" not in text


def test_jobs_have_sections():
    records = [record(), record(accumulator="native"), record("two_shot")]
    found = sections(records)
    assert [len(section.records) for section in found] == [2, 1]
    assert "accumulator native" in found[1].heading
    assert plain(records).count("  algorithm") == 2


def test_sections_name_what_differs_between_jobs_and_is_not_shown_anyway():
    records = [
        record(request={"overrides": ["launches=2", f"seed={seed}", f"sizes.list=[{seed}]", "fabric.multimem=stated"]})
        for seed in (1, 2)
    ]
    assert [section.heading.partition(" inputs")[2] for section in sections(records)] == [", seed=1", ", seed=2"]
    assert sections(records[:1])[0].heading.endswith("normal inputs")


def test_placement_is_shown_where_it_differs():
    assert " place " not in plain([record(), record()])
    text = plain([record(), record(placement="in_place")])
    assert re.search(r"one_shot +out +1 KiB", text)
    assert re.search(r"one_shot +in +1 KiB", text)


def test_no_simulated_figure_looks_like_a_measurement():
    text = plain([record()]) + console_table([record()], styled=True)
    assert not re.search(r"GB/s|\bus\b|busbw|algbw", text)
    assert text.count("simulated") == 2
    on_gpus = record(fabric=dataclasses.replace(FABRIC, name="nvshmem", simulated=False), counters={})
    assert "fabric: nvshmem (sm_90a)" in plain([on_gpus])
    assert "simulated" not in plain([on_gpus])


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (1, "1 B"),
        (1000, "1000 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1537, "1537 B"),
        (1 << 20, "1 MiB"),
        ((1 << 20) + 1024, "1025 KiB"),
        (3 << 29, "1.5 GiB"),
        (1 << 44, "16 TiB"),
    ],
)
def test_sizes(size_bytes, text):
    assert size_text(size_bytes) == text


@pytest.mark.parametrize("columns", ["120", "300"])
def test_a_drawn_table_shows_the_same(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    records = [record(), record(**REFUSED), record(status=Status.WRONG, check=WRONG)]
    drawn = console_table(records, styled=True)
    assert "\x1b[" in drawn
    bare = uncoloured(drawn)
    for word in ("one_shot", "1 KiB", "PASSED", "0.00781", "1.235", "12 of 8192", "simulated"):
        assert word in bare
    assert "hidden" not in bare
    monkeypatch.delenv("COLUMNS")
    assert console_table(records) == plain(records)  # pytest's output is no terminal
    assert "\x1b" not in plain(records)


def uncoloured(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("styled", [False, True])
@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_no_line_is_longer_than_the_terminals(columns, styled, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    records = [record(), record("multimem_two_shot", 1 << 20, **REFUSED), record(status=Status.WRONG, check=WRONG)]
    records += [
        record("two_shot", placement="in_place"),
        record("two_shot", status=Status.FAILED, check=None, reason="x" * 99),
    ]
    for is_wide in (False, True):
        text = uncoloured(console_table(records, styled=styled, is_wide=is_wide))
        assert max(map(len, text.splitlines())) <= columns
        for word in ("one_shot", "multimem_two_shot", "1 KiB", "REFUSED [1]", "WRONG [2]", "FAILED [3]"):
            assert word in text


def test_a_narrow_table_names_the_columns_that_it_hides_and_what_shows_them(monkeypatch):
    monkeypatch.setenv("COLUMNS", "48")
    text = console_table([record()], styled=False)
    assert text.splitlines()[2].split() == ["algorithm", "size", "status", "wrong", "max", "abs", "error"]
    assert "hidden, as a line has 48 characters: max ulp," in text
    needed = re.search(r"COLUMNS=(\d+) shows them", " ".join(text.split()))
    monkeypatch.setenv("COLUMNS", needed[1])
    assert "hidden" not in console_table([record()], styled=False)
    monkeypatch.setenv("COLUMNS", str(int(needed[1]) - 10))  # one more than narrower gaps save
    assert "hidden" in console_table([record()], styled=False)


def test_what_fits_no_line_is_stacked_and_nothing_is_lost(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    records = [record("multimem_two_shot"), record("multimem_two_shot", placement="in_place", **REFUSED)]
    same_text(console_table(records, styled=False))


def test_refusals_for_one_key_are_one_note():
    def refused(algorithm, size_bytes, key, reason, hint=""):
        said = f"{reason}: {hint}" if hint else reason
        return record(algorithm, size_bytes, **REFUSED | {"reason": said, "refusal": Refusal(key, reason, hint)})

    small = "all_reduce/ll is for small messages"
    records = [
        record("ll", 64),
        *(refused("ll", size, "sizes", small, f"up to 64 bytes, not {size}; take two_shot") for size in (128, 256)),
        *(refused("nccl", size, "sizes", f"{size} bytes are no whole number of elements") for size in (128, 256)),
        refused("multimem", 64, "fabric.multicast", "no switch"),
    ]
    same_text(plain(records))


def test_what_is_told_elsewhere_is_referred_to_by_its_id():
    wrong = [record(status=Status.WRONG, check=WRONG), record("two_shot", status=Status.WRONG, check=WRONG)]
    same_text(console_table([*wrong, record(**REFUSED)], styled=False, elsewhere="see there"))


def test_an_empty_table_is_empty():
    assert plain([]) == ""


def test_reports_import_nothing_heavy():
    program = (
        "import sys, cases.record.record, reports.table.table; "
        "print([m for m in ('torch', 'numpy', 'rich', 'runner', 'kernels', 'simulator', 'mlflow') if m in sys.modules])"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_same_cases_of_several_commands_stand_in_one_part_and_are_told_apart():
    def of(command, size_bytes=1024):
        made = record(size_bytes=size_bytes)
        return dataclasses.replace(made, request=dataclasses.replace(made.request, command=command))

    assert len(sections([of("first"), of("first", 2048)])) == 1
    apart = [of("first"), of("second", 2048)]
    assert len(sections(apart)) == 1
    assert "world" not in plain(apart), "other cases need no name"
    same = [of("first"), of("second"), of("first", 2048)]
    (sheet,) = sheets_of(same)
    assert [line.cells["world"] for group in sheet.groups for line in group] == ["1", "2", "1"]
    assert "world: 1 is first, 2 is second" in captions(same)


def test_markdown_shows_text_as_it_is_whatever_renders_it():
    evil = "<img src=x onerror=alert(1)> & <b>|\n| `x` *y* [z](w)"
    failed = {"status": Status.FAILED, "check": None, "reason": evil}
    text = markdown([record(**failed)])
    assert "<" not in text
    assert "&lt;img src=x onerror=alert(1)&gt; &amp; &lt;b&gt;\\| \\| `x` \\*y\\* \\[z](w)" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
