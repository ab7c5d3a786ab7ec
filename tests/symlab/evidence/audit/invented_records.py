"""Sets of invented records for tests of audits. Nothing here was measured."""

import dataclasses
import hashlib

from cases.record.record import Check, FabricInfo, KernelInfo, Status
from tests.reports.synthetic import KIB, record

CALLS = 20
"""Calls of a sample, each on a slot of its own."""


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def check(bits="right", given="given", method="bitwise", **changes):
    """A check of 4 ranks and 2 launches, with digests of bits (by rank, or the same for all) and of given."""
    rows = tuple((digest(bits),) * 2 for _ in range(4))
    bound = {"bound": "an invented bound", "bound_value": 1e-3, "bound_used": 0.25} if method == "bound" else {}
    fields = {
        "method": method,
        "elements": 4096,
        "wrong": 0,
        "max_absolute_error": 0.0,
        "max_ulp_error": 0,
        "rms_ulp_error": 0.0,
        "ranks_equal": True,
        "launches": 2,
        "launches_equal": True,
        "input_digests": tuple(digest(f"{given} {rank}") for rank in range(4)),
        "output_digests": rows,
    }
    return Check(**(fields | bound | changes))


def kernel(name="all_reduce/one_shot", version="1"):
    digests = [f"sha256:{digest(f'{what} {version}')}" for what in ("ptx", "cubin", "source")]
    return KernelInfo(name, "entry_0", "sm_90a", *digests, "invented-compiler 1.0", 8, 256)


def one(algorithm="one_shot", size_bytes=KIB, *, world=0, us=None, **changes):
    """A verified record with digests and a kernel; us is the time of all its samples. None: not timed."""
    library = algorithm in ("nccl",)
    fields = {"check": check()}
    if not library:
        fields["kernel"] = kernel(f"all_reduce/{algorithm}")
    timed = {"is_timed": False} if us is None else {"samples_us": [[us] * 3] * 4}
    elements = CALLS * 4 * size_bytes // 2
    method = {"slots": CALLS, "calls_per_sample": CALLS, "warmup_calls": 3 * CALLS}
    method |= {"checked_before": elements, "checked_after": 2 * elements}
    fields["timing"] = method | changes.pop("timing", {})
    return record(algorithm, size_bytes, world=world, **timed, **(fields | changes))


def worlds(times_us, first=0, **changes):
    """A record a world, with these times."""
    return [one(world=first + index, us=us, **changes) for index, us in enumerate(times_us)]


def in_turns(before_us, after_us, **changes):
    """Records of worlds that ran A B B A A B B A: those before, with these times, and those after."""
    sides = [], []
    places = [at for at in range(2 * max(len(before_us), len(after_us)))]
    for side, times in enumerate((before_us, after_us)):
        mine = [at for at in places if (at % 4 in (1, 2)) == bool(side)]
        for at, us in zip(mine, times, strict=False):
            moment = f"2026-01-01T{at:02d}:00:00Z", f"2026-01-01T{at:02d}:00:01Z"
            sides[side].append(one(world=at, us=us, **({"started": moment[0], "ended": moment[1]} | changes)))
    return sides


def simulated(made):
    """The same, as the simulator would have it."""
    fabric = FabricInfo("simulator", "sm_90a", made.fabric.world_size, 1 << 28, True, "", True)
    return dataclasses.replace(made, fabric=fabric, timing=None)


def broken(status, **changes):
    """A case that has no result."""
    return one(status=status, check=None, reason="an invented reason", **changes)


def wrong(**changes):
    return one(status=Status.WRONG, check=check(ranks_equal=False), reason="", **changes)
