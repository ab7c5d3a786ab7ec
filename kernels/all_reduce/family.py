"""What the specs of the four all_reduce kernels share: data types, last parameters, sources, and how they are tuned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels.all_reduce import shares
from kernels.all_reduce.tuning import Tuning
from kernels.spec import Case, KernelSpec, Parameter, Workspace


def spec_with(
    tuning: Tuning,
    algorithm: str,
    *,
    buffers: tuple[Parameter, ...],
    build: Callable[[dict[str, Any]], Any],
    choices: Callable[[Case], dict[str, Any]],
    workspaces: Callable[[Case], tuple[Workspace, ...]],
    busiest: Callable[[int, int], int] = shares.whole,
    sources: tuple[str, ...] = (),
    **rest: Any,
) -> KernelSpec:
    """The spec of an algorithm whose two halves are <algorithm>.py and <algorithm>_device.py beside this file.

    buffers are the kernel's first parameters; build makes the device half from choices(case); busiest(vectors,
    world_size) gives the vectors that the busiest rank works on; sources are files beyond the usual; rest goes to
    KernelSpec as it is.
    """
    return KernelSpec(
        op="all_reduce",
        algorithm=algorithm,
        dtypes=("float32", "float16", "bfloat16"),
        accumulators=("float32", "native"),
        reductions=("sum",),
        parameters=(
            *buffers,
            Parameter("address", "signals"),
            Parameter("address", "epochs"),
            Parameter("address", "status"),
            Parameter("numel"),
            Parameter("rank"),
            Parameter("patience"),
        ),
        workspaces=workspaces,
        launch=lambda case: tuning.launch(case, busiest),
        build=lambda case: build(choices(case)),
        choices=choices,
        sources=(
            *shares.DEVICE_SOURCES,
            "kernels/all_reduce/family.py",
            f"kernels/all_reduce/{algorithm}.py",
            f"kernels/all_reduce/{algorithm}_device.py",
            *sources,
        ),
        **rest,
    )
