"""All kernels, listed by hand: what is not here does not exist, and importing this compiles nothing.

A name is an op and a way to do it: "all_gather/push" is the exchange of all_gather by push, in kernels/ways/push.py;
FILES has the file of each.
"all_reduce/one_shot@t512b64l8" is the same kernel with a tuning on trial (kernels/tuned_name.py, KernelSpec.retuned).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from cases.case import Case
from cases.refusal import Refusal, unknown_name
from kernels.spec import KernelSpec
from kernels.tuned_name import base_of, has_tuning, is_dependent_alone, step_of
from kernels.tuning import Tuning

FILES: dict[str, str] = {
    "all_reduce/one_shot": "pull",
    "all_reduce/one_shot_rotated": "pull",
    "all_reduce/two_shot": "two_shot",
    "all_reduce/lamport": "one_way",
    "all_reduce/ll": "one_way",
    "all_reduce/ll128": "one_way",
    "all_reduce/two_shot_lamport": "two_shot",
    "all_reduce/multimem_one_shot": "multimem",
    "all_reduce/multimem_two_shot": "multimem",
    "reduce_scatter/pull": "pull",
    "reduce_scatter/push": "push",
    "reduce_scatter/push_rounds": "bulk",
    "reduce_scatter/ll": "one_way",
    "reduce_scatter/ll128": "one_way",
    "reduce_scatter/lamport": "one_way",
    "reduce_scatter/bulk": "bulk",
    "reduce_scatter/multimem": "multimem",
    "all_gather/pull": "pull",
    "all_gather/push": "push",
    "all_gather/ll": "one_way",
    "all_gather/ll128": "one_way",
    "all_gather/multimem": "multimem",
    "all_gather/bulk": "bulk",
    "broadcast/pull": "pull",
    "broadcast/push": "push",
    "broadcast/ll": "one_way",
    "broadcast/ll128": "one_way",
    "broadcast/two_shot": "two_shot",
    "broadcast/multimem": "multimem",
    "broadcast/bulk": "bulk",
    "reduce/pull": "pull",
    "reduce/ll": "one_way",
    "reduce/lamport": "one_way",
    "reduce/two_shot": "two_shot",
    "reduce/bulk": "bulk",
    "reduce/multimem": "multimem",
    "all_to_all/pull": "pull",
    "all_to_all/push": "push",
    "all_to_all/ll": "one_way",
    "all_to_all/ll128": "one_way",
    "all_to_all/bulk": "bulk",
    "all_to_all_v/push": "push",
    "send_recv/pull": "pull",
    "send_recv/push": "push",
    "send_recv/ll": "one_way",
    "send_recv/ll128": "one_way",
    "barrier/peers": "barrier",
    "barrier/push": "barrier",
    "barrier/multimem": "barrier",
}
"""All kernels, in the order of tables, each with the file of kernels/ways that has it among its KERNELS."""

NVSHMEM_FILES: dict[str, str] = {
    "all_reduce/nvshmem_put": "nvshmem",
    "reduce_scatter/nvshmem_put": "nvshmem",
    "all_gather/nvshmem_put_signal": "nvshmem",
    "broadcast/nvshmem_put_signal": "nvshmem",
    "reduce/nvshmem_put": "nvshmem",
    "all_to_all/nvshmem_put_signal": "nvshmem",
    "all_to_all_v/nvshmem_put_signal": "nvshmem",
    "send_recv/nvshmem_put_signal": "nvshmem",
    "barrier/nvshmem_sync_all": "barrier",
}
"""Those that call NVSHMEM's device functions. They run where they are named: algorithms=all leaves them out, because
each takes seconds to compile and a package that not every machine has (kernels/nvshmem_bitcode.py)."""

MATMUL_FILES: dict[str, str] = {
    "matmul/tiles": "fused",
    "all_gather_matmul/push": "fused",
    "matmul_reduce_scatter/inbox": "fused",
    "matmul_reduce_scatter/adding": "fused",
    "matmul_all_reduce/inbox": "fused",
}
"""Those of ops that multiply. M, N and K say their sizes, and not a number of bytes, so what runs over the others'
sizes leaves them out."""


@dataclass(frozen=True, slots=True)
class Listed:
    """kernels.spec.Origin of a kernel of the catalogue, also with a tuning on trial: its name."""

    name: str

    def load(self) -> KernelSpec:
        return find(self.name)


def _from_catalogue(spec: KernelSpec) -> KernelSpec:
    """Return the spec, which other processes then load by its name."""
    object.__setattr__(spec, "origin", Listed(spec.name))
    return spec


NAMES = tuple(FILES)
_ALL_FILES = FILES | NVSHMEM_FILES | MATMUL_FILES

if TYPE_CHECKING:
    SPECS: tuple[KernelSpec, ...]
    NVSHMEM_SPECS: tuple[KernelSpec, ...]
    MATMUL_SPECS: tuple[KernelSpec, ...]
    ALL_SPECS: tuple[KernelSpec, ...]


def __getattr__(name: str) -> tuple[KernelSpec, ...]:
    """All kernels, which are made when they are asked for: a job takes those of its op."""
    files = {
        "SPECS": FILES,
        "NVSHMEM_SPECS": NVSHMEM_FILES,
        "MATMUL_SPECS": MATMUL_FILES,
        "ALL_SPECS": _ALL_FILES,
    }.get(name)
    if files is None:
        raise AttributeError(name)
    return tuple(map(find, files))


def specs_of(op: str, asked: Sequence[str] | str) -> tuple[KernelSpec, ...]:
    """Return the kernels of an op; none of an unknown op. asked: algorithms, or a word for them; of those that call
    NVSHMEM's device functions only what is asked for."""
    wanted = (
        _ALL_FILES
        if any("nvshmem" in one for one in ((asked,) if isinstance(asked, str) else asked))
        else FILES | MATMUL_FILES
    )
    return tuple(find(name) for name in wanted if name.startswith(f"{op}/"))


def algorithms_of(op: str) -> tuple[str, ...]:
    """Return the names of all algorithms of an op."""
    return tuple(name.removeprefix(f"{op}/") for name in _ALL_FILES if name.startswith(f"{op}/"))


@cache
def _listed(name: str) -> KernelSpec:
    file = _ALL_FILES[name]
    kernels = import_module(f"kernels.{file}" if name in MATMUL_FILES else f"kernels.ways.{file}").KERNELS
    return next(_from_catalogue(spec) for spec in kernels if spec.name == name)


def is_known(name: str) -> bool:
    """Return whether find has a spec of that name."""
    try:
        find(name)
    except ValueError:
        return False
    return True


def tuning_of(name: str) -> Tuning:
    """Return the tuning that the catalogue's kernel of a name runs with. ValueError for an unknown name."""
    tuning: Tuning = find(base_of(name)).tuning
    return tuning


def retuned(name: str, tuning: Tuning) -> KernelSpec:
    """Return the catalogue's kernel of a name with another tuning. ValueError for an unknown name."""
    found = find(name)
    assert found.retuned is not None
    return found.retuned(tuning)


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
    if base.name in MATMUL_FILES:
        from kernels.matmul.tuning import tuning_named

        tuning_named(name)
        return _from_catalogue(replace(base, algorithm=name.partition("/")[2]))
    if base.retuned is None:
        raise ValueError(f"{name!r} names no tuning: {base.name} has none to try, leave what follows @ out")
    if is_dependent_alone(name):
        tuning = tuning_of(name).dependent()
    else:
        step = step_of(name)
        if step.push and not takes_push(name):
            raise ValueError(f"{name!r} names no tuning: {base.name} has no push, leave the p out")
        tuning = Tuning((step,))
    made = retuned(base.name, tuning)

    def refusal(case: Case, arch: str) -> Refusal | None:
        if known := made.refusal(case, arch):
            return known
        try:
            made.launch(case)
        except ValueError as error:
            return Refusal("algorithms", f"{name}: {error}")
        return None

    return _from_catalogue(replace(made, algorithm=name.partition("/")[2], refusal=refusal))


def find(name: str) -> KernelSpec:
    """The spec of "op/algorithm"; ValueError with the nearest names if there is none."""
    if has_tuning(name):
        return _with_tuning(name)
    if name in _ALL_FILES:
        return _listed(name)
    raise ValueError(unknown_name("kernel", name, [*_ALL_FILES]))
