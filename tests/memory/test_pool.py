"""SymmetricPool: scopes, agreement of the ranks, capacity, and an empty heap whatever happens."""

import contextlib
import re

import pytest
import torch

from memory.fabric import Disagreement, FabricError, HeapFull, PeerLost
from memory.pool import SymmetricPool
from memory.tensor import Released
from tests.memory.outcomes import good


def held(world):
    return [f"rank {rank}: {region.name}" for rank in range(world.world_size) for region in world.live_regions(rank)]


def names(pool):
    return [tensor.name for tensor in pool.live]


def test_scopes_nest_and_release_in_reverse_order(make_world, on_ranks, interrupted):
    world = make_world(2)

    def program(fabric):
        freed = []
        free = fabric.free
        fabric.free = lambda region: (freed.append(region.name), free(region))
        with SymmetricPool(fabric) as pool:
            pool.tensor(1, torch.int32, name="a")
            pool.tensor(1, torch.int32, name="b")
            with pool.scope() as inner:
                assert inner is pool
                pool.tensor(1, torch.int32, name="c")
                with pool.scope():
                    pool.tensor(1, torch.int32, name="d")
                    assert names(pool) == ["a", "b", "c", "d"]
                pool.tensor(1, torch.int32, name="e")
                assert names(pool) == ["a", "b", "c", "e"]
            assert names(pool) == ["a", "b"]
        assert pool.live == ()
        return freed

    freed = on_ranks(world, program, lambda fabric, rank: interrupted(fabric, 0, None))
    good(freed)
    assert freed == [["d", "e", "c", "b", "a"]] * 2
    assert held(world) == []


def test_free_releases_early_and_once(make_world, on_ranks):
    world = make_world(2)

    def program(fabric):
        with SymmetricPool(fabric) as pool:
            first = pool.tensor(1, torch.int32, name="first")
            pool.tensor(1, torch.int32, name="second")
            pool.free(first)
            assert names(pool) == ["second"]
            with pytest.raises(Released, match='"first" was released twice'):
                pool.free(first)
            pool.tensor(2, torch.int32, name="first")
            with SymmetricPool(fabric) as other, pytest.raises(ValueError, match='"first" belongs to another pool'):
                other.free(pool.live[-1])

    good(on_ranks(world, program))
    assert held(world) == []


def test_a_full_heap_says_what_would_fit_and_the_pool_goes_on(make_world, on_ranks):
    world = make_world(2, heap_bytes=1 << 16)

    def program(fabric):
        with SymmetricPool(fabric) as pool:
            pool.tensor(1 << 14, torch.uint8, name="a quarter")
            with pytest.raises(HeapFull, match="too much") as caught:
                pool.tensor(49153, torch.uint8, name="too much")
            fits = re.search(r"([\d,]+)( bytes)? would", str(caught.value))
            fits_bytes = int(fits[1].replace(",", ""))
            assert fits_bytes > 1 << 15
            pool.tensor(fits_bytes, torch.uint8, name="the rest")
            with pytest.raises(HeapFull, match="one more"):
                pool.tensor(1, torch.uint8, name="one more")

    good(on_ranks(world, program))
    assert held(world) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": 0}, "is empty"),
        ({"shape": (4, -1)}, "is empty"),
        ({"alignment_bytes": 24}, "not a power of two"),
        ({"alignment_bytes": 0}, "not a power of two"),
        ({"name": ""}, "needs a name"),
        ({"name": "data"}, 'a live symmetric tensor "data"'),
    ],
)
def test_a_wrong_request_is_a_clear_line(make_world, on_ranks, arguments, message):
    def program(fabric):
        with SymmetricPool(fabric) as pool:
            pool.tensor(4, torch.int32, name="data")
            with pytest.raises(ValueError, match=message):
                pool.tensor(**{"shape": 4, "dtype": torch.int32, "name": "other"} | arguments)

    good(on_ranks(make_world(1), program))


def test_a_pool_works_within_its_with_block_only(make_world, on_ranks):
    def program(fabric):
        pool = SymmetricPool(fabric)
        with pytest.raises(ValueError, match='"data" was asked of a pool that is not open'):
            pool.tensor(1, torch.int32, name="data")
        with pytest.raises(ValueError, match="not open"), pool.scope():
            pass
        with pool, pytest.raises(ValueError, match="already entered"), pool:
            pass

    good(on_ranks(make_world(1), program))


@pytest.mark.parametrize(
    "arguments",
    [{"shape": 5}, {"dtype": torch.float32}, {"alignment_bytes": 512}, {"name": "flags"}],
    ids=["shape", "dtype", "alignment", "name"],
)
def test_ranks_that_want_different_things_are_told_who_wants_what(make_world, on_ranks, arguments):
    world = make_world(4)

    def program(fabric):
        wanted = {"shape": 4, "dtype": torch.int32, "name": "data"}
        with SymmetricPool(fabric) as pool:
            pool.tensor(**wanted | (arguments if fabric.rank == 2 else {}))

    for rank, error in enumerate(on_ranks(world, program)):
        assert isinstance(error, Disagreement)
        assert '"data"' in str(error)
        assert "ranks 0, 1, 3 want to allocate" in str(error)
        assert "rank 2 wants to allocate" in str(error)
        assert ('"flags"' if rank == 2 and "name" in arguments else '"data"') in str(error).split(":")[0]
    assert held(world) == []


@pytest.mark.parametrize(
    ("ranks", "is_allocation", "said"),
    [
        (2, False, ('rank 0 wants to release "first"; rank 1 wants to release "second"',)),
        (3, True, ('ranks 0, 2 want to release "second", "first"; ', 'rank 1 wants to allocate "one more"')),
    ],
)
def test_another_order_is_a_message_and_not_a_hang(make_world, on_ranks, ranks, is_allocation, said):
    world = make_world(ranks)

    def program(fabric):
        with SymmetricPool(fabric) as pool:
            first = pool.tensor(4, torch.int32, name="first")
            second = pool.tensor(4, torch.int32, name="second")
            if not is_allocation:
                pool.free(second if fabric.rank else first)
            elif fabric.rank == 1:
                pool.tensor(8, torch.int32, name="one more")

    for error in on_ranks(world, program):
        assert isinstance(error, Disagreement)
        assert all(text in str(error) for text in said)
    assert held(world) == []


def test_after_a_failure_nothing_is_waited_for_and_nothing_more_is_given(make_world, on_ranks):
    world = make_world(2)

    def program(fabric):
        with SymmetricPool(fabric) as pool:
            pool.tensor(4, torch.int32, name="outer")
            with contextlib.suppress(ZeroDivisionError), pool.scope():
                pool.tensor(4, torch.int32, name="inner")
                raise ZeroDivisionError
            assert names(pool) == ["outer"]
            with pytest.raises(FabricError, match='no symmetric tensor "more": .*ZeroDivisionError'):
                pool.tensor(4, torch.int32, name="more")

    good(on_ranks(world, program))
    assert held(world) == []


def busy_program(fabric):
    """All that a program does with memory: two scopes, writes, views, reads, barriers."""
    with SymmetricPool(fabric) as pool:
        data = pool.tensor(100, torch.float32, name="data", fill=fabric.rank)
        with pool.scope():
            flags = pool.tensor(8, torch.int32, name="flags", fill=0)
            table = pool.tensor(fabric.world_size, torch.int64, name="table")
            table.write(torch.tensor(flags.peer_addresses()))
            fabric.barrier()
            fabric.synchronize()
        last = pool.tensor((2, 2), torch.bfloat16, name="last")
        if fabric.traits.multicast:
            data.multicast()
        last.fill(1)
        fabric.barrier()
        return float(data.read().sum() + last.read().sum())


def calls_of_busy_program(make_world, on_ranks, interrupted):
    def program(fabric):
        return busy_program(fabric), fabric.calls

    outcomes = on_ranks(make_world(2), program, lambda fabric, rank: interrupted(fabric, 0, None))
    good(outcomes)
    assert [total for total, _ in outcomes] == [4.0, 104.0]
    calls = outcomes[1][1]
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_the_heap_is_empty_after_a_failure_at_any_call(make_world, on_ranks, interrupted, kind):
    calls = calls_of_busy_program(make_world, on_ranks, interrupted)
    assert calls.count("allocate") == calls.count("free") == 4
    for at_call in range(1, len(calls) + 1):
        world = make_world(3)
        outcomes = on_ranks(
            world,
            busy_program,
            lambda fabric, rank, at=at_call: interrupted(fabric, at if rank == 1 else 0, kind("injected")),
        )
        assert held(world) == [], f"after {kind.__name__} at call {at_call}, {calls[at_call - 1]}"
        assert isinstance(outcomes[1], kind)
        last_meeting = at_call > max(index for index, call in enumerate(calls, 1) if call in ("barrier", "free"))
        for rank in (0, 2):
            assert last_meeting or isinstance(outcomes[rank], PeerLost), f"rank {rank} at {calls[at_call - 1]}"
            assert last_meeting or "rank 1" in str(outcomes[rank])
