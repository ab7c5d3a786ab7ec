"""Several tensors in one access, memory given away again, and heaps filled to the last byte."""

import numpy as np
import pytest
import torch

from memory.pool import SymmetricPool
from runner.case.buffers import changed_guards, changed_pieces, guarded
from runner.case.layout import Piece
from tests.golden import same_text
from tests.simulator.harness import executable, make_world, module, put, run, start

LOAD = "  .loc 1 42 7\n  ld.global.b32 %r1, [%base];"


def test_one_of_several_tensors_is_poison():
    """Lanes alternate between two tensors; one element of the second was never written."""
    ptx = module(
        "and.b32 %r1, %lane, 1; setp.eq.u32 %p1, %r1, 1; selp.b64 %d1, %odd, %even, %p1; mad.lo.u64 %d1, %lane64, 4, %d1;"
        "ld.global.b32 %r2, [%d1];",
        ["u64 even", "u64 odd"],
    )

    def program(fabric):
        even, odd = put(fabric, "even", np.zeros(1000, np.uint32)), fabric.allocate(4000, 256, "odd")
        fabric.write(odd, 0, torch.zeros(4 * 777, dtype=torch.uint8))
        fabric.write(odd, 4 * 778, torch.zeros(4 * 222, dtype=torch.uint8))
        start(fabric, executable(ptx), 10, 100, [even.address, odd.address])
        fabric.synchronize()

    same_text(str(run(make_world(1), program).error()))


def test_an_address_that_was_freed_and_given_away_again():
    """The old address now lies in another tensor, and in its poison."""

    def program(fabric):
        old = put(fabric, "old", np.zeros(256, np.uint8))
        fabric.free(old)
        new = fabric.allocate(512, 256, "new")
        assert new.address == old.address
        start(fabric, executable(module(LOAD, ["u64 base"])), 1, 1, [old.address + 16])
        fabric.synchronize()

    same_text(str(run(make_world(1), program).error()))


@pytest.mark.parametrize("heap_bytes", [1 << 16, (1 << 16) - 256, 3 << 15])
def test_a_heap_filled_to_its_last_byte(heap_bytes):
    """Its end is nobody's beginning: not the next rank's either."""

    def program(fabric, offset):
        data = put(fabric, "data", np.zeros(heap_bytes, np.uint8))
        fabric.barrier()
        start(fabric, executable(module(LOAD, ["u64 base"])), 1, 1, [data.address + offset])
        fabric.synchronize()

    assert not any(run(make_world(3, heap_bytes=heap_bytes), lambda fabric: program(fabric, heap_bytes - 4)).errors)
    for offset in (heap_bytes, -4):
        outcome = run(make_world(3, heap_bytes=heap_bytes), lambda fabric, offset=offset: program(fabric, offset))
        same_text(str(outcome.error()))


def test_what_was_never_written_is_known_to_the_byte():
    """Stores of poison's own bits count as writes, and so do a peer's and the host's."""
    ptx = module(
        "mov.b32 %r1, -1; st.global.b32 [%own+4], %r1; st.global.b8 [%own+9], %r1; st.global.b16 [%peer+12], %r1;",
        ["u64 own", "u64 peer"],
    )

    def program(fabric):
        own = fabric.allocate(20, 256, "own")
        fabric.write(own, 18, torch.full((2,), 0xFF, dtype=torch.uint8))
        fabric.barrier()
        start(fabric, executable(ptx), 1, 1, [own.address, fabric.peer_address(own, 1 - fabric.rank)])
        fabric.synchronize()
        fabric.barrier()
        assert bool((fabric.inspect(own) == 0xFF).all())
        found = fabric.never_written(own).nonzero().flatten().tolist()
        fabric.barrier()
        return found

    assert run(make_world(2), program).results == [[0, 1, 2, 3, 8, 10, 11, 14, 15, 16, 17]] * 2


def test_poison_stored_beside_a_payload_or_its_kept_piece_is_seen_in_the_first_launch():
    """A byte in the guard behind the buffer, and one in the piece that is to be kept."""
    ptx = module("mov.b32 %r1, -1; st.global.b8 [%own+15], %r1; st.global.b8 [%own+16], %r1;", ["u64 own"])

    def program(fabric):
        with SymmetricPool(fabric) as pool:
            buffer = guarded(pool, "mine", 16, 256)
            start(fabric, executable(ptx), 1, 1, [buffer.address])
            fabric.synchronize()
            data = torch.zeros(8, dtype=torch.uint8)
            kept = changed_pieces(fabric, buffer, [Piece(8, 16, None)], data, "mine", 0)
            return kept + changed_guards(fabric, buffer, "mine", 0)

    told = ["mine", "mine's guard after the buffer"]
    said = [
        f"{one} changed at byte {at} in launch 0: 0xff, was never written (1 bytes changed)"
        for at, one in enumerate(told, 15)
    ]
    assert run(make_world(2), program).results == [said] * 2
