"""The jobs of a search: as they are searched, and the same with other algorithms and sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cases.case import Counts
from cases.stress import NO_STRESS
from kernels.catalogue import specs_of
from runner.case.bringing import ALL_VALUES, is_place
from runner.command.plan import PreparedJob, prepare
from runner.environment.repository import source_digests
from runner.request.compose import ComposedJob, compose_job, compose_jobs
from runner.request.composer import Composer
from runner.request.experiments import CONF
from runner.request.overrides import config_folders
from runner.request.schema import TimingMode
from runner.request_error import RequestError
from runner.world.fabrics import HostOffer, resolve

SIZES = tuple(1 << power for power in range(10, 29, 2))
"""Sizes that are searched where none are given: 1K, 4K, .. 256M."""


OURS = ("algorithms", "sizes")
"""Keys that the jobs of finalists have values of their own for."""


def searchable(job: ComposedJob) -> ComposedJob:
    """A job as it is searched: our own kernels, and sizes of a search where none are given. RequestError for one that
    can't be searched."""
    request = job.request
    if request.custom is not None:
        raise RequestError("op=custom has one kernel (op), there is nothing to search")
    if not request.check:
        raise RequestError("a search checks every result (check=false), leave it out")
    if request.stress != NO_STRESS:
        raise RequestError(f"a search runs plain launches (stress={request.stress}), leave it out")
    if request.counts != Counts.uniform:
        raise RequestError(f"a table knows no counts (counts={request.counts.value}), leave it at uniform")
    if request.timing.mode == TimingMode.none:
        raise RequestError("a search needs times (timing.mode=none), give graph or eager")
    names = request.algorithms if not isinstance(request.algorithms, str) else ()
    known = [spec.algorithm for spec in specs_of(request.op, "auto")]
    for name in names:
        if not is_place(name) and name not in known:
            raise RequestError(
                f"{name} is no algorithm of {request.op} to be searched (algorithms), give some of {', '.join(known)}"
            )
    changes: dict[str, Any] = {"baselines": ()}
    if names:
        changes["algorithms"] = tuple(map(_with_parameters, names))
    if not request.sizes_given and request.op != "barrier" and request.gemm is None:
        changes |= {"sizes_bytes": SIZES, "sizes_given": True}
    return dataclasses.replace(job, request=dataclasses.replace(request, **changes))


def _with_parameters(name: str) -> str:
    """A place of an entry that chooses no parameter with all values of them."""
    return f"{name}{ALL_VALUES}" if ".yaml:" in name and "@" not in name.rpartition(":")[2] else name


FINALS_USUAL = {"launches": 1, "deadline_s": 10, "timing.samples": 30}
"""What finals take unless it is given: results were checked before, a library that does not end costs 10 s (NVSHMEM's
all_to_all from 16M on 2 H200), and of the turns fifteen choose and fifteen judge."""


def unless(job: PreparedJob, usual: Mapping[str, int]) -> list[str]:
    """Overrides for keys that a job's command line does not give."""
    given = {line.lstrip("+~").partition("=")[0] for line in job.composed.overrides}
    return [f"{key}={value}" for key, value in usual.items() if key not in given and "timing" not in given]


def _key_of(line: str) -> str:
    """The key of an override, of a section its name: "sizes" of "sizes.min=1K"."""
    return line.lstrip("+~").partition("=")[0].partition(".")[0]


def composed_as(
    composer: Composer,
    job: PreparedJob,
    names: Sequence[str],
    sizes: Sequence[int],
    number: int,
    more: Sequence[str] = (),
    baselines: str = "none",
) -> ComposedJob:
    """A job of the same settings with other algorithms and sizes. Inside hydra_over. names: also of brought kernels,
    and places."""
    places = {one.spec.algorithm: f"'{one.place}'" for one in job.brought}
    asked = dict.fromkeys(places.get(name, f"'{name}'" if is_place(name) else name) for name in names)
    own = {one.partition("=")[0] for one in more}
    given = {line: line.lstrip("+~").partition("=")[0] for line in job.composed.overrides}
    lines = [line for line, key in given.items() if key not in own and _key_of(line) not in (*OURS, "baselines")]
    if job.request.gemm is None:
        lines.append(f"sizes.list=[{','.join(map(str, sizes))}]")
    lines += [f"algorithms=[{','.join(asked)}]", f"baselines={baselines}", *more]
    if not any(key.partition(".")[0] == "track" for key in given.values()):
        lines.append("track=none")
    if "timing.limit" not in given.values():
        lines.append("timing.limit=none")
    return compose_job(composer, lines, number)


def baselines_of(job: PreparedJob) -> str:
    """The baselines that the command line asks for; else all that there are, none simulated."""
    asked = [line.partition("=")[2] for line in job.composed.overrides if _key_of(line) == "baselines"]
    return asked[-1] if asked else "auto"


def prepared(
    overrides: Sequence[str], multirun: bool, given: Sequence[str], machine: Callable[[], HostOffer]
) -> tuple[tuple[PreparedJob, ...], Sequence[Path]]:
    """The jobs of a search on GPUs, and the folders of configurations. Inside hydra_over. RequestError where there are
    no GPUs, and for several fabrics."""
    jobs = [searchable(one) for one in compose_jobs(overrides, multirun)]
    for request in (job.request for job in jobs):
        if resolve(request.fabric, request.world_size, machine)[0].simulated:
            raise RequestError(
                "choices are measured on GPUs, and this would be simulated (fabric), run it where there are GPUs "
                "and the gpu extra"
            )
    found = prepare(given, jobs, machine=machine).jobs
    if len({job.request.fabric for job in found}) > 1:
        raise RequestError("a table is of one type of GPU, the sweep has several fabrics (fabric), leave it out of it")
    return found, config_folders()


def key_of(jobs: Sequence[PreparedJob], gpu: str, model: str) -> dict[str, Any]:
    """What a search must have in common with what goes on with it. model: its name, "" without."""
    return {
        "gpu": gpu,
        "model": model,
        "kernels": source_digests(CONF.parent)["kernels"],
        "jobs": [
            {
                "algorithms": list(job.request.algorithms),
                "brought": {one.place: one.digest for one in job.brought},
                "timing": {name: str(value) for name, value in dataclasses.asdict(job.request.timing).items()},
                "fabric": str(job.request.fabric.name),
                "multicast": job.request.fabric.multicast,
            }
            for job in jobs
        ],
    }
