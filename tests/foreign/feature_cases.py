"""CUDA of our own (sources/features.cu), with oracles in Python: what nvcc makes of each part of the language."""

import itertools
import math
import struct
from functools import partial, reduce
from operator import and_, or_, xor

import numpy as np
import torch

from tests.foreign.cases import Case, Foreign, exact, random_rows
from tests.foreign.cuda_cases import of_cuda

SOURCE = "features.cu"
ALL_LANES = 0xFFFFFFFF


def case(kernel, ranks, expected, **how):
    """A kernel of SOURCE on one block of 64 threads, if nothing else is said; what it must leave is exact."""
    return exact(of_cuda(SOURCE, kernel), ranks, expected, **{"grid": 1, "block": 64, **how})


def words(values, shape):
    """32-bit words, as int32."""
    return torch.tensor([one & ALL_LANES for one in values]).to(torch.int32).view(shape)


# Functions

SHAPE = struct.Struct("=bxhid3f4x3q")
SCALE, OFFSET, WEIGHTS = 2.75, (1.0, -8.5, 3.0), (3, -(2**40), 5)


def ackermann(m, n):
    if m == 0:
        return n + 1
    return ackermann(m - 1, 1 if n == 0 else ackermann(m, n - 1))


def functions(ranks):
    threads = 48

    def columns(rank):
        return 7 + rank

    def expected(rank):
        extra = math.trunc(SCALE * OFFSET[1])
        of_struct = [WEIGHTS[at % 3] * columns(rank) + 300 * -2 + extra for at in range(threads)]
        indirect = [(2 * at, at * at, -at)[at % 3] for at in range(threads)]
        pairs = [(at & 15) * (at // 16 + 0.5) for at in range(threads)]
        return {
            "of_struct": torch.tensor(of_struct),
            "recursive": words([ackermann(at % 3, at % 4) for at in range(threads)], (threads,)),
            "indirect": words(indirect, (threads,)),
            "pairs": torch.tensor(pairs, dtype=torch.float64),
        }

    buffers = {name: (len(one), one.dtype) for name, one in expected(0).items()}

    def arguments(rank):
        return [("bytes", SHAPE.pack(-2, 300, columns(rank), SCALE, *OFFSET, *WEIGHTS)), *buffers]

    return case("functions", ranks, expected, grid=3, block=16, buffers=buffers, arguments=arguments)


# Memory

COEFFICIENTS = (0.5, -1.25, 3.0, 8.0)
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
COUNTER = 40


def memory(ranks):
    blocks, threads = 2, 64
    numel = blocks * threads
    data = random_rows(ranks, (numel, 4), torch.float32, -50, 50)

    def expected(rank):
        out, sums, where = data[rank].clone(), [], []
        for at in range(numel):
            thread = at % threads
            out[at, 0] *= COEFFICIENTS[thread % 4]
            out[at, 1] += data[rank][at, 2]
            other = 63 - thread
            own = PRIMES[thread % 8] * (thread + thread % 8)
            sums.append((other * 3, other * other, own)[thread % 3] + COUNTER)
            where.append(4 + (2 if thread % 3 == 2 else 1))
        return {"out": out, "sums": words(sums, (numel,)), "where": words(where, (numel,))}

    words_of = (numel, torch.int32)
    buffers = {"data": data, "out": ((numel, 4), torch.float32), "sums": words_of, "where": words_of}
    return case("memory", ranks, expected, grid=blocks, shared_bytes=64 + 4 * threads, buffers=buffers)


# Warps


def of_warp(values, lane, first):
    """What a thread of the kernel `warps` finds: its warp's values, its lane, and the warp's first thread."""
    value = values[lane]
    inner = lane % 16
    odd = [at for at in range(32) if values[at] & 1]
    tile = values[lane // 8 * 8 : lane // 8 * 8 + 8]
    unsigned = [one & ALL_LANES for one in values]
    ballot = sum(1 << at for at in odd)
    return [
        values[lane * 7 % 32],
        values[lane - 3] if lane >= 3 else value,
        values[lane + 5] if inner + 5 < 16 else value,
        values[lane ^ 9],
        ballot,
        int(5 in values),
        int(min(values) > -100),
        sum(1 << at for at in range(32) if values[at] == value),
        ALL_LANES,
        1,
        sum(values),
        min(values),
        max(values),
        reduce(and_, unsigned),
        reduce(or_, unsigned),
        reduce(xor, unsigned),
        odd.index(lane) * 100 + len(odd) if value & 1 else 0,
        sum(tile),
        sum(tile[: lane % 8]),
        tile[2] + (first + lane) // 8 * 1000,
        1,
        (1 << lane) - 1,
        first + lane,
        1,
    ]


def warps(ranks):
    threads = 64
    data = random_rows(ranks, (threads,), torch.int32, -40, 40)

    def expected(rank):
        values = data[rank].tolist()
        rows = [of_warp(values[at // 32 * 32 :][:32], at % 32, at // 32 * 32) for at in range(threads)]
        return {"out": words([one for row in rows for one in row], (threads, 24))}

    return case("warps", ranks, expected, buffers={"data": data, "out": ((threads, 24), torch.int32)})


# Blocks and grids


def barriers(ranks):
    grid, block = (2, 3, 2), (8, 4, 3)
    blocks, threads = math.prod(grid), math.prod(block)
    votes = sum(thread % 3 == 0 for thread in range(threads)) + 1000 + 2000
    places = itertools.product(*map(range, grid[::-1]), *map(range, block[::-1]))
    where = [sum(place * 10**at for at, place in enumerate(one[:2:-1] + one[2::-1])) for one in places]
    rounds = [number + turn for turn in range(3) for number in range(blocks)]
    sums = [sum(rounds[turn * blocks :][:blocks]) for turn in range(3) for _ in range(blocks)]
    found = {
        "votes": words([votes] * (blocks * threads), (blocks * threads,)),
        "handed": words([7 * (31 - at) + number for number in range(blocks) for at in range(32)], (blocks * 32,)),
        "coordinates": words(where, (blocks * threads,)),
        "arrived": words([3 * blocks], (1,)),
        "rounds": words(rounds + sums, (6 * blocks,)),
    }
    buffers = {name: (len(one), torch.int32) for name, one in found.items()}
    buffers["arrived"] = (1, torch.int32, 0)
    return case("barriers", ranks, lambda rank: found, grid=grid, block=block, buffers=buffers)


def whole_grid(ranks):
    """Each block adds what all threads of the grid have stored, in three turns that two barriers of the grid part."""
    blocks, threads, turns = 4, 32, 3
    last = [number * 10 + at + turns - 1 for number in range(blocks) for at in range(threads)]
    totals = [sum(last) - (turns - 1 - turn) * len(last) for turn in range(turns)]
    found = {
        "out": words(last, (blocks * threads,)),
        "sums": words([total for total in totals for _ in range(blocks)], (turns * blocks,)),
    }

    buffers = {name: (len(one), torch.int32) for name, one in found.items()}
    how = {"grid": blocks, "block": threads, "cooperative": True, "buffers": buffers}
    return exact(of_cuda("whole_grid.cu", "whole_grid"), ranks, lambda rank: found, [("s32", turns)], **how)


# Atomics

COUNTS = np.dtype(
    [
        *((name, np.int32) for name in ("added", "least", "most", "swapped", "cut", "mixed", "turned")),
        *((name, np.uint32) for name in ("wrapped", "fell", "all", "any")),
        ("real", np.float32),
        ("wide", np.float64),
        ("large", np.uint64),
        ("halves", np.uint16, 2),
        ("brains", np.uint16, 2),
        ("narrow", np.uint16),
    ],
    align=True,
)
START = {"least": 2**31 - 1, "most": -(2**31), "swapped": 5, "all": ALL_LANES, "fell": 9, "turned": 3}


def started():
    """The counts before any value."""
    made = np.zeros((), COUNTS)
    for name, value in START.items():
        made[name] = value
    return made


def counted(values):
    """What the counts are after these values, in any order."""
    made = started()
    made["added"], made["cut"] = sum(values), -sum(values)
    made["least"], made["most"] = min(values), max(values)
    made["swapped"] = 77 if 77 in values else START["swapped"]
    made["mixed"], made["any"] = reduce(xor, values), reduce(or_, values)
    made["turned"] = START["turned"] + sum(value % 5 for value in values)
    made["all"] = reduce(and_, (value | 3 for value in values))
    made["real"], made["wide"], made["large"] = sum(values), sum(values), sum(values) << 33
    for _ in values:
        made["wrapped"] = 0 if made["wrapped"] >= 9 else made["wrapped"] + 1
        made["fell"] = 6 if made["fell"] == 0 or made["fell"] > 6 else made["fell"] - 1
    of_three, of_two = sum(value % 3 for value in values), sum(value % 2 for value in values)
    made["halves"] = torch.tensor([len(values), of_three], dtype=torch.float16).view(torch.int16).numpy()
    made["brains"] = torch.tensor([len(values), of_two], dtype=torch.bfloat16).view(torch.int16).numpy()
    made["narrow"] = len(values)
    return made


def atomics(ranks):
    """All sums are exact, and so the same in any order. Counts are compared member by member: a struct has gaps."""
    blocks, threads = 3, 32
    data = random_rows(ranks, (blocks * threads,), torch.int32, 0, 100)
    raw = torch.frombuffer(bytearray(started().tobytes()), dtype=torch.uint8)

    def check(outputs):
        for rank in range(ranks):
            rows = [*data[rank].view(blocks, threads), data[rank]]
            found = [*(one for name in ("blocks", "grid") for one in outputs[name][rank].numpy().view(COUNTS))]
            for place, (one, values) in enumerate(zip(found, rows, strict=True)):
                right = counted(values.tolist())
                for name in COUNTS.names or ():
                    is_right = one[name].tobytes() == right[name].tobytes()
                    assert is_right, f"{name} of {place} on rank {rank} is {one[name]}, expected {right[name]}"

    size = COUNTS.itemsize
    buffers = {"data": data, "blocks": (blocks * size, torch.uint8), "grid": raw, "start": raw}
    how = {"grid": blocks, "block": threads, "buffers": buffers, "arguments": list(buffers), "local": list(buffers)}
    return Case(of_cuda(SOURCE, "atomics"), how, check)


# Numbers


LIBM_ULPS = 2
"""CUDA's documentation states a maximum of 1 or 2 ulp for each of these functions."""


def libm(ranks):
    threads = 96
    made = torch.Generator().manual_seed(8)
    data = [torch.randn(threads, generator=made, dtype=torch.float64) * 2 for _ in range(ranks)]

    def check(outputs):
        for rank in range(ranks):
            x = data[rank].numpy()
            wide = np.longdouble(x)
            exact = [
                np.exp(wide),
                np.log(np.longdouble(np.abs(x) + 0.5)),
                np.sin(np.longdouble(x * 50)),
                np.cbrt(wide),
                np.power(np.longdouble(np.abs(x) + 1), wide),
                np.sqrt(np.abs(wide)),
            ]
            y = x.astype(np.float32)
            plain = y.astype(np.float64)
            log_of = (np.abs(y) + np.float32(0.5)).astype(np.float64)
            single = [np.exp(plain), np.log(log_of), np.sin(plain), np.tanh(plain)]
            _within("wide", outputs["wide"][rank].numpy(), np.stack(exact, 1), rank)
            _within("narrow", outputs["narrow"][rank].numpy(), np.stack(single, 1), rank)

    buffers = {"data": data, "wide": ((threads, 6), torch.float64), "narrow": ((threads, 4), torch.float32)}
    how = {"grid": 1, "block": threads, "buffers": buffers, "arguments": list(buffers), "local": list(buffers)}
    return Case(of_cuda(SOURCE, "libm"), how, check)


def _within(name, found, exact, rank):
    ulps = np.abs(found.astype(exact.dtype) - exact) / np.spacing(np.abs(exact).astype(found.dtype))
    assert ulps.max() <= LIBM_ULPS, f"{name} on rank {rank}: {ulps.max(0)} ulp"


# Clusters, and copies that run beside the threads


def clusters(ranks):
    """A histogram of 64 bins for each cluster of four blocks: block r of a cluster has bins 16 r to 16 r + 15."""
    blocks, width, count = 8, 4, 200
    data = random_rows(ranks, (blocks // width, count), torch.int32, 0, 2**31 - 1)

    def expected(rank):
        bins = [torch.bincount(row & 63, minlength=64) for row in data[rank]]
        places = [at % width * 100 + width * 10 + at % width for at in range(blocks)]
        return {"histogram": torch.cat(bins).to(torch.int32), "places": words(places, (blocks,))}

    buffers = {"data": data, "histogram": (blocks * 16, torch.int32), "places": (blocks, torch.int32)}
    how = {"grid": blocks, "block": 32, "cluster": width, "buffers": buffers}
    return case("clusters", ranks, expected, more=[("s32", count)], **how)


def copies(ranks):
    blocks, tiles, threads = 2, 5, 64
    data = random_rows(ranks, (blocks, tiles, threads, 4), torch.float32, -50, 50)

    def expected(rank):
        out = data[rank].flip(2)
        out[..., 3] += torch.arange(tiles).view(1, tiles, 1)
        return {"out": out}

    buffers = {"data": data, "out": ((blocks, tiles, threads, 4), torch.float32)}
    return case("copies", ranks, expected, grid=blocks, buffers=buffers, more=[("s32", tiles)])


def phases(ranks):
    threads, turns = 64, 5
    sums = [sum(turn * 100 + (at + turn + 1) % threads for turn in range(turns)) for at in range(threads)]
    found = {"out": words([*sums, sum(sums)], (threads + 1,))}
    buffers = {"out": (threads + 1, torch.int32, 0)}
    return case("phases", ranks, lambda rank: found, buffers=buffers, more=[("s32", turns)])


# Several GPUs


def peers(ranks):
    empty = [("u64", 0)] * (8 - ranks)
    data, flags = ([("peer", name, rank) for rank in range(ranks)] for name in ("data", "flags"))
    return "struct", [*data, *empty, *flags, *empty]


def rotate(ranks):
    count = 300

    def expected(rank):
        return {"out": (rank - 1) % ranks * 1000 + torch.arange(count, dtype=torch.float32)}

    buffers = {"data": (count, torch.float32), "flags": (1, torch.int32, 0), "out": (count, torch.float32)}
    arguments = [peers(ranks), "out", ("s32", "rank"), ("s32", "world_size"), ("s32", count)]
    return case("rotate", ranks, expected, block=128, buffers=buffers, arguments=arguments, local=["out"])


def through_switch(ranks):
    """Sums of integers are exact, whatever the order in which a switch adds."""
    count = 512
    data = random_rows(ranks, (count,), torch.float32, -500, 500)
    total = torch.stack(data).sum(0)
    buffers = {"data": data, "sums": (count, torch.float32), "flags": (1, torch.int32, 0)}
    arguments = [peers(ranks), ("multicast", "data"), ("multicast", "sums")]
    arguments += [("s32", "rank"), ("s32", "world_size"), ("s32", count)]
    how = {"block": 32, "buffers": buffers, "arguments": arguments, "local": ()}
    return case("through_switch", ranks, lambda rank: {"sums": total}, **how)


_of_nvcc = partial(Foreign, package="nvidia-cuda-nvcc", needs_host_compiler=True)
KERNELS = (
    _of_nvcc("nvcc: functions, recursion, function pointers, printf, assert, a struct by value", case=functions),
    _of_nvcc("nvcc: shared, local, constant and global memory, generic addresses, vectors", case=memory),
    _of_nvcc("nvcc: shuffles, votes, matches, reductions, cooperative groups", case=warps),
    _of_nvcc("nvcc: named barriers, votes of a block, a barrier of the grid, three dimensions", case=barriers),
    _of_nvcc("nvcc: grid.sync() of a cooperative launch", case=whole_grid),
    _of_nvcc("nvcc: atomics on shared and global memory", case=atomics),
    _of_nvcc("nvcc: clusters, and shared memory of their other blocks", case=clusters),
    _of_nvcc("nvcc: cp.async through pipelines", case=copies),
    _of_nvcc("nvcc: cuda::barrier and cuda::atomic_ref", case=phases),
    _of_nvcc("nvcc: exp, log, sin, tanh, cbrt, pow, sqrt", case=libm, promise=f"within {LIBM_ULPS} ulp"),
    _of_nvcc("nvcc: peers' memory by a struct of pointers", case=rotate),
    _of_nvcc("nvcc: all_reduce through the switch, by inline PTX", case=through_switch),
)
