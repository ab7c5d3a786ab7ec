"""A launch in a rank's queue."""

from __future__ import annotations

from dataclasses import dataclass

from memory.fabric import Executable, Launch


@dataclass(frozen=True, slots=True)
class Queued:
    """A launch in a rank's queue: its packed arguments, its number among the launches of its rank, from 0, the number
    of steps for which it waits once it can begin, and the launches of other streams for whose end it waits."""

    executable: Executable
    launch: Launch
    arguments: tuple[bytes, ...]
    number: int
    delay: int
    after: tuple[int, ...] = ()

    @property
    def kind(self) -> tuple[str, str, Launch]:
        """What launches that run as one batch have in common."""
        return self.executable.digest, self.executable.entry, self.launch
