"""all_gather/ring: each chunk goes around the ring, from each rank to the next one.

When it wins: never on an all-to-all fabric, where each rank can store to all others at once; it is the example of a
kernel that does not belong to the project (+exp=own_kernel).

Memory: a chunk is written to the next rank's output, and read from there for the one after.

Protocol: a barrier at entry (outputs may be overwritten), one after each step (what came in the last step is there),
one at exit. Barriers are block by block, and a thread forwards the very bytes that the same thread of the rank before
stored: chunks are whole vectors, so all ranks divide them alike.
"""

from cases.refusal import Refusal
from kernels import shares
from kernels.family import Work, address, peers, spec_with
from kernels.tuning import Step, Tuning

TUNING = Tuning((Step(threads=256, blocks=16, loads_in_flight=8, reason="an example: never measured"),))


def body(frame):
    frame.arrive()
    source, output = frame.address("input"), frame.address("output")
    following = frame.peer("output", frame.after(frame.rank))
    chunk = frame.size // frame.world_size
    frame.wait()
    own = chunk * frame.rank
    frame.copy(source, output + own, chunk, push=True)
    frame.copy(source, following + own, chunk, push=True)
    for step in range(1, frame.world_size - 1):
        frame.meet()
        came = chunk * frame.after(frame.rank, frame.world_size - step)
        frame.copy(output + came, following + came, chunk, push=True)
    frame.leave()


def refusal(case, arch):
    chunk_bytes = case.size_bytes // case.world_size
    if chunk_bytes % shares.VECTOR_BYTES == 0 and case.offset * case.itemsize % shares.VECTOR_BYTES == 0:
        return None
    return Refusal("sizes", "all_gather/ring takes chunks of whole 16-byte vectors", "give a multiple of them")


SPEC = spec_with(
    "all_gather/ring",
    body,
    TUNING,
    summary="each chunk goes around the ring, from each rank to the next one",
    placements=("out_of_place",),
    buffers=(address("input"), address("output"), peers("output")),
    work=Work(lambda case: shares.vectors(case.numel // case.world_size, case.itemsize)),
    refusal=refusal,
)
