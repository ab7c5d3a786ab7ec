"""Machine and variables of worlds on one machine's GPUs, whichever of them each world used."""

from __future__ import annotations

import dataclasses
from typing import Any

from cases.record.record import Record
from reports.audit.bound_machine import of_worlds
from tests.reports.audit.tampering import members


def of_other_gpus(record: Record) -> Record:
    """The record as timed on other GPUs of the same machine."""
    assert record.timing is not None
    devices = tuple(
        {when: {**state, "uuid": f"{state['uuid']}-other"} for when, state in one.items()}
        for one in record.timing.devices
    )
    gpus = record.environment.gpus or ()
    more = tuple({**gpu, "uuid": f"{gpu['uuid']}-other"} for gpu in gpus)
    environment = dataclasses.replace(record.environment, gpus=(*gpus, *more))
    return dataclasses.replace(
        record, environment=environment, timing=dataclasses.replace(record.timing, devices=devices)
    )


def with_all_gpus(record: Record) -> Record:
    gpus = of_other_gpus(record).environment.gpus
    return dataclasses.replace(record, environment=dataclasses.replace(record.environment, gpus=gpus))


def said(**changes: Any) -> list[str]:
    """What two worlds on other GPUs of one machine say differently: the second one's environment is changed."""
    first, second = members()[0], members()[-1]
    other = of_other_gpus(second)
    other = dataclasses.replace(other, environment=dataclasses.replace(other.environment, **changes))
    return [one.sentence for one in of_worlds({"a": [with_all_gpus(first)], "b": [other]})]


def test_worlds_on_other_gpus_of_one_machine_are_compared() -> None:
    assert said() == []
    variables = dict(members()[0].environment.variables or {})
    (found,) = said(variables={**variables, "allowed": {**variables["allowed"], "NCCL_ALGO": "Tree"}})
    assert found.startswith("NCCL_ALGO is not set and Tree")
    host = dict(members()[0].environment.host or {})
    (found,) = said(host={**host, "cpu_model": "Better CPU"})
    assert "host.cpu_model is" in found


def test_which_gpus_a_launch_sees_is_its_own_matter() -> None:
    variables = dict(members()[0].environment.variables or {})
    allowed = {**variables.get("allowed", {}), "CUDA_VISIBLE_DEVICES": "2,3"}
    assert said(variables={**variables, "allowed": allowed}) == []
