"""What kernels promise, and what is refused because they do not."""

from dataclasses import replace

import pytest

from cases.case import Case
from cases.ops import collective
from cases.stress import MEANINGS, NO_STRESS, PROMISES, Stress, combined, parts_of
from kernels.catalogue import SPECS, find
from kernels.spec import cases_in_turn, refuses, refuses_stress
from simulator.options import traits_of
from tests.golden import refused, same_text


def case_for(spec, stress=NO_STRESS, size_bytes=3072, world_size=4):
    reduces = collective(spec.op).reduces
    types = (
        "float32" if "float32" in spec.dtypes else spec.dtypes[0],
        *(("native", "sum") if reduces else ("none", "none")),
    )
    size_bytes = 4 if spec.op == "barrier" else size_bytes
    return Case(spec.op, spec.algorithm, *types, size_bytes, world_size, spec.placements[0], stress=stress)


def refusal_of(spec, case):
    return str(refuses(spec, collective(spec.op), case, traits_of(case.world_size, "sm_90a", 1 << 28, True)) or "")


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_kernel_runs_under_what_it_promises_and_under_nothing_else(spec):
    assert refusal_of(spec, case_for(spec)) == ""
    for name in PROMISES:
        text = refusal_of(spec, case_for(spec, name))
        assert (text == "") == (name in spec.promises)
        if text:
            assert text.startswith(f"{spec.name} does not promise {name}, {MEANINGS[name]}: ")
            assert "it does not say so" not in text  # each of ours gives its own reason


ONE_WAY = ("broadcast/ll", "broadcast/ll128", "reduce/ll", "reduce/lamport", "send_recv/ll", "send_recv/ll128")
"""Where a rank gets no data from some others."""


def test_what_our_kernels_promise():
    """No kernel takes two launches at once; those through the switch can't name a dead rank, and those without barriers
    only one whose data they get; a barrier has one size."""
    for spec in SPECS:
        missing = {"two_streams"}
        missing |= {"dead_rank"} if spec.needs_multicast or spec.name in ONE_WAY else set()
        missing |= {"alternating_sizes"} if spec.op == "barrier" else set()
        assert set(PROMISES) - spec.promises == missing, spec.name


def test_a_kernel_that_promises_nothing_is_refused_and_told_how_to():
    spec = replace(find("all_gather/push"), promises=frozenset(), why_not={})
    same_text(refusal_of(spec, case_for(spec, "late_rank")))


@pytest.mark.parametrize("promises", [frozenset({"late"}), frozenset({"none"}), "late_rank"])
def test_a_promise_that_means_nothing(promises):
    with refused():
        replace(find("all_gather/push"), promises=promises)


def test_a_dead_rank_takes_another_that_waits_for_it():
    spec = find("all_reduce/one_shot")
    assert refusal_of(spec, case_for(spec, "dead_rank", world_size=1)).startswith("dead_rank takes 2 or more ranks")


class TestSizesInTurn:
    @pytest.mark.parametrize(
        ("name", "size_bytes", "sizes"),
        [
            ("all_reduce/ll", 3072, [3072, 1024, 16]),
            ("all_reduce/ll", 16, [16, 4]),
            ("all_gather/push", 3072, [3072, 1024, 64]),
            ("all_gather/bulk", 3072, [3072, 1024, 64]),
            ("all_gather/push", 32, [32, 16]),
        ],
    )
    def test_smaller_sizes_that_the_kernel_takes(self, name, size_bytes, sizes):
        spec = find(name)
        case = case_for(spec, "alternating_sizes", size_bytes)
        assert [one.size_bytes for one in cases_in_turn(spec, collective(spec.op), case)] == sizes

    @pytest.mark.parametrize("size_bytes", [0, 4])
    def test_a_size_with_none_beside_it_is_refused(self, size_bytes):
        spec = find("all_reduce/ll")
        text = refusal_of(spec, case_for(spec, "alternating_sizes", size_bytes))
        assert text == f"all_reduce/ll takes no other size to alternate with {size_bytes} bytes"

    def test_under_all_else_sizes_are_the_same(self):
        spec = find("all_reduce/ll")
        case = case_for(spec, "late_rank")
        assert cases_in_turn(spec, collective(spec.op), case) == (case, case, case)


def test_combinations_that_mean_nothing():
    for others in ("", "late_rank", "none", "dead_rank", "late"):
        with refused():
            combined(f"late_rank+{others}")
    for text in ("late", "two_streams+graph_out_of_step"):
        with refused():
            combined(text)


def test_a_combination_has_one_order_and_so_one_id():
    assert combined("two_streams+alternating_sizes+late_rank") == "late_rank+alternating_sizes+two_streams"
    assert combined("two_streams + late_rank ") == "late_rank+two_streams"
    assert combined("none") == "none"
    assert parts_of("none") == ()


def test_each_part_of_a_combination_has_to_be_promised():
    spec = find("all_reduce/one_shot")
    op = collective(spec.op)
    for stress in ("late_rank+alternating_sizes", "no_host_barrier+alternating_sizes", "late_rank+graph_out_of_step"):
        assert refuses_stress(spec, op, case_for(spec, stress)) is None
        assert len({one.size_bytes for one in cases_in_turn(spec, op, case_for(spec, stress))}) == (
            3 if "alternating_sizes" in stress else 1
        )
    refusal = refuses_stress(spec, op, case_for(spec, "late_rank+two_streams"))
    assert str(refusal).startswith("all_reduce/one_shot does not promise two_streams, ")


def test_an_id_names_the_stress_and_plain_cases_keep_theirs():
    case = case_for(find("all_reduce/ll"))
    ids = {replace(case, stress=str(name)).id for name in Stress}
    assert len(ids) == len(Stress)
    assert replace(case, stress="late_rank").id == f"{case.id}-stress_late_rank"
