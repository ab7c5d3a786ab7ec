"""Launch, arguments and errors of the contract: what can be built, how values are packed, which rank an error names."""

import dataclasses
import math
import pickle
import struct

import pytest

from memory.fabric import (
    PACKINGS,
    Argument,
    Deadlock,
    DeviceFault,
    Disagreement,
    FabricError,
    HeapFull,
    Launch,
    NoMulticast,
    PeerLost,
    WrongCall,
    check_shared_bytes,
    packed,
    rank_of,
)
from memory.ranks import attributed, named, ranks_of
from tests.golden import refused


def test_a_number_alone_is_x():
    launch = Launch(3, 128)
    assert (launch.grid, launch.block, launch.cluster) == ((3, 1, 1), (128, 1, 1), (1, 1, 1))
    assert (launch.blocks, launch.threads, launch.shared_bytes, launch.stream) == (3, 128, 0, None)
    assert launch == Launch((3, 1, 1), (128, 1, 1))
    assert hash(launch) == hash(Launch(3, 128))
    assert Launch(((1 << 31) - 1, 65_535, 65_535), (1024, 1, 1)).threads == 1024
    assert Launch(8, (4, 4, 64), cluster=8).threads == 1024


def test_a_launch_in_three_dimensions_travels_whole():
    launch = Launch((4, 3, 2), (8, 4, 2), shared_bytes=1000, cluster=(2, 3, 1), stream=9)
    assert (launch.blocks, launch.threads) == (24, 64)
    assert pickle.loads(pickle.dumps(launch)) == launch
    assert dataclasses.replace(launch, block=(64, 1, 1)).grid == (4, 3, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        launch.grid = (1, 1, 1)


IMPOSSIBLE = {
    **{"grid": [0, (1, 65_536, 1), 1 << 31, True, (1, 2)], "block": [0, 1025, (32, 33, 1), (1, 1, 65), (1.0, 1, 1)]},
    **{"cluster": [0, 16, (2, 2, 1)], "shared_bytes": [-1, 1.5], "stream": ["s"], "cooperative": [1]},
    "dependent": ["no"],
}


@pytest.mark.parametrize(
    "arguments",
    [{"grid": (16, 3, 1) if key == "cluster" else 1, key: one} for key, some in IMPOSSIBLE.items() for one in some],
)
def test_a_launch_that_no_gpu_can_do_is_not_built(arguments):
    with refused():
        Launch(**{"grid": 1, "block": 32, **arguments})


def test_shared_memory_beyond_a_block():
    check_shared_bytes("test/any", Launch(1, 1, shared_bytes=900), 100, 1000)
    with refused():
        check_shared_bytes("test/any", Launch(1, 1, shared_bytes=901), 100, 1000)
    with refused():
        check_shared_bytes("test/any", Launch(1, 1), 1001, 1000)


VALUES = {
    "u32": ("<I", (5, -1, 2**32 - 1, -(2**31))),
    "u64": ("<Q", (-2, 2**64 - 1, -(2**63))),
    "address": ("<Q", (0x7F0012345678,)),
    "f32": ("<f", (1.5, math.inf)),
    "f64": ("<d", (-2.0,)),
    "bytes": ("3s", (b"\1\2\3",)),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_are_packed_little_endian(kind):
    form, values = VALUES[kind]
    for value in values:
        unsigned = value % (1 << 8 * struct.calcsize(form)) if kind.startswith("u") else value
        assert packed("it", [struct.calcsize(form)], [Argument(kind, value)]) == (struct.pack(form, unsigned),)


OUTSIDE = {
    **{"u32": (2**32, -(2**31) - 1, 1.0), "u64": (2**64, -(2**63) - 1), "address": (-1, 2**64), "f32": (1e39, "1")},
    **{"f64": (b"12345678",), "bytes": (4, bytearray(b"1234"), "text")},
}


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in OUTSIDE.items() for value in values])
def test_a_value_outside_its_kind_is_refused(kind, value):
    size = PACKINGS[kind].size_bytes or 4
    with refused():
        packed("it", [4, size], [Argument("u32", 0), Argument(kind, value)])


def test_arguments_fit_the_kernels_parameters():
    one = Argument("u32", 1)
    with refused():
        packed("it", [4, 4], [one])
    with refused():
        packed("it", [8], [one])
    with refused():
        packed("it", [4, 16], [one, Argument("bytes", b"abc")])
    with refused():
        packed("it", [8], [7])
    with refused():
        Argument("i32", 1)


def test_values_of_a_kind_are_as_long_as_it_says_and_lie_where_it_says():
    values = {"bytes": b"x" * 16}
    for kind, packing in PACKINGS.items():
        size = len(packing.pack(values.get(kind, 1)))
        assert packing.size_bytes in (size, None)
        assert packing.alignment_bytes == size
    assert struct.calcsize("<fd") == PACKINGS["f32"].size_bytes + PACKINGS["f64"].size_bytes


@pytest.mark.parametrize(
    "kind", [FabricError, DeviceFault, Deadlock, PeerLost, WrongCall, HeapFull, NoMulticast, Disagreement]
)
def test_an_error_keeps_its_rank_between_processes(kind):
    error = pickle.loads(pickle.dumps(kind("rank 3 is lost", rank=3)))
    assert (type(error), str(error), rank_of(error)) == (kind, "rank 3 is lost", 3)
    assert rank_of(pickle.loads(pickle.dumps(kind("all are lost")))) is None


def test_other_errors_name_no_rank():
    error = KeyError("x")
    error.rank = 3
    assert rank_of(error) is None


def test_ranks_in_messages():
    assert (named([3]), named([0, 2])) == ("rank 3", "ranks 0, 2")
    assert ranks_of(["b", "a", "b"]) == {"b": [0, 2], "a": [1]}
    assert attributed(["b", "a", "b"]) == "ranks 0, 2: b; rank 1: a"
