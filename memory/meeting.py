"""How ranks in separate processes agree: short texts exchanged through a store that outlives any of them.

The store is one of torch.distributed (a TCPStore whose server is in the parent process, or torchrun's). Three things
follow from that choice. Nothing hangs: a wait is a loop of short look-ups, so a signal is handled between two of them
and the deadline ends it. A rank that failed or left is named: it writes that down before it goes, and the parent does
for one that was killed. And a rank that never came is named, too, because each has a key of its own.

A memory.sealed_store.SealedStore is the store of all worlds: what another process writes there ends a run, in one line,
unless the same key signed it for the same place of an earlier run.

The client should be the meeting's alone: a store's client serves one call at a time, and one that blocks would hold
the meeting up beyond its deadline.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol, cast

from memory.fabric import DeadlineExceeded, Disagreement, PeerLost
from memory.ranks import attributed, named

FIRST_SLEEP_S = 50e-6
"""A rank that is almost there is met soon after."""

LONGEST_SLEEP_S = 5e-3
"""The rest cost the store's server little, however long the wait."""

SLEEP_GROWTH = 1.5

UNWORRIED_S = 400e-6
"""Sleeps shorter than this are not followed by a look at who has failed: it would only delay those who come."""

OPENING = -1
"""The run number of what is exchanged before the first program."""


class Store(Protocol):
    """What is used of torch.distributed's stores, a TCPStore first of all. get and multi_get wait for their keys.

    And append(key, value), which torch's type stubs don't know.
    """

    def set(self, key: str, value: str, /) -> None: ...
    def check(self, keys: list[str], /) -> bool: ...
    def get(self, key: str, /) -> bytes: ...
    def multi_get(self, keys: list[str], /) -> list[bytes]: ...
    def delete_key(self, key: str, /) -> bool: ...


def tcp_store(address: str, port: int, patience_s: float, listener: socket.socket | None = None) -> Store:
    """Return a connection to a store, for which it waits; with a socket that listens there, the store itself, which is
    served until it is gone. What they write is not signed."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    served: dict[str, Any] = {} if listener is None else {"is_master": True, "master_listen_fd": listener.detach()}
    limit = timedelta(seconds=patience_s)
    store: Any = TCPStore(address, port, None, timeout=limit, wait_for_workers=False, **served)
    return cast("Store", store)


class Meeting:
    """One rank's end of the exchanges of all ranks.

    Each exchange takes one key a rank, "meeting/<run>/<round>/<rank>", which its writer deletes once a later exchange
    shows that all have read it. Who failed or left is a line in the log "meeting/<run>/left".
    """

    def __init__(self, store: Store, rank: int, world_size: int) -> None:
        self._store = store
        self.rank = rank
        self.world_size = world_size
        self.run = OPENING
        """The number of the program that runs, or ran last; OPENING before the first."""
        self._round = 0
        self.deadline: float | None = None
        """When waits end, on time.monotonic()'s clock; None: never."""
        self._stale: list[str] = []
        self._has_left = False

    def set_deadline(self, monotonic_s: float | None) -> None:
        """Set when waits end."""
        self.deadline = monotonic_s

    def begin(self, run: int) -> None:
        """A new program: who failed in, or left, earlier ones is forgotten. Every run has a larger number."""
        if run <= self.run:
            raise ValueError(f"run {run} begins after run {self.run}: each needs a larger number than the last")
        if self.rank == 0:
            self._stale.append(_log(self.run))
        self.run = run
        self._round = 0
        self._has_left = False

    def exchange(self, kind: str, note: str) -> tuple[str, ...]:
        """Give a text, get everyone's, by rank, once all ranks are here.

        kind says what the rank does: kinds that differ raise Disagreement on every rank. PeerLost names a rank that
        failed or left instead of coming; DeadlineExceeded those that did neither.
        """
        self._look_for_failures(kind)
        keys = [f"meeting/{self.run}/{self._round}/{rank}" for rank in range(self.world_size)]
        self._round += 1
        self._store.set(keys[self.rank], json.dumps([kind, note]))
        self._wait(keys, kind)
        calls = [json.loads(value) for value in self._store.multi_get(keys)]
        # All ranks have come this far, so none reads an earlier exchange any more.
        for key in self._stale:
            self._store.delete_key(key)
        self._stale = [keys[self.rank]]
        if any(call[0] != kind for call in calls):
            raise Disagreement(f"the ranks called different things: {attributed([call[0] for call in calls])}")
        return tuple(call[1] for call in calls)

    def leave(self, text: str) -> None:
        """Tell the others that this rank is done with the run: "" in good order, else the error it ended with."""
        if not self._has_left:
            self._has_left = True
            _write_down(self._store, self.run, self.rank, text)

    def _wait(self, keys: list[str], kind: str) -> None:
        """Until all keys are there. A complete exchange counts, even if a rank has failed since."""
        sleep_s = FIRST_SLEEP_S
        while not self._store.check(keys):
            gone = self._log_lines() if sleep_s > UNWORRIED_S else []
            if gone and not self._store.check(keys):
                missing = self._missing(keys)
                self._lose([line for line in gone if line["rank"] in missing or _is_failure(line)], kind)
            if self.deadline is not None and time.monotonic() >= self.deadline:
                missing = self._missing(keys)
                if missing:
                    raise DeadlineExceeded(
                        f"{named(missing)} did not come to {kind!r}, where rank {self.rank} waited for all, "
                        "before the deadline",
                        rank=self.rank,
                    )
            time.sleep(sleep_s)
            sleep_s = min(sleep_s * SLEEP_GROWTH, LONGEST_SLEEP_S)

    def _look_for_failures(self, kind: str) -> None:
        """A rank that comes after another's failure must not be met half-way by those that have given up."""
        self._lose([line for line in self._log_lines() if _is_failure(line)], kind)

    def _lose(self, gone: Sequence[dict[str, Any]], kind: str) -> None:
        """Raise PeerLost about the rank that it began with, if any is gone.

        The first failure in the log is what the others followed from: they are written down after it was read.
        """
        others = [line for line in gone if line["rank"] != self.rank]
        if not others:
            return
        first = min(others, key=lambda line: line["text"] == "")
        who = "the world was ended" if first["rank"] is None else f"rank {first['rank']} failed"
        if first["text"]:
            raise PeerLost(f"{who}: {first['text']}", rank=first["rank"])
        raise PeerLost(f"rank {first['rank']} left, and {kind!r} needs all ranks", rank=first["rank"])

    def _log_lines(self) -> list[dict[str, Any]]:
        """Who failed or left in this run, in that order."""
        log = _log(self.run)
        if not self._store.check([log]):
            return []
        return [json.loads(line) for line in self._store.get(log).splitlines()]

    def _missing(self, keys: Sequence[str]) -> list[int]:
        return [rank for rank, key in enumerate(keys) if not self._store.check([key])]


def lost(store: Store, run: int, rank: int | None, text: str) -> None:
    """For the parent: tell all ranks that a rank's process has died, or (rank None) that the world is ended, and why.

    run is the program's number, as given to Meeting.begin; OPENING before the first.
    """
    _write_down(store, run, rank, text or "its process ended")


def _write_down(store: Store, run: int, rank: int | None, text: str) -> None:
    """Add a line to the run's log."""
    cast(Any, store).append(_log(run), json.dumps({"rank": rank, "text": text}) + "\n")


def _log(run: int) -> str:
    return f"meeting/{run}/left"


def _is_failure(line: dict[str, Any]) -> bool:
    return bool(line["text"])
