"""Items "worlds", "baselines" and "limit"; worlds that are there twice, and exchanged sides, in comparisons."""

import dataclasses
import random

from symlab.evidence.audit.comparison import compare
from symlab.evidence.audit.data import Data
from symlab.evidence.audit.items import Outcome
from symlab.evidence.audit.statistics import Speed
from symlab.evidence.audit.worlds import copies
from tests.symlab.evidence.audit.complete_set import audited, evidence
from tests.symlab.evidence.audit.tampering import members


def shifted(record, factor):
    """The record as of another command, with all of its samples multiplied."""
    rows = tuple(tuple(value * factor for value in row) for row in record.timing.samples_us)
    request = dataclasses.replace(record.request, command=f"{record.request.command}-again")
    return dataclasses.replace(record, request=request, timing=dataclasses.replace(record.timing, samples_us=rows))


def test_copied_samples_are_no_second_measurement():
    before = [one for one in members() if one.case.algorithm == "nccl"]
    for factor in (1.0, 0.97):
        (case,) = compare(before, [shifted(one, factor) for one in before]).cases
        assert case.speed.speed is Speed.NOT_COMPARABLE
        assert "one world is there twice" in case.speed.advice


def renamed(record, hours):
    """The record as of another command, later by hours; nothing else is another."""
    later = {name: getattr(record, name).replace("T0", f"T{hours}") for name in ("started", "ended")}
    request = dataclasses.replace(record.request, command=f"{record.request.command}-again")
    return dataclasses.replace(record, request=request, **later)


def test_a_copy_under_another_name_is_no_second_run():
    """Without samples, too: no two runs take the same microseconds at the same milliseconds."""
    times = {"started": "2026-01-01T00:00:00.123Z", "ended": "2026-01-01T00:00:01.357Z", "duration_s": 1.234567}
    for record in members()[:2]:
        before = dataclasses.replace(record, timing=None, **times)
        found = compare([before], [renamed(before, 1)])
        assert found.cases[0].data.data is Data.NOT_COMPARABLE
        assert "one world is there twice" in found.cases[0].data.remark
        assert found.exit_code == 2
        other = dataclasses.replace(renamed(before, 1), duration_s=1.234568)
        assert compare([before], [other]).cases[0].data.data is Data.BIT_EQUAL


def test_copied_data_with_changed_times_is_no_second_run():
    before = [one for one in members() if one.case.algorithm == "nccl"][:1]
    (case,) = compare(before, [shifted(one, 0.7) for one in before]).cases
    assert case.data.data is Data.NOT_COMPARABLE


def test_runs_that_share_a_warm_up_and_a_drift_are_two():
    """Both series begin slowly and become slower, as those of one GPU do; their noise is their own."""
    source = random.Random(3)
    record = next(one for one in members() if one.case.algorithm == "nccl")
    made = []
    for at in range(2):
        trend = [30.0, 15.0, *(10.0 + 0.05 * number for number in range(28))]
        rows = tuple(tuple(us * source.uniform(1, 1.004) for us in trend) for _ in record.timing.samples_us)
        request = dataclasses.replace(record.request, command=f"{record.request.command}-{at}")
        made.append(dataclasses.replace(
            record, request=request, timing=dataclasses.replace(record.timing, samples_us=rows)))  # fmt: skip
    assert list(copies(made)) == []


def test_commands_that_start_in_one_second_are_in_any_order():
    """Names have seconds, and of two commands that start together the one with more to compile begins later."""
    made = [
        dataclasses.replace(
            record,
            started=f"2026-01-01T00:00:{second:02d}.000Z",
            ended=f"2026-01-01T00:00:{second:02d}.500Z",
            duration_s=0.5,
            request=dataclasses.replace(record.request, command=f"20260101T0000{stamp}Z-{name}"),
        )
        for record, name, stamp, second in zip(members(), "abc", ("00", "00", "01"), (40, 2, 3), strict=False)
    ]
    assert "time" not in evidence(audited(made), "worlds", Outcome.FINDING)
