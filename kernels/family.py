"""The spec of an algorithm from the few things that are its own: one call at the end of an algorithm's file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.numeric.dtypes import ACCUMULATORS, ALL, ARITHMETIC, NONE, REDUCTIONS
from kernels.spec import Case, KernelSpec, Parameter, Workspace
from kernels.tuning import Tuning
from memory.fabric import Launch

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

DEVICE_SOURCES = (
    "kernels/dsl/arithmetic.py",
    "kernels/dsl/device.py",
    "kernels/dsl/frame.py",
    "kernels/dsl/peers.py",
    "kernels/dsl/signals.py",
    "kernels/dsl/status.py",
    "kernels/dsl/traverse.py",
    "kernels/family.py",
    "kernels/multimem.py",
    "kernels/numeric/dtypes.py",
    "kernels/shares.py",
    "kernels/tuning.py",
)
"""The device code that all kernels stand on."""

BULK_SOURCES = ("kernels/dsl/bulk.py",)
"""What kernels of bulk copies stand on besides."""

EVERY_ACCUMULATOR = tuple(dict.fromkeys(name for names in ACCUMULATORS.values() for name in names))


def address(of: str) -> Parameter:
    """This rank's buffer."""
    return Parameter("address", of)


def peers(of: str) -> Parameter:
    """The table of all ranks' buffers."""
    return Parameter("peers", of)


def multicast(of: str) -> Parameter:
    """The multicast address of a buffer."""
    return Parameter("multicast", of)


def spec_with(
    name: str,
    body: Callable[[Frame], None],
    tuning: Tuning,
    *,
    buffers: tuple[Parameter, ...],
    vectors: Callable[[Case], int],
    loads_per_vector: Callable[[Case], int] = lambda case: 1,
    groups: Callable[[Case], int] = lambda case: 1,
    options: Callable[[Case], dict[str, Any]] = lambda case: {},
    workspaces: Callable[[Case], tuple[Workspace, ...]] = lambda case: (),
    reduces: bool = True,
    sources: tuple[str, ...] = (),
    **rest: Any,
) -> KernelSpec:
    """The spec of the algorithm that body is, from the file that body stands in.

    name: "op/algorithm". buffers are the kernel's pointers beside the barrier's: whether that goes over peers or
    multicast follows from needs_multicast. vectors(case): 16-byte units that the busiest rank works on;
    loads_per_vector(case): loads before the first of a unit can be used; groups(case): into how many equal groups the
    grid is divided, see Frame.each_peer; options(case): choices of the algorithm itself; workspaces beside the
    barrier's own; sources beside the usual; rest goes to KernelSpec as it is.
    """
    op, algorithm = name.split("/")
    over = multicast if rest.get("needs_multicast") else peers
    pointers = (*buffers, over("signals"), address("signals"), address("epochs"), address("status"))

    def choices(case: Case) -> dict[str, Any]:
        count = groups(case)
        made = tuning.choices(case, loads_per_vector(case)) | options(case)
        return made | ({"groups": count} if count > 1 else {})

    def launch(case: Case) -> Launch:
        return tuning.launch(case, vectors(case), groups(case))

    def build(case: Case) -> Any:
        from kernels.dsl.frame import Kernel

        return Kernel(body, [(one.kind, one.of) for one in pointers], choices(case))

    def all_workspaces(case: Case) -> tuple[Workspace, ...]:
        flags = 1 if rest.get("needs_multicast") else case.world_size
        return (*tuning.workspaces(flags), *workspaces(case))

    kinds: dict[str, Any] = (
        {"dtypes": ARITHMETIC, "accumulators": EVERY_ACCUMULATOR, "reductions": REDUCTIONS}
        if reduces
        else {"dtypes": ALL, "accumulators": (NONE,), "reductions": (NONE,), "fold": "rank_order"}
    )
    return KernelSpec(
        op=op,
        algorithm=algorithm,
        parameters=(*pointers, Parameter("numel"), Parameter("rank"), Parameter("root"), Parameter("patience")),
        workspaces=all_workspaces,
        launch=launch,
        build=build,
        choices=choices,
        sources=(*DEVICE_SOURCES, *sources, _file_of(body)),
        **({"needs_multicast": False} | kinds | rest),
    )


def _file_of(body: Callable[[Frame], None]) -> str:
    """The file of an algorithm, from the project's root."""
    file = sys.modules[body.__module__].__file__
    assert file is not None
    path = Path(file).resolve()
    return path.relative_to(Path(__file__).resolve().parent.parent).as_posix()
