"""The spec of an algorithm from the few things that are its own: one call at the end of an algorithm's file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.dtypes import ACCUMULATORS, ALL, ARITHMETIC, NONE, REDUCTIONS
from cases.ops import OPS, collective
from cases.stress import REASONS
from kernels.spec import KernelSpec, Parameter, Workspace
from kernels.tuning import Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

EVERY_ACCUMULATOR = tuple(dict.fromkeys(name for names in ACCUMULATORS.values() for name in names))

BOTH, OUT = ("out_of_place", "in_place"), ("out_of_place",)
"""Placements: where input and output may share a buffer, and where they may not."""

REDUCING = {"dtypes": ARITHMETIC, "accumulators": EVERY_ACCUMULATOR, "reductions": REDUCTIONS}
MOVING = {"dtypes": ALL, "accumulators": (NONE,), "reductions": (NONE,), "fold": "rank_order"}
"""What an algorithm takes, unless it says otherwise: of an op that reduces, and of one that only moves data."""


def address(of: str) -> Parameter:
    """This rank's buffer."""
    return Parameter("address", of)


def peers(of: str) -> Parameter:
    """The table of all ranks' buffers."""
    return Parameter("peers", of)


def multicast(of: str) -> Parameter:
    """The multicast address of a buffer."""
    return Parameter("multicast", of)


@dataclass(frozen=True, slots=True)
class Work:
    """What the busiest rank does, by the case. vectors: 16-byte units that it works on; loads_per_vector: loads before
    the first of a unit can be used; groups: into how many equal groups the grid is divided, see Frame.each_peer."""

    vectors: Callable[[Case], int]
    loads_per_vector: Callable[[Case], int] = lambda case: 1
    groups: Callable[[Case], int] = lambda case: 1


def spec_with(
    name: str,
    body: Callable[[Frame], None],
    tuning: Tuning,
    *,
    buffers: tuple[Parameter, ...],
    work: Work,
    options: Callable[[Case], dict[str, Any]] = lambda case: {},
    workspaces: Callable[[Case], tuple[Workspace, ...]] = lambda case: (),
    **rest: Any,
) -> KernelSpec:
    """The spec of the algorithm that body is, from the file that defines body.

    name: "op/algorithm". buffers are the kernel's pointers beside the barrier's: whether that goes over peers or
    multicast follows from needs_multicast. work: the busiest rank's; options(case): choices of the algorithm itself;
    workspaces beside the barrier's own; rest goes to KernelSpec, with what _implied adds; a spec whose functions of a
    case know the tuning has to give retuned. ValueError for a name without an op, and a body without a file.
    """
    op, algorithm = _parts_of(name)
    hosts: dict[str, Any] = {"work": work, "options": options, "workspaces": workspaces}
    over = multicast if rest.get("needs_multicast") else peers
    pointers = (*buffers, over("signals"), address("signals"), address("epochs"), address("status"))

    def retuned(other: Tuning) -> KernelSpec:
        return spec_with(name, body, other, buffers=buffers, **hosts, **rest)

    def choices(case: Case) -> dict[str, Any]:
        groups = work.groups(case)
        made = tuning.choices(case, work.loads_per_vector(case)) | options(case)
        return made | ({"groups": groups} if groups > 1 else {})

    def build(case: Case) -> Any:
        from kernels.dsl.frame import Kernel

        return Kernel(body, [(one.kind, one.of) for one in pointers], choices(case))

    def all_workspaces(case: Case) -> tuple[Workspace, ...]:
        flags = 1 if rest.get("needs_multicast") else case.world_size
        return (*tuning.workspaces(flags), *workspaces(case))

    return KernelSpec(
        op=op,
        algorithm=algorithm,
        parameters=(*pointers, Parameter("numel"), Parameter("rank"), Parameter("root"), Parameter("patience")),
        workspaces=all_workspaces,
        launch=lambda case: tuning.launch(case, work.vectors(case), work.groups(case)),
        build=build,
        choices=choices,
        # This file leads to the frame, which a body need not import.
        files=(_file_of(name, body), str(Path(__file__).resolve())),
        tuning=tuning,
        **{"retuned": retuned, **_implied(op, rest)},
    )


def _implied(op: str, rest: dict[str, Any]) -> dict[str, Any]:
    """Return rest with what it may leave out: REDUCING or MOVING, by the op; placements are both, unless why_not has a
    reason against "placement"; fold is "from_next_rank" where elements have an owner; REASONS why a kernel promises no
    more."""
    why_not = rest.get("why_not", {})
    implied: dict[str, Any] = {"placements": OUT if "placement" in why_not else BOTH, "needs_multicast": False}
    implied |= REDUCING if op in OPS and collective(op).reduces else MOVING
    implied |= {"fold": "from_next_rank"} if "owner" in rest else {}
    return implied | rest | {"why_not": {**REASONS, **why_not} if rest.get("promises") else why_not}


def _parts_of(name: str) -> tuple[str, str]:
    """Return op and algorithm of a name."""
    op, slash, algorithm = name.partition("/")
    if not slash:
        raise ValueError(f"{name!r} names no kernel: give op/algorithm, such as 'all_reduce/{name}'")
    return op, algorithm


def _file_of(name: str, body: Callable[[Frame], None]) -> str:
    """Return the absolute path of the file that defines an algorithm's body."""
    module = sys.modules.get(getattr(body, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if file is None:
        raise ValueError(f"{name}: its body is not in a file: give a function of a module or of file.py")
    return str(Path(file).resolve())
