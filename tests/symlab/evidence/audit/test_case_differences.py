"""A recorded case beside the same case as it came out here: which differences are seen, and what explains them."""

import dataclasses
import math

import pytest

from symlab.evidence.audit.case_differences import (
    code_differences,
    counters_differ,
    data_differences,
    is_determined,
    is_same_code,
)
from tests.symlab.evidence.audit.complete_set import kernel, records
from tests.symlab.evidence.audit.invented_records import digest

RECORD = next(one for one in records(1) if one.kernel is not None)


def checked(**changes):
    assert RECORD.check is not None
    return dataclasses.replace(RECORD.check, **changes)


def with_check(record, **changes):
    assert record.check is not None
    return dataclasses.replace(record, check=dataclasses.replace(record.check, **changes))


def test_the_same_check_does_not_differ():
    assert data_differences(RECORD, checked()) == ([], [])


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"elements": 1}, "elements"),
        ({"input_digests": tuple(digest(f"other {rank}") for rank in range(4))}, "inputs differ"),
    ],
)
def test_what_no_change_of_code_explains(changes, name):
    firm, by_code = data_differences(RECORD, checked(**changes))
    assert (name in firm[0], by_code) == (True, [])


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"max_absolute_error": 0.5}, "max_absolute_error is"),
        ({"max_ulp_error": 9}, "max_ulp_error is"),
        ({"rms_ulp_error": 0.25}, "rms_ulp_error is"),
        ({"max_relative_error": 0.25}, "max_relative_error is"),
        ({"rms_relative_error": 0.25}, "rms_relative_error is"),
        ({"method": "bytes"}, "method is"),
        ({"ranks_equal_promised": False}, "ranks_equal_promised is"),
        ({"launches_equal_promised": False}, "launches_equal_promised is"),
        ({"guard_faults": ("rank 0: written",)}, "guard_faults is"),
    ],
)
def test_what_other_code_would_explain(changes, name):
    record = with_check(RECORD, method="bitwise_fold", max_relative_error=0.0, rms_relative_error=0.0)
    assert record.check is not None
    firm, by_code = data_differences(record, dataclasses.replace(record.check, **changes))
    assert (firm, [text for text in by_code if text.startswith(name)] != []) == ([], True)


def test_other_bits_are_named_with_the_rank():
    rows = checked().output_digests
    other = (rows[0], *((digest("other"),) * len(row) for row in rows[1:]))
    record = with_check(RECORD, method="bitwise_fold")
    assert record.check is not None
    here = dataclasses.replace(record.check, output_digests=other)
    assert data_differences(record, here)[1] == ["output of rank 1 differs from the recorded digest"]
    edge = dataclasses.replace(record.case, inputs="edge")
    assert data_differences(_with_case(record, edge), here)[1] == [], "the bits of NaN are not promised on GPUs"


def _with_case(record, case):
    return dataclasses.replace(record, case=case, id=case.id)


def test_of_a_bound_that_gpus_kept_outputs_are_not_compared_and_the_bound_is():
    bound = {"method": "bound", "bound": "a formula", "bound_value": 0.5, "bound_used": 0.25}
    record = with_check(RECORD, **bound)
    assert record.check is not None
    assert not is_determined(record)
    assert data_differences(record, dataclasses.replace(record.check, max_ulp_error=7, bound_used=0.5)) == ([], [])
    _, by_code = data_differences(record, dataclasses.replace(record.check, bound_value=0.25))
    assert by_code == ["bound_value is 0.5 in the record, 0.25 here"]


def test_figures_may_differ_in_their_last_bits_and_nan_is_nan():
    record = with_check(RECORD, method="bitwise", rms_ulp_error=1.0, max_absolute_error=math.nan)
    assert record.check is not None
    here = dataclasses.replace(record.check, rms_ulp_error=1.0 + 1e-12, max_absolute_error=float("nan"))
    assert data_differences(record, here) == ([], [])
    assert data_differences(record, dataclasses.replace(here, rms_ulp_error=1.0 + 1e-6))[1] != []


def test_older_records_lack_some_figures():
    record = with_check(
        RECORD, input_digests=None, output_digests=None, results=None, max_relative_error=None, rms_relative_error=None
    )
    assert data_differences(record, checked()) == ([], [])


def coded(**changes):
    return dataclasses.replace(kernel(), code_digest="sha256:1", compiler="dsl 4.8.1, NVVM 13.0", **changes)


@pytest.mark.parametrize("changes", [{"code_digest": "sha256:2"}, {"grid": 7}, {"block": 7}, {"entry": "x"}])
def test_code_that_its_sources_do_not_give(changes):
    differing, why = code_differences(coded(), dataclasses.replace(coded(), **changes))
    assert (len(differing), why) == (1, "")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"source_digest": "sha256:2"}, "sources changed"),
        ({"compiler": "dsl 4.9.0"}, "another compiler (dsl 4.8.1 there, 4.9.0 here)"),
    ],
)
def test_code_that_can_not_be_compared(changes, why):
    other = dataclasses.replace(coded(), code_digest="sha256:2", **changes)
    assert code_differences(coded(), other) == ([], why)
    assert (
        code_differences(dataclasses.replace(coded(), code_digest=None), coded())[1] == "recorded before code digests"
    )


def test_a_tool_that_one_side_does_not_name_is_no_other_compiler():
    assert code_differences(coded(), dataclasses.replace(coded(), compiler="dsl 4.8.1, ptxas 13.0")) == ([], "")


def test_the_same_code_by_its_digest_or_by_its_sources():
    ours = dataclasses.replace(RECORD, kernel=coded())
    moved = dataclasses.replace(RECORD, kernel=coded(source_digest="sha256:2"))
    other = dataclasses.replace(RECORD, kernel=dataclasses.replace(coded(), code_digest="x", source_digest="sha256:2"))
    assert is_same_code(ours, moved)
    assert not is_same_code(ours, other)
    assert is_same_code(ours, dataclasses.replace(RECORD, kernel=dataclasses.replace(coded(), code_digest="x")))


def test_counters():
    recorded = {"instructions": 10, "bytes": {"read": 5, "written": 6}}
    assert counters_differ(recorded, {"bytes": {"written": 6, "read": 5}, "instructions": 10}) == ""
    says = counters_differ(recorded, {"instructions": 10, "bytes": {"read": 7}})
    assert says == "counter bytes.read is 5 in the record, 7 here, and 1 more"
