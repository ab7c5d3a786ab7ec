"""The checker finds a race in one run of a program just where the judge says that its executions have one."""

from __future__ import annotations

import pytest

from tests.symlab.checks.litmus.agreement import PROGRAMS, Verdicts, main, table, verdicts
from tests.symlab.checks.litmus.messages import SHAPES

SAMPLE = 90


@pytest.mark.slow
def test_judge_and_checker_agree_on_a_sample() -> None:
    found = [verdicts(seed) for seed in range(PROGRAMS, PROGRAMS + SAMPLE)]
    assert [one for one in found if not one.agrees] == []
    assert {one.shape for one in found} == set(SHAPES)


@pytest.mark.slow
def test_judge_and_checker_agree_on_all_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert f"{PROGRAMS} programs in " in capsys.readouterr().out


def test_the_table_counts_false_alarms_and_what_is_missed() -> None:
    found = [
        Verdicts(0, "pair", True, ("race",)),
        Verdicts(1, "pair", True, ()),
        Verdicts(2, "bulk", False, ("race",)),
        Verdicts(3, "bulk", False, ()),
    ]
    assert [one.agrees for one in found] == [True, False, False, True]
    assert table(found).splitlines()[2:] == [
        "| bulk | 2 | 0 | 0 | 1 | 0 |",
        "| pair | 2 | 2 | 1 | 0 | 1 |",
        "| all | 4 | 2 | 1 | 1 | 1 |",
    ]
