"""A signed store: ranks with the key meet as ever, and what anything else wrote ends in one line, unread."""

import os
import pickle

import pytest
from torch.distributed import HashStore, TCPStore

from memory.fabric import FabricError, PeerLost
from memory.meeting import Meeting
from memory.sealed_store import SealedStore
from tests.golden import refused

KEY = bytes(range(32))


class Bomb:
    """Creates a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture
def store():
    """torch's types know str alone; bytes do."""
    return HashStore()


def test_values_come_back_and_appended_ones_add_up(store):
    sealed = SealedStore(store, KEY)
    sealed.set("a", "one")
    sealed.set("b", "zwölf\n")
    sealed.set("empty", "")
    sealed.append("log", "1\n")
    sealed.append("log", "2\n")
    again = SealedStore(store, KEY)
    assert again.get("a") == b"one"
    assert again.multi_get(["a", "b", "empty"]) == [b"one", "zwölf\n".encode(), b""]
    assert again.get("log") == b"1\n2\n"
    assert again.check(["a"])
    assert not again.check(["c"])
    assert again.delete_key("a")
    assert not again.check(["a"])


def forgeries(store, folder):
    """What another process could put in place of the value of "a"."""
    good = store.get("a")
    other = SealedStore(HashStore(), bytes(32))
    other.set("a", "one")
    return {
        "pickle": pickle.dumps(Bomb(folder / "bang")),
        "plain": b'["barrier", ""]',
        "empty": b"",
        "cut": good[:-1],
        "longer": good + b"x",
        "changed": good[:-1] + b"f",
        "of another name": store.get("b"),
        "of another key": other._store.get("a"),
        "negative length": good[:64] + b"-000000000000001" + good[80:],
        "huge length": good[:64] + b"f" * 16 + good[80:],
        "no text": b"\xff" * 200,
    }


def test_what_the_key_did_not_sign_is_refused_in_one_line(store, tmp_path):
    sealed = SealedStore(store, KEY)
    sealed.set("a", "one")
    sealed.set("b", "one")
    for kind, value in forgeries(store, tmp_path).items():
        store.set("a", value)
        for read in (lambda: sealed.get("a"), lambda: sealed.multi_get(["b", "a"])):
            with pytest.raises(FabricError) as caught:
                read()
            assert str(caught.value).startswith("the value of 'a' in the world's store was not written by a rank"), kind
            assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_line_that_something_else_added_to_a_log(store):
    sealed = SealedStore(store, KEY)
    sealed.append("log", "1\n")
    store.append("log", "2\n")
    with refused(FabricError):
        sealed.get("log")


def test_a_store_without_a_key_is_a_mistake(store):
    with refused():
        SealedStore(store, b"")


def client(server):
    return TCPStore("127.0.0.1", server.port, None, False, wait_for_workers=False)


def test_foreign_messages_end_a_meeting_in_one_line(tmp_path):
    server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    hostile = client(server)
    hostile.set("meeting/1/0/1", pickle.dumps(Bomb(tmp_path / "bang")))
    hostile.append("meeting/2/left", '{"rank": 1, "text": "gone"}\n')
    meeting = Meeting(SealedStore(client(server), KEY), 0, 2)
    for run in (1, 2):
        meeting.begin(run)
        with refused(FabricError) as caught:
            meeting.exchange("barrier", "")
        assert not isinstance(caught.value, PeerLost)
    assert list(tmp_path.iterdir()) == []
