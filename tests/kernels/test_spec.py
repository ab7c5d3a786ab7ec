from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kernels import catalogue
from kernels.all_reduce import ll, multimem_one_shot, one_shot, two_shot
from kernels.reduce import pull as reduce_pull
from kernels.reduce_scatter import pull as reduce_scatter_pull
from kernels.refusal import Refusal
from kernels.spec import Case, KernelSpec, Workspace
from kernels.spec import refuses as refuses_for
from memory.fabric import Traits

TRAITS = Traits("simulator", "sm_90a", world_size=8, heap_bytes=1 << 28, multicast=True, simulated=True)


def refuses(spec: KernelSpec, case: Case, traits: Traits) -> str | None:
    """The sentence of the refusal."""
    found = refuses_for(spec, catalogue.collective(spec.op), case, traits)
    return None if found is None else str(found)


NO_MULTICAST = replace(TRAITS, multicast=False, multicast_reason="the machine has no NVSwitch")


def test_a_fit_case_is_not_refused(case_of: Callable[..., Case]) -> None:
    assert refuses(one_shot.SPEC, case_of("one_shot"), TRAITS) is None
    assert refuses(one_shot.SPEC, case_of("one_shot"), NO_MULTICAST) is None
    assert refuses(two_shot.SPEC, case_of("two_shot", placement="in_place"), TRAITS) is None
    assert refuses(multimem_one_shot.SPEC, case_of("multimem_one_shot", size_bytes=2), TRAITS) is None


@pytest.mark.parametrize(
    ("key", "changes", "words"),
    [
        ("dtype", {"dtype": "uint8"}, ["uint8", "moving data", "bfloat16"]),
        ("dtype", {"dtype": "bfloat61"}, ["bfloat61"]),
        ("accumulator", {"accumulator": "float64"}, ["accumulator 'float64'", "bfloat16", "native, float32"]),
        ("accumulator", {"reduction": "max"}, ["max adds nothing", "give native"]),
        ("reduction", {"reduction": "xor"}, ["no reduction 'xor'", "sum, min, max, avg"]),
        ("placement", {"placement": "in_place"}, ["placement 'in_place'", "it supports out_of_place"]),
        ("world_size", {"world_size": 0}, ["1 to 72 ranks", "not on 0"]),
        ("world_size", {"world_size": 73}, ["1 to 72 ranks", "not on 73"]),
        ("world_size", {"world_size": 4}, ["wants 4 ranks", "has 8"]),
        ("sizes", {"size_bytes": -2}, ["-2 bytes", "2 bytes"]),
        ("sizes", {"size_bytes": 1}, ["1 bytes", "2 bytes"]),
        ("root", {"root": 1}, ["no root 1", "give 0"]),
        ("offset", {"offset": -1}, ["-1 elements", "0 or more"]),
        ("sizes", {"size_bytes": 1023}, ["1023 bytes", "bfloat16 elements of 2 bytes"]),
        ("algorithms", {"algorithm": "two_shot"}, ["all_reduce/two_shot"]),
    ],
)
def test_an_unfit_case_is_refused_with_its_reason(
    case_of: Callable[..., Case], key: str, changes: dict[str, object], words: list[str]
) -> None:
    case = replace(case_of("one_shot"), **changes)  # type: ignore[arg-type]
    refusal = refuses_for(one_shot.SPEC, catalogue.collective("all_reduce"), case, TRAITS)
    assert refusal is not None
    assert refusal.key == key
    reason = str(refusal)
    assert [word for word in words if word not in reason] == []
    assert "\n" not in reason


@pytest.mark.parametrize(("multiprocessors", "fit"), [(0, True), (64, True), (63, False)])
def test_a_gpu_that_cannot_hold_all_blocks_at_once_is_refused(
    case_of: Callable[..., Case], multiprocessors: int, fit: bool
) -> None:
    """1 MiB takes one_shot 64 blocks, each of which waits for one of every other rank. 0: simulated."""
    reason = refuses(one_shot.SPEC, case_of("one_shot"), replace(TRAITS, multiprocessors=multiprocessors))
    assert (reason is None) == fit
    assert fit or (reason is not None and "64 blocks at once" in reason and "63 multiprocessors" in reason)


def test_an_empty_message_is_fit(case_of: Callable[..., Case]) -> None:
    assert refuses(one_shot.SPEC, case_of("one_shot", size_bytes=0), TRAITS) is None


def test_a_size_that_does_not_divide_is_refused(fit_case: Callable[..., Case]) -> None:
    case = replace(fit_case(reduce_scatter_pull.SPEC, world_size=8), size_bytes=2 * 1001)
    reason = refuses(reduce_scatter_pull.SPEC, case, TRAITS)
    assert reason == "reduce_scatter divides its elements evenly: 1001 are no multiple of 8 ranks"


def test_a_message_too_large_is_refused(case_of: Callable[..., Case]) -> None:
    most = ll.SPEC.max_size_bytes
    assert most is not None
    assert refuses(ll.SPEC, case_of("ll", size_bytes=most), TRAITS) is None
    reason = refuses(ll.SPEC, case_of("ll", size_bytes=most + 2), TRAITS)
    limit = f"up to {most} bytes, not {most + 2}"
    assert reason == f"all_reduce/ll is for small messages: {limit}; take all_reduce/two_shot"


@pytest.mark.parametrize("spec", catalogue.SPECS, ids=lambda spec: spec.name)
def test_what_a_refusal_of_a_size_advises_exists_and_takes_it(spec: KernelSpec, fit_case: Callable[..., Case]) -> None:
    """Of every kernel of the catalogue, as if it were for small messages; a brought one may be of any op."""
    most = spec.max_size_bytes if spec.max_size_bytes is not None else 0
    case = fit_case(spec, world_size=8)
    case = replace(case, size_bytes=most + 8 * 16 * case.itemsize)
    refusal = refuses_for(replace(spec, max_size_bytes=most), catalogue.collective(spec.op), case, TRAITS)
    assert refusal is not None
    assert (refusal.key, f"up to {most} bytes, not {case.size_bytes}" in refusal.hint) == ("sizes", True)
    named = re.findall(r"\w+/\w+", refusal.hint)
    assert bool(named) == (spec.max_size_bytes is not None)
    for name in named:
        other = catalogue.find(name)
        assert refuses(other, replace(case, algorithm=other.algorithm), TRAITS) is None


@pytest.mark.parametrize(("root", "fit"), [(0, True), (7, True), (8, False), (-1, False)])
def test_a_root_is_one_of_the_ranks(fit_case: Callable[..., Case], root: int, fit: bool) -> None:
    reason = refuses(reduce_pull.SPEC, fit_case(reduce_pull.SPEC, world_size=8, root=root), TRAITS)
    assert (reason is None) == fit
    assert fit or reason == f"reduce has no root {root}: give 0 to 7"


def test_a_missing_multicast_is_refused_with_the_fabrics_reason(case_of: Callable[..., Case]) -> None:
    reason = refuses(multimem_one_shot.SPEC, case_of("multimem_one_shot"), NO_MULTICAST)
    assert reason is not None
    assert reason.endswith("the machine has no NVSwitch")


def test_ranks_that_do_not_see_each_others_memory_are_named(case_of: Callable[..., Case]) -> None:
    traits = replace(TRAITS, unmapped="rank 0 can't reach ranks 4, 5")
    reason = refuses(two_shot.SPEC, case_of("two_shot"), traits)
    assert reason is not None
    assert reason.endswith("needs every rank's memory mapped on every other: rank 0 can't reach ranks 4, 5")


def test_an_architecture_without_the_instructions_is_refused(case_of: Callable[..., Case]) -> None:
    reason = refuses(one_shot.SPEC, case_of("one_shot"), replace(TRAITS, arch="sm_80"))
    assert reason is not None
    assert "sm_80" in reason
    assert "sm_90a" in reason


def test_a_refusal_is_about_a_configuration_key(case_of: Callable[..., Case]) -> None:
    """What the fabric lacks is about the fabric's keys; and the sentence is made of reason and hint."""
    op = catalogue.collective("all_reduce")
    missing = refuses_for(multimem_one_shot.SPEC, op, case_of("multimem_one_shot"), NO_MULTICAST)
    reason = "all_reduce/multimem_one_shot needs multicast addresses, and the fabric simulator has none"
    assert missing == Refusal("fabric.multicast", reason, "the machine has no NVSwitch")
    assert str(missing) == f"{reason}: the machine has no NVSwitch"
    changes: list[tuple[dict[str, object], str]] = [
        ({"arch": "sm_80"}, "fabric.arch"),
        ({"unmapped": "rank 0 can't reach rank 4"}, "fabric"),
        ({"multiprocessors": 3}, "sizes"),
    ]
    for change, key in changes:
        found = refuses_for(one_shot.SPEC, op, case_of("one_shot"), replace(TRAITS, **change))  # type: ignore[arg-type]
        assert found is not None
        assert found.key == key
    assert str(Refusal("sizes", "too many")) == "too many"


def test_what_needs_another_ptx_makes_another_variant(case_of: Callable[..., Case]) -> None:
    case = case_of("one_shot")
    variant = one_shot.SPEC.variant(case)
    for same in ({"size_bytes": 64}, {"seed": 3}, {"inputs": "exact"}):
        assert one_shot.SPEC.variant(replace(case, **same)) == variant  # type: ignore[arg-type]
    for other in ({"world_size": 4}, {"dtype": "float16"}, {"accumulator": "native"}):
        assert one_shot.SPEC.variant(replace(case, **other)) != variant  # type: ignore[arg-type]


def test_cases_have_one_id_each(case_of: Callable[..., Case]) -> None:
    case = case_of("one_shot")
    changes: list[dict[str, object]] = [{"placement": "in_place"}, {"seed": 1}, {"root": 1}, {"offset": 1}]
    others = [case_of("one_shot", **one) for one in changes]
    assert len({case.id, case_of("two_shot").id, *(other.id for other in others)}) == 6
    assert replace(case).id == case.id
    assert case.numel == 1 << 19


def test_workspaces_begin_with_zeros_a_pattern_or_anything() -> None:
    assert Workspace("epochs", 4).initial(16) == bytes(16)
    assert Workspace("scratch", 4, zeroed=False).initial(16) is None
    assert Workspace("inbox", 4, fill=b"\0\0\0\x80").initial(16) == b"\0\0\0\x80" * 4
    with pytest.raises(AssertionError, match="inbox: 12 bytes are no multiple of 8"):
        Workspace("inbox", 3, fill=bytes(8)).initial(12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fold": "rank"}, "fold has no 'rank', give rank_order, from_next_rank, unordered"),
        ({"placements": ("out_place",)}, "placements has no 'out_place', give out_of_place, in_place"),
        ({"placements": "in_place"}, "placements is the text 'in_place', give a tuple: ('in_place',)"),
        ({"dtypes": ()}, "dtypes is empty, give some of "),
        ({"dtypes": ("bfloat16", "bf16")}, "dtypes has no 'bf16', give "),
        ({"accumulators": ("float31",)}, "accumulators has no 'float31', give "),
        ({"reductions": ("total",)}, "reductions has no 'total', give "),
        ({"positive_zero": "yes"}, "positive_zero has no 'yes', give "),
    ],
)
def test_a_spec_with_a_value_that_means_nothing_is_refused_when_it_is_made(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"^all_reduce/one_shot: {re.escape(words)}"):
        replace(one_shot.SPEC, **change)
