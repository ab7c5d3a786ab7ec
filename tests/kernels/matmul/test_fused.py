"""Matmuls fused with collectives, simulated: every bit over repeated launches, races, and what weaker forms do."""

from functools import partial

import cutlass
import pytest
import torch

import symlab
from kernels.dsl import device, tensor_maps
from kernels.fused import tuning_of
from kernels.matmul import all_gather, ranks, reduce_scatter
from kernels.matmul.all_gather import AllGather
from kernels.matmul.reduce_scatter import AllReduce, ReduceScatter, ReduceScatterByAdding
from kernels.matmul.tuning import Tuning
from runner.world.world import WorldFailure
from tests.kernels.matmul.fused import Fused

TWO = Tuning(columns=128, cluster=2, in_flight=1)
CLUSTER = {("formal", "fence.proxy.async")}
"""What is told of clusters: see test_matmul."""


CASES = [
    Fused(AllGather, 2, 150, 136, 136, TWO),
    Fused(AllGather, 4, 70, 72, 72),
    Fused(AllGather, 3, 130, 264, 64, all_gather.TUNING, blocks=2),
    Fused(ReduceScatter, 2, 150, 136, 136, TWO),
    Fused(ReduceScatter, 4, 70, 72, 72),
    Fused(ReduceScatter, 3, 130, 264, 64, reduce_scatter.TUNING, blocks=2),
    Fused(AllReduce, 2, 150, 136, 136, TWO),
    Fused(AllReduce, 4, 70, 72, 72),
    Fused(AllReduce, 2, 150, 264, 136, ranks.PUSHING),
    Fused(ReduceScatterByAdding, 2, 150, 136, 136, TWO),
    Fused(ReduceScatterByAdding, 4, 70, 256, 72, ranks.PUSHING),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_launch_gives_every_bit_and_has_no_races(case):
    found, expected, findings = case.ran(races=True)
    for rank, (one, right) in enumerate(zip(found, expected, strict=True)):
        assert torch.equal(one, right), rank
    assert {(one.severity, one.missing) for one in findings} == (CLUSTER if case.tuning.cluster > 1 else set())


@pytest.mark.parametrize("kind", [AllGather, ReduceScatter, AllReduce, ReduceScatterByAdding])
@pytest.mark.parametrize("memory", ["strong", pytest.param("weak", marks=pytest.mark.slow)])
def test_threads_and_stores_may_come_in_any_order(kind, memory):
    found, expected, _ = Fused(kind, 2, 70, 72, 72, blocks=1).ran(2, schedule="random", seeds=2, memory=memory)
    assert all(torch.equal(one, right) for one, right in zip(found, expected, strict=True))


@pytest.mark.parametrize("world_size", [2, 3])
def test_normal_data_are_folded_in_the_order_of_ranks_after_the_owner(world_size):
    """wgmma truncates its sums, so that a few roundings to bfloat16 differ from those of float64's products."""
    found, expected, _ = Fused(ReduceScatter, world_size, 70, 72, 64, exact=False).ran(1)
    for one, right in zip(found, expected, strict=True):
        differ = (one != right).sum()
        assert differ < one.numel() // 100
        assert ((one.double() - right.double()).abs() <= 2.0**-6 * (right.double().abs() + 8)).all()


@pytest.mark.parametrize("kind", [ReduceScatter, AllReduce])
def test_parts_of_a_sum_need_all_chunks_of_a_tile(kind):
    with pytest.raises(ValueError, match="chunks"):
        kind(cutlass.BFloat16, 2, Tuning(columns=128, chunks=1))


@pytest.mark.parametrize("size_bytes", [0, -16, 24, 3 << 10, 16 << 10])
def test_a_piece_divides_a_chunk(size_bytes):
    with pytest.raises(ValueError, match="piece_bytes"):
        Tuning(piece_bytes=size_bytes)


FUSED = ("all_gather_matmul/push", "matmul_reduce_scatter/inbox", "matmul_all_reduce/inbox")
MEASURED_US = {
    (512, 8192, 4096): ((64.5, 82.2, 59.2), (69.3, 78.6, 60.3), (81.2, 99.9, 74.8)),
    (512, 5120, 8192): ((108.6, 94.4, 105.6), (103.3, 82.0, 102.0), (111.3, 93.4, 120.0)),
    (512, 4096, 7168): ((94.7, 82.3, 60.1), (88.8, 69.4, 54.6), (92.7, 77.0, 66.5)),
    (1024, 8192, 4096): ((103.9, 123.8, 109.4), (113.9, 126.7, 113.4), (135.9, 142.5, 137.4)),
    (1024, 5120, 8192): ((197.1, 152.8, 160.5), (196.9, 149.9, 160.2), (225.8, 171.2, 182.0)),
    (1024, 4096, 7168): ((112.3, 133.5, 94.5), (105.0, 132.0, 95.2), (118.4, 154.3, 114.0)),
    (2048, 8192, 4096): ((202.8, 236.2, 230.0), (212.3, 244.9, 234.1), (236.3, 265.8, 260.5)),
    (2048, 5120, 8192): ((305.7, 312.7, 284.0), (309.8, 315.0, 293.8), (334.7, 331.7, 309.1)),
    (2048, 4096, 7168): ((179.4, 207.9, 187.8), (187.7, 213.9, 190.2), (212.8, 229.3, 217.6)),
    (256, 8192, 4096): ((56.6, 51.1, 39.8), (61.2, 48.0, 39.7), (64.0, 54.5, 48.2)),
    (128, 8192, 4096): ((51.5, 47.6, 50.8), (60.9, 55.6, 53.4), (60.5, 55.3, 59.2)),
}
"""M, N, K: times (us) on 2 H200 of these three by tiles of 256, 192 and 128 columns, 28 November 2026."""


@pytest.mark.parametrize("gemm", MEASURED_US)
def test_tiles_of_fused_matmuls_have_the_columns_that_were_measured_fastest(gemm):
    for name, measured in zip(FUSED, MEASURED_US[gemm], strict=True):
        times = dict(zip((256, 192, 128), measured, strict=True))
        chosen = tuning_of(symlab.case(name, gemm=gemm, ranks=2)).columns
        assert times[chosen] <= (1.08 if gemm[0] == 128 else 1.01) * min(times.values())


def test_pieces_are_small_where_own_tiles_hide_the_pushes():
    pieces = {
        (name, rows): (one.piece_bytes, one.in_flight)
        for name in FUSED
        for rows in (512, 4096)
        for one in [tuning_of(symlab.case(name, gemm=(rows, 4096, 7168), ranks=2))]
    }
    assert pieces == {
        **dict.fromkeys([(FUSED[0], 512)], (2048, 1)),
        **dict.fromkeys([(FUSED[0], 4096)], (512, 4)),
        **dict.fromkeys([(FUSED[1], 512), (FUSED[1], 4096)], (128, 2)),
        **dict.fromkeys([(FUSED[2], 512), (FUSED[2], 4096)], (2048, 8)),
    }


class NoProxyFence(AllGather):
    @cutlass.cute.jit
    def await_shard(self, shard: cutlass.Int32):
        if shard != self.rank:
            flag = self.flags + cutlass.Int64(shard) * 4
            ranks.wait_for(flag, self.total, shard, ranks.TILES, self.watch)


class NoWaitForShards(AllGather):
    def await_shard(self, shard):
        pass


class OneGathered(AllGather):
    def slot(self, shard):
        return shard


class NoWaitForParts(ReduceScatter):
    def await_one(self, kind, source, half, sizes):
        pass


class OneInbox(ReduceScatter):
    def part(self, inbox, source, half, sizes):
        chunks = self.columns // 64
        return inbox + (cutlass.Int64(source) * self.half_tiles(sizes) + half) * (chunks * 8192)


class NoWaitForOwner(ReduceScatterByAdding):
    def await_one(self, kind, source, half, sizes):
        pass


class NoWaitForAdditions(ReduceScatterByAdding):
    def end(self, sizes):
        pass


class FilledTooLate(ReduceScatter):
    def fill_with(self, put, chunks, filled, at, group, turn):
        chunk, barrier, parity = self.chunk_at(chunks, filled, at, group, turn)
        cutlass.cute.arch.mbarrier_wait(barrier + 2 * self.tuning.chunks, parity ^ 1)
        cutlass.cute.arch.mbarrier_arrive(barrier)
        put(chunk)


class FilledTooEarly(ReduceScatter):
    def fill_with(self, put, chunks, filled, at, group, turn):
        chunk, barrier, _ = self.chunk_at(chunks, filled, at, group, turn)
        put(chunk)
        tensor_maps.fence_shared()
        cutlass.cute.arch.mbarrier_arrive(barrier)


def is_found(kind, world_size=2, blocks=4):
    """Whether the race checker tells something new of a kernel, or memory that was never written."""
    try:
        found = Fused(kind, world_size, 70, 72, 72, blocks=blocks).ran(races=True)[2]
    except WorldFailure as failure:
        return "never written" in failure.message or str(failure.status) == "DEADLOCK"
    return bool(found)


WEAKER = (
    NoProxyFence,
    NoWaitForShards,
    OneGathered,
    NoWaitForParts,
    OneInbox,
    NoWaitForOwner,
    NoWaitForAdditions,
    FilledTooLate,
    FilledTooEarly,
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WEAKER)
def test_a_kernel_without_one_of_its_waits_is_found(kind):
    assert is_found(kind, blocks=1 if kind is FilledTooEarly else 4)


NOTHING = lambda *_: None  # noqa: E731
WEAKER_PARTS = {
    "told before the stores are written": (ranks.bulk, "await_written", lambda *_: ranks.bulk.await_read(0)),
    "told by a relaxed store": (ranks.device, "signal", partial(device.signal, order="relaxed")),
    "no fence between stores to shared memory and the copy": (tensor_maps, "fence_shared", NOTHING),
    "no barrier between reading a part and filling its place": (ReduceScatter, "meet_group", NOTHING),
    "no fence between a flag and the copy of a part": (reduce_scatter.bulk, "fence_proxies", NOTHING),
}


@pytest.mark.slow
@pytest.mark.parametrize("part", WEAKER_PARTS)
def test_a_weaker_part_is_found(part, monkeypatch):
    monkeypatch.setattr(*WEAKER_PARTS[part])
    assert is_found(ReduceScatter)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [AllReduce, ReduceScatterByAdding])
def test_a_flag_that_is_told_before_stores_are_written_is_found(kind, monkeypatch):
    monkeypatch.setattr(*WEAKER_PARTS["told before the stores are written"])
    assert is_found(kind, 3)


@pytest.mark.slow
def test_a_count_without_a_release_is_found(monkeypatch):
    def count(address):
        text = "red.relaxed.sys.global.add.u32 [$0], 1;"
        device.assemble(text, "l", [cutlass.Int64(address)], None, memory=True)

    monkeypatch.setattr(all_gather, "count_at_peer", count)
    assert is_found(AllGather)
