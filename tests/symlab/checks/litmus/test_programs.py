"""The project's litmus programs: their verdicts, which axioms these rest on, and that all patterns are there."""

from pathlib import Path

import numpy as np
import pytest

import symlab.checks.litmus
import symlab.checks.litmus.outcomes as outcomes
from symlab.checks.litmus.outcomes import judged
from symlab.checks.litmus.parse import read
from tests.symlab.checks.litmus.generated import program

FOLDER = Path(symlab.checks.litmus.__file__).parent / "programs"
PATHS = {path.stem: path for path in sorted(FOLDER.glob("*.litmus"))}

FORBIDDEN = {
    "mp_release_acquire": "Causality",
    "mp_fences": "Causality",
    "sb_fence_sc": "Causality",
    "iriw_fence_sc": "Causality",
    "alias_mp_fence_writer": "Causality",
    "bulk_copy": "Causality",
    "2_2w_fence_sc": "Coherence",
    "s_release_acquire": "Coherence",
    "coww": "Coherence",
    "atomic_add": "Atomicity",
    "atomic_store_between": "Atomicity",
    "ll_one_store": "Atomicity",
    "thin_air_control": "No-Thin-Air",
    "coherence_two_readers": "SC-per-Location",
}
"""An axiom by which each of these forbids something, as its table says."""

PATTERNS = (
    "mp_",
    "sb_",
    "lb_",
    "2_2w_",
    "iriw_",
    "wrc_",
    "rwc_",
    "s_",
    "r_",
    "corr_",
    "coww",
    "corw",
    "cowr",
    "isa2_",
    "atomic_",
    "thin_air_",
    "mp_scope_",
    "mp_fence_",
    "chain_",
    "alias_",
    "multicast_",
    "bar_",
    "bulk_",
    "ll_",
)
CLAIMED_BY_AXIOM = {
    "Coherence": ("2_2w_fence_sc", "alias_stores_fence", "r_fence_sc", "s_release_acquire"),
    "Atomicity": ("atomic_add", "atomic_cas_one_wins", "atomic_exch", "sb_atoms", "multicast_red"),
    "No-Thin-Air": ("thin_air_control",),
    "Causality": ("mp_release_acquire", "bar_sync", "bulk_copy", "wrc_release_acquire", "alias_one_thread_fence"),
}
"""Programs whose verdict is wrong without an axiom. Fence-SC and SC-per-Location add nothing to the others: README.md."""


@pytest.fixture(scope="module")
def judgements():
    return {name: judged(read(path)) for name, path in PATHS.items()}


@pytest.mark.parametrize("name", PATHS)
def test_its_conditions_hold(name, judgements):
    found = judgements[name]
    assert [one.text for one in found.program.conditions if not found.holds(one)] == []
    assert found.mixed_race is None
    assert found.program.title.endswith(".")


def test_all_patterns_are_there_with_and_without_what_they_need(judgements):
    for pattern in PATTERNS:
        found = [one for name, one in judgements.items() if name.startswith(pattern)]
        quantifiers = {found.program.conditions[0].quantifier for found in found}
        assert pattern == "cowr" or "exists" in quantifiers, pattern
        assert quantifiers & {"never", "always"}, pattern


@pytest.mark.parametrize(("name", "axiom"), FORBIDDEN.items())
def test_a_forbidden_state_names_the_axiom(name, axiom, judgements):
    why = [one.why for one in judgements[name].outcomes if one.why is not None]
    assert axiom in {name for one in why for name in one.axioms}
    assert all(one.steps for one in why)


def without(axiom):
    """The model without one of its axioms."""
    original = outcomes.violated

    def violated(*arguments):
        found = original(*arguments)
        return {**found, axiom: np.zeros_like(found[axiom])}

    return violated


@pytest.mark.parametrize("axiom", CLAIMED_BY_AXIOM)
def test_without_the_axiom_a_verdict_is_wrong(axiom, monkeypatch):
    monkeypatch.setattr(outcomes, "violated", without(axiom))
    for name in CLAIMED_BY_AXIOM[axiom]:
        found = judged(read(PATHS[name]))
        assert not all(found.holds(one) for one in found.program.conditions), name


@pytest.mark.slow
@pytest.mark.parametrize("axiom", ["Fence-SC", "SC-per-Location"])
def test_the_other_axioms_are_part_of_these(axiom, monkeypatch):
    """README.md says that they forbid no state by themselves."""
    programs = [read(PATHS[name]) for name in (*FORBIDDEN, "corr_relaxed", "corw_other", "r_fence_sc", "rwc_fence_sc")]
    programs += [program(seed) for seed in range(30)]
    expected = [states(judged(one, is_explained=False)) for one in programs]
    monkeypatch.setattr(outcomes, "violated", without(axiom))
    assert [states(judged(one, is_explained=False)) for one in programs] == expected


def states(found):
    return {one.values for one in found.allowed}


def test_steps_of_a_contradiction_lead_around(judgements):
    """The one of message passing, in full."""
    found = next(one.why for one in judgements["mp_release_acquire"].outcomes if one.why is not None)
    assert found.axiom == "Causality"
    assert found.steps == (
        ("T1: ld.weak r1, [data]", "reads before"),
        ("T0: st.weak [data], 1", "program order"),
        ("T0: st.release.sys [flag], 1", "synchronizes"),
        ("T1: ld.acquire.sys r0, [flag]", "program order"),
    )
