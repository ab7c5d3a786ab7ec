"""all_reduce/multimem_two_shot: each rank gets the switch's sum of its slice and stores it to all through the switch.

When it wins: large buffers on GPUs whose switch does multicast: the links carry each byte about once in each
direction.

Memory: the full vectors of 16 bytes are divided into contiguous slices by rank, as in two_shot; each is a
multimem.ld_reduce and a multimem.st of four 32-bit words. What fills no vector is the last rank's: up to three words
by the forms of one word, and a last odd 16-bit element, which lies in no 32-bit word inside the buffer, folded in
rank order and the accumulator's precision and stored through peers' addresses. Nothing outside [0, numel) is touched.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete). Both block by block, by a reduction on the multicast address of a counter, with proxy fences on
both sides, before the release and after the acquire: payload crosses from ordinary addresses to the multicast one at
entry, and back at exit. (Vendor libraries leave those out; by PTX 8.6.1 only strong accesses are safe without them.)
In place is fine: an element of any rank's buffer is read and written by its owner only, by one thread, which has the
sum before it stores it.

Numerics: the switch's, as in multimem_one_shot. One owner an element stores the same bits to all ranks, so they are
equal everywhere.

All loads of a thread's turn are issued before its first store: each load with a store that depends on it is a round
trip of its own.
"""

from __future__ import annotations

from typing import Any

from kernels.all_reduce import shares
from kernels.all_reduce.family import spec_with
from kernels.all_reduce.multimem_one_shot import SIGNAL, loads
from kernels.all_reduce.tuning import Step, Tuning
from kernels.spec import Case, KernelSpec, Parameter

TUNING = Tuning(
    (
        # Never measured: no machine with multicast. Others found 2 to 8 blocks enough on 8 GPUs, and take 8 loads; 4,
        # because at 1 MiB and 8 ranks a thread has two vectors.
        Step(threads=512, blocks=8, loads_in_flight=4, reason="others' values, not measured"),
    )
)


def multimem(case: Case) -> frozenset[str]:
    """All multimem instructions of the kernel."""
    packed = {"float32": "f32", "float16": "f16x2", "bfloat16": "bf16x2"}[case.dtype]
    store = "multimem.st.relaxed.sys.global"
    return loads(case) | {f"{store}.v4.{packed}", f"{store}.{packed}", SIGNAL}


def build(choices: dict[str, Any]) -> Any:
    from kernels.all_reduce.multimem_two_shot_device import MultimemTwoShot

    return MultimemTwoShot(**choices)


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial.

    signals[block] counts the arrivals of that block on all ranks.
    """

    def choices(case: Case) -> dict[str, Any]:
        return tuning.choices(case, loads_per_vector=1)

    return spec_with(
        tuning,
        "multimem_two_shot",
        summary="each rank loads the switch's sum of its slice and stores it to all outputs through the switch",
        placements=("out_of_place", "in_place"),
        needs_multicast=True,
        fold="unordered",
        buffers=(
            Parameter("multicast", "input"),
            Parameter("multicast", "output"),
            Parameter("peers", "input"),
            Parameter("peers", "output"),
            Parameter("multicast", "signals"),
        ),
        build=build,
        choices=choices,
        workspaces=lambda case: tuning.workspaces(1),
        busiest=shares.longest_slice,
        sources=("kernels/all_reduce/multimem_one_shot.py",),
        multimem=multimem,
        one_owner=True,
    )


SPEC = spec_of(TUNING)
