"""Which fabric is taken on which machine, and what is said where NVSHMEM can't be."""

import sys
from types import ModuleType
from typing import Any, cast

import pytest

from runner.request.compose import compose_jobs, hydra_over
from runner.request_error import RequestError
from runner.world.fabrics import HostOffer, NvshmemOpener, look, resolve, settings, shared_gpus
from runner.world.launcher import Outer
from tests.golden import refused
from tests.rooms import needs
from tests.runner import conftest

FOUR = HostOffer(4, "", True)
ONE = HostOffer(1, "", True)
NOTHING = HostOffer(0, "", True)
JOINED = Outer("torchrun", 0, 8, 0, "gpu01", 29500)


SHARED = ("fabric.share_gpus=true", "timing.mode=none")


def asked(name, *overrides):
    (found,) = conftest.asked(" ".join((f"fabric={name}", *overrides)))
    return found.fabric


def resolved(name, machine, world_size, outer=None):
    fabric, why = resolve(asked(name), world_size, lambda: machine, outer)
    return fabric.name, why


def test_what_is_asked_for_is_taken():
    assert resolved("simulator", FOUR, 2) == ("simulator", "asked for")
    assert resolved("nvshmem", FOUR, 4) == ("nvshmem", "asked for")
    assert resolved("nvshmem", ONE, 1) == ("nvshmem", "asked for")
    assert resolved("nvshmem", ONE, 8, JOINED) == ("nvshmem", "asked for; torchrun started 8 ranks")


@pytest.mark.parametrize(
    ("machine", "world_size", "expected"),
    [
        (FOUR, 4, ("nvshmem", "4 GPUs and the gpu extra found")),
        (ONE, 1, ("nvshmem", "1 GPU and the gpu extra found")),
        (FOUR, 8, ("simulator", "world_size is 8, and 4 GPUs are here")),
        (ONE, 2, ("simulator", "world_size is 2, and 1 GPU is here")),
        (HostOffer(0, "no GPU driver found", True), 2, ("simulator", "no GPU driver found")),
        (HostOffer(0, "", True), 2, ("simulator", "no GPU found")),
        (HostOffer(2, "", False), 2, ("simulator", "2 GPUs found, but not the gpu extra: pip install 'symlab[gpu]'")),
        (HostOffer(2, "", True, "torch is for CPUs"), 2, ("simulator", "torch is for CPUs: install torch for CUDA")),
    ],
)
def test_auto_says_why(machine, world_size, expected):
    assert resolved("auto", machine, world_size) == expected


@pytest.mark.parametrize(
    ("machine", "world_size"),
    [
        (HostOffer(0, "no GPU driver found", False), 2),
        (NOTHING, 2),
        (HostOffer(4, "", False), 2),
        (HostOffer(4, "", True, "torch 2 is for CPUs"), 2),
        (FOUR, 8),
        (HostOffer(2, "", True), 8),
        (ONE, 2),
    ],
)
def test_what_is_missing_is_one_line(machine, world_size):
    with refused(RequestError):
        resolved("nvshmem", machine, world_size)


def test_a_launchers_world_has_the_size_it_has():
    for name in ("nvshmem", "auto"):
        with refused(RequestError):
            resolved(name, FOUR, 2, JOINED)
    assert resolved("auto", HostOffer(0, "no GPU driver found", True), 2, JOINED)[0] == "simulator"


def test_this_machine_is_looked_at():
    found = look()
    assert found.gpu_count >= 0
    assert (found.gpu_count > 0) == (found.driver_problem == "")


@pytest.mark.parametrize("name", ["nvshmem", "auto"])
def test_ranks_may_share_the_gpus_that_there_are(name):
    fabric, _ = resolve(asked(name, *SHARED), 8, lambda: ONE)
    assert (fabric.name, fabric.simulated, settings(fabric)) == ("nvshmem", False, {"share_gpus": True})
    with refused(RequestError):
        resolve(asked(name, *SHARED), 8, lambda: NOTHING)


@pytest.mark.parametrize(
    ("ranks", "gpus", "used"), [(5, 4, 1), (6, 4, 3), (4, 2, 2), (3, 4, 3), (7, 8, 7), (9, 8, 3), (2, 1, 1), (72, 8, 8)]
)
def test_ranks_share_gpus_evenly(ranks, gpus, used, monkeypatch):
    opened = []
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr("torch.cuda.set_device", lambda device: None)
    nvshmem = ModuleType("memory.nvshmem")
    nvshmem.open_fabric = lambda store, rank, size, device, heap, share_gpus: opened.append((device, share_gpus))
    monkeypatch.setitem(sys.modules, "memory.nvshmem", nvshmem)
    for rank in range(ranks):
        NvshmemOpener(1 << 20, share_gpus=True)(cast(Any, None), rank, ranks)
    assert shared_gpus(ranks, gpus) == used
    assert opened == [(rank % used, True) for rank in range(ranks)], "they go round the ranks"


def test_the_fabrics_line_says_how_many_gpus_are_shared():
    _, why = resolve(asked("nvshmem", *SHARED), 6, lambda: FOUR)
    assert why == "asked for; 6 ranks on 3 of 4 GPUs, evenly"
    assert resolve(asked("nvshmem", *SHARED), 4, lambda: FOUR)[1] == "asked for"


@needs("checks")
@pytest.mark.parametrize(
    ("overrides", "simulated", "on_gpus"),
    [
        ([], False, False),
        (["algorithms=[one_shot]"], False, False),
        (["algorithms=[one_shot,conf/exp/own/ring.py:SPEC]"], True, False),
        (["algorithms=[conf/exp/own/ring.py:SPEC]", "check.races=false"], False, False),
        (["+exp=custom_ptx"], True, False),
        (["+exp=custom_ptx", "check.races=false"], False, False),
    ],
)
def test_brought_kernels_are_checked_for_races_where_they_are_simulated(overrides, simulated, on_gpus):
    with hydra_over():
        (job,) = compose_jobs(["fabric=auto", *overrides], False)
    assert resolve(job.request.fabric, 2, lambda: HostOffer(0, "", True))[0].races is simulated
    decided = resolve(job.request.fabric, 2, lambda: FOUR)[0]
    assert (decided.simulated, decided.races) == (False, on_gpus), "no GPU is passed over for it"


@pytest.mark.parametrize(
    "overrides",
    [
        ["fabric=nvshmem", "fabric.share_gpus=true"],
        ["fabric=simulator", *SHARED],
        ["fabric.gpu=h100", *SHARED],
        ["check.races=true", *SHARED],
        ["fabric=nvshmem", "library.nccl_algo=Ring", *SHARED],
    ],
)
def test_what_shared_gpus_exclude_is_refused_in_one_line(overrides):
    with refused(RequestError), hydra_over():
        compose_jobs(overrides, False)


NOTHING = HostOffer(0, "", True)
