"""The jobs that a command line of a prediction asks for, and their types of GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernels.catalogue import specs_of
from kernels.spec import KernelSpec
from runner.case.bringing import with_names
from runner.case.cases import check_against_catalogue, resolved
from runner.gpu.gpu_type import GpuType
from runner.request.compose import ComposedJob, compose_jobs, hydra_over
from runner.request.gpu_types import arch_of
from runner.request.sizes import format_bytes
from runner.request.validate import MAX_HEAP_BYTES, Request, ResolvedRequest
from runner.world.fabrics import FabricName
from symlab.speed.predict.predictable import check_predictable, check_type

ASSUMED = (("fabric", "simulator"), ("fabric.heap_bytes", format_bytes(MAX_HEAP_BYTES)))
"""What a prediction takes of a request that says nothing else, an experiment of GPUs included: the kernels run in the
simulator, and sizes are predicted that its usual heap does not hold."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A job's request, and the type of GPU that it is of."""

    request: Request
    type: GpuType

    @property
    def arch(self) -> str:
        """The type's architecture with all its features."""
        return arch_of(self.type.limits)


def asked_jobs(overrides: Sequence[str], multirun: bool, config_dir: Path | None) -> list[Asked]:
    """Return the jobs that a command line asks for. RequestError for a job that the model is not of."""
    given = {line.partition("=")[0].lstrip("+~") for line in overrides}
    assumed = [f"{key}={value}" for key, value in ASSUMED if key not in given]
    with hydra_over(config_dir):
        return [_asked(job) for job in compose_jobs((*assumed, *overrides), multirun)]


def _asked(job: ComposedJob) -> Asked:
    """Return what a job asks for."""
    check_predictable(job.request)
    found = job.gpu.type()
    check_type(found, job.request)
    return Asked(job.request, found)


def simulated(request: Request) -> tuple[ResolvedRequest, list[KernelSpec]]:
    """A job's request as the simulator runs it, and the kernels that it brings."""
    named, brought = with_names(request)
    own = [one.spec for one in brought]
    specs = (*specs_of(named.op, named.algorithms), *own)
    found = resolved(named, replace(named.fabric, name=FabricName.simulator), specs)
    check_against_catalogue(found, specs)
    return found, own
