"""Divergence, barriers, early exits, queues of launches: against NumPy and plain Python."""

import random

import numpy as np
import pytest
import torch

from tests.simulator.harness import executable, get, in_orders, make_world, module, put, simple, start, succeed

OUT = "mad.lo.u64 %d1, %lane64, 4, %out;"
schedules = in_orders(4)


def words(raw):
    return raw.view(np.uint32)


@schedules
class TestDivergence:
    def test_registers_survive_divergence_and_chunk_edges(self, options):
        """Random programs of branches and arithmetic on few registers, beside a plain interpreter in Python."""
        for seed in range(6):
            text, reference = random_program(seed)
            block, grid = (1024, 17) if seed == 0 and not options else (96, 5)
            body = f"{text} {OUT} st.global.b32 [%d1], %r1;"
            found = words(simple(body, output_bytes=4 * grid * block, grid=grid, block=block, **options))
            lanes = range(0, grid * block, 37)
            assert [int(found[lane]) for lane in lanes] == [reference(lane) for lane in lanes], f"seed {seed}"


_MEANING = {
    "add.u32": lambda x, y: x + y,
    "sub.u32": lambda x, y: x - y,
    "mul.lo.u32": lambda x, y: x * y,
    "xor.b32": lambda x, y: x ^ y,
    "and.b32": lambda x, y: x & y,
    "or.b32": lambda x, y: x | y,
}


def execute(steps, r):
    """What a random program does to the registers r of one lane."""
    for kind, *rest in steps:
        if kind == "assign":
            opcode, guard, target, a, b = rest
            if not guard or (r[b] & 1 == 1) == ("!" not in guard):
                r[target] = _MEANING[opcode](r[a], r[b]) & 0xFFFFFFFF
        elif kind == "if":
            a, mask, first, second = rest
            execute(first if r[a] & mask else second, r)
        else:
            a, inner = rest
            for _ in range((r[a] & 3) + 1):
                execute(inner, r)


def random_program(seed):
    """A structured program over %r1..%r4 and its meaning: statements are assignments, ifs and counted loops."""
    rng = random.Random(seed)
    counter = iter(range(1000))

    def block(depth):
        texts, steps = [], []
        for _ in range(rng.randrange(2, 5)):
            text, step = statement(depth)
            texts.append(text)
            steps.append(step)
        return " ".join(texts), steps

    def statement(depth):
        way = rng.random()
        target, a, b = (rng.randrange(1, 5) for _ in range(3))
        if depth == 0 or way < 0.4:
            opcode = rng.choice(("add.u32", "sub.u32", "mul.lo.u32", "xor.b32", "and.b32", "or.b32"))
            guard = rng.choice(("", "", "@%p3 ", "@!%p3 "))
            set_guard = f"and.b32 %r9, %r{b}, 1; setp.eq.u32 %p3, %r9, 1; " if guard else ""
            return f"{set_guard}{guard}{opcode} %r{target}, %r{a}, %r{b};", ("assign", opcode, guard, target, a, b)
        number = next(counter)
        if way < 0.75:
            first, first_steps = block(depth - 1)
            second, second_steps = block(depth - 1)
            mask = rng.choice((1, 2, 4))
            text = (
                f"and.b32 %r9, %r{a}, {mask}; setp.ne.u32 %p1, %r9, 0; @%p1 bra YES{number}; {second} bra MET{number};"
                f" YES{number}: {first} MET{number}:"
            )
            return text, ("if", a, mask, first_steps, second_steps)
        inner, steps = block(0)
        text = (
            f"and.b32 %r{10 + depth}, %r{a}, 3; LOOP{number}: {inner} sub.s32 %r{10 + depth}, %r{10 + depth}, 1;"
            f" setp.ge.s32 %p2, %r{10 + depth}, 0; @%p2 bra LOOP{number};"
        )
        return text, ("loop", a, steps)

    text, program = block(3)

    def reference(lane):
        r = [0, lane, lane * 2654435761 & 0xFFFFFFFF, 12345, lane ^ 0x55]
        execute(program, r)
        return r[1]

    start = "mov.u32 %r1, %lane; mul.lo.u32 %r2, %lane, 2654435761; mov.u32 %r3, 12345; xor.b32 %r4, %lane, 85; "
    return start + text, reference


@schedules
class TestBarriers:
    def test_the_last_to_leave_opens_it(self, options):
        body = f"""
          mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra WAIT; mov.u32 %r2, 0;
          WORK: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 60; @%p2 bra WORK; ret;
          WAIT: bar.sync 0; {OUT} st.global.b32 [%d1], %r1;
        """
        found = words(simple(body, output_bytes=4 * 64, grid=1, block=64, **options))
        assert found[1:].tolist() == list(range(1, 64))
        assert found[0] == 0xFFFFFFFF


@schedules
class TestWarpBarriers:
    """The last warp of a block of 100 has 4 lanes."""

    def test_warps_do_not_wait_for_each_other(self, options):
        """Warp 0 stays away from its barrier until warp 2 has passed its own."""
        body = f"""
          mov.u32 %r1, %warpid; setp.ne.u32 %p1, %r1, 0; @%p1 bra MEET;
          SPIN: ld.acquire.gpu.global.u32 %r2, [%in0]; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN;
          MEET: bar.warp.sync -1;
          setp.ne.u32 %p3, %r1, 2; @%p3 bra DONE; st.release.gpu.global.u32 [%in0], 9;
          DONE: {OUT} st.global.b32 [%d1], %r1;
        """
        flag = np.zeros(64, np.uint32)
        found = words(simple(body, inputs=[flag], output_bytes=4 * 100, grid=1, block=100, **options))
        assert np.array_equal(found, np.arange(100) // 32)


@schedules
class TestLaunches:
    def test_a_queue_runs_in_order(self, options):
        """x = 3x + k for k of each launch: any other order gives another number; writes come in between."""
        ptx = module(
            f"{OUT} ld.global.b32 %r1, [%d1]; mad.lo.u32 %r1, %r1, 3, %k; st.global.b32 [%d1], %r1;",
            ["u64 out", "u32 k"],
        )

        def program(fabric):
            out = put(fabric, "out", np.zeros(64, np.uint32))
            for k in range(1, 6 + fabric.rank):
                start(fabric, executable(ptx), 2, 32, [out.address, k])
            first = get(fabric, out, "u4").tolist()
            fabric.write(out, 0, torch.zeros(256, dtype=torch.uint8))
            start(fabric, executable(ptx), 2, 32, [out.address, 4])
            return [*set(first), *set(get(fabric, out, "u4").tolist())]

        expected = []
        for rank in range(3):
            value = 0
            for k in range(1, 6 + rank):
                value = 3 * value + k
            expected.append([value, 4])
        assert succeed(make_world(3, **options), program).results == expected

    def test_nobody_starves_beside_another_kernel(self, options):
        """On rank 1 one thread polls and counts its polls (never asleep) for what a sister does in a later block of code;
        on rank 0 another kernel keeps the world busy meanwhile, and ends only when rank 1 is done."""
        busy = module(
            "W: ld.volatile.global.b32 %r1, [%flag]; add.u32 %r3, %r3, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra W;",
            ["u64 flag"],
        )
        poll = module(
            """setp.ne.u32 %p1, %lane, 0; mov.u32 %r3, 0; mov.u32 %r4, 0; @%p1 bra OTHER;
            W: ld.volatile.global.b32 %r1, [%flag+8]; add.u32 %r3, %r3, 1; setp.eq.u32 %p2, %r1, 0; @%p2 bra W;
            st.global.b32 [%flag], %r3; ret;
            OTHER: add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 20; @%p2 bra OTHER;
            st.global.b32 [%flag+8], 1;""",
            ["u64 flag"],
        )

        def program(fabric):
            flag = put(fabric, "flag", np.zeros(4, np.uint32))
            fabric.barrier()
            start(fabric, executable(poll if fabric.rank else busy), 1, 2, [fabric.peer_address(flag, 0)])
            fabric.synchronize()
            fabric.barrier()
            return True

        assert succeed(make_world(2, step_budget=20_000, **options), program).results == [True, True]


@pytest.mark.parametrize("lanes", [16383, 16384, 16385, 32768, 40000])
@pytest.mark.parametrize("ranks", [1, 2])
def test_chunk_edges(lanes, ranks):
    """A sum of a table's neighbour in a loop, with registers kept and registers of the block only, at every edge."""
    block = next(size for size in (1024, 1000, 128, 127, 113, 51, 43, 5, 1) if lanes % size == 0)
    body = f"""
      mad.lo.u64 %d2, %lane64, 4, %in0; mov.u32 %r1, 0; mov.u32 %r2, 0; and.b32 %r5, %lane, 3;
      LOOP: ld.global.b32 %r3, [%d2]; mul.lo.u32 %r4, %r3, 3; add.u32 %r1, %r1, %r4; add.u32 %r2, %r2, 1; add.s64 %d2, %d2, 4;
      setp.le.u32 %p1, %r2, %r5; @%p1 bra LOOP;
      {OUT} st.global.b32 [%d1], %r1;
    """
    ptx = module(body, ["u64 in0", "u64 out"])
    tables = [np.random.default_rng(rank).integers(0, 1 << 30, lanes + 4, dtype=np.uint32) for rank in range(ranks)]

    def program(fabric):
        source, out = put(fabric, "in", tables[fabric.rank]), fabric.allocate(4 * lanes, 256, "out")
        start(fabric, executable(ptx), lanes // block, block, [source.address, out.address])
        return get(fabric, out, "u4")

    for rank, found in enumerate(succeed(make_world(ranks, heap_bytes=1 << 20), program).results):
        table, lane = tables[rank], np.arange(lanes)
        expected = sum(np.where(step <= lane % 4, table[lane + step], 0).astype(np.uint32) for step in range(4))
        assert np.array_equal(found, (expected * np.uint32(3)).astype(np.uint32))
