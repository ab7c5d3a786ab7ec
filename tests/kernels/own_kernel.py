"""Kernels in files of a user's, for tests: what is written into a folder of theirs."""

RING = '''
"""send_recv/ring: a kernel of somebody's own, with a helper beside it."""

from kernels import shares
from kernels.family import Work, address, peers, spec_with
from kernels.tuning import Step, Tuning

from .steps import BLOCKS, following


def body(frame):
    frame.arrive()
    source, target = frame.address("input"), frame.peer("output", following(frame))
    frame.wait()
    frame.copy(source, target, frame.size, push=True)
    frame.leave()


def spec_of(blocks):
    return spec_with(
        "send_recv/ring",
        body,
        Tuning((Step(threads=96, blocks=blocks, loads_in_flight=8, reason="a test"),)),
        summary="stores to the next rank",
        placements=("out_of_place",),
        buffers=(address("input"), peers("output")),
        work=Work(lambda case: shares.vectors(case.numel, case.itemsize, case.offset)),
    )


SPEC = spec_of(BLOCKS)
TRIAL = spec_of(2 * BLOCKS)
'''

STEPS = """
BLOCKS = {blocks}


def following(frame):
    return frame.after(frame.rank, 1 % frame.world_size)
"""


def write_ring(folder, blocks=2):
    """RING and its helper in a folder, which is made if need be; gives the kernel's file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "steps.py").write_text(STEPS.format(blocks=blocks))
    (folder / "ring.py").write_text(RING)
    return folder / "ring.py"
