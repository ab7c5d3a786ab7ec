"""The per-rank program of a baseline: a library's own collective, run and checked like a kernel of ours."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cases import ops
from cases.case import Case
from kernels.baselines import Baseline
from memory.fabric import Fabric
from memory.pool import SymmetricPool
from runner.case.check import check_rank
from runner.case.contestant import check_names
from runner.case.inputs import digest_of
from runner.case.libraries import open_baseline
from runner.case.program import RankOutcome, input_of, output_of


@dataclass(frozen=True, slots=True)
class BaselinePlan:
    """A baseline's case, run like a kernel's but through its library: no guards, memory that the library wants.

    inputs and brings_output: as runner.case.program.Plan's.
    """

    case: Case
    baseline: Baseline
    launches: int = 2
    check: bool = True
    inputs: tuple[torch.Tensor, ...] | None = None
    brings_output: bool = False

    def __post_init__(self) -> None:
        check_names(self.case, self.baseline, None)


def run_baseline(fabric: Fabric, plan: BaselinePlan) -> RankOutcome:
    """Run a baseline's launches on this rank and check what came out. All ranks call it with the same plan.

    Raises what the fabric and the library raise.
    """
    case, baseline = plan.case, plan.baseline
    count = ops.collective(case.op).counts(case.numel, case.world_size)[0]
    data = input_of(fabric, case, count, plan.inputs)
    outputs: list[torch.Tensor] = []
    with SymmetricPool(fabric) as pool, open_baseline(baseline.name, fabric, pool, case, 1) as contestant:
        for index in range(plan.launches):
            contestant.write(0, data)
            fabric.synchronize()
            fabric.barrier()
            contestant.launch(0)
            fabric.synchronize()
            if plan.check or (plan.brings_output and index == plan.launches - 1):
                outputs.append(contestant.output(0).clone())
            fabric.barrier()
    output = output_of(case, fabric.rank, outputs) if plan.brings_output else None
    if not plan.check:
        return RankOutcome(fabric.rank, None, output)
    given = digest_of(data)
    check = check_rank(case, baseline, fabric.rank, outputs, (), input_digest=given, inputs=plan.inputs)
    return RankOutcome(fabric.rank, check, output)
