"""Items "software", "machine", "variables" and "clocks": worlds against each other, and against the type of GPU."""

import dataclasses

import pytest

from cases.record.request import RecordedEnvironment
from symlab.evidence.audit.items import Outcome
from symlab.evidence.audit.material import Material
from tests.symlab.evidence.audit.complete_set import (
    ENVIRONMENT,
    STATE,
    UUIDS,
    answer,
    audited,
    changed,
    evidence,
    records,
    tells,
    with_environment,
    with_request,
    with_timing,
    without,
)
from tests.symlab.evidence.audit.tampering import members as measured

FINDING, NOT_COMPARABLE, NOT_CAPTURED = Outcome.FINDING, Outcome.NOT_COMPARABLE, Outcome.NOT_CAPTURED
CAPTURED = Outcome.CAPTURED


def test_worlds_on_different_libraries():
    members = records()
    members[-1] = changed(members[-1], library="NCCL 9.9.9")
    tells(audited(members), "software", FINDING)


def test_worlds_of_other_cases_may_have_other_software():
    members = records(2)
    only = [record for record in members if record.kernel][:1] + [record for record in members if not record.kernel][1:]
    audit = audited([only[0], *with_environment(only[1:], python={"version": "3.11.1"})])
    tells(audit, "software", NOT_COMPARABLE)


def test_what_is_missing_is_named_with_its_reason():
    gone = without(records(), "python", "cuda_driver", "host")
    audit = audited(with_environment(gone, not_captured={"cuda_driver": "no NVML", "host": "not asked"}))
    tells(audit, "software", CAPTURED, NOT_CAPTURED)
    tells(audit, "machine", CAPTURED, NOT_CAPTURED)


def test_worlds_that_name_nothing_are_not_the_same():
    audit = audited([changed(one, environment=RecordedEnvironment(), library="") for one in records() if one.kernel])
    tells(audit, "software", NOT_CAPTURED, NOT_COMPARABLE)
    tells(audit, "machine", NOT_CAPTURED)


def test_a_resumption_is_a_world_of_its_own():
    """Its cases are compared with those of other commands, although the first part does not have them."""
    members = records()
    members[1] = with_request(members[1], resumed=1)
    assert len(Material(tuple(members)).worlds) == 5
    tells(audited(members), "software")
    (members[1],) = with_environment([members[1]], packages={**ENVIRONMENT["packages"], "torch": "3.0"})
    tells(audited(members), "software", FINDING)


def of_other_gpus(record):
    """The record as timed on other GPUs of the same machine."""
    devices = tuple(
        {when: {**state, "uuid": f"{state['uuid']}-other"} for when, state in one.items()}
        for one in record.timing.devices
    )
    return with_timing(_with_all_gpus(record), devices=devices)


def _with_all_gpus(record):
    gpus = record.environment.gpus or ()
    more = tuple({**gpu, "uuid": f"{gpu['uuid']}-other"} for gpu in gpus)
    return with_environment([record], gpus=(*gpus, *more))[0]


def test_worlds_on_other_gpus_of_one_machine_are_compared():
    first, second = _with_all_gpus(measured()[0]), of_other_gpus(measured()[-2])
    variables = dict(second.environment.variables or {})

    def found(item, **changes):
        return evidence(audited([first, *with_environment([second], **changes)]), item, FINDING)

    assert found("variables") == found("machine") == ""
    allowed = {"allowed": {**variables["allowed"], "NCCL_ALGO": "Tree"}}
    assert "NCCL_ALGO is not set and Tree" in found("variables", variables={**variables, **allowed})
    launch = {"allowed": {**variables["allowed"], "CUDA_VISIBLE_DEVICES": "2,3"}}
    assert found("variables", variables={**variables, **launch}) == "", "which GPUs a launch sees is its own matter"
    assert "host.cpu_model is" in found("machine", host={**(second.environment.host or {}), "cpu_model": "Better"})


def test_variables_that_are_not_there_and_secrets_that_were_not_looked_for():
    tells(audited(without(records(), "variables")), "variables", NOT_CAPTURED)
    tells(audited(said=answer(problem="no torch")), "variables", NOT_COMPARABLE)


def states(**changes):
    return tuple({"before": STATE | {"uuid": uuid}, "after": STATE | {"uuid": uuid} | changes} for uuid in UUIDS)


@pytest.mark.parametrize(
    ("reasons", "found"),
    [(["software power cap"], [FINDING]), (["hardware slowdown", "idle"], [FINDING]), (["idle"], []), ([], [])],
)
def test_a_gpu_that_was_held_back(reasons, found):
    first, *others = records()
    tells(audited([with_timing(first, devices=states(throttle=reasons)), *others]), "clocks", *found)


def test_clocks_that_nobody_read():
    first, *others = records()
    tells(audited([with_timing(one, devices=()) for one in records()]), "clocks", NOT_CAPTURED)
    lost = tuple({"before": {"not_captured": "no NVML"}, "after": {}} for _ in range(4))
    tells(audited([with_timing(first, devices=lost), *others]), "clocks", CAPTURED, NOT_CAPTURED)


def test_one_state_without_reasons_hides_no_other():
    first, second, third, *others = records()
    lost = tuple({when: {"sm_mhz": 1980} for when in ("before", "after")} for _ in range(4))
    slowed = with_timing(first, devices=states(throttle=["hardware thermal slowdown"]))
    shared = with_timing(third, devices=states(other_processes=3))
    audit = audited([slowed, with_timing(second, devices=lost), shared, *others])
    tells(audit, "clocks", CAPTURED, NOT_CAPTURED, FINDING, FINDING)
    gpus = [{**gpu, "other_processes": 2} for gpu in ENVIRONMENT["gpus"][:1]]
    tells(audited(with_environment(records(), gpus=[*gpus, *ENVIRONMENT["gpus"][1:]])), "clocks", FINDING)


def test_workers_of_one_world_have_gpus_of_their_own():
    """Two workers that timed on the same GPU at once disturbed each other; at other times they did not."""
    one, other = measured()[:2]
    launches = [{**(one.environment.launch or {}), "worker": {"number": number}} for number in (0, 1)]
    pair = [with_environment([record], launch=launch)[0] for record, launch in zip((one, other), launches, strict=True)]
    assert "were timed on the same GPU at the same time" in evidence(audited(pair), "clocks", FINDING)
    later = dataclasses.replace(pair[1], started="2026-01-01T00:10:00Z", ended="2026-01-01T00:10:01Z")
    assert evidence(audited([pair[0], later]), "clocks", FINDING) == ""


@pytest.mark.parametrize("value", [5, "x", [1], [["x"]], {"a": 1}, True])
def test_readings_and_lists_of_another_kind_end_no_audit(value):
    devices = tuple({"before": value, "after": {"uuid": value, "throttle": value}} for _ in range(4))
    git = {"commit": value, "dirty": True, "changed_files": value, "untracked_files": value, "untracked": value}
    strange = with_environment(records(), git=git, gpus=[{"uuid": value}])
    members = [with_timing(one, devices=devices) if one.timing else one for one in strange]
    assert audited(members).verdict
    assert audited(with_environment(records(), git={"commit": "0" * 40, "dirty": True})).verdict
