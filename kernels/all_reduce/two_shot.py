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

# Measured on 2 and 4 H200 (NVLink 4, multicast off) on 2026-11-21, bfloat16 with float32 sums, CUDA graphs, medians of
# the slowest rank, with 256, 512 and 1024 threads, 1 to 8 vectors at a time, 1 to 128 blocks; no run on 8 GPUs. More
# than 256 threads gained 1 % at best and cost up to 8 % at 64 KiB, where a slice then fills fewer SMs. 16 loads in
# flight are 4 vectors of 4 ranks: 4 MiB and 32 blocks take 26 us, with 4 loads 27.6. Loads past L1 (relaxed, or with
# L1::no_allocate) and other stores (relaxed, .cs, .wt) made no difference beyond the noise.
TUNING = Tuning(
    (
        Step(
            threads=256,
            blocks=32,
            loads_in_flight=16,
            up_to_bytes=512 << 10,
            reason="a thread has one vector: 256 KiB on 4 GPUs takes 6.8 us with 16 blocks, 7.5 with 8, 9.5 with 4",
        ),
        Step(
            threads=256,
            blocks=64,
            loads_in_flight=16,
            up_to_bytes=8 << 20,
            reason="4 MiB takes 26.1 us on 4 GPUs (32: 26.6, 128: 27.3) and 18.6 on 2 (32: 19.4, 128: 20.4)",
        ),
        Step(
            threads=256,
            blocks=128,
            loads_in_flight=16,
            up_to_ranks=2,
            reason="16 MiB takes 55.3 us on 2 GPUs (64: 55.7), 256 MiB 786 (64: 798, 32: 818)",
        ),
        Step(
            threads=256,
            blocks=128,
            loads_in_flight=32,
            up_to_bytes=128 << 20,
            reason="16 MiB takes 82.2 us on 4 GPUs (16 loads: 83.9, 96 blocks: 83.9), 64 MiB 317.8 (16 loads: 320)",
        ),
        Step(
            threads=256,
            blocks=32,
            loads_in_flight=16,
            reason="256 MiB takes 1251 us on 4 GPUs (128 blocks: 1265, 8 loads and 128 blocks: 1254, 16 blocks: 1271)",
        ),
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
