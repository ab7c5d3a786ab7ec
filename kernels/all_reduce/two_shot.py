"""all_reduce/two_shot: each rank reduces its slice from all inputs and stores the result into all outputs.

When it wins: from some 100 KiB on without multicast. Each GPU reads (n-1)/n of the buffer and writes as much: the
least that can be.

Memory: the full vectors of 16 bytes are divided into contiguous slices in rank order, one vector longer for the first
ranks if they do not divide evenly; the elements after the last full vector are the last rank's, one by one
(shares.owner says all that as data). Reads and writes go through peers' addresses, nothing outside [0, numel) is
touched, and there is no scratch buffer.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete). Both block by block: kernels/barrier.py says how they order payload. Payload itself is weak. In
place is fine: an element of any rank's buffer is read and written by its owner only, by one thread, which has read
all ranks' before it stores the sum.

Numerics: the owner begins with the next rank and ends with itself (owner+1, owner+2, .. owner), so that no GPU is
everyone's first target; loads and stores go in that order too. One owner an element, so all ranks get the same bits.
float32: 16-bit types are widened, added by add.rn.f32 and rounded once; native: every addition rounds to the type.

The launch asks for one block an SM: without that ptxas, for the sake of occupancy, moved the loads back between the
additions (32 registers, four loads in flight at most; with it 120 registers and all 16; ptxas 13.0, 8 ranks,
bfloat16, read in the machine code).

Trials, off until measured (Tuning.options): peer_loads and entry_signal as in one_shot. The exit's signal has to
release: it is what makes the sums in other ranks' memory complete.
"""

from __future__ import annotations

from typing import Any

from kernels.all_reduce import shares
from kernels.all_reduce.tuning import Step, Tuning
from kernels.spec import Case, KernelSpec, Parameter

TUNING = Tuning(
    (
        # Not measured yet on hardware. An untuned kernel of this kind did best with 512 threads and 2 to 4 vectors of 8
        # ranks in flight on 8 H200 from 4 MiB on; there 16 blocks were enough at 4 MiB and 64 at 16 MiB. 16 loads are
        # 64 of the 128 registers that 512 threads leave each.
        Step(threads=512, blocks=32, loads_in_flight=16, reason="an untuned kernel's values, not measured"),
    )
)


def build(choices: dict[str, Any]) -> Any:
    from kernels.all_reduce.two_shot_device import TwoShot

    return TwoShot(**choices)


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial.

    signals[block][rank] is the last epoch in which that rank's block arrived.
    """

    def choices(case: Case) -> dict[str, Any]:
        return tuning.choices(case, loads_per_vector=case.world_size)

    return KernelSpec(
        op="all_reduce",
        algorithm="two_shot",
        summary="each rank reduces its slice of all inputs and stores it to all outputs",
        dtypes=("float32", "float16", "bfloat16"),
        accumulators=("float32", "native"),
        reductions=("sum",),
        placements=("out_of_place", "in_place"),
        needs_multicast=False,
        fold="from_next_rank",
        parameters=(
            Parameter("peers", "input"),
            Parameter("peers", "output"),
            Parameter("peers", "signals"),
            Parameter("address", "signals"),
            Parameter("address", "epochs"),
            Parameter("address", "status"),
            Parameter("numel"),
            Parameter("rank"),
            Parameter("patience"),
        ),
        workspaces=lambda case: tuning.workspaces(case.world_size),
        launch=lambda case: tuning.launch(case, shares.longest_slice),
        build=lambda case: build(choices(case)),
        choices=choices,
        sources=(
            *shares.DEVICE_SOURCES,
            "kernels/all_reduce/two_shot.py",
            "kernels/all_reduce/two_shot_device.py",
        ),
        owner=shares.owner,
    )


SPEC = spec_of(TUNING)
