"""FlashInfer's all_reduce kernels, which come from vLLM and TensorRT-LLM: compiled from the wheel's CUDA sources."""

from functools import partial

import torch

from memory.placing import SIMULATED
from tests.foreign.cases import BITWISE, Case, Foreign, exact, held
from tests.foreign.cuda_cases import of_cuda

PACK_BYTES = 16
"""What a thread loads at once."""
CALLS = 3
"""Launches in a row, each of data of its own: flags, counters and buffers serve all of them."""
CUDA_TYPES = {torch.float16: "half", torch.bfloat16: "nv_bfloat16", torch.float32: "float"}


def inputs(ranks, numel, dtype):
    made = torch.Generator().manual_seed(ranks)
    return [torch.randn(numel, generator=made).to(dtype) for _ in range(ranks)]


def pointers(buffer, ranks, of):
    """A table of `of` pointers by value: where this rank sees the buffer of each rank."""
    return [*(("peer", buffer, rank) for rank in range(ranks)), *[("u64", 0)] * (of - ranks)]


# vLLM's

SIGNAL_BYTES = 4 * 36 * 8 + 4 * 2 * 36 * 8
"""Size of vllm::Signal: a counter for each of 36 blocks and 8 ranks, and two that peers write."""


def in_float32(terms):
    """The sum in float32 in the order of the terms, rounded once."""
    total = terms[0].float()
    for one in terms[1:]:
        total = total + one.float()
    return total.to(terms[0].dtype)


def vllm(kernel, dtype, ranks):
    """One stage adds in rank order. In two stages each rank adds a part, from its own term on, and the last rank's part
    has what the division by the number of ranks leaves over."""
    pack = PACK_BYTES // dtype.itemsize
    packs = 101
    data = inputs(ranks, CALLS * packs * pack, dtype)
    calls = [[one[call * packs * pack :][: packs * pack] for one in data] for call in range(CALLS)]
    module = of_cuda("flashinfer_vllm.cu", kernel, RANKS=ranks, TYPE=CUDA_TYPES[dtype])
    if "1stage" in kernel:
        expected = [in_float32(terms) for terms in calls]
    else:
        part = packs // ranks * pack
        ends = [*(part * rank for rank in range(1, ranks)), packs * pack]
        expected = [
            in_float32(in_order([one[part * rank : ends[rank]] for one in terms], rank))
            for terms in calls
            for rank in range(ranks)
        ]

    words = (SIGNAL_BYTES + packs * PACK_BYTES) // 4
    buffers = {"data": data, "signals": (words, torch.int32, 0), "result": (CALLS * packs * pack, dtype)}
    signals = ("addresses", "signals", 8)
    steps = []
    for start in range(0, CALLS * packs * PACK_BYTES, packs * PACK_BYTES):
        places = [("peers", f"data+{start}"), signals, "signals", f"result+{start}"]
        steps.append({"arguments": [*places, ("s32", "rank"), ("s32", packs)]})
    how = {"grid": 2, "block": 32, "buffers": buffers, "steps": steps, "local": ["result"]}
    return exact(module, ranks, lambda rank: {"result": torch.cat(expected), "data": data[rank]}, **how)


def all_to_all(dtype, ranks):
    """From sequences to heads: rank r gets its heads of all ranks' positions, of the last call."""
    batch, positions, heads, width = 2, 3, 2, PACK_BYTES // dtype.itemsize
    shape = (batch, positions, heads * ranks, width)
    numel = batch * positions * heads * ranks * width
    data = inputs(ranks, CALLS * numel, dtype)
    last = [one[-numel:].view(shape) for one in data]
    expected = [
        torch.cat([one[:, :, rank * heads : (rank + 1) * heads] for one in last], 1).flatten() for rank in range(ranks)
    ]
    module = of_cuda("flashinfer_ulysses.cu", "ulysses_a2a_kernel", RANKS=ranks, TYPE=CUDA_TYPES[dtype])
    tables = [("addresses", "out", 8), ("addresses", "signals", 8), "signals"]
    numbers = ["rank", *(("s32", one) for one in (batch, positions, heads, width))]
    steps = [{"arguments": [f"data+{call * numel * dtype.itemsize}", *tables, *numbers]} for call in range(CALLS)]
    buffers = {"data": data, "out": (numel, dtype), "signals": (SIGNAL_BYTES // 4, torch.int32, 0)}
    how = {"grid": 2, "block": 32, "buffers": buffers, "steps": steps, "local": ["data"]}
    return exact(module, ranks, lambda rank: {"out": expected[rank]}, **how)


VECTOR = 300
"""64-bit words of a token's vector: two packets of 240 words and their flags."""
DEPTH, ENTRY_BYTES = 8, 256 << 10
"""Of a FIFO from one rank to another."""
HEAP_BYTES = (1 << 32) - SIMULATED.gap_bytes
"""The kernel addresses a rank's memory as base + rank * stride, as heaps of 4 GiB with their gap lie."""


def experts(ranks):
    """From tokens to their experts' ranks: each rank sends 0 to 3 vectors to each, of places that go backwards. An
    entry of a FIFO holds one vector, so that the calls go round its eight: its counters are kept between them."""
    sends = [[(source + 2 * target) % 4 for target in range(ranks)] for source in range(ranks)]
    most = max(max(map(sum, sends)), max(map(sum, zip(*sends, strict=True))), 1)
    made = torch.Generator().manual_seed(ranks)
    data = [torch.randint(1 << 40, (CALLS, most, VECTOR), generator=made) for _ in range(ranks)]
    outputs = []
    for rank in range(ranks):
        got = torch.zeros(CALLS, most, VECTOR, dtype=torch.int64)
        parts = []
        for source in range(ranks):
            places = list(reversed(range(sum(sends[source]))))
            start = sum(sends[source][:rank])
            parts.append(data[source][:, places[start : start + sends[source][rank]]])
        arrived = torch.cat(parts, 1)
        got[:, : arrived.shape[1]] = arrived
        outputs.append(got.flatten())

    def sums(rows):
        return [torch.tensor(row, dtype=torch.int32).cumsum(0).int() for row in rows]

    received = [list(column) for column in zip(*sends, strict=True)]
    backwards = [torch.tensor([*reversed(range(sum(row))), *[0] * most][:most], dtype=torch.int32) for row in sends]
    buffers = {
        "fifos": ((DEPTH * ENTRY_BYTES + 256) * ranks // 8, torch.int64, 0),
        **{"data": [one.flatten() for one in data], "out": (CALLS * most * VECTOR, torch.int64, 0)},
        **{"sent": sums(sends), "received": sums(received), "from": backwards, "to": torch.arange(most).int()},
    }
    module = of_cuda("flashinfer_moe.cu", "moeAllToAllKernel")
    steps = []
    for call in range(CALLS):
        at = call * most * VECTOR * 8
        sides = [
            ("struct", [f"{name}+{at}", counts, places, ("s32", VECTOR)])
            for name, counts, places in (("data", "sent", "from"), ("out", "received", "to"))
        ]
        world = ("struct", [("s32", "world_size"), ("s32", "rank")])
        memory = ("struct", [("peer", "fifos", 0), ("u64", (1 << 32) // 8)])
        steps.append({"arguments": [world, memory, ("struct", [("s32", VECTOR), ("s32", 2), ("s32", 1)]), *sides]})
    how = {"grid": (1, 1, 2), "block": (64, 8, 1), "buffers": buffers, "steps": steps}
    how |= {"heap_bytes": HEAP_BYTES, "local": [name for name in buffers if name != "fifos"]}
    how["assumptions"] = ["warp_128"]  # a line of 128 bytes has one flag, which eight threads store together
    return exact(module, ranks, lambda rank: {"out": outputs[rank]}, **how)


# TensorRT-LLM's

MAX_RANKS = 16
EPSILON = 1e-5
THREADS, BLOCKS = 32, 2
HIDDEN = 256
UNIT = 2.0**-24
"""Largest relative error of one rounding to float32."""
RSQRT_UNITS = 6
"""Largest error of rsqrt.approx.f32: 2^-22.9 by the PTX ISA is less."""


def params(ranks, numbers, given, start, flag, rank):
    """The one argument: AllReduceParams by value, with AllReduceFusionParams at its end, as trtllm_allreduce.cuh lays
    them out. given: the buffers that there are. start: where the call's data begins, in bytes; flag: the number of the
    call from 1 on, which chooses among the sets of flags and of buffers."""
    elts, per_block, hidden = numbers

    def one(buffer):
        return buffer if buffer in given else ("u64", 0)

    def table(buffer):
        return pointers(buffer, ranks, MAX_RANKS) if buffer in given else [("u64", 0)] * MAX_RANKS

    share = elts // ranks
    numbers = [elts, share, per_block, share * rank, ranks, rank]
    own = [*(("u64", number) for number in numbers), ("u32", flag)]
    own += [*table("flags_in"), *table("flags_out"), *table(f"comm{flag % 2}"), f"output+{start}", f"input+{start}"]
    own += [one("bias"), one("residual"), ("s32", hidden), one("weight"), ("u64", 0), ("f32", EPSILON)]
    own += [
        f"intermediate+{start}" if "intermediate" in given else ("u64", 0),
        *table("lamport0"),
        *table("lamport1"),
        *table("lamport2"),
    ]
    return [("struct", own)]


def rounded_each(terms):
    """The sum in the order of the terms, each addition in float32 and rounded to their type."""
    total = terms[0]
    for one in terms[1:]:
        total = (total.float() + one.float()).to(total.dtype)
    return total


def in_order(terms, first):
    """The terms of all ranks, from that of rank `first` on, modulo their number."""
    return [terms[(first + i) % len(terms)] for i in range(len(terms))]


def trtllm(kernel, dtype, ranks, numbers, buffers, calls=1, **how):
    """The module with a kernel, and its launch. numbers: elements, those of a block, and of a row.
    calls: in a row; kernels with the race `flag` have one, as more are wrong in random orders."""
    module = of_cuda("flashinfer_trtllm.cu", kernel, RANKS=ranks, TYPE=CUDA_TYPES[dtype])
    size_bytes = numbers[0] * dtype.itemsize
    steps = [
        {"arguments": partial(params, ranks, numbers, tuple(buffers), call * size_bytes, call + 1)}
        for call in range(calls)
    ]
    local = [name for name in ("input", "output", "intermediate", "residual", "bias", "weight") if name in buffers]
    launch = {"grid": BLOCKS, "block": THREADS, "buffers": buffers, "steps": steps, "local": local}
    return module, {**launch, **how}


def flags(ranks):
    return ((4 * (BLOCKS + 2) * ranks,), torch.int32, 0)


def one_shot(pushes, dtype, ranks):
    """It rounds after each addition. With copies it adds in rank order, and so all ranks get the same bits. With pushes
    rank r begins at the term of rank -r, so ranks differ in their last bits."""
    pack = PACK_BYTES // dtype.itemsize
    per_block = 2 * THREADS * pack
    elts = 2 * per_block - 3 * pack  # the last block has less
    data = inputs(ranks, elts, dtype)
    comm = (ranks * elts if pushes else elts, dtype)
    buffers = {"input": data, "output": (elts, dtype), "comm0": comm, "comm1": comm, "flags_in": flags(ranks)}
    name = f"oneShotAllReduceKernel{_flags(dtype, ranks, True, pushes)}"
    module, launch = trtllm(name, dtype, ranks, (elts, per_block, 0), buffers)
    expected = [rounded_each(in_order(data, -rank if pushes else 0)) for rank in range(ranks)]
    return exact(module, ranks, lambda rank: {"output": expected[rank]}, **launch)


def two_shot(pushes, dtype, ranks):
    """Each rank adds its share, in the order that one_shot has; then, with pushes, a bias, and always a residual."""
    pack = PACK_BYTES // dtype.itemsize
    per_block = THREADS * pack
    elts = BLOCKS * per_block * ranks
    data = inputs(ranks, elts, dtype)
    more = inputs(2, elts, dtype)
    residual, bias = more[0], more[1][:HIDDEN]
    comm = (elts, dtype)
    buffers = {"input": data, "output": (elts, dtype), "comm0": comm, "comm1": comm}
    buffers |= {"flags_in": flags(ranks), "flags_out": flags(ranks), "residual": residual}
    buffers |= {"bias": bias} if pushes else {}
    shares = [one.view(ranks, -1) for one in data]
    total = torch.cat([rounded_each(in_order([one[r] for one in shares], -r if pushes else 0)) for r in range(ranks)])
    total = rounded_each([total, *([bias.repeat(elts // HIDDEN)] if pushes else []), residual])
    name = f"twoShotAllReduceKernel{_flags(dtype, ranks, True, pushes, pushes, True)}"
    module, launch = trtllm(name, dtype, ranks, (elts, per_block, HIDDEN), buffers)
    return exact(module, ranks, lambda rank: {"output": total}, **launch)


def norm_units(hidden):
    """The bound of lamport's relative error in float32, in units: half of hidden + 3, rsqrt and two products."""
    return (hidden + 3 + 1) // 2 + RSQRT_UNITS + 2


def lamport(cluster, dtype, ranks):
    """All_reduce without flags: data that is no longer -0 has come. A cluster has one token. Each rank adds from its
    own term on, then the residual, rounding after each addition: `intermediate` is that sum, bit for bit.

    The output s / sqrt(mean(s^2) + epsilon) * w is computed in float32 and rounded once. Its relative error, to first
    order: the mean of positive terms has one rounding for each square and each addition, whatever their order, then
    one for the division and one for epsilon: hidden + 3 units, of which the root takes half. rsqrt.approx adds its own,
    each of two products one, and the last rounding one unit of the type.
    """
    pack = PACK_BYTES // dtype.itemsize
    tokens, hidden = BLOCKS, cluster * THREADS * pack
    elts = tokens * hidden
    data = inputs(ranks, CALLS * elts, dtype)
    more = inputs(2, elts, dtype)
    residual, weight = more[0], more[1][:hidden]
    sums = [rounded_each([*in_order(data, rank), residual.repeat(CALLS)]) for rank in range(ranks)]

    def check(outputs):
        for rank in range(ranks):
            held("intermediate", outputs["intermediate"][rank], sums[rank], rank)
            rows = sums[rank].double().view(CALLS * tokens, hidden)
            scale = (rows.square().mean(1, keepdim=True) + EPSILON).rsqrt()
            right = (rows * scale * weight.double()).flatten()
            bound = torch.finfo(dtype).eps / 2 + norm_units(hidden) * UNIT
            error = (outputs["output"][rank].double() - right).abs()
            worst = (error / right.abs().clamp(min=1e-30) / bound).max()
            assert worst <= 1, f"output on rank {rank} has {worst:.2f} times the error of the bound"

    comm = (ranks * elts, dtype, -0.0)
    buffers = {
        **{"input": data, "output": (CALLS * elts, dtype), "intermediate": (CALLS * elts, dtype), "residual": residual},
        **{"weight": weight, "lamport0": comm, "lamport1": comm, "lamport2": comm},
    }
    name, how = f"all_reduce_norm_kernelILi{cluster}E", {"grid": tokens * cluster, "cluster": cluster}
    module, launch = trtllm(name, dtype, ranks, (elts, 0, hidden), buffers, CALLS, **how)
    return Case(module, launch, check)


def _flags(dtype, ranks, *flags):
    """The end of a kernel's mangled name: its type, the number of ranks and its switches."""
    mangled = {torch.float16: "6__half", torch.bfloat16: "13__nv_bfloat16", torch.float32: "f"}[dtype]
    return f"I{mangled}Li{ranks}E" + "".join(f"Lb{int(one)}E" for one in flags)


def _known(name):
    """What explains a kernel's races, in simulator/README.md or by an assumption, and what its results rest on."""
    if name == EXPERTS:
        return {"promise": f"{BITWISE}, by warp_128"}
    if name.startswith(TRTLLM):
        return {"race": "flag"}
    return {"assumption": "kernel_end"} if "two stages" in name else {}


PACKAGE = "flashinfer-python"
VLLM = "FlashInfer: vLLM's all_reduce"
TRTLLM = "FlashInfer: TensorRT-LLM's all_reduce"
EXPERTS = "FlashInfer: TensorRT-LLM's all_to_all for experts"
ONE_STAGE, TWO_STAGES = "cross_device_reduce_1stage", "cross_device_reduce_2stage"
_CASES = {
    f"{VLLM}, one stage, float16": partial(vllm, ONE_STAGE, torch.float16),
    f"{VLLM}, two stages, bfloat16": partial(vllm, TWO_STAGES, torch.bfloat16),
    "FlashInfer: Ulysses' all_to_all, float16": partial(all_to_all, torch.float16),
    EXPERTS: experts,
    f"{TRTLLM}, one shot, copies, bfloat16": partial(one_shot, False, torch.bfloat16),
    f"{TRTLLM}, one shot, pushes, float16": partial(one_shot, True, torch.float16),
    f"{TRTLLM}, two shot, copies, float16": partial(two_shot, False, torch.float16),
    f"{TRTLLM}, two shot, pushes, bfloat16": partial(two_shot, True, torch.bfloat16),
}
KERNELS = (
    *(Foreign(name, PACKAGE, case, **_known(name), needs_host_compiler=True) for name, case in _CASES.items()),
    *(
        Foreign(
            f"{TRTLLM}, Lamport's one shot and RMS norm, {how}, bfloat16",
            PACKAGE,
            partial(lamport, cluster, torch.bfloat16),
            f"sums bit for bit; norm's relative error within 2^-8 + {norm_units(cluster * THREADS * 8)} 2^-24",
            needs_host_compiler=True,
        )
        for cluster, how in ((1, "blocks"), (2, "clusters of two"))
    ),
)
