"""Kernels with a defect each, kept to prove that the checks see it. Never in the catalogue.

Each is a KernelSpec like the right one but for its algorithm's name and what it builds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernels.all_reduce import multimem_one_shot, multimem_two_shot, one_shot, two_shot
from kernels.all_reduce.tuning import Step, Tuning
from kernels.spec import Case, KernelSpec

HERE = "tests/kernels/sabotaged.py"


def _without_entry_barrier(kernel: Any) -> None:
    kernel.entry_barrier = False


def _without_exit_barrier(kernel: Any) -> None:
    kernel.exit_barrier = False


def _drops_last_rank(kernel: Any) -> None:
    kernel.contributors = kernel.world_size - 1


def _accumulates_natively(kernel: Any) -> None:
    kernel.total = type(kernel.total)(kernel.dtype, "native")


def _without_wide_accumulator(kernel: Any) -> None:
    kernel.accumulate_float32 = False


def _sabotaged(spec: KernelSpec, defect: str, sabotage: Callable[[Any], None]) -> KernelSpec:
    def build(case: Case) -> Any:
        kernel = spec.build(case)
        sabotage(kernel)
        return kernel

    return replace(
        spec,
        algorithm=f"{spec.algorithm}_{defect}",
        summary=f"{spec.summary}, with a defect: {defect}",
        build=build,
        sources=(*spec.sources, HERE),
    )


PUSHED = replace(
    two_shot.spec_of(Tuning((Step(threads=128, blocks=8, loads_in_flight=8, push=True, reason="small data, too"),))),
    algorithm="two_shot_pushed",
)
"""No defect: two_shot as the catalogue has it for large buffers, for tests with small ones."""

SABOTAGED: dict[str, KernelSpec] = {
    spec.algorithm: spec
    for spec in (
        _sabotaged(one_shot.SPEC, "no_entry_barrier", _without_entry_barrier),
        _sabotaged(one_shot.SPEC, "no_exit_barrier", _without_exit_barrier),
        _sabotaged(one_shot.SPEC, "drops_last_rank", _drops_last_rank),
        _sabotaged(one_shot.SPEC, "accumulates_natively", _accumulates_natively),
        _sabotaged(two_shot.SPEC, "no_entry_barrier", _without_entry_barrier),
        _sabotaged(two_shot.SPEC, "no_exit_barrier", _without_exit_barrier),
        PUSHED,
        _sabotaged(PUSHED, "no_middle_barrier", _without_entry_barrier),
        _sabotaged(PUSHED, "no_exit_barrier", _without_exit_barrier),
        _sabotaged(multimem_one_shot.SPEC, "no_entry_barrier", _without_entry_barrier),
        _sabotaged(multimem_one_shot.SPEC, "no_exit_barrier", _without_exit_barrier),
        _sabotaged(multimem_one_shot.SPEC, "no_wide_accumulator", _without_wide_accumulator),
        _sabotaged(multimem_two_shot.SPEC, "no_entry_barrier", _without_entry_barrier),
        _sabotaged(multimem_two_shot.SPEC, "no_exit_barrier", _without_exit_barrier),
    )
}
"""By algorithm: "one_shot_no_entry_barrier" and so on."""
