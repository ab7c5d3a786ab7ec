"""Records for tests of tables and pictures. Their figures are invented: nothing here was measured."""

import random
from dataclasses import replace

from cases.case import Case
from cases.documents import decoded
from cases.record.record import Check, FabricInfo, Record, Status
from cases.record.request import RecordedEnvironment, RecordedRequest
from cases.record.timing import LinkLimit, Timing

KIB, MIB = 1 << 10, 1 << 20

DELAYS_US = {
    "one_shot": (7.0, 9.0),
    "two_shot": (11.0, 300.0),
    "nccl": (20.0, 320.0),
    "torch/one_shot": (10.0, 8.5),
    "torch/two_shot": (12.0, 290.0),
    "nvshmem": (30.0, 200.0),
}
"""An invented delay in us and an invented algbw in GB/s of each contestant."""

LIBRARIES = {"nccl": "NCCL 0.0.0", "nvshmem": "NVSHMEM 0.0.0"} | dict.fromkeys(
    ("torch/one_shot", "torch/two_shot", "torch/multimem"), "torch 0.0.0"
)
LIMIT = LinkLimit(400.0, 380.0, 256 * MIB)
REFUSAL = "no multicast: the (invented) fabric manager gave none"


def record(
    algorithm="one_shot",
    size_bytes=KIB,
    *,
    world=0,
    world_size=4,
    dtype="bfloat16",
    accumulator="float32",
    samples_us=None,
    timing=None,
    is_timed=True,
    **changes,
):
    """A record on four invented GPUs; timing are changes to its Timing; changes are fields of Record, see of_case."""
    library = LIBRARIES.get(algorithm, "")
    place = "in_place" if algorithm == "torch/two_shot" else "out_of_place"
    accumulated = "library" if library else accumulator
    case = Case("all_reduce", algorithm, dtype, accumulated, "sum", size_bytes, world_size, place)
    configuration = {"accumulator": accumulator, "timing": {"mode": "graph", "window": "kernel", "l2": "rotate"}}
    fields = {
        "status": Status.PASSED,
        "case": case,
        "started": f"2026-01-01T0{world}:00:00Z",
        "ended": f"2026-01-01T0{world}:00:01Z",
        "duration_s": 1.0,
        "fabric": FabricInfo("nvshmem", "sm_90a", world_size, 1 << 33, False, REFUSAL, False, "invented GPUs"),
        "library": library,
        "check": Check("bitwise", world_size * size_bytes, 0, 0.0, 0, 0.0, True, 2, True),
        "environment": RecordedEnvironment(
            gpus=({"model": "Invented GPU"},), git={"commit": "0123456789abcdef", "dirty": False}
        ),
        "request": RecordedRequest(command=f"command{world}", overrides=("+exp=x",), configuration=configuration),
    }
    made = Timing(
        **{
            "mode": "graph",
            "window": "kernel",
            "l2": "rotate",
            "slots": 64,
            "slot_bytes": 2 * size_bytes,
            "warmup_calls": 3,
            "calls_per_sample": 20,
            "bus_factor": 2 * (world_size - 1) / world_size,
            "samples_us": samples_us or invented_samples(algorithm, size_bytes, world, world_size, dtype),
            "checked_before": 1024,
            "checked_after": 1024,
            "limit": LIMIT,
            **(timing or {}),
        }
    )
    return of_case(**(fields | {"timing": made if is_timed else None} | changes))


_PARTS = {"case": Case, "environment": RecordedEnvironment, "request": RecordedRequest}


def of_case(**fields):
    """A record with the id that its case gives, unless fields have another. Parts may be given as JSON objects."""
    fields |= {
        name: decoded(kind, fields[name], name) for name, kind in _PARTS.items() if isinstance(fields.get(name), dict)
    }
    return Record(**({"id": fields["case"].id} | fields))


def with_case(made, **changes):
    """The record with another case: changes are fields of it. The id goes with it."""
    case = replace(made.case, **changes)
    return replace(made, case=case, id=case.id)


def with_request(made, **changes):
    """The record with another request: changes are fields of it."""
    return replace(made, request=replace(made.request, **changes))


def with_environment(made, **changes):
    """The record with another environment: changes are fields of it."""
    return replace(made, environment=replace(made.environment, **changes))


def invented_samples(algorithm, size_bytes, world, world_size, dtype, samples=50):
    """Samples around the delay and the bandwidth that DELAYS_US invents, to the nanosecond."""
    delay_us, algbw_gbps = DELAYS_US.get(algorithm, (15.0, 100.0))
    source = random.Random(f"{algorithm} {size_bytes} {world} {world_size} {dtype}")
    middle_us = (delay_us + size_bytes / algbw_gbps / 1e3) * source.uniform(0.97, 1.03)
    return [[round(middle_us * source.uniform(1, 1.04), 3) for _ in range(samples)] for _ in range(world_size)]


def refused(algorithm="multimem_one_shot", size_bytes=KIB, **changes):
    """The record of a case that was not run."""
    return record(
        algorithm,
        size_bytes,
        **({"is_timed": False, "status": Status.REFUSED, "check": None, "reason": REFUSAL, "library": ""} | changes),
    )


def study(algorithms=tuple(DELAYS_US), sizes=tuple(KIB << power for power in range(0, 19, 2)), worlds=3, **changes):
    """All algorithms at all sizes, so many worlds each, and what was refused."""
    return [
        made
        for world in range(worlds)
        for size_bytes in sizes
        for made in (
            *(record(algorithm, size_bytes, world=world, **changes) for algorithm in algorithms),
            refused("multimem_one_shot", size_bytes, world=world, **changes),
            refused("torch/multimem", size_bytes, world=world, **changes),
        )
    ]
