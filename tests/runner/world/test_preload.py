"""library.nccl: which library is found for a path or a version, and how the ranks get it."""

import signal
import subprocess
from dataclasses import replace

import pytest

from memory.fabric import FabricError, Traits
from runner.command.job import _refuse_other_nccl
from runner.request_error import RequestError
from runner.world import fabrics, processes
from runner.world.fabrics import FabricName, HostOffer, resolve
from runner.world.preload import LOADED_FIRST, Preloaded, loaded_first, nccl_of
from tests.golden import refused
from tests.memory.test_nccl import library
from tests.patience import NEVER_S
from tests.runner.conftest import asked


def request(*arguments):
    (found,) = asked(" ".join(arguments))
    return found


ONE = Preloaded("/elsewhere/libnccl.so.2", "2.32.3")


def test_a_path_is_asked_for_its_version(tmp_path):
    path = library(tmp_path / "one", 23203)
    assert nccl_of(str(path)) == Preloaded(str(path), "2.32.3")
    assert nccl_of(None) is None
    other = tmp_path / "libother.so"
    other.write_text("no library")
    for given in (other, tmp_path / "none.so"):
        with refused(RequestError):
            nccl_of(str(given))


def test_it_is_loaded_before_what_was_to_be_loaded_first():
    bare = {}
    loaded_first(bare, None)
    assert bare == {}
    loaded_first(bare, ONE)
    assert bare == {LOADED_FIRST: ONE.path}
    more = {LOADED_FIRST: "/lib/one.so:/lib/two.so"}
    loaded_first(more, ONE)
    assert more == {LOADED_FIRST: f"{ONE.path}:/lib/one.so:/lib/two.so"}


def test_every_rank_of_a_world_gets_it(monkeypatch):
    """And of a world whose second rank can't be started the first is ended."""
    ranks = []
    told = []
    begin = subprocess.Popen

    def start(*given, env, **named):
        told.append(env.get(LOADED_FIRST, "").split(":")[0])
        if len(told) % 2 == 0:
            raise InterruptedError("that is all that was to be seen")
        ranks.append(begin(["sleep", str(NEVER_S)], env=env, **named))
        return ranks[-1]

    monkeypatch.setattr(processes.subprocess, "Popen", start)
    for nccl in (ONE, None):
        fabric = replace(request("fabric=nvshmem").fabric, nccl=nccl)
        with pytest.raises(InterruptedError):
            fabrics.make_world(fabric, 2, lambda line: None)
    assert [one == ONE.path for one in told] == [True, True, False, False]
    assert [one.poll() for one in ranks] == [-signal.SIGKILL] * 2


def test_a_heap_of_what_is_free_is_left_to_the_gpus():
    fabric = request("fabric=nvshmem", "fabric.heap_bytes=auto").fabric
    assert fabrics.joined_opener(fabric) == fabrics.NvshmemOpener(0, joined=True)
    assert fabrics.joined_opener(request("fabric=nvshmem").fabric) == fabrics.NvshmemOpener(8 << 30, joined=True)


def test_worlds_with_different_libraries_are_different_worlds():
    fabric = request("fabric=nvshmem").fabric
    assert len({fabric, replace(fabric, nccl=ONE), replace(fabric, nccl=Preloaded(ONE.path, "2.28.9"))}) == 3


def test_it_needs_gpus_and_a_world_of_our_own(tmp_path):
    path = library(tmp_path / "one", 23203)
    with refused(RequestError):
        request("fabric=simulator", f"library.nccl={path}")
    fabric = request("fabric=auto", f"library.nccl={path}").fabric
    assert fabric.nccl == Preloaded(str(path), "2.32.3")
    with refused(RequestError):
        resolve(fabric, 2, lambda: HostOffer(0, "no GPU driver found", True))
    found, _ = resolve(fabric, 2, lambda: HostOffer(2, "", True))
    assert (found.name, found.nccl) == (FabricName.nvshmem, fabric.nccl)


def test_ranks_that_run_another_one_run_no_case():
    traits = Traits("nvshmem", "sm_90a", 2, 1 << 30, False, nccl="2.32.3")
    _refuse_other_nccl(None, traits)
    _refuse_other_nccl(ONE, traits)
    for loaded in ("2.28.9", "", "2.28.9 and 2.32.3"):
        with refused(FabricError):
            _refuse_other_nccl(ONE, replace(traits, nccl=loaded))
