"""How many workers a command gets, what each may use, and what is refused before any of them starts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cases.gathered import gathered
from reports.table.text import counted
from runner.environment.host import usable_cores
from runner.launch import slurm
from runner.request.launching import LaunchRequest
from runner.request_error import RequestError
from runner.world.fabrics import FabricName, HostOffer

SLURM = slurm.LAUNCHER

NOT_COUNTED = 1 << 16
"""Number of GPUs that a node is taken to have if the launcher's options don't say: the scheduler decides."""

_GPU_OPTIONS = ("gpus_per_node", "gpus_per_task", "gres")


@dataclass(frozen=True, slots=True)
class JobNeeds:
    """What a job needs of a worker: its number, its ranks, whether they are simulated, whether it is timed, and whether
    its ranks may share a GPU (fabric.share_gpus)."""

    number: int
    world_size: int
    simulated: bool
    timed: bool = False
    shares_gpus: bool = False

    @property
    def gpus(self) -> int:
        """The number of GPUs that a worker needs for it; 0: it is simulated."""
        return 0 if self.simulated else 1 if self.shares_gpus else self.world_size


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs whose workers are alike. options are those of the launcher that the group needs beside what was given, and
    environments the variables of each worker."""

    jobs: tuple[int, ...]
    workers: int
    options: Mapping[str, Any] = field(default_factory=dict)
    environments: tuple[Mapping[str, str], ...] = ()


def offer(request: LaunchRequest, wanted: Sequence[FabricName]) -> HostOffer:
    """Return what Slurm's nodes offer to a command, by the options of its launcher: this machine may have no GPU."""
    given = _gpus_given(request.options)
    if given is None and FabricName.nvshmem not in wanted:
        return HostOffer(0, "no GPU was asked for (hydra.launcher.gpus_per_node)", True)
    return HostOffer(NOT_COUNTED if given is None else given, "", True)


def _gpus_given(options: Mapping[str, Any]) -> int | None:
    """GPUs of a node by the options; None if no option says."""
    if isinstance(options.get("gpus_per_node"), int):
        return int(options["gpus_per_node"])
    return NOT_COUNTED if any(options.get(name) for name in _GPU_OPTIONS) else None


def groups_of(request: LaunchRequest, jobs: Sequence[JobNeeds], devices: Sequence[str]) -> list[Group]:
    """Return the groups of a command's jobs, in the order of their first jobs.

    devices are the GPUs of this machine, as CUDA_VISIBLE_DEVICES names them; Slurm's nodes have their own. Simulated
    jobs are one group; jobs on GPUs are grouped by their number of GPUs, because a worker has the GPUs of one world.
    Slurm's workers of all groups run at the same time, and without additional_parameters.exclusive=true several of
    them may be on one node. RequestError for what the launcher can't give.
    """
    by_kind = gathered((job.gpus, job) for job in jobs)
    groups = [_group(request, gpus, members, devices) for gpus, members in by_kind.items()]
    workers = sum(group.workers for group in groups)
    if request.name == SLURM and workers > 1 and not _is_exclusive(request.options) and any(job.timed for job in jobs):
        raise RequestError(
            f"{workers} workers may share the links of a node, which their times would show (timing.mode), "
            "give +hydra.launcher.additional_parameters.exclusive=true, hydra.launcher.array_parallelism=1, "
            "or timing.mode=none"
        )
    return groups


def _is_exclusive(options: Mapping[str, Any]) -> bool:
    """Whether Slurm is asked for whole nodes. exclusive=user is none: a command's workers have one user."""
    return options.get("exclusive") is True or (options.get("additional_parameters") or {}).get("exclusive") is True


def _group(request: LaunchRequest, gpus: int, jobs: Sequence[JobNeeds], devices: Sequence[str]) -> Group:
    numbers = tuple(job.number for job in jobs)
    most = min(workers_given(request), len(jobs))
    _check_tasks(request, jobs)
    if request.name == SLURM:
        return Group(numbers, most, _slurm_options(request.options, gpus))
    if not gpus:
        threads = str(max(1, usable_cores() // most))
        each = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": threads}
        return Group(numbers, most, environments=(each,) * most)
    most = min(most, len(devices) // gpus)
    if most < 1:
        raise RequestError(f"a job needs {counted(gpus, 'GPU')}, and {len(devices)} are here (world_size)")
    if most > 1 and any(job.timed for job in jobs):
        raise RequestError(
            f"{most} jobs at once on GPUs of one machine share its links, which their times would show (timing.mode), "
            "give hydra.launcher.n_jobs=1, or timing.mode=none"
        )
    each_devices = [",".join(devices[worker * gpus : (worker + 1) * gpus]) for worker in range(most)]
    return Group(numbers, most, environments=tuple({"CUDA_VISIBLE_DEVICES": text} for text in each_devices))


def _slurm_options(options: Mapping[str, Any], gpus: int) -> dict[str, Any]:
    """GPUs that Slurm is asked for: one node with as many as the jobs need, unless the options say otherwise."""
    if not gpus or any(options.get(name) for name in _GPU_OPTIONS):
        return {}
    return {"gpus_per_node": gpus}


def _check_tasks(request: LaunchRequest, jobs: Sequence[JobNeeds]) -> None:
    """RequestError for numbers of tasks and nodes that no job can use."""
    nodes, tasks = (int(request.options.get(name) or 1) for name in ("nodes", "tasks_per_node"))
    if nodes * tasks > 1:
        for job in jobs:
            if not job.simulated and job.world_size != nodes * tasks:
                raise RequestError(
                    f"job {job.number + 1} has {counted(job.world_size, 'rank')}, and srun starts {nodes * tasks} "
                    f"(hydra.launcher.tasks_per_node), give {job.world_size}, or leave it out: a job starts its ranks"
                )


def workers_given(request: LaunchRequest) -> int:
    """Return the maximum number of workers that the launcher's options ask for. RequestError for none."""
    options = request.options
    if request.name == SLURM:
        found = int(options.get("array_parallelism") or 1)
    else:
        given = int(options.get("n_jobs") or 0)
        found = given if given >= 0 else max(1, usable_cores() + 1 + given)
    if found < 1:
        key, all_cores = (
            ("array_parallelism", "") if request.name == SLURM else ("n_jobs", ", or -1: one for each core")
        )
        raise RequestError(f"no worker was asked for (hydra.launcher.{key}), give 1 or more{all_cores}")
    return found


def visible_devices(count: int) -> tuple[str, ...]:
    """Return the GPUs of this machine that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    given = [one.strip() for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one.strip()]
    return tuple(given) if len(given) == count else tuple(map(str, range(count)))
