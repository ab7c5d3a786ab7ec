"""Which cases will be refused, as far as that is known before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from kernels.baselines import Baseline, refuses_baseline
from kernels.catalogue import collective
from kernels.refusal import Refusal
from kernels.spec import Case, KernelSpec, refuses
from memory.fabric import Traits
from reports.table.text import counted
from runner.case.contestant import spec_for
from runner.case.nccl_settings import refuses_settings
from runner.request_error import RequestError
from simulator.options import traits_of

if TYPE_CHECKING:
    from runner.command.plan import Command, PreparedJob
    from runner.custom.description import CustomJob
    from runner.world.fabrics import FabricRequest


def expected_refusal(case: Case, fabric: FabricRequest, brought: Sequence[KernelSpec] = ()) -> Refusal | None:
    """Return why a case will be refused; None if it can run, or if that is only known once it runs.

    What a simulated fabric can do is known from its settings. Of GPUs only what the request and the catalogue say is
    known: a case is refused if every GPU that its kernel is built for would refuse it. brought: see spec_for.
    """
    spec = spec_for(case, brought)
    refusal = None
    for traits in _possible_traits(case, spec, fabric):
        if isinstance(spec, Baseline):
            refusal = refuses_baseline(spec, case, traits) or refuses_settings(fabric.nccl_settings, case, traits)
        else:
            refusal = refuses(spec, collective(case.op), case, traits)
        if refusal is None:
            return None
    return refusal


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
    """Return why a custom kernel never fits on the GPU whose limits hold; a function is only known once compiled."""
    if fabric.gpu is None or custom.kernel.ptx is None:
        return None
    from simulator.run.residency import resident

    try:
        found = custom.kernel.compiled(custom.spec, world_size, fabric.arch)
        resident(fabric.gpu, found.executable, found.launch, fabric.arch)
    except ValueError as error:
        return Refusal("fabric.gpu", str(error))
    return None


def _possible_traits(case: Case, spec: KernelSpec | Baseline, fabric: FabricRequest) -> Iterator[Traits]:
    """What the fabric can do: as it was set, or on GPUs the most that there can be, once for each architecture."""
    if fabric.simulated:
        yield traits_of(case.world_size, fabric.arch, fabric.heap_bytes, fabric.multicast, fabric.gpu)
        return
    for arch in spec.archs if isinstance(spec, KernelSpec) else (fabric.arch,):
        yield Traits("nvshmem", arch, case.world_size, fabric.heap_bytes, multicast=True)


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
