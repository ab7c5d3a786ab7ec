"""The summary of large commands: as much as fits in few lines, with the right counts and the worst and best figures."""

import dataclasses
import re

import pytest

from cases.record.record import Check, Mismatch, Status
from reports.table import brief, sheet
from reports.table.text import MAX_LINES, has_many, is_long
from tests.golden import same_text
from tests.reports.synthetic import KIB, record, refused, with_case

WRONG = Check("bitwise", 64, 7, 8.5, 900, 0.1, True, 2, True, first_mismatch=Mismatch(0, 0, 1, 1.0, 2.0, "0x1", "0x2"))


def told(records):
    """The lines of a summary, by cells."""
    return [re.split(r"  +", line.strip()) for line in brief.text(records, sheet.text).splitlines() if line]


def jobs(count, algorithms=1):
    """Records of so many jobs that differ in their data's kind, with so many algorithms each."""
    made = []
    for number in range(count):
        case = {"world_size": number + 1, "op": "all_reduce"}
        for index in range(algorithms):
            made.append(with_case(refused(f"kernel_{index}"), **case))
    return made


def test_a_line_for_each_kernel_with_its_worst_error_and_its_best_time():
    timed = [record("one_shot", size, samples_us=[[time_us] * 3] * 4) for size, time_us in ((KIB, 5.0), (4 * KIB, 7.0))]
    wrong = record("two_shot", status=Status.WRONG, check=WRONG, is_timed=False)
    hung = record("two_shot", 4 * KIB, status=Status.TIMEOUT, check=None, reason="hung", is_timed=False)
    less = record("two_shot", status=Status.WRONG, check=dataclasses.replace(WRONG, max_ulp_error=3), is_timed=False)
    same_text(brief.text([*timed, wrong, less, hung, refused("ll"), with_case(timed[0], placement="in_place")]))


def test_many_jobs_are_few_lines():
    lines = told(jobs(40, 3))
    assert len(lines) <= MAX_LINES
    assert lines[1] == ["kernel", "sizes", "cases", "passed", "refused"]
    body = [line for line in lines if len(line) > 3 and line[3].isdecimal()]
    assert sum(int(line[2].replace(",", "")) for line in body) == 40 * 3


@pytest.mark.parametrize("columns", [60, 80])
def test_a_summary_fits_its_terminal(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    records = [record("multimem_two_shot", status=Status.WRONG, check=WRONG, is_timed=False), record()]
    text = brief.text(records)
    assert max(map(len, text.splitlines())) <= columns
    assert "multimem_two_shot" in text
    assert "wrong" in text


def test_what_is_long():
    assert not is_long("\n".join("x" * MAX_LINES))
    assert is_long("\n".join("x" * (MAX_LINES + 1)))
    many = [refused("ll", KIB * size) for size in range(1, 500)]
    assert has_many(many)
    assert not has_many([*many, record()]), "refused cases have no line among timed ones"
    assert has_many([record("one_shot", KIB * size) for size in range(1, 2 * MAX_LINES + 2)])
