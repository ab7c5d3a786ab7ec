"""What a kernel touches of a buffer: spans, edges and copies, tried at every start, and slices by rank."""

import itertools

import numpy as np
import pytest
import torch

from cases.case import Case
from kernels import shares
from kernels.dsl.traverse import halves
from tests.kernels import probes
from tests.kernels.launching import PATTERN, random_bytes

DTYPES = {1: "uint8", 2: "bfloat16", 4: "float32", 8: "float64"}
GUARD_BYTES = 64


def sizes(itemsize):
    """Elements: fewer than a vector, around one, and enough for all lanes to go round, with and without halves."""
    lap = 16 * probes.LANES // itemsize
    return [
        *range(0, 6),
        *(n * 16 // itemsize + extra for n in (1, 2, 3) for extra in (-1, 0, 1)),
        lap + 1,
        4 * lap - 1,
    ]


@pytest.mark.parametrize("itemsize", DTYPES)
@pytest.mark.parametrize("push", [False, True], ids=["pull", "push"])
def test_a_copy_stores_each_element_once_and_nothing_else(compiled, itemsize, push):
    """From any element to any element after a 16-byte boundary."""
    copies(compiled, itemsize, push, itertools.product(range(16), range(16), sizes(itemsize)))


@pytest.mark.parametrize("push", [False, True], ids=["pull", "push"])
def test_a_few_copies_store_each_element_once(compiled, push):
    copies(compiled, 2, push, itertools.product((0, 3), (0, 1), (9, 40)))


def copies(compiled, itemsize, push, of):
    """Copy from and to so many elements after a boundary, a number of them. The bytes around the input are poison."""
    spec = probes.probe(f"copy_{itemsize}", probes.copy, push=push, unroll=2)
    found = compiled(spec, probes.case_of(DTYPES[itemsize]), "sm_90a")
    rows, pieces, expected, at = [], [], [], GUARD_BYTES
    for source, target, numel in of:
        size = numel * itemsize
        begin, end = at + source * itemsize, at + target * itemsize
        data = random_bytes(size, source, target, numel)
        rows.append([begin, end, size])
        pieces.append((begin, data))
        expected.append((end, data))
        at += -(-(size + 15 * itemsize + GUARD_BYTES) // 16) * 16
    probed = probes.run(
        found, spec, grid=len(rows), input=pieces, input_bytes=at, output_bytes=at, table=torch.tensor(rows)
    )
    output, stores = torch.full((at,), PATTERN, dtype=torch.uint8), np.zeros(at, np.uint16)
    for begin, data in expected:
        output[begin : begin + len(data)] = data
        stores[begin : begin + len(data)] = 1
    assert torch.equal(probed.output, output)
    assert np.array_equal(probed.stores["output"], stores)
    assert int(probed.stores["input"].sum()) == int(probed.stores["table"].sum()) == probed.others_stored == 0


@pytest.mark.parametrize("world_size", [1, 2, 3, 8, 9, 72])
def test_slices_on_the_device_are_those_of_the_host(compiled, world_size):
    """Slices of elements [0, numel) that begin offset elements after a boundary: shares.slice_owner says whose."""
    spec = probes.probe("slices", probes.slices, by_lines=False)
    found = compiled(spec, probes.case_of(world_size=world_size), "sm_90a")
    cases = [
        (itemsize, offset, numel) for itemsize in DTYPES for offset in range(16) for numel in (0, 1, 7, 16, 33, 1000)
    ]
    table = torch.tensor([[offset * size, numel * size] for size, offset, numel in cases])
    output_bytes = len(cases) * world_size * 32
    probed = probes.run(found, spec, grid=len(cases), output_bytes=output_bytes, table=table, ranks=world_size)
    ranges = probed.output.view(torch.int64).view(len(cases), world_size, 4)
    for (itemsize, offset, numel), rows in zip(cases, ranges, strict=True):
        first, last = rows[0, :2].tolist()
        case = Case("all_reduce", "x", DTYPES[itemsize], "none", "none", numel * itemsize, world_size, offset=offset)
        head, body, _ = shares.parts(numel, itemsize, offset)
        owner = torch.full((numel,), -1)
        for rank, (begin, end) in enumerate(rows[:, 2:].tolist()):
            assert begin % itemsize == end % itemsize == 0
            assert (owner[begin // itemsize : end // itemsize] == -1).all(), "two owners"
            owner[begin // itemsize : end // itemsize] = rank
        owner[owner == -1] = world_size - 1
        assert torch.equal(owner, shares.slice_owner(case, 0)), (itemsize, offset, numel)
        if body:
            assert (first, last) == (head * itemsize, (head + body) * itemsize)
        assert (last - first) // 16 == shares.vectors(numel, itemsize, offset)


@pytest.mark.parametrize("owners", [2, 3, 7, 71])
def test_slices_by_lines_on_the_device_are_those_of_the_host(compiled, owners):
    spec = probes.probe("slices", probes.slices, by_lines=True)
    found = compiled(spec, probes.case_of(world_size=owners), "sm_90a")
    sizes = [0, 16, 112, 128, 144, 1000 * 16, 4097 * 16]
    table = torch.tensor([[0, size] for size in sizes])
    output_bytes = len(sizes) * owners * 32
    probed = probes.run(found, spec, grid=len(sizes), output_bytes=output_bytes, table=table, ranks=owners)
    for size, rows in zip(sizes, probed.output.view(torch.int64).view(len(sizes), owners, 4), strict=True):
        lengths = (rows[:, 3] - rows[:, 2]) // 16
        assert lengths.tolist() == shares.line_slices(size // 16, owners)
        assert rows[1:, 2].tolist() == rows[:-1, 3].tolist()
        assert (int(rows[0, 2]), int(rows[-1, 3])) == (0, size)


@pytest.mark.parametrize("before", [0, 16, 64, 112, 128])
def test_places_by_lines_are_all_places_and_every_eighth_begins_a_line(compiled, before):
    spec = probes.probe("places", probes.places)
    found = compiled(spec, probes.case_of(), "sm_90a")
    lanes = 2 * probes.THREADS
    table = torch.tensor([before])
    probed = probes.run(found, spec, grid=2, output_bytes=8 * lanes, input_bytes=256, table=table)
    index, count = probed.output.view(torch.int32).view(lanes, 2).unbind(1)
    assert count.unique().tolist() == [lanes]
    assert index.sort().values.tolist() == list(range(lanes))
    assert (before + 16 * index[::8]).remainder(128).unique().tolist() == [0]


@pytest.mark.parametrize(
    ("count", "groups"), [(1, 1), (5, 1), (3, 3), (8, 8), (16, 16), (17, 16), (7, 2), (72, 16), (9, 8)]
)
def test_numbers_are_shared_out_evenly_among_groups_of_blocks(compiled, count, groups):
    """Each number goes to every lane of one group of blocks, once."""
    spec = probes.probe("share_out", probes.share_out, count=count, groups=groups)
    found = compiled(spec, probes.case_of(), "sm_90a")
    for blocks_a_group in (1, 3):
        lanes = blocks_a_group * probes.THREADS
        probed = probes.run(found, spec, grid=groups * blocks_a_group, output_bytes=4 * count * lanes, numel=lanes)
        assert probed.output.view(torch.int32).unique().tolist() == [lanes]
        assert np.unique(probed.stores["output"]).tolist() == [1]


def test_a_threads_last_vectors_go_by_halves():
    assert [halves(width) for width in (1, 2, 3, 8)] == [[1], [2, 1], [3, 1], [8, 4, 2, 1]]
