"""all_reduce/one_shot_rotated: one_shot, but each rank begins with its next rank's input and ends with its own.

When it wins: never so far; it exists for comparison. No GPU is the first target of all, as it is in one_shot, whose
ranks all begin with rank 0. The price: each rank adds in an order of its own, so that the ranks' results differ in
their last bits, and whatever is computed from them drifts apart. +exp=accumulator_study shows by how much.

Memory and protocol: one_shot's.

Numerics: rank r adds the contributions of r+1, r+2, .. r, wrapping after the last rank. Every rank's result is a
function of the inputs alone, the same in every run, and within the same bounds as one_shot's; but not the same as
another rank's where additions round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.case import Case
from cases.stress import WITH_BARRIERS
from kernels import shares
from kernels.all_reduce.one_shot import TUNING, reduce_all
from kernels.family import address, peers, spec_with
from kernels.spec import KernelSpec
from kernels.tuning import Tuning

if TYPE_CHECKING:
    import torch

    from kernels.dsl.frame import Frame


def body(frame: Frame) -> None:
    """The device half."""
    reduce_all(frame, frame.after(frame.rank))


def owner(case: Case, rank: int) -> torch.Tensor:
    """Who reduces each element of a rank's output: the rank itself."""
    import torch

    return torch.full((case.numel,), rank, dtype=torch.int64)


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "all_reduce/one_shot_rotated",
        body,
        tuning,
        summary="each rank reads all inputs and folds them beginning with the next rank's",
        placements=("out_of_place",),
        promises=WITH_BARRIERS,
        fold="from_next_rank",
        owner=owner,
        same_order=False,
        buffers=(address("input"), peers("input"), address("output")),
        vectors=lambda case: shares.vectors(case.numel, case.itemsize, case.offset),
        loads_per_vector=lambda case: case.world_size,
    )


SPEC = spec_of(TUNING)
