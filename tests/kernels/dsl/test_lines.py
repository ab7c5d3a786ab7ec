"""Inboxes in lines: a part of a line at the end, who never came, lines that come apart, what the declaration means."""

import dataclasses
import hashlib
import re

import pytest

from cases.case import Case
from kernels.catalogue import find, retuned
from kernels.dsl import slots
from kernels.tuning import Step, Tuning
from tests.kernels.launching import Launches, some_slow
from tests.rooms import needs

SMALL = retuned("all_gather/ll128", Tuning((Step(threads=64, blocks=2, loads_in_flight=4, reason="small data"),)))
OPS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "send_recv")
STORE = re.compile(r"st\.global\.v2\.b64 \[(%rd\d+)(\+\d+)?\], \{(%rd\d+), (%rd\d+)\};")
SEEDS = range(12)


def changed(kernel, ptx):
    """The kernel with other PTX."""
    return dataclasses.replace(kernel, ptx=ptx, digest="sha256:" + hashlib.sha256(ptx.encode()).hexdigest())


def flags_first(kernel):
    """The kernel with each line stored in two turns: the upper halves with the flag first, then the lower ones."""
    halves = r"st.global.b64 [\1+8], \4; st.global.b64 [\1], \3;"
    ptx, count = STORE.subn(halves, kernel.ptx)
    assert count >= 2
    assert "+" not in "".join(found.group(2) or "" for found in STORE.finditer(kernel.ptx))
    return changed(kernel, ptx)


def torn(kernel):
    """The kernel with each line stored by four of its eight lanes first, which are not the last one's, then by four."""
    both = (
        r"mov.u32 %half, %laneid; and.b32 %half, %half, 4; setp.ne.u32 %upper, %half, 0; "
        r"@%upper st.global.v2.b64 [\1], {\3, \4}; @!%upper st.global.v2.b64 [\1], {\3, \4};"
    )
    ptx, count = STORE.subn(both, kernel.ptx)
    assert count >= 2
    return changed(kernel, re.sub(r"(\.reg \.pred)", r".reg .b32 %half; .reg .pred %upper; \1", ptx, count=1))


def seen(spec, case, kernel, **how):
    """What two launches in a row come to, and the severities of findings."""
    work = Launches(spec, case, kernel, count=2)
    world = work.run(**how)
    return work.seen(), {one.severity for one in world.findings}


@pytest.mark.slow
@pytest.mark.parametrize("op", some_slow(OPS, quick=lambda op: op in ("all_gather", "all_reduce")))
def test_two_ranks_are_right_with_a_part_of_a_line(fit_case, compiled, op):
    """Elements of one or two bytes from an odd place: a tile, a unit, and a part of one."""
    spec = find(f"{op}/ll128")
    dtype = "bfloat16" if spec.reductions != ("none",) else "uint8"
    case = fit_case(spec, world_size=2, size_bytes=2 * (960 + 16 + 6), dtype=dtype, offset=1)
    assert seen(spec, case, compiled(spec, case, "sm_90a"), schedule="random", seed=1)[0] == "right"


def test_what_the_declaration_explains_is_an_advisory_and_else_a_race(fit_case, compiled):
    case = fit_case(SMALL, world_size=2, size_bytes=2 * 1000)
    kernel = compiled(SMALL, case, "sm_90a")
    for how in ({}, {"schedule": "adversarial", "seed": 1}):
        assert seen(SMALL, case, kernel, races=True, **how) == ("right", {"advisory"})
    assert "race" in seen(SMALL, case, dataclasses.replace(kernel, assumptions=()), races=True)[1]


@needs("checks")
@pytest.mark.parametrize("sabotage", [flags_first, torn])
def test_a_line_that_is_stored_in_two_turns_is_a_race(fit_case, compiled, sabotage):
    case = fit_case(SMALL, world_size=2, size_bytes=2 * 1000)
    assert "race" in seen(SMALL, case, sabotage(compiled(SMALL, case, "sm_90a")), races=True)[1]


@pytest.mark.slow
def test_weak_memory_keeps_lines_whole_for_who_declares_it(fit_case, compiled):
    case = fit_case(SMALL, world_size=2, size_bytes=2 * 1000)
    kernel = compiled(SMALL, case, "sm_90a")
    weak = {"schedule": "random", "memory": "weak"}
    assert {seen(SMALL, case, kernel, seed=seed, **weak)[0] for seed in range(2)} == {"right"}
    without = dataclasses.replace(kernel, assumptions=())
    assert any(seen(SMALL, case, without, seed=seed, **weak)[0] != "right" for seed in SEEDS)


def test_an_inbox_has_a_15th_more_than_its_payload():
    assert slots.LINE_TILE_BYTES == 960
    assert [slots.in_lines(size) for size in (0, 1, 60, 61)] == [0, 32, 32, 64]
    case = Case("all_gather", "ll128", "uint8", "none", "none", 4 << 20, 2)
    (inbox,) = (one for one in SMALL.workspaces(case) if one.name == "inbox")
    assert inbox.size_bytes == 8 * -(-(2 << 20) // 960) * 1024
