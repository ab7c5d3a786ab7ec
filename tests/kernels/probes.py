"""Kernels of a few lines on one rank, each a piece of the device code with nothing around it; and what runs them.

They stand in the kernels' own frame, so they are traced and compiled as all kernels are. A table in memory gives each
block, or each launch, its values, so that one launch tries thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cutlass
import numpy as np
import numpy.typing as npt
import torch

from cases.case import Case
from cases.dtypes import ACCUMULATORS, ARITHMETIC, accumulators_of, reductions_of
from kernels.dsl import device
from kernels.dsl.arithmetic import Reduction
from kernels.dsl.frame import Frame
from kernels.dsl.peers import reduced
from kernels.dsl.status import STATUS_WORDS
from kernels.dsl.traverse import line_slice_of
from kernels.family import MOVING, Work, address, spec_with
from kernels.spec import KernelSpec
from kernels.tuning import Step, Tuning
from memory.fabric import Executable, Launch
from simulator.world import SimulatedWorld, SimulatorOptions
from tests.kernels.launching import StoreCounts, pattern

THREADS = 96
"""The fewest that kernels have."""

LANES = 32
"""Of a block's threads, those that copy: few, so that little data goes round more than once."""


def probe(name: str, body: Callable[[Frame], None], *, reduces: bool = False, **options: Any) -> KernelSpec:
    """The spec of a probe with buffers input, table and output; options are choices of its own."""
    tuning = Tuning((Step(threads=THREADS, blocks=1, loads_in_flight=1, reason="a test"),))
    how: dict[str, Any] = {"summary": "a probe", "placements": ("out_of_place",), "work": Work(lambda case: 1)}
    how |= {"fold": "rank_order"} if reduces else MOVING
    buffers = (address("input"), address("table"), address("output"))
    spec = spec_with(f"all_reduce/{name}", body, tuning, buffers=buffers, options=lambda case: options, **how)
    return replace(spec, files=(*spec.files, str(Path(__file__).resolve())))


def case_of(dtype: str = "uint8", accumulator: str = "none", reduction: str = "none", world_size: int = 1) -> Case:
    return Case("all_reduce", "a_probe", dtype, accumulator, reduction, 16, world_size)


@dataclass(frozen=True, slots=True)
class Probed:
    """What a probe left of its output, and how often it stored to each byte of input, table and output."""

    output: torch.Tensor
    stores: Mapping[str, npt.NDArray[np.uint16]]
    others_stored: int


def run(
    executable: Executable,
    spec: KernelSpec,
    *,
    grid: int,
    output_bytes: int,
    input: torch.Tensor | Sequence[tuple[int, torch.Tensor]] = (),
    input_bytes: int = 16,
    table: torch.Tensor | None = None,
    numel: int = 0,
    ranks: int = 1,
    arch: str = "sm_90a",
) -> Probed:
    """Launch a probe on one rank. input: all of it, or pieces at byte offsets, and what lies between stays poisoned."""
    if isinstance(input, torch.Tensor):
        input_bytes, input = input.nbytes, [(0, input)]
    heap_bytes = 1 << (input_bytes + output_bytes + 64 * grid + (1 << 20)).bit_length()
    world = SimulatedWorld(1, SimulatorOptions(arch=arch, heap_bytes=heap_bytes))
    counts = StoreCounts(world.space)
    fabric = world.fabric(0)
    contents = {
        "table": torch.zeros(4, dtype=torch.int32) if table is None else table,
        "output": pattern(output_bytes),
        "signals": torch.zeros(grid * ranks, dtype=torch.int32),
        "epochs": torch.zeros(grid, dtype=torch.int32),
        "status": torch.zeros(STATUS_WORDS, dtype=torch.int32),
    }
    regions = {"input": fabric.allocate(input_bytes, 256, "input")}
    for at, piece in input:
        fabric.write(regions["input"], at, piece.flatten().view(torch.uint8))
    for name, content in contents.items():
        regions[name] = fabric.allocate(content.nbytes, 256, name)
        fabric.write(regions[name], 0, content.flatten().view(torch.uint8))
    peers = torch.full((ranks,), regions["signals"].address, dtype=torch.int64)
    regions["peers"] = fabric.allocate(peers.nbytes, 256, "peers")
    fabric.write(regions["peers"], 0, peers.view(torch.uint8))
    plain = {"numel": numel, "rank": 0, "root": 0, "patience": 0}
    arguments = []
    for parameter in spec.parameters:
        if parameter.kind == "peers":
            arguments.append(regions["peers"].address)
        else:
            arguments.append(regions[parameter.of].address if parameter.of else plain[parameter.kind])
    world.space.events.add(counts)
    given = [one.argument(value) for one, value in zip(spec.parameters, arguments, strict=True)]
    fabric.launch(executable, Launch(grid, THREADS), given)
    output = fabric.read(regions["output"], 0, output_bytes)
    stores = {name: counts.of(0, regions[name]) for name in ("input", "table", "output")}
    total = int(counts.counts.sum()) - sum(int(one.sum()) for one in stores.values())
    world.leave(0, None)
    return Probed(output, stores, total)


def row(frame: Frame, count: int) -> list[Any]:
    """A block's own values: int64[count] of the table."""
    mine = frame.address("table") + cutlass.Int64(frame.block) * (8 * count)
    return [device.load_address(mine, i) for i in range(count)]


def copy(frame: Frame) -> None:
    """Each block copies size bytes from a place in the input to one in the output; row: both places and the size."""
    source, target, size = row(frame, 3)
    index, lanes = cutlass.Int64(frame.thread), cutlass.Int64(LANES)
    ends = frame.address("input") + source, frame.address("output") + target
    frame.when(frame.thread < LANES, lambda: frame.copy(*ends, size, (index, lanes), push=frame.choice("push")))


def slices(frame: Frame) -> None:
    """Thread r of a block stores the byte range of rank r's slice, by vectors or by lines; row: the bytes before a
    span, and its size."""
    before, size = row(frame, 2)
    span = frame.span(frame.address("input") + before, size)
    parts = frame.sliced(span, frame.thread)
    if frame.choice("by_lines"):
        parts = span.part(*line_slice_of(span.first, span.last, frame.thread, frame.world_size))
    values = [span.first, span.last, parts.first, parts.last]
    place = frame.address("output") + (cutlass.Int64(frame.block) * frame.world_size + frame.thread) * 32

    def store() -> None:
        for i, value in enumerate(values):
            device.store_pair(place + 8 * i, [cutlass.Int32(value), cutlass.Int32(value >> 32)])

    frame.when(frame.thread < frame.world_size, store)


def places(frame: Frame) -> None:
    """Each lane of the grid stores its place by lines: int64[lanes]; row of block 0: the bytes before a span."""
    before = device.load_address(frame.address("table"), 0)
    index, lanes = frame.place_by_lines(frame.address("input") + before)
    at = frame.address("output") + frame.index * 8
    device.store_pair(at, [cutlass.Int32(index), cutlass.Int32(lanes)])


def share_out(frame: Frame) -> None:
    """Store the number of lanes at output[number][index], int32[count][numel]."""

    def store(number: Any, index: Any, lanes: Any) -> None:
        place = cutlass.Int64(number) * frame.numel + index
        device.store_word(frame.address("output") + place * 4, cutlass.Int32(lanes))

    frame.each_peer(frame.choice("count"), store)


KINDS: dict[str, list[tuple[str, str]]] = {
    dtype: [
        (accumulator, reduction)
        for reduction in reductions_of(dtype)
        for accumulator in ACCUMULATORS[dtype]
        if accumulator in accumulators_of(dtype, reduction)
    ]
    for dtype in ARITHMETIC
}
"""By data type, each (accumulator, reduction) that it has."""


def reduce(frame: Frame) -> None:
    """world_size contributions of numel 16-byte vectors, one after another in the input, reduced in every way that the
    data type has: output[kind][vector]."""
    dtype: str = frame.choice("kind")

    def work(offsets: Sequence[Any]) -> None:
        (at,) = offsets
        first = frame.address("input") + at
        vectors = [device.load_vector(first + frame.numel * (16 * i)) for i in range(frame.world_size)]
        for number, (accumulator, reduction) in enumerate(KINDS[dtype]):
            total = Reduction(dtype, accumulator, reduction, frame.world_size)
            device.store_vector(frame.address("output") + frame.numel * (16 * number) + at, reduced(total, vectors))

    frame.span(frame.address("output"), frame.numel * 16).vectors(frame.index, frame.lanes, 1, work)


def scale(frame: Frame) -> None:
    """What avg makes of sums that were made elsewhere: numel vectors of one data type after another, as in scaled."""

    def work(offsets: Sequence[Any]) -> None:
        (at,) = offsets
        for number, dtype in enumerate(ARITHMETIC):
            place = frame.numel * (16 * number) + at
            total = Reduction(dtype, "native", "avg", frame.world_size)
            words = total.scale(device.load_vector(frame.address("input") + place))
            device.store_vector(frame.address("output") + place, words)

    frame.span(frame.address("output"), frame.numel * 16).vectors(frame.index, frame.lanes, 1, work)
