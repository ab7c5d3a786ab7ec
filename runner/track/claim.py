"""Who sends a command's records: one process at a time, whichever machines they are on.

A sender takes a ticket as a tag of the experiment, as in Lamport's bakery: it says that it is choosing, reads the
tickets of others, and takes one above them. The lowest ticket sends; a later sender finds it. MLflow has no other
means for this: it has no transactions, and two runs may have the same name. A sender shows that it is alive by changing
its ticket every few seconds; the ticket of one that has died, or that is silent for long, is taken away.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.track.pages import digest_of

BEAT_S, SILENT_S = 5.0, 20.0
"""How often a sender changes its ticket; after how long without a change another takes it for dead."""

_LOOK_S = 0.2
_TAG = "symlab.sending."


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a sender's tag says: its number, None while it chooses; its machine and process; how often it has beaten."""

    number: int | None
    machine: str
    process: str
    beat: int = 0

    @classmethod
    def read(cls, text: str) -> Ticket | None:
        """None for a tag that says nothing, as one that was given back on a server that can't delete it."""
        try:
            said = json.loads(text)
            number = None if said["number"] is None else int(said["number"])
            return cls(number, str(said["machine"]), str(said["process"]), int(said["beat"]))
        except (ValueError, KeyError, TypeError):
            return None

    @property
    def text(self) -> str:
        return json.dumps({"number": self.number, "machine": self.machine, "process": self.process, "beat": self.beat})

    @property
    def is_dead(self) -> bool:
        """Whether its process was one of this machine, and is gone."""
        return self.machine == _machine() and self.process != _process(self.process.partition(".")[0])

    @property
    def is_alive(self) -> bool:
        """Whether its process is one of this machine, and is there. Of other machines that is not known at once."""
        return self.machine == _machine() and not self.is_dead


class Claim:
    """A sender's turn at a command's records. take, then give_back, whatever happened."""

    def __init__(self, client: Any, experiment_id: str, command: str) -> None:
        self._client, self._experiment_id = client, experiment_id
        self._prefix = f"{_TAG}{digest_of(command)}."
        self._key = f"{self._prefix}{uuid.uuid4().hex[:12]}"
        self._own = Ticket(None, _machine(), _process(str(os.getpid())))
        self._done = threading.Event()
        self._beating: threading.Thread | None = None
        self._lock = threading.Lock()

    def take(self, patience_s: float = 0.0) -> bool:
        """Take the turn. False if another sender has it, and keeps it for patience_s; then nothing is left behind."""
        self._write()
        others = self._others()
        highest = max((one.number for one in others.values() if one.number is not None), default=0)
        self._own = Ticket(highest + 1, self._own.machine, self._own.process)
        self._write()
        self._beating = threading.Thread(target=self._beat, name="symlab-claim", daemon=True)
        self._beating.start()
        if self._waited(patience_s):
            return True
        self.give_back()
        return False

    def give_back(self) -> None:
        """Let the next sender have it. Never raises: it's the way out."""
        self._done.set()
        with self._lock, contextlib.suppress(Exception):
            self._take_away(self._key)

    def _waited(self, patience_s: float) -> bool:
        """Wait until no one is before this sender; False as soon as one that is alive has been for patience_s."""
        began_s = time.monotonic()
        seen: dict[str, tuple[Ticket, float]] = {}
        moved: set[str] = set()
        while before := self._before():
            now_s = time.monotonic()
            for key, ticket in before.items():
                earlier, since_s = seen.setdefault(key, (ticket, now_s))
                if earlier != ticket:
                    moved.add(key)
                    seen[key] = (ticket, now_s)
                elif ticket.is_dead or now_s - since_s > SILENT_S:
                    self._take_away(key)
            holders = [key for key, one in before.items() if one.number is not None and (one.is_alive or key in moved)]
            if holders and now_s - began_s >= patience_s:
                return False
            time.sleep(_LOOK_S)
        return True

    def _before(self) -> dict[str, Ticket]:
        """The senders that come first, and those that still choose, who may."""
        own = (self._own.number or 0, self._key)
        return {key: one for key, one in self._others().items() if one.number is None or (one.number, key) < own}

    def _others(self) -> dict[str, Ticket]:
        tags: Mapping[str, str] = self._client.get_experiment(self._experiment_id).tags
        found = {key: Ticket.read(text) for key, text in tags.items() if key.startswith(self._prefix)}
        return {key: one for key, one in found.items() if one is not None and key != self._key}

    def _beat(self) -> None:
        while not self._done.wait(BEAT_S):
            own = self._own
            self._own = Ticket(own.number, own.machine, own.process, own.beat + 1)
            with self._lock, contextlib.suppress(Exception):
                if not self._done.is_set():
                    self._write()

    def _write(self) -> None:
        self._client.set_experiment_tag(self._experiment_id, self._key, self._own.text)

    def _take_away(self, key: str) -> None:
        try:
            self._client.delete_experiment_tag(self._experiment_id, key)
        except Exception:
            # Another sender was quicker, or the server is too old to delete a tag.
            if key in self._client.get_experiment(self._experiment_id).tags:
                self._client.set_experiment_tag(self._experiment_id, key, "")


def _machine() -> str:
    """This machine as far as processes' numbers mean the same: its boot and its namespace of processes; "" if the
    system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    return hashlib.sha256(f"{boot}{space}".encode()).hexdigest()[:12]


def _process(number: str) -> str:
    """A process as "<number>.<when it began>", so that one that has its number later is another; "" if it is gone."""
    try:
        state, *fields = Path(f"/proc/{int(number)}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    return "" if state in "ZX" else f"{int(number)}.{fields[18]}"
