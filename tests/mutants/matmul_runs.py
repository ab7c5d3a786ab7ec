"""Running mutants of matmuls that are fused with collectives: small tiles, each block with several, two stages."""

from unittest.mock import patch

import torch

from kernels.matmul.all_gather import AllGather
from kernels.matmul.reduce_scatter import AllReduce, ReduceScatter, ReduceScatterByAdding
from kernels.matmul.tuning import Tuning
from runner.world import threads
from runner.world.world import WorldFailure
from simulator.world import SimulatedWorld
from symlab import launching
from tests.kernels.matmul.fused import Fused
from tests.mutants.mutant_runs import LAUNCHES, PATIENCE_NS, WRONG, Behind, Try, counts, late_world, mutated
from tests.mutants.mutate import mutants_of

TUNING = Tuning(columns=64, stages=2, chunks=1)
RANKS = 2
MATMULS = {
    f"matmul/{kind.__name__}": Fused(kind, RANKS, 70, 136, 136, TUNING, blocks=blocks)
    for kind, blocks in ((AllGather, 2), (ReduceScatter, 2), (AllReduce, 3), (ReduceScatterByAdding, 2))
}
"""By kernel: three tiles of a shard, whose depth takes three stages. With an even number of
blocks, each block of AllReduce would have tiles of its own rank alone, or none."""

CHECKED = (Try("races"), *(Try("races", is_patient=True, behind=rank) for rank in range(RANKS)))
STEP_BUDGET = 200_000


class CompiledMatmul:
    """A fused matmul: its PTX, its mutants, and how to run them."""

    def __init__(self, name):
        self.work = MATMULS[name]
        self.name = name
        self.executable, self.patient = self._compiled(0), self._compiled(PATIENCE_NS)
        self.mutants = mutants_of(self.executable.ptx)

    def _compiled(self, patience):
        """The kernel with its arguments: patience is one of them."""
        compiled = []

        def kept(*arguments):
            compiled.append(original(*arguments))
            return compiled[0]

        original = launching.compiled_function
        with patch.object(launching, "compiled_function", kept):
            self.work.ran(1, patience, seeds=[0])
        return compiled[0]

    def outcome(self, mutant, how):
        """Run it once: "" if nothing is wrong, or what is."""
        options = how.options
        seed = options.pop("seed")
        changed = mutated(self.patient if how.is_patient else self.executable, mutant)
        world = SimulatedWorld if how.behind is None else late_world(how.behind, Behind)
        compiled = patch.object(launching, "compiled_function", lambda *_: changed)
        with compiled, patch.object(threads, "SimulatedWorld", world):
            try:
                found, expected, findings = self.work.ran(LAUNCHES, seeds=[seed], step_budget=STEP_BUDGET, **options)
            except WorldFailure as failure:
                name = type(failure.__cause__).__name__
                if name not in (*WRONG, "DeadlineExceeded"):
                    raise
                return "" if name == "DeadlineExceeded" else name
        if not all(torch.equal(one, right) for one, right in zip(found, expected, strict=True)):
            return "wrong"
        return "finding" if any(map(counts, findings or ())) else ""

    def found(self, mutant, how, first=None):
        """Run it until something is wrong: what, and by which try; "" if nothing ever was."""
        for one in dict.fromkeys([*([first] if first else []), *how]):
            if what := self.outcome(mutant, one):
                return f"{what} ({one.text})"
        return ""


def matmul_tries(seeds):
    """What is tried, in order: the checker, then orders and weak memory."""
    ways = ("races in orders", "weak by block", "adversarial")
    return (*CHECKED, *(Try(name, seed) for seed in range(seeds) for name in ways))
