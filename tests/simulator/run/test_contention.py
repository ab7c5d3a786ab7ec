"""Atomics under contention: tickets, sums, a lock, a loop of compare-and-swap."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.fabric import SimulatorFabric
from tests.simulator.harness import executable, get, in_orders, launching, make_world, module, put, start, succeed

schedules = in_orders(4)


@schedules
class TestAtomics:
    def test_sums_by_cell(self, options: dict[str, Any]) -> None:
        body = """
          rem.u32 %r1, %lane, 7; mul.wide.u32 %d1, %r1, 4; add.s64 %d1, %d1, %in0; red.global.add.u32 [%d1], %lane;
          mul.wide.u32 %d2, %r1, 4; add.s64 %d2, %d2, %in1; atom.global.max.u32 %r2, [%d2], %lane;
          bar.sync 0; @%p1 ret; setp.ne.u32 %p2, %lane, 0; @%p2 ret;
        """
        ptx = module(body, ["u64 in0", "u64 in1"])
        grid, block = 9, 100

        def program(fabric: SimulatorFabric) -> tuple[list[int], list[int]]:
            sums, most = put(fabric, "sums", np.zeros(7, np.uint32)), put(fabric, "most", np.zeros(7, np.uint32))
            start(fabric, executable(ptx), grid, block, [sums.address, most.address])
            return get(fabric, sums, "u4").tolist(), get(fabric, most, "u4").tolist()

        sums, most = succeed(make_world(1, **options), program).results[0]
        lane = np.arange(grid * block)
        assert sums == [int(lane[lane % 7 == cell].sum()) for cell in range(7)]
        assert most == [int(lane[lane % 7 == cell].max()) for cell in range(7)]

    def test_a_lock(self, options: dict[str, Any]) -> None:
        """compare-and-swap to take it, a plain counter inside, exchange to give it back: no increment is lost."""
        body = """
          TAKE: atom.acquire.sys.global.cas.b32 %r1, [%in0], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra TAKE;
          ld.global.b32 %r2, [%in0+8]; add.u32 %r2, %r2, 1; st.global.b32 [%in0+8], %r2;
          atom.release.sys.global.exch.b32 %r3, [%in0], 0;
        """
        ptx = module(body, ["u64 in0"])

        program = launching(ptx, 3, 40, [np.zeros(4, np.uint32)], at=2)

        assert succeed(make_world(1, **options), program).results == [120]
