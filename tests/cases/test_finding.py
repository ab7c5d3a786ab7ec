"""Findings in records: what they say, which of them fail a case, and what a record can't claim of them."""

import dataclasses
import json

import pytest

from cases.finding import counts_of, first_failing, races_text, verdict_of
from cases.record.record import CHECK_WAS_OFF, KernelInfo, Status, from_json
from tests.golden import refused, same_text
from tests.reports.raced import LOAD, STORE, checked, finding, unchecked
from tests.reports.synthetic import record

ADVISORY = finding("advisory", assumption="vector_16")
FORMAL = finding("formal", "an acquire")
PROXY = finding("proxy", "fence.proxy.alias")


def test_a_finding_is_one_sentence():
    by_host = dataclasses.replace(STORE, line=-1, source="", text="fill", launch=-1)
    unknown = dataclasses.replace(LOAD, source="", tensor="", stream=2)
    findings = (ADVISORY, finding(count=3, order="schedule=random seed=1"), finding(first=by_host, second=unknown))
    same_text("\n".join(one.sentence() for one in findings))


@pytest.mark.parametrize(
    "changes", [{"severity": "bad"}, {"count": 0}, {"severity": "advisory"}, {"assumption": "vector_16"}], ids=str
)
def test_what_no_finding_can_be(changes):
    with refused():
        finding(**changes)


def test_a_pair_is_the_same_in_whatever_order_and_on_whatever_ranks():
    one, other = dataclasses.replace(STORE, rank=3, block=9, element=2), dataclasses.replace(LOAD, rank=2, launch=5)
    assert finding().pair == finding(first=other, second=one, count=9).pair
    same_rank = dataclasses.replace(LOAD, rank=STORE.rank)
    different = [PROXY, finding(second=same_rank), finding(second=dataclasses.replace(LOAD, line=56)), FORMAL]
    assert len({one.pair for one in (finding(), *different)}) == 5


def test_the_gravest_finding_speaks_for_a_case():
    race = finding()
    assert first_failing([FORMAL, PROXY, race]) is race
    assert first_failing([FORMAL, ADVISORY]) is None
    assert verdict_of([ADVISORY]) == []
    assert verdict_of([FORMAL, race]) == [race.sentence()]
    assert verdict_of([PROXY, race])[0] == f"{race.sentence()}, and 1 more"
    assert verdict_of([PROXY, PROXY, race])[0].endswith(", and 2 more such findings")
    assert counts_of([race, PROXY, race]) == {"race": 2, "proxy": 1, "formal": 0, "advisory": 0}


def test_unchecked_is_never_none():
    assert [races_text(one) for one in (None, (), (finding(), FORMAL))] == ["not checked", "none", "1 race, 1 formal"]


@pytest.mark.parametrize("made", [checked(), checked(finding(), FORMAL), checked(ADVISORY), unchecked()])
def test_round_trip(made):
    text = made.to_json()
    again = from_json(text)
    assert again == made
    assert again.to_json() == text
    assert ("findings" in json.loads(text)) == (made.findings is not None)


@pytest.mark.parametrize("severity", ["race", "proxy"])
def test_a_case_with_a_race_or_without_a_proxy_fence_is_not_passed(severity):
    one = finding(severity)
    assert checked(one).status is Status.WRONG
    assert checked(one).race == one
    with refused():
        checked(one, status=Status.PASSED)


def test_other_findings_do_not_fail_a_case():
    made = checked(FORMAL, ADVISORY)
    assert (made.status, made.verified, made.race) == (Status.PASSED, True, None)
    with refused():
        checked(FORMAL, status=Status.WRONG)


def test_what_no_record_can_claim():
    failed = {"check": None, "reason": "x"}
    of_gpus = {"fabric": record().fabric}
    for changes in ({"fabric": None, "status": Status.FAILED, **failed}, of_gpus, {"status": Status.REFUSED, **failed}):
        with refused():
            checked(**changes)


def test_a_case_that_failed_keeps_what_was_found_until_then():
    made = checked(finding(), status=Status.DEADLOCK, check=None, reason="every thread waits")
    assert from_json(made.to_json()).race == finding()


def test_unchecked_results_may_be_checked_for_races():
    assert not checked(check=None, reason=CHECK_WAS_OFF).verified
    assert checked(finding(), check=None).status is Status.WRONG


def test_a_kernels_assumptions_are_in_its_record():
    kernel = KernelInfo("all_reduce/one_shot", "k", "sm_90a", "sha256:0", "", "", "", 1, 32, assumptions=("a: b",))
    made = checked(kernel=kernel)
    assert json.loads(made.to_json())["kernel"]["assumptions"] == ["a: b"]
    assert from_json(made.to_json()) == made
    none = checked(kernel=dataclasses.replace(kernel, assumptions=None))
    assert "assumptions" not in json.loads(none.to_json())["kernel"]
