"""All kernels, listed by hand: what is not here does not exist, and importing this compiles nothing.

A name is the path of a file: "all_reduce/one_shot" is kernels/all_reduce/one_shot.py, which has a SPEC.
"all_reduce/one_shot@t512b64l8" is the same kernel with a tuning on trial (kernels/tuned_name.py), which the file's
spec_of makes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module

from cases.case import Case
from cases.refusal import Refusal, unknown_name
from kernels.brought import spec_at
from kernels.spec import KernelSpec
from kernels.tuned_name import base_of, has_tuning, is_dependent_alone, step_of
from kernels.tuning import Tuning

NAMES: tuple[str, ...] = (
    "all_reduce/one_shot",
    "all_reduce/one_shot_rotated",
    "all_reduce/two_shot",
    "all_reduce/lamport",
    "all_reduce/ll",
    "all_reduce/ll128",
    "all_reduce/two_shot_lamport",
    "all_reduce/multimem_one_shot",
    "all_reduce/multimem_two_shot",
    "reduce_scatter/pull",
    "reduce_scatter/push",
    "reduce_scatter/push_rounds",
    "reduce_scatter/ll",
    "reduce_scatter/ll128",
    "reduce_scatter/lamport",
    "reduce_scatter/bulk",
    "reduce_scatter/multimem",
    "all_gather/pull",
    "all_gather/push",
    "all_gather/ll",
    "all_gather/ll128",
    "all_gather/multimem",
    "all_gather/bulk",
    "broadcast/pull",
    "broadcast/push",
    "broadcast/ll",
    "broadcast/ll128",
    "broadcast/two_shot",
    "broadcast/multimem",
    "broadcast/bulk",
    "reduce/pull",
    "reduce/ll",
    "reduce/lamport",
    "reduce/two_shot",
    "reduce/bulk",
    "reduce/multimem",
    "all_to_all/pull",
    "all_to_all/push",
    "all_to_all/ll",
    "all_to_all/ll128",
    "all_to_all/bulk",
    "all_to_all_v/push",
    "send_recv/pull",
    "send_recv/push",
    "send_recv/ll",
    "send_recv/ll128",
    "barrier/peers",
    "barrier/push",
    "barrier/multimem",
)

NVSHMEM_NAMES: tuple[str, ...] = (
    "all_reduce/nvshmem_put",
    "reduce_scatter/nvshmem_put",
    "all_gather/nvshmem_put_signal",
    "broadcast/nvshmem_put_signal",
    "reduce/nvshmem_put",
    "all_to_all/nvshmem_put_signal",
    "all_to_all_v/nvshmem_put_signal",
    "send_recv/nvshmem_put_signal",
    "barrier/nvshmem_sync_all",
)
"""Those that call NVSHMEM's device functions. They run where they are named: algorithms=all leaves them out, because
each takes seconds to compile and a package that not every machine has (kernels/nvshmem_bitcode.py)."""


def _specs(names: tuple[str, ...]) -> tuple[KernelSpec, ...]:
    return tuple(spec_at(f"kernels.{name.replace('/', '.')}:SPEC") for name in names)


SPECS: tuple[KernelSpec, ...] = _specs(NAMES)
NVSHMEM_SPECS: tuple[KernelSpec, ...] = _specs(NVSHMEM_NAMES)
ALL_SPECS: tuple[KernelSpec, ...] = (*SPECS, *NVSHMEM_SPECS)


@dataclass(frozen=True, slots=True)
class TunedOrigin:
    """kernels.spec.Origin of a kernel with a tuning on trial: its name."""

    name: str

    def load(self) -> KernelSpec:
        return find(self.name)


def is_known(name: str) -> bool:
    """Return whether find has a spec of that name."""
    try:
        find(name)
    except ValueError:
        return False
    return True


def tuning_of(name: str) -> Tuning:
    """Return the tuning that the catalogue's kernel of a name runs with. ValueError for an unknown name."""
    found: Tuning = import_module(f"kernels.{find(base_of(name)).name.replace('/', '.')}").TUNING
    return found


def takes_push(name: str) -> bool:
    """Return whether a step's push means something to a kernel of the catalogue. ValueError for an unknown name."""
    spec = find(base_of(name))
    sample = Case(
        spec.op, spec.algorithm, spec.dtypes[0], spec.accumulators[0], spec.reductions[0], 4096, 2, spec.placements[0]
    )
    return "push" in spec.choices(sample)


@cache
def _with_tuning(name: str) -> KernelSpec:
    """The catalogue's kernel with the tuning that its name says. ValueError for another name."""
    base = find(base_of(name))
    if is_dependent_alone(name):
        tuning = tuning_of(name).dependent()
    else:
        step = step_of(name)
        if step.push and not takes_push(name):
            raise ValueError(f"{name!r} names no tuning: {base.name} has no push, leave the p out")
        tuning = Tuning((step,))
    module = import_module(f"kernels.{base.name.replace('/', '.')}")
    made: KernelSpec = module.spec_of(tuning)

    def refusal(case: Case, arch: str) -> Refusal | None:
        if known := made.refusal(case, arch):
            return known
        try:
            made.launch(case)
        except ValueError as error:
            return Refusal("algorithms", f"{name}: {error}")
        return None

    spec = replace(made, algorithm=name.partition("/")[2], refusal=refusal)
    object.__setattr__(spec, "origin", TunedOrigin(name))
    return spec


def find(name: str) -> KernelSpec:
    """The spec of "op/algorithm"; ValueError with the nearest names if there is none."""
    if has_tuning(name):
        return _with_tuning(name)
    for spec in ALL_SPECS:
        if spec.name == name:
            return spec
    raise ValueError(unknown_name("kernel", name, [spec.name for spec in ALL_SPECS]))
