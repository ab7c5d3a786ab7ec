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

from dataclasses import dataclass
from typing import Any

from kernels.all_reduce import shares
from kernels.all_reduce.multimem_one_shot import SIGNAL, loads
from kernels.spec import Case, KernelSpec, Launch, Parameter, Workspace


@dataclass(frozen=True, slots=True)
class Tuning:
    """Not measured yet on hardware.

    threads: 512, as the peer-to-peer kernels. max_blocks: others found 2 to 8 blocks enough on 8 GPUs. unroll:
    vectors under way before the first store; four, though others take eight, because at 1 MiB and 8 ranks a thread
    has two.
    """

    threads: int = 512
    max_blocks: int = 8
    unroll: int = 4


TUNING = Tuning()


def launch(case: Case) -> Launch:
    """A rank works on its slice; the longest is the first rank's."""
    longest = shares.slice_vectors(shares.vectors(case), case.world_size)[0]
    return Launch(shares.blocks(longest, TUNING.threads, TUNING.max_blocks), TUNING.threads)


def workspaces(case: Case) -> tuple[Workspace, ...]:
    """signals[block]: arrivals of that block on all ranks; epochs[block]: the own last barrier's number."""
    return (Workspace("signals", TUNING.max_blocks), Workspace("epochs", TUNING.max_blocks))


def multimem(case: Case) -> frozenset[str]:
    """All multimem instructions of the kernel."""
    packed = {"float32": "f32", "float16": "f16x2", "bfloat16": "bf16x2"}[case.dtype]
    store = "multimem.st.relaxed.sys.global"
    return loads(case) | {f"{store}.v4.{packed}", f"{store}.{packed}", SIGNAL}


def host_choices(case: Case) -> dict[str, Any]:
    """What the device half takes, by name."""
    return {
        "world_size": case.world_size,
        "dtype": case.dtype,
        "accumulator": case.accumulator,
        "threads": TUNING.threads,
        "unroll": TUNING.unroll,
    }


def build(case: Case) -> Any:
    from kernels.all_reduce.multimem_two_shot_device import MultimemTwoShot

    return MultimemTwoShot(**host_choices(case))


SPEC = KernelSpec(
    op="all_reduce",
    algorithm="multimem_two_shot",
    summary="each rank loads the switch's sum of its slice and stores it to all outputs through the switch",
    dtypes=("float32", "float16", "bfloat16"),
    accumulators=("float32", "native"),
    reductions=("sum",),
    placements=("out_of_place", "in_place"),
    needs_multicast=True,
    fold="unordered",
    parameters=(
        Parameter("multicast", "input"),
        Parameter("multicast", "output"),
        Parameter("peers", "input"),
        Parameter("peers", "output"),
        Parameter("multicast", "signals"),
        Parameter("address", "signals"),
        Parameter("address", "epochs"),
        Parameter("numel"),
        Parameter("rank"),
    ),
    workspaces=workspaces,
    launch=launch,
    build=build,
    sources=(
        *shares.DEVICE_SOURCES,
        "kernels/all_reduce/multimem_one_shot.py",
        "kernels/all_reduce/multimem_two_shot.py",
        "kernels/all_reduce/multimem_two_shot_device.py",
    ),
    multimem=multimem,
    one_owner=True,
)
