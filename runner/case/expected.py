"""Whether a case will be refused, as far as its request and the catalogue say so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cases.case import Case
from cases.ops import collective
from cases.refusal import Refusal
from kernels.baselines import Baseline, refuses_baseline
from kernels.spec import KernelSpec, refuses
from memory.fabric import Traits
from runner.case.contestant import spec_for
from runner.case.nccl_settings import refuses_settings
from simulator.options import traits_of

if TYPE_CHECKING:
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


def _possible_traits(case: Case, spec: KernelSpec | Baseline, fabric: FabricRequest) -> Iterator[Traits]:
    """What the fabric can do: as it was set, or on GPUs the most that there can be, once for each architecture."""
    if fabric.simulated:
        yield traits_of(case.world_size, fabric.arch, fabric.heap_bytes, fabric.multicast, fabric.gpu)
        return
    for arch in spec.archs if isinstance(spec, KernelSpec) else (fabric.arch,):
        yield Traits("nvshmem", arch, case.world_size, fabric.heap_bytes, multicast=True)
