"""What a function's host code launches, found without a GPU: parameters, addresses in them, grids, refusals."""

import struct

from kernels.functions import CallArgument, compiled_callable
from kernels.hosting import Relocation, _mark, _relocated
from memory.fabric import Launch
from tests.golden import refused
from tests.kernels import host_functions

POINTER = CallArgument("address", "float32")
MARKS = [(_mark(number, 0), _mark(number, 1)) for number in range(3)]


def compiled(function, *arguments):
    return compiled_callable(function, function.__name__, arguments, "sm_90a")


def launched(made, *inputs):
    """inputs: numbers; None for an address."""
    return made.host.launch([bytes(8) if one is None else one for one in inputs], [one is None for one in inputs])


def number(value):
    return struct.pack("<i", value)


def test_a_launch_is_computed_from_numbers_and_addresses_stay_open():
    made = compiled(host_functions.offset, POINTER, POINTER, CallArgument("s32"))
    for count, blocks in ((1, 1), (128, 1), (129, 2), (1000, 8)):
        found = launched(made, None, None, number(count))
        assert found.launch == Launch(blocks, 128, shared_bytes=64, cluster=1)
        arguments = found.arguments([0x1000, 0x2000, 0])
        values = [int.from_bytes(one.value, "little") for one in arguments]
        assert values == [0x2000 + 4 * 100, 0x1000, count], "swapped by the host code, and moved by 100 elements"


def test_a_cluster_is_part_of_the_launch():
    made = compiled(host_functions.in_clusters, POINTER)
    assert launched(made, None).launch == Launch(8, (32, 2, 1), cluster=(2, 1, 1))


def test_functions_may_branch_on_numbers_and_launch_once():
    for function, blocks, wrong in ((host_functions.if_asked, 3, 0), (host_functions.often, 1, 3)):
        made = compiled(function, POINTER, CallArgument("s32"))
        assert launched(made, None, number(1)).launch.blocks == blocks
        with refused():
            launched(made, None, number(wrong))
    with refused():
        launched(compiled(host_functions.by_address, POINTER, POINTER), None, None)


def test_an_address_plus_a_constant_is_found_and_all_else_is_refused():
    one, other = (struct.pack("<QQ", MARKS[1][turn] + 48, 7) for turn in (0, 1))
    content, moved = _relocated(4, one, other, MARKS)
    assert (content, moved) == (struct.pack("<QQ", 0, 7), [Relocation(4, 0, 1, 48)])
    before, after = (struct.pack("<Q", MARKS[2][turn] - 16) for turn in (0, 1))
    assert _relocated(0, before, after, MARKS)[1] == [Relocation(0, 0, 2, -16)]
    for mixed in (
        [MARKS[0][turn] - MARKS[1][turn] & (1 << 64) - 1 for turn in (0, 1)],
        [MARKS[0][turn] + MARKS[1][turn] for turn in (0, 1)],
        [MARKS[0][turn] // 2 for turn in (0, 1)],
        [MARKS[0][turn] & 0xFFFFFFFF for turn in (0, 1)],
    ):
        one, other = (struct.pack("<Q", value) for value in mixed)
        with refused():
            _relocated(0, one, other, MARKS)
    with refused():
        _relocated(0, number(1), number(2), MARKS)


def test_padding_that_was_never_written_is_zero():
    """A number of 32 bits behind an address: what follows it up to 8 bytes is whatever was on the stack."""
    one, other = (struct.pack("<QiI", MARKS[0][turn], 5, garbage) for turn, garbage in ((0, 0xABCD), (1, 0x1234)))
    content, moved = _relocated(0, one, other, MARKS)
    assert (content, moved) == (struct.pack("<QiI", 0, 5, 0), [Relocation(0, 0, 0, 0)])


def test_marks_differ_in_both_halves_of_a_word():
    """Else an address could pass for a number with padding behind it."""
    for number_ in range(200):
        first, second = _mark(number_, 0), _mark(number_, 1)
        assert first & 0xFFFFFFFF != second & 0xFFFFFFFF
        assert first >> 32 != second >> 32
    differences = {_mark(number_, 0) - _mark(number_, 1) for number_ in range(200)}
    assert len(differences) == 200
