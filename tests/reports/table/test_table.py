"""The table: every figure in its place, nothing claimed that was not measured."""

from __future__ import annotations

import dataclasses
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reports.record.record import CHECK_WAS_OFF, Check, FabricInfo, Mismatch, Record, Status
from reports.table.table import console_table, plain, sections, size_text
from tests.reports.synthetic import of_case

FABRIC = FabricInfo("simulator", "sm_90a", 8, 1 << 28, True, "", True)
CHECK = Check("bound", 8192, 0, 0.0078125, 1, 0.1, True, 2, True, bound="E", bound_value=0.1, bound_used=0.5)


def record(algorithm: str = "one_shot", size_bytes: int = 1024, **changes: Any) -> Record:
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
    fields: dict[str, Any] = {
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
REFUSED: dict[str, Any] = {
    "status": Status.REFUSED,
    "check": None,
    "counters": {},
    "reason": "no multicast:\n  [no switch]",
}


def test_a_plain_table() -> None:
    text = plain([record(), record("multimem_two_shot", 1 << 20)])
    assert text.splitlines() == [
        "all_reduce bfloat16, accumulator float32, sum, 8 ranks, normal inputs",
        "  algorithm           size  status  wrong  max abs error  max ulp  check  PTX instr (M)",
        "  one_shot           1 KiB  PASSED      0        0.00781        1  bound          1.235",
        "  multimem_two_shot  1 MiB  PASSED      0        0.00781        1  bound          1.235",
        "",
        "PTX instr: instructions times threads, summed over all ranks and all launches, in millions (M)",
        "fabric: simulator (sm_90a), simulated: results and counts of executed instructions are those of the PTX; "
        "times and bandwidths do not exist",
    ]


def test_each_reason_is_said_once_and_whole_below_the_table() -> None:
    wrong = record(status=Status.WRONG, check=WRONG)
    deadlock = record("two_shot", status=Status.DEADLOCK, check=None, reason="x" * 500)
    text = plain([record(), record(**REFUSED), wrong, deadlock, record("two_shot", **REFUSED)])
    lines = text.splitlines()
    assert lines[2].split() == ["one_shot", "1", "KiB", "PASSED", "0", "0.00781", "1", "bound", "1.235"]
    assert re.search(r"REFUSED \[1\] +- +- +- +- +-$", lines[3])
    assert re.search(r"WRONG \[2\] +12 +nan +1 +bound +1\.235$", lines[4])
    assert "DEADLOCK [3]" in lines[5]
    assert "REFUSED [1]" in lines[6]
    assert lines[8] == "[1] no multicast: [no switch]"
    assert lines[9].startswith("[2] 12 of 8192 elements are wrong; first at rank 1")
    assert lines[10] == f"[3] {'x' * 500}"


def test_unchecked_is_never_shown_as_verified() -> None:
    text = plain([record(check=None, reason=CHECK_WAS_OFF)])
    assert re.search(r"PASSED \(unchecked\) +- +- +- +- ", text)
    assert "nobody looked at the result" in text
    assert "[1]" not in text


def test_jobs_have_sections() -> None:
    records = [record(), record(accumulator="native"), record("two_shot")]
    found = sections(records)
    assert [len(section.records) for section in found] == [2, 1]
    assert "accumulator native" in found[1].heading
    assert plain(records).count("  algorithm") == 2


def test_sections_name_what_differs_between_jobs_and_is_not_shown_anyway() -> None:
    records = [
        record(request={"overrides": ["launches=2", f"seed={seed}", f"sizes.list=[{seed}]", "fabric.multimem=stated"]})
        for seed in (1, 2)
    ]
    assert [section.heading.partition(" inputs")[2] for section in sections(records)] == [", seed=1", ", seed=2"]
    assert sections(records[:1])[0].heading.endswith("normal inputs")


def test_placement_is_shown_where_it_differs() -> None:
    assert "placement" not in plain([record(), record()])
    text = plain([record(), record(placement="in_place")])
    assert re.search(r"one_shot +in_place +1 KiB", text)


def test_no_simulated_figure_looks_like_a_measurement() -> None:
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
def test_sizes(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


@pytest.mark.parametrize("columns", ["40", "120", "300"])
def test_a_drawn_table_shows_the_same(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    records = [record(), record(**REFUSED), record(status=Status.WRONG, check=WRONG)]
    drawn = console_table(records, styled=True)
    assert "\x1b[" in drawn
    bare = re.sub(r"\x1b\[[0-9;]*m", "", drawn)
    for word in ("one_shot", "1 KiB", "PASSED", "0.00781", "1.235", "12 of 8192", "simulated"):
        assert word in bare
    assert console_table(records) == plain(records)  # pytest's output is no terminal
    assert "\x1b" not in plain(records)


def test_an_empty_table_is_empty() -> None:
    assert plain([]) == ""


def test_reports_import_nothing_heavy() -> None:
    program = (
        "import sys, reports.record.record, reports.table.table; "
        "print([m for m in ('torch', 'numpy', 'rich', 'runner', 'kernels', 'simulator', 'mlflow') if m in sys.modules])"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
