"""A process that reaches the store of a world and is no rank: it floods, writes keys and leaves pickles.

The run ends right or in one line, and nothing of the client's runs: its pickles would create a folder.
"""

import base64
import contextlib
import os
import pickle
import socket
import threading
import time
from typing import Any

import pytest
from torch.distributed import TCPStore

from runner.world.processes import ProcessWorld
from runner.world.world import WorldFailure
from tests.memory.test_sealed_store import Bomb
from tests.patience import NEVER_S, PATIENCE_S, until
from tests.runner import rank_programs
from tests.runner.rank_programs import FileOpener
from tests.runner.world.test_launched import Launched, records

RING = [[11] * 4, [10] * 4]
LOOPBACK = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")


def client(port):
    """torch's types know str alone; bytes do."""
    return TCPStore("127.0.0.1", port, None, False, wait_for_workers=False)


def flood(port):
    """Many connections, some with garbage, some silent; keep the list as long as they shall be open."""
    found = []
    for index in range(200):
        one = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        if index % 4 == 0:
            one.sendall(os.urandom(2000))
        elif index % 4 == 1:
            one.sendall(b"GET / HTTP/1.1\r\n\r\n")
        elif index % 4 == 2:
            one.sendall(b"\x00" * 100 + b"\xff" * 3000)
        found.append(one)
    return found


@pytest.fixture
def world(tmp_path):
    (tmp_path / "heaps").mkdir()
    one = ProcessWorld(2, FileOpener(str(tmp_path / "heaps")))
    yield one
    one.close()


@pytest.mark.slow
def test_a_flood_of_a_world_of_this_machine_changes_nothing(world, tmp_path):
    with contextlib.ExitStack() as sockets:
        for one in flood(world.port):
            sockets.enter_context(one)
        hostile = client(world.port)
        bomb = pickle.dumps(Bomb(tmp_path / "bang"))
        for index in range(3000):
            hostile.set(f"junk/{index}", bomb)
        for key in ("order/1", "answer/1/1", "end", "symlab/0/order/1", "meeting/-1/0/0"):
            hostile.set(key, bomb)
        assert world.run(rank_programs.ring, None, NEVER_S) == RING
        assert world.run(rank_programs.group_sum, None, NEVER_S) == [3.0, 3.0]
    assert world.run(rank_programs.ring, None, NEVER_S) == RING
    assert world.healthy
    assert not (tmp_path / "bang").exists()


@pytest.mark.slow
def test_forged_messages_in_a_world_of_this_machine_change_no_result(world, tmp_path):
    """A rank may write its own over a forged one before the other reads: then all is right."""
    hostile = client(world.port)
    for turn in range(20):
        for rank in range(2):
            hostile.set(f"meeting/1/{turn}/{rank}", pickle.dumps(Bomb(tmp_path / "bang")))
    found: Any
    try:
        found = world.run(rank_programs.ring, None, NEVER_S)
    except WorldFailure as failure:
        found = failure
    if isinstance(found, WorldFailure):
        assert found.status == "FAILED"
        assert "in the world's store was not written by a rank of this world" in found.message
        assert "\n" not in found.message
    else:
        assert found == RING
    assert not (tmp_path / "bang").exists()


@pytest.mark.slow
def test_nothing_of_a_world_of_this_machine_listens_beyond_loopback(world):
    before = set(rank_programs.listening_addresses("self"))
    ranks = world.run(rank_programs.listening, None, NEVER_S)
    assert all(ranks), "each rank's gloo listens"
    own = [place for place in before if place.endswith(f":{world.port:04X}")]
    assert len(own) == 1
    for place in (*own, *(one for rank in ranks for one in rank)):
        assert place.partition(":")[0] in LOOPBACK, place


REQUEST = ("fabric=nvshmem", "baselines=none", "sizes=[8,16]", f"deadline_s={NEVER_S}")
KEY = {"SYMLAB_KEY": "0123456789abcdef" * 4}


NOT_OURS = "was not written by a rank of this world"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["order", "answer"])
def test_forged_messages_in_a_launchers_world_run_nothing(tmp_path, kind):
    """Its ranks have the key of their user, which the client does not have."""

    def attack(store, port):
        for number in range(2, 60):
            name = f"answer/{number}/1" if kind == "answer" else f"order/{number}"
            store.set(f"symlab/0/{name}", base64.b64encode(pickle.dumps(Bomb(tmp_path / "bang"))))

    assert NOT_OURS in World(tmp_path, attack).reasons()[0]


@pytest.mark.slow
def test_ranks_with_different_keys_end_in_one_line(tmp_path):
    first, _ = World(tmp_path, later={"SYMLAB_KEY": "f" * 32}, **KEY).reasons()
    assert NOT_OURS in first
    assert "the ranks have different keys" in first


class World:
    """A launcher's world of two ranks, and a client that attacks it from the moment on that its store is served."""

    def __init__(self, folder, attack=None, **how):
        self.folder = folder / "run"
        self.folder.mkdir()
        self.ranks = Launched(self.folder, "", *REQUEST, **how)
        self.attack, self.has_attacked = attack, attack is None
        if attack is not None:
            threading.Thread(target=self._run, daemon=True).start()

    def _is_served(self):
        try:
            socket.create_connection(("127.0.0.1", self.ranks.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _run(self):
        until(self._is_served, "the world's store")
        store = client(self.ranks.port)
        self.attack(store, self.ranks.port)
        self.has_attacked = True
        with contextlib.suppress(RuntimeError):
            while True:  # it stays
                store.set("junk", "x")
                time.sleep(0.05)

    def reasons(self):
        """Why its cases failed, each in one line; rank 0 alone speaks."""
        codes, outs, errors = self.ranks.end()
        assert self.has_attacked
        assert codes == [1, 1], outs[0] + errors[0]
        assert outs[1] == errors[1] == ""
        assert "Traceback" not in errors[0] + outs[0]
        found = [reason for _, reason in records(self.folder)]
        assert len(found) == 2
        assert not any("\n" in one for one in found)
        assert not (self.folder.parent / "bang").exists()
        return found
