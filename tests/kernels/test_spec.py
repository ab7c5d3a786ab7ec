import re
from dataclasses import replace

import pytest

from cases import ops
from cases.refusal import Refusal
from kernels import catalogue
from kernels.spec import Workspace
from kernels.spec import refuses as refuses_for
from memory.fabric import Traits
from tests.golden import refused, same_text

TRAITS = Traits("simulator", "sm_90a", world_size=8, heap_bytes=1 << 28, multicast=True, simulated=True)


def refuses(spec, case, traits):
    """The sentence of the refusal."""
    found = refuses_for(spec, ops.collective(spec.op), case, traits)
    return None if found is None else str(found)


ONE_SHOT, TWO_SHOT, LL, MULTIMEM = (
    catalogue.find(f"all_reduce/{name}") for name in ("one_shot", "two_shot", "ll", "multimem_one_shot")
)
NO_MULTICAST = replace(TRAITS, multicast=False, multicast_reason="the machine has no NVSwitch")


def test_a_fit_case_is_not_refused(case_of):
    for size_bytes in (0, 1 << 20):
        assert refuses(ONE_SHOT, case_of("one_shot", size_bytes=size_bytes), TRAITS) is None
    assert refuses(ONE_SHOT, case_of("one_shot"), NO_MULTICAST) is None
    assert refuses(TWO_SHOT, case_of("two_shot", placement="in_place"), TRAITS) is None
    assert refuses(MULTIMEM, case_of("multimem_one_shot", size_bytes=2), TRAITS) is None


UNFIT = {
    "dtype": [{"dtype": "uint8"}, {"dtype": "bfloat61"}],
    "accumulator": [{"accumulator": "float64"}, {"reduction": "max"}],
    "world_size": [{"world_size": ranks} for ranks in (0, 73, 4)],
    "sizes": [{"size_bytes": size} for size in (-2, 1, 1023)],
    **{"reduction": [{"reduction": "xor"}], "placement": [{"placement": "in_place"}], "root": [{"root": 1}]},
    **{"offset": [{"offset": -1}], "algorithms": [{"algorithm": "two_shot"}]},
}


@pytest.mark.parametrize(("key", "changes"), [(key, one) for key, changes in UNFIT.items() for one in changes])
def test_an_unfit_case_is_refused_with_its_reason(case_of, key, changes):
    case = replace(case_of("one_shot"), **changes)
    refusal = refuses_for(ONE_SHOT, ops.collective("all_reduce"), case, TRAITS)
    assert refusal.key == key
    same_text(str(refusal))


@pytest.mark.parametrize(("multiprocessors", "fit"), [(0, True), (64, True), (63, False)])
def test_a_gpu_that_cannot_hold_all_blocks_at_once_is_refused(case_of, multiprocessors, fit):
    """1 MiB takes one_shot 64 blocks, each of which waits for one of every other rank. 0: simulated."""
    reason = refuses(ONE_SHOT, case_of("one_shot"), replace(TRAITS, multiprocessors=multiprocessors))
    assert (reason is None) == fit
    assert fit or (reason is not None and "64 blocks at once" in reason and "63 multiprocessors" in reason)


def test_a_size_that_does_not_divide_is_refused(fit_case):
    case = replace(fit_case(catalogue.find("reduce_scatter/pull"), world_size=8), size_bytes=2 * 1001)
    reason = refuses(catalogue.find("reduce_scatter/pull"), case, TRAITS)
    assert reason == "reduce_scatter divides its elements evenly: 1001 are no multiple of 8 ranks"


def test_a_message_too_large_is_refused(case_of):
    most = LL.max_size_bytes
    assert refuses(LL, case_of("ll", size_bytes=most), TRAITS) is None
    reason = refuses(LL, case_of("ll", size_bytes=most + 2), TRAITS)
    limit = f"up to {most} bytes, not {most + 2}"
    assert reason == f"all_reduce/ll is for small messages: {limit}; take all_reduce/two_shot"


@pytest.mark.parametrize("spec", catalogue.SPECS, ids=lambda spec: spec.name)
def test_what_a_refusal_of_a_size_advises_exists_and_takes_it(spec, fit_case):
    """Of every kernel of the catalogue, as if it were for small messages; a brought one may be of any op."""
    most = spec.max_size_bytes if spec.max_size_bytes is not None else 0
    case = fit_case(spec, world_size=8)
    case = replace(case, size_bytes=most + 8 * 16 * case.itemsize)
    refusal = refuses_for(replace(spec, max_size_bytes=most), ops.collective(spec.op), case, TRAITS)
    assert (refusal.key, f"up to {most} bytes, not {case.size_bytes}" in refusal.hint) == ("sizes", True)
    named = re.findall(r"\w+/\w+", refusal.hint)
    assert bool(named) == (spec.max_size_bytes is not None)
    for name in named:
        other = catalogue.find(name)
        assert refuses(other, replace(case, algorithm=other.algorithm), TRAITS) is None


@pytest.mark.parametrize(("root", "fit"), [(0, True), (7, True), (8, False), (-1, False)])
def test_a_root_is_one_of_the_ranks(fit_case, root, fit):
    reason = refuses(
        catalogue.find("reduce/pull"), fit_case(catalogue.find("reduce/pull"), world_size=8, root=root), TRAITS
    )
    assert (reason is None) == fit
    assert fit or reason == f"reduce has no root {root}: give 0 to 7"


def test_what_the_fabric_lacks_is_named(case_of):
    for spec, lacks in (
        (MULTIMEM, {"multicast": False, "multicast_reason": "the machine has no NVSwitch"}),
        (TWO_SHOT, {"unmapped": "rank 0 can't reach ranks 4, 5"}),
        (ONE_SHOT, {"arch": "sm_80"}),
    ):
        same_text(str(refuses(spec, case_of(spec.algorithm), replace(TRAITS, **lacks))))


def test_a_refusal_is_about_a_configuration_key(case_of):
    """What the fabric lacks is about the fabric's keys; and the sentence is made of reason and hint."""
    op = ops.collective("all_reduce")
    missing = refuses_for(MULTIMEM, op, case_of("multimem_one_shot"), NO_MULTICAST)
    reason = "all_reduce/multimem_one_shot needs multicast addresses, and the fabric simulator has none"
    assert missing == Refusal("fabric.multicast", reason, "the machine has no NVSwitch")
    assert str(missing) == f"{reason}: the machine has no NVSwitch"
    changes = [
        ({"arch": "sm_80"}, "fabric.arch"),
        ({"unmapped": "rank 0 can't reach rank 4"}, "fabric"),
        ({"multiprocessors": 3}, "sizes"),
    ]
    for change, key in changes:
        found = refuses_for(ONE_SHOT, op, case_of("one_shot"), replace(TRAITS, **change))
        assert found.key == key
    assert str(Refusal("sizes", "too many")) == "too many"


def test_what_needs_another_ptx_makes_another_variant(case_of):
    case = case_of("one_shot")
    variant = ONE_SHOT.variant(case)
    for same in ({"size_bytes": 64}, {"seed": 3}, {"inputs": "exact"}):
        assert ONE_SHOT.variant(replace(case, **same)) == variant
    for other in ({"world_size": 4}, {"dtype": "float16"}, {"accumulator": "native"}):
        assert ONE_SHOT.variant(replace(case, **other)) != variant


def test_cases_have_one_id_each(case_of):
    case = case_of("one_shot")
    changes = [{"placement": "in_place"}, {"seed": 1}, {"root": 1}, {"offset": 1}]
    others = [case_of("one_shot", **one) for one in changes]
    assert len({case.id, case_of("two_shot").id, *(other.id for other in others)}) == 6
    assert replace(case).id == case.id
    assert case.numel == 1 << 19


def test_workspaces_begin_with_zeros_a_pattern_or_anything():
    assert Workspace("epochs", 4).initial(16) == bytes(16)
    assert Workspace("scratch", 4, zeroed=False).initial(16) is None
    assert Workspace("inbox", 4, fill=b"\0\0\0\x80").initial(16) == b"\0\0\0\x80" * 4
    with refused(AssertionError):
        Workspace("inbox", 3, fill=bytes(8)).initial(12)


NO_VALUES = {
    **{"fold": ["rank"], "placements": [("out_place",), "in_place"], "dtypes": [(), ("bfloat16", "bf16")]},
    **{"accumulators": [("float31",)], "reductions": [("total",)], "positive_zero": ["yes"]},
}


def test_a_spec_with_a_value_that_means_nothing_is_refused_when_it_is_made():
    for key, values in NO_VALUES.items():
        for value in values:
            with refused():
                replace(ONE_SHOT, **{key: value})
