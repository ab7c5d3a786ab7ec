"""The kernels of CuTe DSL's all_reduce examples, unmodified, on 2, 4 and 8 ranks, in a fair order and in random ones.

pytest --cutlass-checkout DIR takes them from a checkout of NVIDIA/cutlass; without it they are those that lie in
FlashInfer's wheel, where `make foreign` has installed it.
"""

import pytest
import torch

import symlab
from kernels.functions import CallArgument, compiled_callable
from tests.foreign.cutlass_examples import (
    ARCH,
    FOLDER,
    compiled,
    example,
    folder_of,
    in_the_wheel,
    rows,
    taken,
    tensor_argument,
)

pytestmark = pytest.mark.slow
RANKS = (2, 4, 8)
ORDERS = ({"schedule": "fair"}, *({"schedule": "random", "seed": seed} for seed in range(3)))
THREADS = 128
TURNS = 4


@pytest.fixture(scope="module")
def folder(request):
    return folder_of(request, FOLDER, "distributed")


def outputs(ranks, program, **order):
    with symlab.world(ranks, arch=ARCH, **order) as world:
        return world.run(program)


def in_all_orders(ranks, program):
    """What each rank returns, in every order."""
    for order in ORDERS:
        yield from outputs(ranks, program, **order)


def normal(ranks, *shape):
    made = torch.Generator().manual_seed(23)
    return [torch.randn(shape, generator=made) for _ in range(ranks)]


def in_rank_order(parts):
    """The kernels add to zero one rank after the other, in float32: torch gets the same bits that way."""
    total = torch.zeros_like(parts[0])
    for part in parts:
        total = total + part
    return total


@pytest.mark.parametrize("ranks", RANKS)
def test_simple_adds_in_rank_order_with_its_host_function_as_it_is(folder, ranks):
    function, data = example(folder, "all_reduce_simple").all_reduce_simple, normal(ranks, 32, 256)
    how = {
        "ranks": ranks,
        "arch": ARCH,
        "buffers": {"given": data, "sums": ((32, 256), torch.float32)},
        "arguments": [("tensors", "given"), ("tensor", "sums"), ("constexpr", 128)],
    }
    for order in ({"schedule": "fair"}, {"schedule": "random", "seeds": 3}):
        for found in symlab.simulate(function, **how, **order).outputs["sums"]:
            assert torch.equal(found, in_rank_order(data))


@pytest.mark.parametrize("ranks", RANKS)
def test_one_shot_lamport_takes_its_three_buffers_in_turn_with_no_barrier_between(folder, ranks):
    shape, tile = (8, 256), 4 * 128
    if folder == in_the_wheel():
        pytest.skip("CuTe DSL 4.8.1 does not compile the older file of FlashInfer's wheel (--cutlass-checkout DIR)")
    module = example(folder, "all_reduce_one_shot_lamport")
    kernels = [lamport(module, rank, ranks, shape) for rank in range(ranks)]
    data = normal(ranks, *shape)

    def program(rank, _):
        with rank.pool() as pool:
            given, sums = (pool.tensor(shape, torch.float32, name=name) for name in ("given", "sums"))
            inboxes = pool.tensor((module.PING_PONG_SIZE, ranks, *shape), torch.float32, name="inboxes", fill=-0.0)
            rank.barrier()
            found = []
            for turn in range(TURNS):
                given.write(data[rank.rank] * (turn + 1))
                places = [*(inboxes.peer(peer) for peer in range(ranks)), given, sums]
                arguments = [*(tensor_argument(one) for one in places), ("u32", turn)]
                rank.launch(kernels[rank.rank], arguments=arguments, grid=data[0].numel() // tile, block=THREADS)
                found.append(sums.read().clone())
            rank.barrier()
            return found

    expected = [in_rank_order([one * (turn + 1) for one in data]) for turn in range(TURNS)]
    for by_turn in in_all_orders(ranks, program):
        assert all(torch.equal(*pair) for pair in zip(by_turn, expected, strict=True))


def lamport(module, rank, ranks, shape):
    import cutlass
    from cutlass.cute.runtime import make_fake_stream

    buffers = [rows(*shape, ranks, module.PING_PONG_SIZE, order=(1, 0, 2, 3)) for _ in range(ranks)]
    how = (cutlass.Int32(0), rows(*shape), rows(*shape), buffers, make_fake_stream())
    return compiled(f"lamport of rank {rank}", module.AllReduceOneShotLamportKernel(), rank, ranks, *how)


SQUARE = (512, 512)
TILE = 128 * 128
FLAGS = SQUARE[0] * SQUARE[1] // TILE


def two_shot(folder, ranks):
    module = example(folder, "all_reduce_two_shot_multimem")
    tensors = (rows(*SQUARE), rows(*SQUARE), rows(FLAGS, dtype="Int32"), rows(FLAGS, dtype="Int32"))
    return [
        compiled(f"two_shot of rank {rank}", module.all_reduce_multimem, *tensors, rank, ranks) for rank in range(ranks)
    ]


def two_shot_program(kernels, data, meets):
    """Launch the kernel three times on the same flags; meets: all ranks wait for all between two launches."""

    def program(rank, _):
        with rank.pool() as pool:
            given, sums = (pool.tensor(SQUARE, torch.float32, name=name) for name in ("given", "sums"))
            flags = pool.tensor(FLAGS, torch.int32, name="flags", fill=0)
            given.write(data[rank.rank])
            rank.barrier()
            places = [given.multicast(), sums.multicast(), flags, flags.multicast()]
            arguments = [tensor_argument(one) for one in places]
            for _ in range(3):
                grid = FLAGS // len(kernels)
                rank.launch(kernels[rank.rank], arguments=arguments, grid=grid, block=THREADS)
                if meets:
                    rank.synchronize()
                    rank.barrier()
            rank.synchronize()
            rank.barrier()
            return sums.read().clone()

    return program


def eighths(ranks):
    """Numbers whose sums float32 has exactly, in any order."""
    made = torch.Generator().manual_seed(29)
    return [torch.randint(-999, 1000, SQUARE, generator=made) / 8 for _ in range(ranks)]


@pytest.mark.parametrize("ranks", RANKS)
def test_two_shot_multimem_adds_in_the_switch(folder, ranks):
    data = eighths(ranks)
    for found in in_all_orders(ranks, two_shot_program(two_shot(folder, ranks), data, meets=True)):
        assert torch.equal(found, torch.stack(data).sum(0))


def test_two_shot_multimem_deadlocks_in_some_order_if_its_flags_are_used_again_at_once(folder):
    """A block that is done adds to all ranks' flags again. Where another rank has not yet seen its flag complete, the
    flag passes the number that it waits for, for good."""
    program = two_shot_program(two_shot(folder, 4), eighths(4), meets=False)
    deadlocks = []
    for seed in range(10):
        try:
            outputs(4, program, schedule="random", seed=seed)
        except symlab.WorldFailure as failure:
            deadlocks.append(failure)
    assert deadlocks
    for failure in deadlocks:
        assert failure.status == "DEADLOCK"
        assert "tensor 'flags'" in failure.message
        assert "all_reduce_two_shot_multimem.py" in failure.message


TWO_TILES = (128, 256)


def tma(folder, ranks):
    """A kernel for each rank, and how its host code launches it."""
    import cutlass

    module = example(folder, "all_reduce_tma")
    given, flags = CallArgument("tensor", "float32", TWO_TILES), CallArgument("tensor", "int32", (FLAGS,))
    made = []
    for rank in range(ranks):
        constants = [CallArgument("constexpr", value=one) for one in (rank, ranks)]
        arguments = [CallArgument("tensors", members=(given,) * ranks), given, flags, flags, *constants]
        function = module.AllReduceTmaKernel(cutlass.Float32)
        found = compiled_callable(function, f"tma of rank {rank}", arguments, ARCH)
        made.append((taken(found.executable), found.host.launch([bytes(8)] * (ranks + 3), [True] * (ranks + 3))))
    return made


@pytest.mark.parametrize("order", [{"schedule": "fair"}, {"schedule": "random", "seed": 1}], ids=str)
def test_tma_loads_and_stores_by_tensor_maps_of_its_own_host_code(folder, order):
    """Each lane of a warp issues all stores, with the same bytes: these race with each other. One warp fences what
    others have stored to shared memory, behind the barrier."""
    kernels = tma(folder, 2)
    data = [one[: TWO_TILES[0], : TWO_TILES[1]].contiguous() for one in eighths(2)]

    def program(rank, _):
        with rank.pool() as pool:
            given, sums = (pool.tensor(TWO_TILES, torch.float32, name=name) for name in ("given", "sums"))
            flags = pool.tensor(FLAGS, torch.int32, name="flags", fill=0)
            given.write(data[rank.rank])
            rank.barrier()
            places = [*(given.peer(one) for one in range(2)), sums.multicast(), flags, flags.multicast()]
            kernel, host = kernels[rank.rank]
            arguments = [(one.kind, one.value) for one in host.arguments([one.address for one in places])]
            how = {"grid": host.launch.grid, "block": host.launch.block, "shared_bytes": host.launch.shared_bytes}
            rank.launch(kernel, arguments=arguments, **how)
            rank.synchronize()
            rank.barrier()
            return sums.read().clone()

    with symlab.world(2, arch=ARCH, races=True, **order) as world:
        assert all(torch.equal(found, torch.stack(data).sum(0)) for found in world.run(program))
        findings = world.findings()
    stores = "cp.async.bulk.tensor.1d.global"
    assert {(one.severity, one.missing) for one in findings} == {
        ("race", "a wait for the copy"),
        ("proxy", "fence.proxy.async"),
    }
    for one in findings:
        assert one.second.text.startswith(stores)
        assert one.first.text.startswith(stores if one.severity == "race" else "st.shared")
        assert "all_reduce_tma.py" in one.first.source
