"""A barrier in one trip orders memory: what any rank did before it is visible to what any rank does after it."""

import hashlib
from dataclasses import dataclass, replace

import pytest
import torch

from cases.case import Case
from cases.ops import collective
from kernels.catalogue import find
from memory.fabric import Executable
from tests.kernels.launching import Bound, Found, Launches, numbers, random_bytes, some_slow

RANKS = 3
SIZE_BYTES = 1_536
SEEDS = range(6)


def without_barriers(spec):
    """send_recv/push as a kernel that orders nothing."""

    def build(case):
        kernel = spec.build(case)
        whole = kernel.body

        def body(frame):
            frame.arrive = frame.wait = frame.leave = lambda: None
            whole(frame)

        kernel.body = body
        return kernel

    return replace(spec, algorithm="push_without_barriers", build=build, files=(*spec.files, __file__))


@dataclass(slots=True)
class Between(Launches):
    """Each rank stores a into its next rank's b, by a kernel that orders nothing; then the barrier; then b goes on into
    c in the same way. The output is c."""

    mover: Executable | None = None
    moved: Case | None = None

    def _rank(self, fabric):
        bound = Bound(fabric, self.case, self.spec, self.collective, self.epoch)
        bound.prepare(numbers(self.case, 0, fabric.rank).view(torch.uint8))
        mover = Bound(fabric, self.moved, find("send_recv/push"), collective("send_recv"), self.epoch)
        buffers = {name: fabric.allocate(SIZE_BYTES, 256, name) for name in ("a", "b", "c")}
        fabric.write(buffers["a"], 0, random_bytes(SIZE_BYTES, fabric.rank))
        barrier = [one.argument(bound.argument(one, 0)) for one in self.spec.parameters]
        moves = [self._move(fabric, mover, buffers[a], buffers[b]) for a, b in (("a", "b"), ("b", "c"))]
        fabric.barrier()
        assert isinstance(self.executables, Executable)
        fabric.launch(self.mover, find("send_recv/push").launch(self.moved), moves[0])
        fabric.launch(self.executables, self.spec.launch(self.case), barrier)
        fabric.launch(self.mover, find("send_recv/push").launch(self.moved), moves[1])
        fabric.synchronize()
        fabric.barrier()
        return Found((fabric.read(buffers["c"], 0, SIZE_BYTES).clone(),), {}, (), dict(bound.regions))

    def _move(self, fabric, bound, source, target):
        table = [fabric.peer_address(target, peer) for peer in range(RANKS)]
        region = fabric.allocate(8 * RANKS, 256, f"peers of {target.name}")
        fabric.write(region, 0, torch.tensor(table, dtype=torch.int64).view(torch.uint8))
        places = {("address", "input"): source.address, ("peers", "output"): region.address}
        parameters = find("send_recv/push").parameters
        return [one.argument(places.get((one.kind, one.of)) or bound.argument(one, 0)) for one in parameters]

    def is_right(self, rank, launch):
        return torch.equal(self.found[rank].outputs[0], random_bytes(SIZE_BYTES, (rank - 2) % RANKS))


@pytest.fixture
def seen(fit_case, compiled):
    """seen(name, change): what becomes of it in several orders: "right", "finding", "wrong" or an error's name."""

    def run(name, change=("", "")):
        mover = without_barriers(find("send_recv/push"))
        moved = fit_case(mover, size_bytes=SIZE_BYTES)
        spec = find(name)
        case = fit_case(spec)
        barrier = compiled(spec, case, "sm_90a")
        if change[0]:
            assert change[0] in barrier.ptx
            ptx = barrier.ptx.replace(*change)
            barrier = replace(barrier, ptx=ptx, digest="sha256:" + hashlib.sha256(ptx.encode()).hexdigest())
        found = set()
        for how in ({"races": True}, *({"schedule": "random", "seed": seed, "memory": "weak"} for seed in SEEDS)):
            work = Between(spec, case, barrier, mover=compiled(mover, moved, "sm_90a"), moved=moved)
            world = work.run(**how)
            bad = any(one.severity != "advisory" for one in world.findings) if "races" in how else False
            found.add("finding" if bad else work.seen())
        return found

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", ["barrier/peers", "barrier/push"])
def test_what_is_stored_before_the_barrier_is_read_after_it(seen, name):
    assert seen(name) == {"right"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    some_slow(
        [
            ("fence.acq_rel.sys;", ""),
            ("fence.acq_rel.sys;", "fence.acq_rel.gpu;"),
            ("ld.acquire.sys.global.b64", "ld.relaxed.sys.global.b64"),
            ("ld.acquire.sys.global.b64", "ld.acquire.gpu.global.b64"),
            ("st.relaxed.sys.global.b64", "st.relaxed.gpu.global.b64"),
        ],
        quick=lambda change: change[1] == "",
    ),
)
def test_with_less_order_it_is_not(seen, old, new):
    assert "finding" in seen("barrier/push", (old, new))
