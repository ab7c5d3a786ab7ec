"""What a kernel can be put under beside a plain launch, what each means, and why a kernel does not promise it.

Several may be combined: "late_rank+two_streams" is one value, with the names in the order of Stress.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Stress(StrEnum):
    """What a case runs under. Members are named as they are written: OmegaConf reads an enum by its members' names."""

    none = "none"
    """Nothing: hosts meet after each checked launch."""
    late_rank = "late_rank"
    """One rank's host is late with each launch, another rank's with the next."""
    no_host_barrier = "no_host_barrier"
    """Launches follow each other on the same workspaces without a barrier of the hosts; buffers are filled again as
    soon as the rank's own launch is done."""
    alternating_sizes = "alternating_sizes"
    """Launches of several sizes alternate on the same workspaces."""
    two_streams = "two_streams"
    """Two launches run at once, on two streams, with the same workspaces and other buffers."""
    graph_out_of_step = "graph_out_of_step"
    """Launches are captured and replayed with the same arguments: some ranks replay all of a round at once, the others
    one by one."""
    dead_rank = "dead_rank"
    """One rank never launches. The kernels of the others give up and report which rank they waited for."""


NO_STRESS = Stress.none.value
PROMISES = tuple(str(one) for one in Stress if one is not Stress.none)
"""What a spec can promise."""

JOINED = "+"
LAUNCHED_BY = ("two_streams", "graph_out_of_step", "dead_rank")
"""Those that say how launches are made: a case has one of them at most."""


def parts_of(stress: str) -> tuple[str, ...]:
    """Return the names that a value combines; () of "none"."""
    return () if stress == NO_STRESS else tuple(stress.split(JOINED))


def combined(text: str) -> str:
    """Return a value with its names in the order of Stress. Raises ValueError for one that is no stress, says why."""
    names = [name.strip() for name in text.split(JOINED)]
    unknown = next((name for name in names if name not in tuple(Stress)), None)
    if unknown is not None:
        known = ", ".join(Stress)
        raise ValueError(f"there is no stress {unknown!r} (stress), give one of {known}, or several joined by +")
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise ValueError(f"{text} names {twice} twice (stress), name it once")
    if len(names) > 1 and NO_STRESS in names:
        raise ValueError(f"{text} combines none with something (stress), leave none out")
    if len(names) > 1 and "dead_rank" in names:
        reason = f"{text} combines dead_rank, whose last launch ends the case, with something"
        raise ValueError(f"{reason} (stress), give it alone")
    launched_by = [name for name in names if name in LAUNCHED_BY]
    if len(launched_by) > 1:
        raise ValueError(f"{text} launches in two ways (stress), give {' or '.join(launched_by)}")
    return JOINED.join(sorted(names, key=tuple(Stress).index))


MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "late_rank": "a rank that launches long after the others",
        "no_host_barrier": "launches in a row without a barrier of the hosts",
        "alternating_sizes": "launches of other sizes on the same workspaces",
        "two_streams": "two launches at once on the same workspaces",
        "graph_out_of_step": "graphs that the ranks replay out of step",
        "dead_rank": "a report that names a rank which never launches",
    }
)
"""Each in a few words, for refusals."""

WITH_BARRIERS = frozenset(PROMISES) - {"two_streams"}
"""What a kernel promises that keeps its epochs in its workspaces for all sizes, and ends when no rank needs its buffers
any more, or has others for the next launch. Two launches at once would take the same epoch."""

THROUGH_SWITCH = WITH_BARRIERS - {"dead_rank"}
"""The same of a kernel whose barriers go through the switch."""

ONE_WAY = WITH_BARRIERS - {"dead_rank"}
"""The same of a kernel in which a rank waits only for those whose data it gets."""

NOT_ONE_WAY: Mapping[str, str] = MappingProxyType(
    {"dead_rank": "a rank waits only for those whose data it gets, and misses others some launches later"}
)
"""Why not, to be merged into a spec's why_not."""

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "two_streams": "its flags and epochs are those of one launch at a time",
        "dead_rank": "a barrier through the switch counts arrivals and can't tell which rank is missing",
    }
)
"""Why our kernels do not promise something, unless a spec says otherwise (why_not)."""
