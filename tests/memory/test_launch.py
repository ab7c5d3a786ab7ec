"""Launch, arguments and errors of the contract: what can be built, how values are packed, which rank an error names."""

from __future__ import annotations

import dataclasses
import math
import pickle
import struct
from typing import Any

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


def test_a_number_alone_is_x() -> None:
    launch = Launch(3, 128)
    assert (launch.grid, launch.block, launch.cluster) == ((3, 1, 1), (128, 1, 1), (1, 1, 1))
    assert (launch.blocks, launch.threads, launch.shared_bytes, launch.stream) == (3, 128, 0, None)
    assert launch == Launch((3, 1, 1), (128, 1, 1))
    assert hash(launch) == hash(Launch(3, 128))


def test_a_launch_in_three_dimensions_travels_whole() -> None:
    launch = Launch((4, 3, 2), (8, 4, 2), shared_bytes=1000, cluster=(2, 3, 1), stream=9)
    assert (launch.blocks, launch.threads) == (24, 64)
    assert pickle.loads(pickle.dumps(launch)) == launch
    assert dataclasses.replace(launch, block=(64, 1, 1)).grid == (4, 3, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        launch.grid = (1, 1, 1)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"grid": 0}, r"grid is \(0, 1, 1\): give 1 to 2,147,483,647 blocks in x, 1 to 65,535 in y, z"),
        ({"grid": (1, 65_536, 1)}, "grid is "),
        ({"grid": 1 << 31}, "grid is "),
        ({"block": 0}, r"block is \(0, 1, 1\): blocks have 1 to 1024 threads, at most 64 in z"),
        ({"block": 1025}, "block is "),
        ({"block": (32, 33, 1)}, "block is "),
        ({"block": (1, 1, 65)}, "block is "),
        ({"cluster": 0}, r"cluster is \(0, 1, 1\): clusters have 1 to 8 blocks"),
        ({"grid": 16, "cluster": 16}, "cluster is "),
        ({"grid": (8, 3, 1), "cluster": (2, 2, 1)}, r"grid is \(8, 3, 1\), not a multiple of the cluster \(2, 2, 1\)"),
        ({"shared_bytes": -1}, "shared_bytes is -1: give a whole number from 0"),
        ({"shared_bytes": 1.5}, "shared_bytes is 1.5: give a whole number from 0"),
        ({"stream": "s"}, "stream is 's': give the handle of a CUDA stream, or None"),
        ({"cooperative": 1}, "cooperative is 1: give true or false"),
        ({"dependent": "no"}, "dependent is 'no': give true or false"),
        ({"grid": True}, "grid is True: give x, or"),
        ({"grid": (1, 2)}, r"grid is \(1, 2\): give x, or \(x, y, z\), as whole numbers"),
        ({"block": (1.0, 1, 1)}, "block is "),
    ],
)
def test_a_launch_that_no_gpu_can_do_is_not_built(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Launch(**{"grid": 1, "block": 32, **arguments})


def test_the_largest_launches_are_built() -> None:
    assert Launch(((1 << 31) - 1, 65_535, 65_535), (1024, 1, 1)).threads == 1024
    assert Launch(8, (4, 4, 64), cluster=8).threads == 1024


def test_shared_memory_beyond_a_block() -> None:
    check_shared_bytes("test/any", Launch(1, 1, shared_bytes=900), 100, 1000)
    with pytest.raises(ValueError, match="test/any: shared_bytes .*901.*100 bytes.*900"):
        check_shared_bytes("test/any", Launch(1, 1, shared_bytes=901), 100, 1000)
    with pytest.raises(ValueError, match=r"\b1,001\b.*\b1,000\b"):
        check_shared_bytes("test/any", Launch(1, 1), 1001, 1000)


@pytest.mark.parametrize(
    ("kind", "value", "content"),
    [
        ("u32", 5, "05000000"),
        ("u32", -1, "ffffffff"),
        ("u32", 2**32 - 1, "ffffffff"),
        ("u32", -(2**31), "00000080"),
        ("u64", -2, "feffffffffffffff"),
        ("u64", 2**64 - 1, "ffffffffffffffff"),
        ("address", 0x7F0012345678, "78563412007f0000"),
        ("f32", 1.5, "0000c03f"),
        ("f32", math.inf, "0000807f"),
        ("f64", -2.0, "00000000000000c0"),
        ("bytes", b"\1\2\3", "010203"),
    ],
)
def test_values_are_packed_little_endian(kind: Any, value: Any, content: str) -> None:
    assert packed("it", [len(content) // 2], [Argument(kind, value)]) == (bytes.fromhex(content),)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("u32", 2**32),
        ("u32", -(2**31) - 1),
        ("u32", 1.0),
        ("u64", 2**64),
        ("u64", -(2**63) - 1),
        ("address", -1),
        ("address", 2**64),
        ("f32", 1e39),
        ("f32", "1"),
        ("f64", b"12345678"),
        ("bytes", 4),
        ("bytes", bytearray(b"1234")),
        ("bytes", "text"),
    ],
)
def test_a_value_outside_its_kind_is_refused(kind: Any, value: Any) -> None:
    size = PACKINGS[kind].size_bytes or 4
    with pytest.raises(ValueError, match=f"^it, parameter 1: .*{kind}"):
        packed("it", [4, size], [Argument("u32", 0), Argument(kind, value)])


def test_arguments_fit_the_kernels_parameters() -> None:
    one = Argument("u32", 1)
    with pytest.raises(ValueError, match=r"^it .*\b2 parameters.*\b1 arguments"):
        packed("it", [4, 4], [one])
    with pytest.raises(ValueError, match=r"^it, parameter 0 .*\b8\b.*u32.*\b4\b"):
        packed("it", [8], [one])
    with pytest.raises(ValueError, match=r"^it, parameter 1 .*\b16\b.*\b3\b"):
        packed("it", [4, 16], [one, Argument("bytes", b"abc")])
    with pytest.raises(ValueError, match=r"^it, parameter 0: 7\b"):
        packed("it", [8], [7])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="'i32'"):
        Argument("i32", 1)  # type: ignore[arg-type]


def test_values_of_a_kind_are_as_long_as_it_says_and_lie_where_it_says() -> None:
    values: dict[str, Any] = {"bytes": b"x" * 16}
    for kind, packing in PACKINGS.items():
        size = len(packing.pack(values.get(kind, 1)))
        assert packing.size_bytes in (size, None)
        assert packing.alignment_bytes == size
    assert struct.calcsize("<fd") == PACKINGS["f32"].size_bytes + PACKINGS["f64"].size_bytes  # type: ignore[operator]


@pytest.mark.parametrize(
    "kind", [FabricError, DeviceFault, Deadlock, PeerLost, WrongCall, HeapFull, NoMulticast, Disagreement]
)
def test_an_error_keeps_its_rank_between_processes(kind: Any) -> None:
    error = pickle.loads(pickle.dumps(kind("rank 3 is lost", rank=3)))
    assert (type(error), str(error), rank_of(error)) == (kind, "rank 3 is lost", 3)
    assert rank_of(pickle.loads(pickle.dumps(kind("all are lost")))) is None


def test_other_errors_name_no_rank() -> None:
    error = KeyError("x")
    error.rank = 3  # type: ignore[attr-defined]
    assert rank_of(error) is None


def test_ranks_in_messages() -> None:
    assert (named([3]), named([0, 2])) == ("rank 3", "ranks 0, 2")
    assert ranks_of(["b", "a", "b"]) == {"b": [0, 2], "a": [1]}
    assert attributed(["b", "a", "b"]) == "ranks 0, 2: b; rank 1: a"
