"""Records of ranks that shared a GPU: asked for, said, untimed; and found where it was not asked for."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from cases.record.record import Record
from reports.audit import bound_gpus, bound_requests
from tests.reports.audit.tampering import UUIDS, members


def untimed(gpus: list[str], asked: bool, ran: bool) -> Record:
    """A record of our kernel without a time, whose ranks had these GPUs."""
    record = members()[0]
    assert record.fabric is not None
    world = copy.deepcopy(dict(record.environment.world or {}))
    for rank, gpu in zip(world["ranks"], gpus, strict=True):
        rank["device"]["uuid"] = gpu
    configuration: dict[str, Any] = copy.deepcopy(dict(record.request.configuration or {}))
    configuration["fabric"] = {**configuration.get("fabric", {}), "share_gpus": asked}
    settings = {"share_gpus": True} if ran else {}
    return dataclasses.replace(
        record,
        timing=None,
        fabric=dataclasses.replace(record.fabric, settings=settings),
        environment=dataclasses.replace(record.environment, world=world),
        request=dataclasses.replace(record.request, configuration=configuration),
    )


def said(record: Record) -> list[str]:
    found = [one.sentence for one in bound_gpus.contradictions([record])]
    return [one.partition(": ")[2] for one in found] + list(bound_requests._settings(record))


def test_shared_gpus_that_were_asked_for_are_no_contradiction() -> None:
    assert said(untimed(list(UUIDS), asked=False, ran=False)) == []
    assert said(untimed([UUIDS[0]] * 4, asked=True, ran=True)) == []


def test_a_gpu_of_two_ranks_is_found_where_it_was_not_asked_for() -> None:
    gpus = [UUIDS[0], UUIDS[0], UUIDS[2], UUIDS[3]]
    assert said(untimed(gpus, asked=False, ran=False)) == [
        "two ranks ran on the same GPU, which was not asked for (fabric.share_gpus)"
    ]


def test_what_was_asked_for_and_what_ran_agree() -> None:
    (found,) = said(untimed(list(UUIDS), asked=True, ran=False))
    assert "fabric.share_gpus was asked to be true" in found
    (found,) = said(untimed([UUIDS[0]] * 4, asked=False, ran=True))
    assert "fabric.share_gpus was asked to be false" in found
