"""Recorded cases as they would be recorded here: with this machine's environment, and kernels compiled now.

So what differs can be said before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.documents import decoded
from cases.record.record import KernelInfo, Record, RecordedEnvironment
from kernels.baselines import Baseline
from runner.request.validate import CONF

if TYPE_CHECKING:
    from cases.case import Case
    from kernels.spec import KernelSpec
    from memory.fabric import Executable
    from runner.command.plan import Command, PreparedJob

Compiler = Callable[["KernelSpec", "Case", str, Path], "Executable"]
"""Compiles a kernel for a case and for an architecture; the folder holds what was compiled before."""


def as_here(
    records: Sequence[Record], command: Command, capture: Callable[[Path], dict[str, Any]], compiled: Compiler
) -> list[Record]:
    """These records of the command's cases with what is here in place of what was there: environment, fabric, kernel.

    They are no results, only what a record of here would say beside them. A kernel that can't be compiled here has no
    digests, and the reason for a compiler's version.
    """
    environment = decoded(RecordedEnvironment, capture(CONF.parent), "environment")
    if git := environment.git:
        environment = replace(environment, git={key: value for key, value in git.items() if key != "diff"})
    known = {case.id: (job, case) for job in command.jobs for case in job.cases}
    kernels: dict[tuple[str, str, int], KernelInfo] = {}
    found = []
    for record in records:
        job, case = known[record.id]
        fabric, kernel = record.fabric, record.kernel
        if fabric is not None:
            arch = job.request.fabric.arch if job.request.fabric.simulated else fabric.arch
            fabric = replace(
                fabric, name=str(job.request.fabric.name), arch=arch, simulated=job.request.fabric.simulated
            )
        if kernel is not None and fabric is not None:
            key = (kernel.name, kernel.ptx_digest, case.world_size if job.custom else 0)
            if key not in kernels:
                kernels[key] = _kernel(kernel, job, case, fabric.arch, compiled)
            kernel = kernels[key]
            if job.custom is None:
                launch = _spec(job, case).launch(case)
                kernel = replace(kernel, grid=launch.blocks, block=launch.threads)
        found.append(
            replace(record, environment=environment, fabric=fabric, kernel=kernel, timing=None, prediction=None)
        )
    return found


def _spec(job: PreparedJob, case: Case) -> KernelSpec:
    from runner.case.contestant import spec_for

    spec = spec_for(case, job.specs)
    assert not isinstance(spec, Baseline)
    return spec


def _kernel(recorded: KernelInfo, job: PreparedJob, case: Case, arch: str, compiled: Compiler) -> KernelInfo:
    """The kernel of a case as it is here."""
    from runner.command.kernel_info import custom_kernel_info, kernel_info

    try:
        if job.custom is not None:
            return custom_kernel_info(job.custom, job.custom.kernel.compiled(job.custom.spec, case.world_size, arch))
        spec = _spec(job, case)
        return kernel_info(spec, case, compiled(spec, case, arch, job.request.cache_dir))
    except Exception as error:
        reason = f"can't be compiled here: {type(error).__name__}: {error}"
        return replace(
            recorded, arch=arch, ptx_digest="", cubin_digest="", source_digest="", code_digest=None, compiler=reason
        )
