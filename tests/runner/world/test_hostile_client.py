"""A process that reaches the store of a world and is no rank: it floods, writes keys and leaves pickles.

The run ends right or in one line, and nothing of the client's runs: its pickles would create a folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
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


def client(port: int) -> Any:
    """torch's types know str alone; bytes do."""
    return TCPStore("127.0.0.1", port, None, False, wait_for_workers=False)


def flood(port: int) -> list[socket.socket]:
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
def world(tmp_path: Path) -> Iterator[ProcessWorld]:
    (tmp_path / "heaps").mkdir()
    one = ProcessWorld(2, FileOpener(str(tmp_path / "heaps")))
    yield one
    one.close()


@pytest.mark.slow
def test_a_flood_of_a_world_of_this_machine_changes_nothing(world: ProcessWorld, tmp_path: Path) -> None:
    assert world.port is not None
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
def test_a_forged_line_in_a_world_of_this_machine_ends_it_in_one_line(world: ProcessWorld) -> None:
    assert world.port is not None
    client(world.port).set("meeting/1/left", '{"rank": 1, "text": "gone"}\n')
    with pytest.raises(WorldFailure) as caught:
        world.run(rank_programs.ring, None, NEVER_S)
    assert caught.value.status == "FAILED"
    assert "the value of 'meeting/1/left' in the world's store was not written by a rank" in caught.value.message
    assert "\n" not in caught.value.message
    assert world.processes == ()


@pytest.mark.slow
def test_forged_messages_in_a_world_of_this_machine_change_no_result(world: ProcessWorld, tmp_path: Path) -> None:
    """A rank may write its own over a forged one before the other reads: then all is right."""
    assert world.port is not None
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
def test_nothing_of_a_world_of_this_machine_listens_beyond_loopback(world: ProcessWorld) -> None:
    before = set(rank_programs.listening_addresses("self"))
    ranks = world.run(rank_programs.listening, None, NEVER_S)
    assert all(ranks), "each rank's gloo listens"
    own = [place for place in before if place.endswith(f":{world.port:04X}")]
    assert len(own) == 1
    for place in (*own, *(one for rank in ranks for one in rank)):
        assert place.partition(":")[0] in LOOPBACK, place


class Hostile:
    """A client of a launcher's world that attacks from the moment on that its store is served."""

    def __init__(self, port: int, attack: Callable[[Any, int], object]) -> None:
        self.attack, self.port = attack, port
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        self.has_attacked = False

    def _is_served(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def run(self) -> None:
        until(self._is_served, "the world's store")
        store = client(self.port)
        self.attack(store, self.port)
        self.has_attacked = True
        try:
            while True:  # it stays
                store.set("junk", "x")
                time.sleep(0.05)
        except RuntimeError:
            return


REQUEST = ("fabric=nvshmem", "baselines=none", "sizes=[8,16]", f"deadline_s={NEVER_S}")
KEY = {"SYMLAB_KEY": "0123456789abcdef" * 4}


def started(folder: Path, attack: Callable[[Any, int], object], **environment: str) -> tuple[Launched, Hostile]:
    folder.mkdir(exist_ok=True)
    one = Launched(folder, "", *REQUEST, **environment)
    return one, Hostile(one.port, attack)


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{}, KEY], ids=["no key", "key"])
def test_a_flood_of_a_launchers_world_changes_nothing(tmp_path: Path, environment: dict[str, str]) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "bang"))

    def attack(store: Any, port: int) -> None:
        held.extend(flood(port))
        for index in range(3000):
            store.set(f"symlab/0/junk/{index}", bomb)
        store.set("symlab/0/answer/1/7", bomb)

    held: list[socket.socket] = []
    one, hostile = started(tmp_path / "run", attack, **environment)
    codes, outs, errors = one.end()
    assert hostile.has_attacked
    assert codes == [0, 0], outs[0] + errors[0] + errors[1]
    assert records(tmp_path / "run") == [("PASSED", "")] * 2
    assert not (tmp_path / "bang").exists()


def forged_orders(folder: Path) -> dict[str, bytes]:
    """What a client could want ranks to do."""
    bang = str(folder / "bang")
    program = json.dumps({"tuple": [bang]})
    return {
        "pickle": pickle.dumps((None, ("open", pickle.dumps(Bomb(folder / "bang"))))),
        "program": json.dumps(["run", "0" * 64, None, "os:mkdir", program]).encode(),
        "deep": b"[" * 100_000,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "environment"),
    [("pickle", {}), ("program", {}), ("deep", {}), ("program", KEY)],
    ids=["pickle", "program", "deep", "key"],
)
def test_forged_orders_in_a_launchers_world_run_nothing(tmp_path: Path, kind: str, environment: dict[str, str]) -> None:
    forged = forged_orders(tmp_path)[kind]

    def attack(store: Any, port: int) -> None:
        for number in range(2, 60):
            store.set(f"symlab/0/order/{number}", forged)

    one, hostile = started(tmp_path / "run", attack, **environment)
    codes, outs, errors = one.end()
    assert hostile.has_attacked
    assert codes[0] == 1, outs[0] + errors[0]
    assert codes[1] == 1
    assert outs[1] == errors[1] == ""
    reasons = [reason for _, reason in records(tmp_path / "run")]
    assert len(reasons) == 2
    assert all("\n" not in reason for reason in reasons)
    said = "was not written by a rank of this world" if environment else ""
    said = said or (
        "asks for something else than" if kind == "program" else "the store holds something else than an order"
    )
    assert said in reasons[0]
    assert "Traceback" not in errors[0] + outs[0]
    assert not (tmp_path / "bang").exists()


@pytest.mark.slow
def test_a_forged_answer_in_a_launchers_world_runs_nothing(tmp_path: Path) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "bang"))

    def attack(store: Any, port: int) -> None:
        for number in range(1, 60):
            store.set(f"symlab/0/answer/{number}/1", bomb)

    one, _ = started(tmp_path / "run", attack)
    codes, outs, errors = one.end()
    assert codes == [1, 1]
    reasons = [reason for _, reason in records(tmp_path / "run")]
    assert "the store holds something else than an answer where this rank writes its answers" in reasons[0]
    assert "Traceback" not in errors[0] + outs[0]
    assert not (tmp_path / "bang").exists()


@pytest.mark.slow
def test_ranks_with_different_keys_end_in_one_line(tmp_path: Path) -> None:
    other = {"SYMLAB_KEY": "f" * 32}
    codes, outs, errors = Launched(tmp_path, "", *REQUEST, later=other, **KEY).end()
    assert codes == [1, 1]
    assert outs[1] == errors[1] == ""
    reasons = [reason for _, reason in records(tmp_path)]
    assert "was not written by a rank of this world" in reasons[0]
    assert "the ranks have different keys" in reasons[0]


@pytest.mark.slow
def test_another_command_line_on_one_rank_is_named(tmp_path: Path) -> None:
    codes, outs, errors = Launched(tmp_path, "", *REQUEST, more=("seed=9",)).end()
    assert codes == [1, 1]
    assert outs[1] == errors[1] == ""
    reasons = [reason for _, reason in records(tmp_path)]
    assert reasons[0].startswith("rank 1: its command line asks for something else than that of rank 0 (digests ")
    assert "Traceback" not in errors[0] + outs[0]
