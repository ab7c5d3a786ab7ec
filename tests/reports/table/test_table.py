"""The table: every figure in its place, nothing claimed that was not measured."""

import dataclasses
import math
import re

import pytest

from cases.record.record import CHECK_WAS_OFF, Check, FabricInfo, Mismatch, Status
from cases.refusal import Refusal
from reports.table.table import console_table, markdown, plain
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
REFUSED = {"status": Status.REFUSED, "check": None, "counters": {}, "reason": "no multicast:\n  [no switch]"}


SMALL = "all_reduce/ll is for small messages"


def refused(algorithm, size_bytes, key, reason, hint=""):
    said = f"{reason}: {hint}" if hint else reason
    return record(algorithm, size_bytes, **REFUSED | {"reason": said, "refusal": Refusal(key, reason, hint)})


def asked(seed):
    said = ["launches=2", f"seed={seed}", f"sizes.list=[{seed}]", "fabric.multimem=stated"]
    return record(request={"overrides": said})


def of(command, size_bytes=1024):
    made = record(size_bytes=size_bytes)
    return dataclasses.replace(made, request=dataclasses.replace(made.request, command=command))


TABLES = {
    "plain": [record(), record("multimem_two_shot", 1 << 20)],
    "reasons": [
        record(),
        record(**REFUSED),
        record(status=Status.WRONG, check=WRONG),
        record("two_shot", status=Status.DEADLOCK, check=None, reason="x" * 500),
        record("two_shot", **REFUSED),
    ],
    "unchecked": [record(check=None, reason=CHECK_WAS_OFF)],
    "accumulators": [record(), record(accumulator="native"), record("two_shot")],
    "what differs between jobs and is not shown anyway": [asked(1), asked(2)],
    "one job": [asked(1)],
    "placements": [record(), record(placement="in_place")],
    "on GPUs": [record(fabric=dataclasses.replace(FABRIC, name="nvshmem", simulated=False), counters={})],
    "refusals for one key": [
        record("ll", 64),
        *(refused("ll", size, "sizes", SMALL, f"up to 64 bytes, not {size}; take two_shot") for size in (128, 256)),
        *(refused("nccl", size, "sizes", f"{size} bytes are no whole number of elements") for size in (128, 256)),
        refused("multimem", 64, "fabric.multicast", "no switch"),
    ],
    "the same cases of two commands": [of("first"), of("second"), of("first", 2048)],
    "other cases of two commands": [of("first"), of("second", 2048)],
    "none": [],
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_says(name):
    same_text(plain(TABLES[name]))


def test_sizes():
    sizes = (1, 1000, 1023, 1024, 1536, 1537, 1 << 20, (1 << 20) + 1024, 3 << 29, 1 << 44)
    same_text(", ".join(map(size_text, sizes)))


@pytest.mark.parametrize("columns", ["120", "300"])
def test_a_drawn_table_shows_the_same(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    records = [record(), record(**REFUSED), record(status=Status.WRONG, check=WRONG)]
    drawn = console_table(records, styled=True)
    assert "\x1b[2m" in drawn, "captions are dim"
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
@pytest.mark.parametrize("columns", [60, 80, 120])
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


def test_what_is_told_elsewhere_is_referred_to_by_its_id():
    wrong = [record(status=Status.WRONG, check=WRONG), record("two_shot", status=Status.WRONG, check=WRONG)]
    same_text(console_table([*wrong, record(**REFUSED)], styled=False, elsewhere="see there"))


def test_markdown_shows_text_as_it_is_whatever_renders_it():
    evil = "<img src=x onerror=alert(1)> & <b>|\n| `x` *y* [z](w)"
    failed = {"status": Status.FAILED, "check": None, "reason": evil}
    text = markdown([record(**failed)])
    assert "<" not in text
    assert "&lt;img src=x onerror=alert(1)&gt; &amp; &lt;b&gt;\\| \\| `x` \\*y\\* \\[z](w)" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
