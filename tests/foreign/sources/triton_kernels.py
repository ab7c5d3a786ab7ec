"""Kernels in Triton: a softmax, reductions and a scan of rows, and an all_reduce over peers' memory."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * columns
    values = tl.load(x + row + at, mask=at < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row + at, values / tl.sum(values, axis=0), mask=at < columns)


@triton.jit
def reductions(x, total, largest, where, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    values = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    tl.store(total + row, tl.sum(values, axis=0))
    values = tl.where(at < columns, values, -float("inf"))
    tl.store(largest + row, tl.max(values, axis=0))
    tl.store(where + row, tl.argmax(values, axis=0))


@triton.jit
def scans(x, sums, highest, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * columns
    values = tl.load(x + row + at, mask=at < columns, other=0)
    tl.store(sums + row + at, tl.cumsum(values, axis=0), mask=at < columns)
    tl.store(highest + row + at, tl.associative_scan(values, 0, _larger), mask=at < columns)


@triton.jit
def _larger(one, other):
    return tl.maximum(one, other)


@triton.jit
def all_reduce(peers, flags, y, rank, RANKS: tl.constexpr, BLOCK: tl.constexpr):
    """Every block tells all ranks that it has started, waits for theirs, and adds what all ranks hold."""
    block = tl.program_id(0)
    for peer in range(RANKS):
        flag = tl.load(flags + peer).to(tl.pointer_type(tl.int32))
        tl.atomic_xchg(flag + block * RANKS + rank, 1, sem="release", scope="sys")
    mine = tl.load(flags + rank).to(tl.pointer_type(tl.int32))
    for peer in range(RANKS):
        while tl.atomic_cas(mine + block * RANKS + peer, 1, 1, sem="acquire", scope="sys") != 1:
            pass
    at = block * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for peer in range(RANKS):
        data = tl.load(peers + peer).to(tl.pointer_type(tl.bfloat16))
        total += tl.load(data + at).to(tl.float32)
    tl.store(y + at, total.to(tl.bfloat16))
