"""Atomics under contention: tickets, sums, a lock, a loop of compare-and-swap."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.simulator.harness import in_orders, ran

schedules = in_orders(4)


@schedules
class TestAtomics:
    def test_sums_by_cell(self, options: dict[str, Any]) -> None:
        body = """
          rem.u32 %r1, %lane, 7; mul.wide.u32 %d1, %r1, 4; add.s64 %d1, %d1, %in0; red.global.add.u32 [%d1], %lane;
          atom.global.max.u32 %r2, [%d1+28], %lane;
          bar.sync 0; @%p1 ret; setp.ne.u32 %p2, %lane, 0; @%p2 ret;
        """
        (found,) = ran(body, {"in0": np.zeros(14, np.uint32)}, 9, 100, **options).right
        lane = np.arange(900)
        assert found[:7] == [int(lane[lane % 7 == cell].sum()) for cell in range(7)]
        assert found[7:] == [int(lane[lane % 7 == cell].max()) for cell in range(7)]

    def test_a_lock(self, options: dict[str, Any]) -> None:
        """compare-and-swap to take it, a plain counter inside, exchange to give it back: no increment is lost."""
        body = """
          TAKE: atom.acquire.sys.global.cas.b32 %r1, [%in0], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra TAKE;
          ld.global.b32 %r2, [%in0+8]; add.u32 %r2, %r2, 1; st.global.b32 [%in0+8], %r2;
          atom.release.sys.global.exch.b32 %r3, [%in0], 0;
        """
        (found,) = ran(body, {"in0": np.zeros(4, np.uint32)}, 3, 40, **options).right
        assert found[2] == 120
