"""What a kernel does in one launch of a case, apart from how long a GPU takes for it: what the model begins with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

Steps = Mapping[str, float]
"""Number of steps on a critical path by kind, as simulator/clock/costs.py names them. Not whole where they were
extended along a line."""

EXTENSIONS = ("simulated", "blocks", "rounds")
"""How the profile of a case was made (extension.py)."""


@dataclass(frozen=True, slots=True)
class Direction:
    """Bytes that go one way over one GPU's link to the switch in a launch.

    written: of stores into another GPU's memory. answered: the data that loads from another GPU's memory get. asked:
    the data that loads get whose requests go this way, and whose answers go the other. copied: of bulk copies into
    another GPU's memory.
    """

    written: float
    answered: float
    asked: float
    copied: float = 0.0


@dataclass(frozen=True, slots=True)
class PhaseWork:
    """What goes over links and through memory between two waits for other threads.

    directions: each direction of each GPU's link, alike ones once. memory_bytes: read and written in the memory of the
    GPU that has most of it, by whomever, each line once; looks of polls are not counted.
    """

    directions: tuple[Direction, ...]
    memory_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class CaseWork:
    """A case's critical path and traffic.

    least: the steps of the same code with the least work that it can have, a message of 1 KiB: what a launch waits for
    however small the message is. steps: those of the case itself. phases: its traffic, phase by phase in their order.
    how: of EXTENSIONS. blocks: number of blocks of the launch, which share the traffic; 0: unknown, so that no
    multiprocessor limits it.
    """

    least: Steps
    steps: Steps
    phases: tuple[PhaseWork, ...]
    how: str = "simulated"
    blocks: int = 0

    def __post_init__(self) -> None:
        if self.how not in EXTENSIONS:
            raise ValueError(f"a profile is {', '.join(EXTENSIONS)}, not {self.how!r}")

    def document(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "least": dict(self.least),
            "steps": dict(self.steps),
            "phases": [
                {"directions": [list(astuple(way)) for way in one.directions], "memory_bytes": one.memory_bytes}
                for one in self.phases
            ],
            "how": self.how,
            "blocks": self.blocks,
        }

    @staticmethod
    def of(document: Mapping[str, Any]) -> CaseWork:
        """Return the profile that a document holds. ValueError or KeyError if it holds none."""
        return CaseWork(
            {name: float(count) for name, count in document["least"].items()},
            {name: float(count) for name, count in document["steps"].items()},
            tuple(
                PhaseWork(tuple(Direction(*map(float, way)) for way in one["directions"]), float(one["memory_bytes"]))
                for one in document["phases"]
            ),
            document["how"],
            int(document["blocks"]),
        )


def weighed(steps: Steps, costs: Mapping[str, float]) -> float:
    """Return what steps take together, in microseconds, by the cost of each kind. KeyError for a kind without one."""
    return sum(count * costs[kind] for kind, count in steps.items())
