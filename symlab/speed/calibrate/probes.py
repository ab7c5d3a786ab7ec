"""The probes, as data: of each its kernel, its buffers and arguments, how often it is called, and the floor it gives.

Nothing here imports the compiler. `symlab calibrate` makes a job of op: custom of each (section), runs it as any other,
and computes the floor from its time (value).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

TRIPS, STEPS = 128, 256
LINE_BYTES = 128
COLD_DIVISOR = 4
COPY_TURN_BYTES = 64 << 10
REDUCTION_TURN_BYTES = 32 << 10
"""As the kernels have them (ping_pong, dependent_loads, copies, local_reduction); a test compares."""

BLOCKS = (1, 8, 32, 128)
BULK_BLOCKS = (1, 8, 32)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much a probe works: of a copy turns a block, of a reduction as well, and lines to walk over."""

    copy_turns: int
    reduction_turns: int
    hot_lines: int
    cold_lines: int


ON_GPUS = Scale(copy_turns=4, reduction_turns=8, hot_lines=8 << 10, cold_lines=2 << 20)
"""256 KiB a block of each buffer; lines of 1 MiB and of 256 MiB, which is twice the largest L2 of conf/gpu."""

Section = Callable[[Scale], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe.

    name: of the kernel's object, and of its case. floor: the name in runner.gpu.gpu_type.Floors; count: of what its
    values are by, None if it is one value. what: in words, for the table. blocks: of the grid. per: how many times what
    is measured happens in a launch, one after another, 0 for a bandwidth. moved(scale): bytes that a bandwidth is of.
    make: the buffers, arguments and reference of its section.
    """

    name: str
    module: str
    floor: str
    count: int | None
    what: str
    blocks: int
    calls: int
    make: Section = field(repr=False)
    per: int = 0
    moved: Callable[[Scale], int] = field(default=lambda scale: 0, repr=False)

    @property
    def is_bandwidth(self) -> bool:
        return self.per == 0

    def section(self, scale: Scale) -> dict[str, Any]:
        """Return the section custom of a request, for any number of ranks."""
        moved = self.moved(scale)
        of_links = {"bytes": moved} if moved and self.floor != "reduce_gbps" else {}
        return {"kernel": f"kernels.floors.{self.module}:{self.name}", **self.make(scale), **of_links}

    def value(self, time_us: float, empty_us: float, scale: Scale) -> float:
        """Return the floor, in microseconds or in GB/s, from what a launch takes and what an empty node takes.

        ValueError for a launch that is no longer than an empty node.
        """
        if self.module == "empty_node":
            return time_us
        rest_us = time_us - empty_us
        if rest_us <= 0:
            raise ValueError(f"{self.name} took {time_us:.4g} us, and an empty node takes {empty_us:.4g} us")
        return self.moved(scale) / rest_us / 1e3 if self.is_bandwidth else rest_us / self.per


def _buffer(dtype: str, numel: int, fill: str = "poison", symmetric: bool = True) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [numel], "fill": fill, **({} if symmetric else {"symmetric": False})}


def _reference(module: str, name: str) -> str:
    return f"kernels.floors.{module}:{name}"


def _empty(blocks: int, dependent: bool) -> Probe:
    def make(scale: Scale) -> dict[str, Any]:
        return {
            "buffers": {"untouched": _buffer("int32", 32, "zeros", symmetric=False)},
            "arguments": [{"address": "untouched"}],
            "reference": _reference("empty_node", "expected"),
        }

    mark, word = ("_dependent", ", dependent launch") if dependent else ("", "")
    name, floor = f"empty{mark}_{blocks}", f"empty_node{mark}_us"
    return Probe(name, "empty_node", floor, blocks, f"empty node of a graph{word}", blocks, 200, make, per=1)


def _ping_pong(stores: int | None) -> Probe:
    def make(scale: Scale) -> dict[str, Any]:
        return {
            "buffers": {
                "flag": _buffer("int32", 32, "zeros"),
                "lines": _buffer("int32", 64 * LINE_BYTES // 4, "zeros"),
                "last": _buffer("int32", 1, "zeros", symmetric=False),
                "bounced": _buffer("int32", 1, symmetric=False),
            },
            "arguments": [
                {"peers": "flag"},
                {"address": "flag"},
                {"peers": "lines"},
                {"address": "last"},
                {"address": "bounced"},
                "rank",
            ],
            "reference": _reference("ping_pong", f"expected_{stores or 0}"),
        }

    name = "ping_pong_relaxed" if stores is None else f"ping_pong_release_{stores}"
    floor = "relaxed_us" if stores is None else "release_acquire_us"
    what = "store to poll, relaxed" if stores is None else f"store to poll, release/acquire after {stores} stores"
    return Probe(name, "ping_pong", floor, stores, what, 1, 10, make, per=2 * TRIPS)


def _loads(remote: bool, hot: bool) -> Probe:
    whose, state = "remote" if remote else "own", "hot" if hot else "cold"

    def make(scale: Scale) -> dict[str, Any]:
        lines = scale.hot_lines if hot else scale.cold_lines
        return {
            "buffers": {
                "data": _buffer("int32", lines * LINE_BYTES // 4, "rank"),
                "place": _buffer("int32", 1, "zeros", symmetric=False),
                "walked": _buffer("int32", 2, symmetric=False),
            },
            "arguments": [
                {"peers": "data"},
                {"address": "place"},
                {"address": "walked"},
                {"u32": lines if hot else lines // COLD_DIVISOR},
                "rank",
            ],
            "reference": _reference("dependent_loads", f"expected_{whose}_{state}"),
        }

    floor = f"load_remote_{state}_us" if remote else f"load_own_{'l2' if hot else 'memory'}_us"
    what = f"dependent load, {whose} {'L2' if hot else 'memory'}"
    return Probe(f"load_{whose}_{state}", "dependent_loads", floor, None, what, 1, 10, make, per=STEPS)


def _between(turns: int, blocks: int, senders: str, more: list[Any]) -> dict[str, Any]:
    """The buffers and arguments of a copy. senders: one or all."""
    numel = turns * blocks * COPY_TURN_BYTES // 4
    return {
        "buffers": {"source": _buffer("int32", numel, "random"), "target": _buffer("int32", numel)},
        "arguments": [
            {"peers": "source"},
            {"peers": "target"},
            {"address": "source"},
            {"address": "target"},
            {"u32": turns},
            "rank",
            *more,
        ],
        "reference": _reference("copies", f"expected_{senders}"),
    }


def _copy_bytes(blocks: int) -> Callable[[Scale], int]:
    return lambda scale: scale.copy_turns * blocks * COPY_TURN_BYTES


def _copy(blocks: int, push: bool, both: bool) -> Probe:
    def make(scale: Scale) -> dict[str, Any]:
        return _between(scale.copy_turns, blocks, "all" if both else "one", ["world_size"])

    verb, ways = "push" if push else "pull", "_both" if both else ""
    what = f"copy, {verb}, {'both ways at once' if both else 'one way'}"
    moved = _copy_bytes(blocks)
    floor = f"{verb}{ways}_gbps"
    return Probe(f"{verb}{ways}_{blocks}", "copies", floor, blocks, what, blocks, 10, make, moved=moved)


def _bulk(blocks: int) -> Probe:
    def make(scale: Scale) -> dict[str, Any]:
        return _between(scale.copy_turns, blocks, "one", [])

    name, moved = f"bulk_push_{blocks}", _copy_bytes(blocks)
    return Probe(name, "bulk_copies", "bulk_push_gbps", blocks, "bulk copy, push", blocks, 10, make, moved=moved)


def _reduction(blocks: int) -> Probe:
    def make(scale: Scale) -> dict[str, Any]:
        numel = scale.reduction_turns * blocks * REDUCTION_TURN_BYTES // 4
        return {
            "buffers": {
                "left": _buffer("float32", numel, "random", symmetric=False),
                "right": _buffer("float32", numel, "random", symmetric=False),
                "total": _buffer("float32", numel, symmetric=False),
            },
            "arguments": [
                {"address": "left"},
                {"address": "right"},
                {"address": "total"},
                {"u32": scale.reduction_turns},
            ],
            "reference": _reference("local_reduction", "expected"),
        }

    def moved(scale: Scale) -> int:
        return 3 * scale.reduction_turns * blocks * REDUCTION_TURN_BYTES

    what = "sum in own memory"
    return Probe(f"reduction_{blocks}", "local_reduction", "reduce_gbps", blocks, what, blocks, 10, make, moved=moved)


PROBES: tuple[Probe, ...] = (
    *(_empty(blocks, dependent) for dependent in (False, True) for blocks in BLOCKS),
    *(_ping_pong(stores) for stores in (None, 0, 1, 64)),
    *(_loads(remote, hot) for remote in (False, True) for hot in (True, False)),
    *(_copy(blocks, push, False) for push in (True, False) for blocks in BLOCKS),
    *(_copy(blocks, False, True) for blocks in BLOCKS),
    *(_reduction(blocks) for blocks in BLOCKS),
    *(_bulk(blocks) for blocks in BULK_BLOCKS),
)

BY_NAME: Mapping[str, Probe] = {probe.name: probe for probe in PROBES}
