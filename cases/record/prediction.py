"""What a model told of a timed case, beside its time: the predicted time with its terms, or the reason for none.

A prediction is no measurement, and no figure of a record's timing is made of it. The model is the runner's
(symlab/speed/predict/model.py):

    time = launch + begin + least + max(link + memory, more) + cold

Its terms are here as they are added up, in microseconds: that of a cold cache with its coldness. Earlier records have
no memory, and their path's terms have a factor that was fitted then.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields
from typing import Any

from cases.documents import LATER, plain

REGIMES = ("latency", "mixed", "bandwidth")
"""What decides a time: the path, both, or the link."""

_DIGEST = re.compile("sha256:[0-9a-f]{64}")

TERM_NAMES = {
    "launch_us": "launch",
    "begin_us": "begin",
    "least_us": "the path of a message of 1 KiB",
    "link_us": "the link",
    "memory_us": "the own memory",
    "more_us": "the rest of the path",
    "cold_us": "a cold cache",
}
"""What each term is called, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedTerms:
    """The terms of a predicted time in microseconds, each at least 0.

    launch_us: an empty node of a graph. begin_us: what a kernel takes beyond an empty one. least_us: the critical path
    of the same code with a message of 1 KiB; more_us: what the case's own path has beyond it. link_us: the busier
    direction of the busiest link. memory_us: how much longer than the link the own memory takes, phase by phase; None
    in records from before the model had it. cold_us: what a cold L2 cache adds.
    """

    launch_us: float
    begin_us: float
    least_us: float
    link_us: float
    memory_us: float | None = field(default=None, metadata=LATER)
    more_us: float
    cold_us: float

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not (value is None or (math.isfinite(value) and value >= 0)):
                raise ValueError(f"prediction.terms.{one.name}: {value}; it is a finite number of microseconds from 0")

    @property
    def time_us(self) -> float:
        """The time that the terms make: of the traffic and the rest of the path only the longer one counts."""
        return self.launch_us + self.begin_us + self.least_us + max(self.traffic_us, self.more_us) + self.cold_us

    @property
    def traffic_us(self) -> float:
        """Microseconds of link and memory together."""
        return self.link_us + (self.memory_us or 0.0)

    def largest(self, most: int = 2) -> tuple[tuple[str, float], ...]:
        """Return the names and microseconds of the largest terms that count, at most `most`."""
        others = ("more_us",) if self.traffic_us >= self.more_us else ("link_us", "memory_us")
        counted = {name: getattr(self, name) or 0.0 for name in TERM_NAMES if name not in others}
        order = sorted(counted.items(), key=lambda one: -one[1])
        return tuple((TERM_NAMES[name], value) for name, value in order[:most] if value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedTime:
    """A predicted time, and what it was computed from. ValueError for what can't be one.

    gpu: the type of GPU whose floors weigh the path, as conf/gpu names it; floors_digest: of what the model takes of
    it. constants_digest: of the fitted constants and intervals. time_us, in microseconds, with the interval low_us to
    high_us: the error of 90 % of the published cases of its regime, of the shortest and the longest time that the
    assumed constants allow (symlab/speed/predict/assumptions.py). regime: of REGIMES. ratio: the measured median over
    time_us. path_us: microseconds of the case's own path by kind of step. work: the steps and the traffic that the
    simulator found (symlab/speed/predict/case_work.py). remarks: why it is worth less than its interval says.
    """

    gpu: str
    floors_digest: str
    constants_digest: str
    time_us: float
    low_us: float
    high_us: float
    regime: str
    ratio: float
    terms: PredictedTerms
    path_us: dict[str, Any]
    work: dict[str, Any]
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("time_us", "low_us", "high_us", "ratio"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"prediction.{name}: {value}; it is a positive, finite number")
        if self.low_us > self.high_us:
            raise ValueError(f"prediction: an interval from {self.low_us} to {self.high_us} us")
        if self.regime not in REGIMES:
            raise ValueError(f"prediction.regime: '{self.regime}' is none of {', '.join(REGIMES)}")
        for name in ("floors_digest", "constants_digest"):
            if not _DIGEST.fullmatch(getattr(self, name)):
                raise ValueError(f"prediction.{name}: '{getattr(self, name)}'; it is sha256: and 64 hexadecimal digits")
        if not self.gpu:
            raise ValueError("prediction.gpu: it names a type of GPU")
        for name in ("path_us", "work"):
            object.__setattr__(self, name, plain(getattr(self, name), f"prediction.{name}"))
        for kind, value in self.path_us.items():
            if type(value) not in (int, float) or not (math.isfinite(value) and value >= 0):
                raise ValueError(f"prediction.path_us.{kind}: {value!r}; it is a finite number of microseconds from 0")

    @property
    def is_far_slower(self) -> bool:
        """Whether the measured time is above the interval."""
        return self.ratio * self.time_us > self.high_us

    @property
    def is_far_faster(self) -> bool:
        """Whether the measured time is below the interval."""
        return self.ratio * self.time_us < self.low_us

    @property
    def verdict(self) -> str:
        """Where the measured time is: "slower than predicted", "faster than predicted", "as predicted"."""
        return (
            "slower than predicted"
            if self.is_far_slower
            else "faster than predicted"
            if self.is_far_faster
            else "as predicted"
        )

    def sentence(self) -> str:
        """Return what the model and its path say of the measured time, in one sentence without the case's name."""
        largest = ", ".join(f"{name} {value:.2f} us" for name, value in self.terms.largest())
        steps = sorted(self.path_us.items(), key=lambda one: -one[1])[:2]
        path = ", ".join(f"{kind} {value:.2f} us" for kind, value in steps if value)
        return (
            f"{self.ratio:.2f} times the predicted {self.time_us:.2f} us ({self.low_us:.2f} to {self.high_us:.2f}, "
            f"{self.regime}): {self.verdict}; largest terms: {largest or 'none'}; on the path: {path or 'nothing'}"
        )


INTERRUPTED = "interrupted before it was predicted"
"""The reason of a case whose command was ended after it was timed and before it was predicted."""


@dataclass(frozen=True, slots=True)
class RecordedPrediction:
    """The prediction part of a record: a time, or the reason why there is none; exactly one of them."""

    time: PredictedTime | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if (self.time is None) != bool(self.reason.strip()):
            raise ValueError("prediction: it has a time, or the reason why it has none, and never both")
