"""How long a run of the matrix may take: it is asked between rows, and bounds the row that runs."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

from runner.launch.files import LaunchFiles


@dataclass(frozen=True, slots=True)
class Limit:
    """When a run ends, for every process that has a part in it.

    ends_s: by this machine's monotonic clock, infinity for never. boot: the machine whose clock that is ("" where the
    system does not tell). folder: that of a launcher's tasks, whose stop workers of other machines look for, since
    clocks of two machines are never compared; "" without a launcher. whole_s: how long the run may take in all.
    """

    ends_s: float = math.inf
    boot: str = ""
    folder: str = ""
    whole_s: float = math.inf

    @classmethod
    def after(cls, seconds: float | None) -> Limit:
        """Return the limit of a run that begins now and may take that many seconds. None: it has no limit."""
        return cls() if seconds is None else cls(time.monotonic() + seconds, _boot(), whole_s=seconds)

    def left_s(self) -> float:
        """Return how many seconds are left; 0 or less if a row that begins now would begin too late."""
        if self.folder and LaunchFiles(Path(self.folder)).is_stopped:
            return 0.0
        if self.ends_s == math.inf or self.boot != _boot():
            return math.inf
        return self.ends_s - time.monotonic()

    @property
    def is_over(self) -> bool:
        return self.left_s() <= 0


def _boot() -> str:
    """The machine since its start: what the monotonic clock counts from. "" where there is no such number."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
