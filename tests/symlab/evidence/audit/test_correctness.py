"""Item "data": checks, digests against what they promise, races, and worlds against each other."""

import dataclasses

import pytest

from symlab.evidence.audit.items import Outcome
from tests.reports.synthetic import with_case
from tests.symlab.evidence.audit.complete_set import audited, evidence, records
from tests.symlab.evidence.audit.invented_records import check, digest


def with_digests(rows, op="all_reduce", root=0, **changes):
    """A record whose check was written by somebody who did not look at the digests."""
    good = check(**({"results": 1} | changes))
    made = dataclasses.replace(records()[0], check=good, timing=None)
    made = made if op == "all_reduce" else with_case(dataclasses.replace(made, kernel=None), op=op, root=root)
    object.__setattr__(made.check, "output_digests", rows)
    return made


FREE = {"ranks_equal_promised": False, "launches_equal_promised": False, "results": None}
A, B = (digest("a"),) * 2, (digest("b"),) * 2


@pytest.mark.parametrize(
    ("made", "is_found"),
    [
        (with_digests((A, A, B, A)), True),
        (with_digests((A, A, B, B), **FREE | {"results": 1}), True),
        (with_digests((A,) * 4, **FREE | {"results": 2}), True),
        (with_digests((A, A, B, B), **FREE), False),
        (with_digests(((),) * 4), True),
        (with_digests((A, (), A, A)), True),
        (with_digests(()), True),
        (with_digests((A, (), A, A), "custom", **FREE), False),
        (with_digests(((),) * 4, "custom", **FREE), True),
        (with_digests(((), (), A, ()), "reduce", 2, **FREE), False),
        (with_digests((A, (), (), ()), "reduce", 2, **FREE), True),
    ],
)
def test_digests_that_contradict_what_the_check_says(made, is_found):
    """Of reduce the root alone has a result; of a user's kernel some ranks may have none."""
    said = evidence(audited([made]), "data", Outcome.FINDING)
    assert any(text in said for text in ("no output digest", "different results", "results are counted")) is is_found
