"""The model: from a profile to microseconds.

    time = launch + begin + least + max(link + memory, more) + cold * coldness

launch      An empty kernel in a graph, with dependent launch where the case has it: floors of the GPU type.
begin       What a kernel that does anything takes beyond an empty one: its first instructions, the last warp's end.
            Fitted. Dependent launches begin while the one before ends, so that it is hidden; but their path takes
            longer, by a fitted factor.
least       The critical path of the same code with the least work, weighed by the floors: loads, hops of flags between
            GPUs, fences, each counted as often as they wait for each other. The simulator's clock finds it. A step
            takes what its floor says. A factor on all steps is not fitted: kernels with barriers have nearly the same
            path, so that their times can't tell it from begin.
more        What the path has beyond that for a longer message: further turns of loads. Their data come from memory, not
            from an L2 cache, as far as the launch is cold. Between two turns a block's multiprocessor has to move the
            bytes of one, at what the floors of one block leave without waits. All this goes on while the link is busy
            with the same data, so the longer of the two counts, not their sum.
link        The busier direction of the busiest link in each phase; a phase begins when others have ended theirs, so
            that phases add up: (written / push + copied / bulk push + answered / pull + asked * request) bytes. These
            are floors: pushing, pushing by bulk copies, pulling, and pulling both ways, which has the requests of one
            direction among the answers of the other. Few blocks take longer than that: each moves its share of the
            bytes at what one block alone reaches, another floor. Of that a first turn's wait is in `least` already.
memory      In each phase, how much longer the busiest GPU's own memory takes than the link: (read + written) / memory
            bytes, or the share of a block if that takes longer. A phase that reads an inbox again has no traffic over
            links to hide it. The floor is that of local sums in more memory than an L2 cache holds; of data that an L2
            cache holds it is too slow, and then short.
coldness    0 to 1: how much of a launch's first accesses misses the L2 cache. Contestants measured in turns, each with
            slots of buffers in turn, push each other's data out; 0 below a tenth of the cache, 1 beyond 1.6 of it, and
            by the logarithm between. cold, what a miss on the path costs, is fitted, also apart for dependent launches.

Four constants are fitted to collectives (Fitted), all others are floors of the GPU type, which need no collective.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields

import numpy as np
import numpy.typing as npt

from symlab.speed.calibrate.probes import COPY_TURN_BYTES, REDUCTION_TURN_BYTES
from symlab.speed.predict.case_work import CaseWork, Direction, PhaseWork, Steps, weighed

Floats = npt.NDArray[np.float64]

TURN_BYTES, MEMORY_TURN_BYTES = COPY_TURN_BYTES, 3 * REDUCTION_TURN_BYTES
"""Bytes that a block of the floors moves in a turn: of a copy, and of a sum of two buffers into a third."""

COLD_FROM, COLD_TO = 0.11, 1.6
"""Footprint over L2 cache below which all accesses hit, and from which on the first ones miss. From the trial on
published records of H200 (November 2026)."""

TURNS = ("own_load", "remote_load", "bulk_own_load", "bulk_remote_load")
"""Kinds of steps that begin a turn of a block."""

REGIMES = ("latency", "mixed", "bandwidth", "dependent")
_LATENCY_BELOW, _BANDWIDTH_FROM = 0.2, 0.8


@dataclass(frozen=True, slots=True)
class Rates:
    """What the model takes of a type of GPU: floors, which need no collective (rates.py).

    launch_us, dependent_launch_us: an empty node of a graph. costs_us: of each kind of step
    (simulator/clock/costs.py). In GB/s (10^9):
    push_gbps, bulk_push_gbps, pull_gbps, pull_both_gbps, what SMs reach in one direction storing to another GPU,
    storing to it by bulk copies, loading from it, and loading in both directions at once; memory_gbps, what they reach
    in their own memory, read and written. block_push_gbps and so on: what a launch of one block reaches of these, with
    a turn of TURN_BYTES, or MEMORY_TURN_BYTES, in flight; issue_push_gbps and so on: the same without its waits.
    cold_us: by kind of step, what it costs more if its data come from memory. l2_bytes: of the L2 cache.
    """

    launch_us: float
    costs_us: Mapping[str, float]
    push_gbps: float
    bulk_push_gbps: float
    pull_gbps: float
    pull_both_gbps: float
    memory_gbps: float
    l2_bytes: int
    block_push_gbps: float = math.inf
    block_bulk_push_gbps: float = math.inf
    block_pull_gbps: float = math.inf
    block_memory_gbps: float = math.inf
    issue_push_gbps: float = math.inf
    issue_bulk_push_gbps: float = math.inf
    issue_pull_gbps: float = math.inf
    issue_memory_gbps: float = math.inf
    cold_us: Mapping[str, float] = field(default_factory=dict)
    dependent_launch_us: float = 0.0

    def link_us(self, phase: PhaseWork, blocks: int = 0) -> float:
        """Return how long the busiest direction of a link is busy in a phase, in microseconds. blocks: of the launch,
        0 for as many as the link needs."""
        request = max(1 / self.pull_both_gbps - 1 / self.pull_gbps, 0.0)
        weights = 1 / self.push_gbps, 1 / self.pull_gbps, request, 1 / self.bulk_push_gbps
        found = 0.0
        for one in phase.directions:
            whole = _dot(weights, (one.written, one.answered, one.asked, one.copied)) / 1e3
            found = max(found, whole, self._blocks_us(one, blocks) if blocks else 0.0)
        return found

    def _blocks_us(self, way: Direction, blocks: int) -> float:
        """How long blocks take to move what goes one way, each its share."""
        own, remote = self.costs_us.get("own_load", 0.0), self.costs_us.get("remote_load", 0.0)
        return (
            _block_us(way.written / blocks, self.block_push_gbps, own, TURN_BYTES)
            + _block_us(way.answered / blocks, self.block_pull_gbps, remote, TURN_BYTES)
            + _block_us(way.copied / blocks, self.block_bulk_push_gbps, own, TURN_BYTES)
        )

    def issue_us(self, phase: PhaseWork, blocks: int) -> float:
        """Return how long each of some blocks takes to move its share of a phase, in microseconds, without waits."""
        weights = 1 / self.issue_push_gbps, 1 / self.issue_pull_gbps, 0.0, 1 / self.issue_bulk_push_gbps
        ways = [_dot(weights, (one.written, one.answered, one.asked, one.copied)) for one in phase.directions]
        return max(*ways, phase.memory_bytes / self.issue_memory_gbps, 0.0) / blocks / 1e3

    def memory_us(self, phase: PhaseWork, blocks: int = 0) -> float:
        """Return how long the busiest memory is busy in a phase, in microseconds. blocks: see link_us."""
        whole = phase.memory_bytes / self.memory_gbps / 1e3
        if not blocks:
            return whole
        own = self.costs_us.get("own_load", 0.0)
        return max(whole, _block_us(phase.memory_bytes / blocks, self.block_memory_gbps, own, MEMORY_TURN_BYTES))


@dataclass(frozen=True, slots=True)
class Fitted:
    """The constants fitted to collectives of one type of GPU. dependent_path: how many times as long as alone the
    least path of a dependent launch takes; all others in microseconds."""

    begin_us: float
    cold_us: float
    dependent_path: float
    dependent_cold_us: float


@dataclass(frozen=True, slots=True)
class Terms:
    """What the model adds up for a case, in microseconds; coldness is 0 to 1. Module docstring: what each one is.
    is_dependent: whether its launches are dependent ones."""

    launch_us: float
    least_us: float
    more_us: float
    link_us: float
    memory_us: float
    coldness: float
    is_dependent: bool = False

    def time_us(self, fitted: Fitted) -> float:
        """Return the predicted time of a launch."""
        return float(times_us(columns([self]), astuple(fitted))[0])

    def regime(self, fitted: Fitted) -> str:
        """Return what decides the time: "latency", "bandwidth" or "mixed", by the share of it that link and memory
        have; "dependent" of dependent launches."""
        if self.is_dependent:
            return REGIMES[3]
        share = (self.link_us + self.memory_us) / self.time_us(fitted)
        return REGIMES[0] if share < _LATENCY_BELOW else REGIMES[2] if share >= _BANDWIDTH_FROM else REGIMES[1]


def terms_of(profile: CaseWork, rates: Rates, footprint_bytes: float, is_dependent: bool = False) -> Terms:
    """Return the terms of a case. footprint_bytes: what all buffers that are used in turn have together on a GPU."""
    least_us = weighed(_waited(profile.least), rates.costs_us)
    cold = coldness(footprint_bytes / rates.l2_bytes)
    more_us = _more_us(profile, rates, cold)
    blocks = profile.blocks
    links = [rates.link_us(one, blocks) for one in profile.phases]
    beyond = [max(rates.memory_us(one, blocks) - link, 0.0) for one, link in zip(profile.phases, links, strict=True)]
    launch_us = rates.dependent_launch_us if is_dependent else rates.launch_us
    return Terms(launch_us, least_us, more_us, sum(links), sum(beyond), cold, is_dependent)


def _waited(steps: Steps) -> Steps:
    """Steps with the hop that the clock does not see: ll128 looks for words that are stored weakly, of which the clock
    has no time, so that its path ends with a look where it waited for another GPU."""
    if "look" not in steps or any(kind in steps for kind in ("hop", "switch_hop")):
        return steps
    return {**steps, "look": steps["look"] - 1, "hop": 1.0}


def _more_us(profile: CaseWork, rates: Rates, cold: float) -> float:
    """What the path of a case has beyond the least one, and what a block moves between two of its turns."""
    waits_us = weighed(profile.steps, rates.costs_us) - weighed(profile.least, rates.costs_us)
    further = {kind: max(count - profile.least.get(kind, 0.0), 0.0) for kind, count in profile.steps.items()}
    waits_us += cold * sum(count * rates.cold_us.get(kind, 0.0) for kind, count in further.items())
    turns = sum(further.get(kind, 0.0) for kind in TURNS)
    issue_us = 0.0
    if profile.blocks and turns:
        issue_us = sum(rates.issue_us(one, profile.blocks) for one in profile.phases) * turns / (turns + 1)
    return max(waits_us, 0.0) + issue_us


def coldness(ratio: float) -> float:
    """Return how cold the first accesses are, 0 to 1, for buffers that together are ratio times the L2 cache."""
    if ratio <= COLD_FROM:
        return 0.0
    return min(math.log(ratio / COLD_FROM) / math.log(COLD_TO / COLD_FROM), 1.0)


def columns(terms: Sequence[Terms]) -> Floats:
    """Return terms as an array of float64, a row for each of Terms' fields, a column for each case."""
    return np.array([astuple(one) for one in terms], np.float64).reshape(-1, len(fields(Terms))).T


def times_us(terms: Floats, constants: Sequence[float]) -> Floats:
    """Return predicted times in microseconds. terms: as columns gives them; constants: in the order of Fitted."""
    launch, least, more, link, memory, cold, dependent = terms
    begin_us, cold_us, path, dependent_cold_us = constants
    waits = np.where(dependent, path * least + dependent_cold_us * cold, begin_us + least + cold_us * cold)
    times: Floats = launch + waits + np.maximum(link + memory, more)
    return times


def _block_us(share_bytes: float, gbps: float, wait_us: float, turn_bytes: int) -> float:
    """How long a block takes to move its share, in microseconds, without the wait of its first turn."""
    return max(share_bytes / gbps / 1e3 - wait_us * min(share_bytes / turn_bytes, 1.0), 0.0)


def _dot(weights: Sequence[float], values: Sequence[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))
