"""Invented histories: worlds of one case, a day apart, at several commits. Nothing here was measured."""

import random
from dataclasses import replace

from cases.record.request import RecordedEnvironment
from tests.symlab.evidence.audit.invented_records import check, one, simulated

COMMITS = ("a" * 40, "b" * 40, "c" * 40)


def world(at, us, commit=COMMITS[0], nccl="2.28.9", **changes):
    """The record of a world that began on the given day, of 50 samples around its time."""
    began = f"2026-{1 + at // 28:02d}-{1 + at % 28:02d}T00:00:00"
    environment = RecordedEnvironment(
        git={"commit": commit, "dirty": False},
        packages={"torch": "2.13.0", "nvidia-nccl-cu13": nccl},
        gpus=({"model": "Invented GPU", "uuid": "GPU-0"},) * 4,
        cuda_driver="13.0",
    )
    request = {"command": f"command{at:03d}", "configuration": {"accumulator": "float32"}}
    times = {"started": f"{began}Z", "ended": f"{began[:-2]}01Z"}
    return one(world=0, us=us, environment=environment, **({"request": request} | times | changes))


def stepping(count=12, step=1.1, at=6, spread=0.002, seed=0, **changes):
    """Worlds of one case whose time changes by a factor, with another commit and NCCL from then on."""
    draw = random.Random(seed)

    def at_step(index):
        us = 10 * (step if index >= at else 1) * (1 + draw.gauss(0, spread))
        return world(index, us, COMMITS[index >= at], "2.29.0" if index >= at else "2.28.9", **changes)

    return [at_step(index) for index in range(count)]


def without_times(bits):
    """Simulated worlds that gave these bits, each of another commit."""
    made = [world(index, None, f"{index + 1:x}" * 40, check=check(one_of)) for index, one_of in enumerate(bits)]
    return [simulated(record) for record in made]


def with_commit(record, **git):
    """The record of a checkout with these values, too."""
    environment = replace(record.environment, git={**(record.environment.git or {}), **git})
    return replace(record, environment=environment)
