"""A recorded case beside the same case as it came out here: which differences are seen, and what explains them."""

import dataclasses
import math

from symlab.evidence.audit.case_differences import (
    code_differences,
    counters_differ,
    data_differences,
    is_determined,
    is_same_code,
)
from tests.golden import same_text
from tests.symlab.evidence.audit.complete_set import kernel, records
from tests.symlab.evidence.audit.invented_records import digest

RECORD = next(one for one in records(1) if one.kernel is not None)


def checked(record=RECORD, **changes):
    """The record's check, with changes."""
    return dataclasses.replace(record.check, **changes)


def with_check(inputs=RECORD.case.inputs, **changes):
    case = dataclasses.replace(RECORD.case, inputs=inputs)
    return dataclasses.replace(RECORD, check=checked(**changes), case=case, id=case.id)


FOLD = with_check(method="bitwise_fold", max_relative_error=0.0, rms_relative_error=0.0)
EDGE = with_check("edge", method="bitwise_fold")
BOUND = with_check(method="bound", bound="a formula", bound_value=0.5, bound_used=0.25)
NAN = with_check(method="bitwise", rms_ulp_error=1.0, max_absolute_error=math.nan)
OLD = with_check(
    **dict.fromkeys(("input_digests", "output_digests", "results", "max_relative_error", "rms_relative_error"))
)
OTHER_BITS = (RECORD.check.output_digests[0], *((digest("other"),) * 2 for _ in range(3)))
DATA = [
    (RECORD, {}),
    (RECORD, {"elements": 1}),
    (RECORD, {"input_digests": tuple(digest(f"other {rank}") for rank in range(4))}),
    (FOLD, {"max_absolute_error": 0.5}),
    (FOLD, {"max_ulp_error": 9}),
    (FOLD, {"rms_ulp_error": 0.25}),
    (FOLD, {"max_relative_error": 0.25}),
    (FOLD, {"rms_relative_error": 0.25}),
    (FOLD, {"method": "bytes"}),
    (FOLD, {"ranks_equal_promised": False}),
    (FOLD, {"launches_equal_promised": False}),
    (FOLD, {"guard_faults": ("rank 0: written",)}),
    (FOLD, {"output_digests": OTHER_BITS}),
    (EDGE, {"output_digests": OTHER_BITS}),  # the bits of NaN are not promised on GPUs
    (BOUND, {"max_ulp_error": 7, "bound_used": 0.5}),
    (BOUND, {"bound_value": 0.25}),
    (NAN, {"rms_ulp_error": 1.0 + 1e-12, "max_absolute_error": float("nan")}),
    (NAN, {"rms_ulp_error": 1.0 + 1e-6}),
    (OLD, dataclasses.asdict(RECORD.check)),
]


def test_what_is_said_of_data():
    """Of each case what no change of code explains, and what one would explain."""
    same_text("\n".join(str(data_differences(record, checked(record, **changes))) for record, changes in DATA))
    assert not is_determined(BOUND)


def coded(**changes):
    return dataclasses.replace(kernel(), **{"code_digest": "sha256:1", "compiler": "dsl 4.8.1, NVVM 13.0"} | changes)


OTHER_CODE = [
    *({one: value} for one, value in (("code_digest", "sha256:2"), ("grid", 7), ("block", 7), ("entry", "x"))),
    {"code_digest": "sha256:2", "source_digest": "sha256:2"},
    {"code_digest": "sha256:2", "compiler": "dsl 4.9.0"},
    {"compiler": "dsl 4.8.1, ptxas 13.0"},  # a tool that one side does not name is no other compiler
]


def test_what_is_said_of_code():
    """Of each change what the same sources do not give, and why code can't be compared."""
    said = [code_differences(coded(), coded(**changes)) for changes in OTHER_CODE]
    said.append(code_differences(coded(code_digest=None), coded()))
    same_text("\n".join(map(str, said)))


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
