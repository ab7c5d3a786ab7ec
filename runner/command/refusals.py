"""Which cases will be refused, as far as that is known before anything runs."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from cases.case import Case
from cases.refusal import Refusal
from reports.table.text import counted
from runner.case.expected import expected_refusal
from runner.request_error import RequestError
from simulator.options import traits_of

if TYPE_CHECKING:
    from runner.command.plan import Command, PreparedJob
    from runner.custom.description import CustomJob
    from runner.world.fabrics import FabricRequest


def refusal_in(job: PreparedJob, case: Case) -> Refusal | None:
    """Return why a case of a job will be refused, as expected_refusal; of a custom kernel, too."""
    fabric = job.request.fabric
    if job.custom is None:
        return expected_refusal(case, fabric, job.specs)
    if not fabric.simulated:
        return None  # its architecture is only known once it runs
    traits = traits_of(case.world_size, fabric.arch, fabric.heap_bytes, fabric.multicast, fabric.gpu)
    return job.custom.refusal(traits) or _refuses_limits(job.custom, case.world_size, fabric)


def _refuses_limits(custom: CustomJob, world_size: int, fabric: FabricRequest) -> Refusal | None:
    """Return why custom kernels never fit on the GPU whose limits hold; a function is only known once compiled."""
    if fabric.gpu is None:
        return None
    from simulator.run.residency import resident

    for kernel, spec in custom.kernels:
        try:
            if not kernel.code.is_function:
                found = kernel.compiled(spec, world_size, fabric.arch)
                resident(fabric.gpu, found.executable, found.launch, fabric.arch)
        except ValueError as error:
            return Refusal("fabric.gpu", str(error))
    return None


def refuse_if_nothing_can_run(command: Command) -> None:
    """RequestError if every case of a command will be refused, with the first reason."""
    first = None
    for case, job in chain.from_iterable(((case, job) for case in job.cases) for job in command.jobs):
        refusal = refusal_in(job, case)
        if refusal is None:
            return
        first = first or refusal
    if first is not None:
        cases = "the only case" if command.case_count == 1 else f"each of the {counted(command.case_count, 'case')}"
        raise RequestError(f"{cases} would be refused ({first.key}): {first}")
