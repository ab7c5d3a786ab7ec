"""Litmus programs as kernels: the assembler takes them, and what they do on the simulator is what the judge allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simulator.litmus
from simulator.litmus.outcomes import judged
from simulator.litmus.parse import parsed, read
from simulator.litmus.program import Program, Seen
from simulator.ptx.assembler import assembled, find_ptxas
from tests.simulator.litmus.as_kernel import kernels_of
from tests.simulator.litmus.litmus_runs import run
from tests.simulator.litmus.messages import message

FOLDER = Path(simulator.litmus.__file__).parent / "programs"
NOT_RUN = ("alias_", "mp_scope_cluster_cluster", "bulk_after_bar")
"""Aliases of one location, clusters, and a tile that several threads of a block use."""

PROGRAMS = {path.stem: read(path) for path in sorted(FOLDER.glob("*.litmus")) if not path.stem.startswith(NOT_RUN)}
SAMPLE = [name for at, name in enumerate(PROGRAMS) if at % 6 == 0]
ORDERS: tuple[dict[str, Any], ...] = ({}, *({"schedule": "random", "seed": seed} for seed in range(3)))


def test_most_programs_run() -> None:
    refused = [path.stem for path in sorted(FOLDER.glob("*.litmus")) if path.stem not in PROGRAMS]
    assert len(refused) == 15
    for name in refused:
        with pytest.raises(ValueError, match=f"{name}: "):
            kernels_of(read(FOLDER / f"{name}.litmus"))


def _unexpected(program: Program, orders: tuple[dict[str, Any], ...]) -> list[tuple[dict[str, Any], object]]:
    """The runs whose final state the judge forbids."""
    judgement, kernels = judged(program, is_explained=False), kernels_of(program)
    allowed = {one.values for one in judgement.allowed if not one.blocked}
    may_block = any(one.blocked for one in judgement.allowed)
    found: list[tuple[dict[str, Any], object]] = []
    for options in orders:
        result = run(program, kernels, **options)
        if result.is_deadlock and not may_block:
            found.append((options, "deadlock"))
        elif not result.is_deadlock and result.state(judgement.seen) not in allowed:
            found.append((options, result.state(judgement.seen)))
    return found


@pytest.mark.parametrize("name", SAMPLE)
def test_a_run_has_a_final_state_that_the_judge_allows(name: str) -> None:
    assert _unexpected(PROGRAMS[name], ORDERS) == []


@pytest.mark.slow
def test_all_runs_have_final_states_that_the_judge_allows() -> None:
    orders = tuple({"schedule": "random", "seed": seed} for seed in range(12))
    assert {name: bad for name, one in PROGRAMS.items() if (bad := _unexpected(one, orders))} == {}


def test_an_order_can_show_another_state() -> None:
    """Otherwise the comparison with the judge would say little."""
    program = PROGRAMS["sb_relaxed"]
    kernels = kernels_of(program)
    seen = (Seen("T0", "r0"), Seen("T1", "r0"))
    states = {run(program, kernels, schedule="random", seed=seed).state(seen) for seed in range(12)}
    assert len(states) > 1


def test_the_assembler_takes_the_kernels() -> None:
    ptxas = find_ptxas()
    if ptxas is None:
        pytest.skip("ptxas is not installed")
    texts = [
        kernels_of(PROGRAMS[name]).ptx for name in ("mp_polls", "bulk_copy", "multicast_load", "bar_named", "ll_vector")
    ]
    texts += [kernels_of(parsed(message(seed), str(seed))).ptx for seed in range(6)]
    for text in texts:
        assert assembled(ptxas, text, "sm_90a").problems == (), text


def test_threads_run_where_the_program_says() -> None:
    text = """memory x, y
    thread A on rank 0 block 0
        st.relaxed.sys [x], 1
    thread B on rank 2 block 3
        ld.relaxed.sys r0, [y]
    thread C on rank 2 block 3
        ld.relaxed.sys r0, [y]
    never A == 1""".replace("never A == 1", "exists x == 1")
    made = kernels_of(parsed(text, "places"))
    assert (made.world_size, made.grid, made.block) == (3, 4, 64)
    assert made.locations == {"x": (0, 0), "y": (2, 32)}
    assert {made.results[Seen("B", "r0")], made.results[Seen("C", "r0")]} == {(2, 0), (2, 8)}


def test_replicas_lie_at_one_place_of_all_ranks() -> None:
    made = kernels_of(PROGRAMS["multicast_load"])
    (first, start), (second, other) = made.locations["x0"], made.locations["x1"]
    assert (first, second) == (0, 1)
    assert start == other


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("cp.async.bulk [x], [x], 16", "copied from, and not by its one thread alone"),
        ("cp.async.bulk [x], [y], 4\nld.weak r0, [x+4]", "not of 16 bytes"),
    ],
)
def test_what_cannot_run_is_refused(lines: str, message: str) -> None:
    text = f"memory x, y\nthread T0 on rank 0 block 0\n{lines}\nexists x == 0"
    with pytest.raises(ValueError, match=message):
        kernels_of(parsed(text, "refused"))
