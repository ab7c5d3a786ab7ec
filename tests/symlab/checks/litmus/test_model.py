"""Relations of the model, one rule at a time."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from symlab.checks.litmus.model import closed, fixed, then, violated
from symlab.checks.litmus.model import orders as orders_of
from symlab.checks.litmus.parse import parsed
from symlab.checks.litmus.program import Place
from symlab.checks.litmus.unfold import skeletons
from tests.golden import refused

HEAD = "memory x, y\nalias z of x\n"
TAIL = "exists x == 0\n"


def relations(*threads):
    """The fixed relations of threads on two GPUs in turn; "/" separates instructions."""
    code = "".join(
        f"thread T{i} on rank {i % 2} block 0\n" + "\n".join(part.strip() for part in one.split("/")) + "\n"
        for i, one in enumerate(threads)
    )
    (skeleton,) = skeletons(parsed(HEAD + code + TAIL, "test"))
    return fixed(skeleton)


def pairs(one, relation):
    """The pairs of a relation, by what each event does."""
    names = [f"{event.thread}{event.kind}{event.step}" for event in one.events]
    return {(names[a], names[b]) for a, b in np.argwhere(relation)}


@pytest.mark.parametrize("seed", range(5))
def test_closures_and_compositions_are_those_of_matrices(seed):
    drawn = np.random.default_rng(seed)
    size = int(drawn.integers(1, 64))
    first, second = drawn.random((2, 3, size, size)) < 1.5 / size
    assert (then(first, second) == np.einsum("bij,bjk->bik", first.astype(int), second.astype(int)).astype(bool)).all()
    power = expected = first
    for _ in range(size):
        power = then(power, first)
        expected = expected | power
    assert (closed(first) == expected).all()


@pytest.mark.parametrize(
    ("there", "scopes"),
    [
        (Place(0, 0, 0), {"cta", "cluster", "gpu", "sys"}),
        (Place(0, 1, 0), {"cluster", "gpu", "sys"}),
        (Place(0, 1, 1), {"gpu", "sys"}),
        (Place(1, 0, 0), {"sys"}),
    ],
)
def test_scopes_include(there, scopes):
    for scope in ("cta", "cluster", "gpu", "sys"):
        assert Place(0, 0, 0).shares(scope, there) is (scope in scopes)
        alone = replace(there, cluster=None)
        assert Place(0, 0).shares(scope, alone) is (scope in scopes and (scope != "cluster" or there == Place(0, 0, 0)))


@pytest.mark.parametrize(
    ("first", "second", "is_strong"),
    [
        ("st.relaxed.sys [x], 1", "ld.relaxed.sys r0, [x]", True),
        ("st.relaxed.gpu [x], 1", "ld.relaxed.sys r0, [x]", False),
        ("st.weak [x], 1", "ld.relaxed.sys r0, [x]", False),
        ("st.relaxed.sys [x], 1", "ld.relaxed.sys r0, [y]", False),
        ("st.relaxed.sys [x], 1", "ld.relaxed.sys r0, [z]", False),
        ("st.relaxed.sys.b64 [x], 1", "ld.relaxed.sys r0, [x]", False),
        ("st.volatile [x], 1", "ld.volatile r0, [x]", True),
        ("fence.sc.sys", "ld.relaxed.sys r0, [x]", True),
        ("fence.sc.gpu", "fence.sc.sys", False),
    ],
)
def test_moral_strength(first, second, is_strong):
    one = relations(first, second)
    between = one.morally_strong[np.ix_([e.thread == 0 for e in one.events], [e.thread == 1 for e in one.events])]
    assert bool(between.any()) is is_strong


def test_operations_of_a_thread_are_morally_strong_unless_a_fence_of_proxies_is_meant():
    one = relations("st.weak [x], 1 / ld.weak r0, [x] / ld.weak r1, [z]")
    assert ("0W0", "0R1") in pairs(one, one.morally_strong)
    assert ("0W0", "0R2") not in pairs(one, one.morally_strong)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("st.release.sys [x], 1", {("0W0", "0W0")}),
        ("st.release.sys [x], 1 / st.relaxed.sys [x], 2", {("0W0", "0W0"), ("0W0", "0W1")}),
        ("st.release.sys [x], 1 / st.weak [x], 2", {("0W0", "0W0")}),
        ("st.release.sys [x], 1 / st.relaxed.sys [y], 2", {("0W0", "0W0")}),
        ("fence.release.sys / st.weak [x], 1 / st.relaxed.sys [y], 2", {("0F0", "0W2")}),
        ("fence.acquire.sys / st.relaxed.sys [y], 2", set()),
        ("atom.release.sys.add r0, [x], 1", {("0W0", "0W0")}),
        ("atom.acquire.sys.add r0, [x], 1", set()),
    ],
)
def test_release_patterns(code, expected):
    one = relations(code)
    assert pairs(one, one.release_pattern) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ld.acquire.sys r0, [x]", {("0R0", "0R0")}),
        ("ld.relaxed.sys r0, [x] / ld.acquire.sys r1, [x]", {("0R1", "0R1"), ("0R0", "0R1")}),
        ("ld.relaxed.sys r0, [x] / ld.acquire.sys r1, [y]", {("0R1", "0R1")}),
        ("ld.relaxed.sys r0, [x] / fence.acq_rel.sys", {("0R0", "0F1")}),
        ("ld.weak r0, [x] / fence.acq_rel.sys", set()),
        ("ld.relaxed.sys r0, [x] / fence.release.sys", set()),
        ("atom.relaxed.sys.add r0, [x], 1 / fence.sc.sys", {("0R0", "0F1")}),
        ("red.relaxed.sys.add [x], 1 / fence.sc.sys", set()),
    ],
)
def test_acquire_patterns(code, expected):
    one = relations(code)
    assert pairs(one, one.acquire_pattern) == expected


def test_fence_sc_may_not_contradict_base_causality():
    """T0's fence releases what T1 reads before its own: then Fence-SC order has T0's first."""
    one = relations("fence.sc.sys / st.relaxed.sys [x], 1", "ld.relaxed.sys r0, [x] / fence.sc.sys")
    number = {f"{e.thread}{e.kind}": i for i, e in enumerate(one.events) if e.thread >= 0}
    reads_from, forward, backward = (np.zeros((1, one.size, one.size), dtype=bool) for _ in range(3))
    reads_from[0, number["0W"], number["1R"]] = True
    forward[0, number["0F"], number["1F"]] = True
    backward[0, number["1F"], number["0F"]] = True
    empty = np.zeros_like(forward)
    for sc, is_broken in ((forward, False), (backward, True)):
        found = violated(one, orders_of(one, reads_from, sc), empty, empty)
        assert bool(found["Fence-SC"].any()) is is_broken


def test_accesses_of_one_vector_have_no_order():
    one = relations("st.weak.v2 [x], {1, 2} / st.weak [y], 1")
    names = [(event.step, event.cells) for event in one.events if event.thread == 0]
    assert len(names) == 3
    order = one.program_order[-3:, -3:]
    assert [(a, b) for a, b in itertools.product(range(3), repeat=2) if order[a, b]] == [(0, 2), (1, 2)]


def test_a_program_with_too_many_events_is_refused():
    with refused():
        relations(" / ".join(["st.weak.v4 [x], {1, 2, 3, 4}"] * 15 + ["st.weak [y], 1"]))
