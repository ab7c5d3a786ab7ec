"""Our kernels under the race checker: no finding; and with a release or an acquire taken out of the PTX, a finding."""

import hashlib
from dataclasses import replace

import pytest

from cases.case import Case
from kernels.catalogue import NAMES, find
from kernels.compile import executable
from runner.case.program import Plan, run_case
from runner.world.threads import ThreadWorld
from simulator.world import SimulatedWorld, SimulatorOptions

SAMPLE = ("all_reduce/ll", "all_reduce/multimem_two_shot", "all_gather/bulk")


def found(name, ranks, size_bytes, cache, changed=("", ""), **how):
    """What is found while a kernel runs with the checks of the runner. changed: a piece of its PTX, and what for it.
    how: other options of the simulator."""
    spec = find(name)
    dtype = "float32" if "float32" in spec.dtypes else spec.dtypes[0]
    accumulator = "float32" if "float32" in spec.accumulators else spec.accumulators[0]
    size_bytes = 4 if name.startswith("barrier") else size_bytes
    case = Case(*name.split("/"), dtype, accumulator, spec.reductions[0], size_bytes, ranks)
    compiled = executable(spec, case, "sm_90a", cache)
    if changed[0]:
        assert changed[0] in compiled.ptx
        ptx = compiled.ptx.replace(*changed)
        compiled = replace(compiled, ptx=ptx, digest="sha256:" + hashlib.sha256(ptx.encode()).hexdigest())
    machine = SimulatedWorld(ranks, SimulatorOptions(heap_bytes=16 << 20, races=True, **how))
    world = ThreadWorld(ranks, machine=machine)
    outcomes = world.run(run_case, Plan(case, spec, compiled), 600)
    assert changed[0] or not any(one.check is not None and one.check.wrong for one in outcomes)
    findings = machine.findings
    world.close()
    explained = () if changed[0] else compiled.assumptions
    return tuple(one for one in findings if one.severity != "advisory" or one.assumption not in explained)


ORDERS = (
    {"schedule": "random"},
    {"schedule": "random", "memory": "weak"},
    {"schedule": "random", "granularity": "block"},
    {"schedule": "adversarial"},
    {"schedule": "adversarial", "memory": "weak"},
)
"""pytest's plugin has the checker on under seeds, too."""


def said(*arguments, **how):
    return [one.sentence() for one in found(*arguments, **how)]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_is_clean(name, tmp_path):
    assert said(name, 2, 4096, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_all_are_clean(name, tmp_path):
    for ranks in (2, 4):
        for size_bytes in (4096, 65536):
            assert said(name, ranks, size_bytes, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("how", [ORDERS[1], ORDERS[3]], ids=lambda how: "-".join(how.values()))
def test_all_are_clean_in_other_orders(how, tmp_path):
    for name in NAMES:
        assert said(name, 2, 1024, tmp_path, **how) == [], name


@pytest.mark.parametrize("how", ORDERS, ids=lambda how: "-".join(how.values()))
@pytest.mark.parametrize("changed", [("st.release.sys", "st.relaxed.sys"), ("ld.acquire.sys", "ld.relaxed.sys")])
def test_other_orders_find_what_is_missing(how, changed, tmp_path):
    findings = found("all_reduce/two_shot", 2, 1024, tmp_path, changed, **how)
    assert any(one.fails for one in findings)


@pytest.mark.parametrize(
    ("name", "changed", "missing"),
    [
        ("all_reduce/two_shot", ("st.release.sys", "st.relaxed.sys"), "a release"),
        ("all_reduce/two_shot", ("ld.acquire.sys", "ld.relaxed.sys"), "an acquire"),
        ("all_reduce/two_shot", ("st.release.sys", "st.release.gpu"), "a wider scope"),
        ("barrier/multimem", ("fence.proxy.alias;", ""), "fence.proxy.alias"),
    ],
)
def test_a_kernel_without_its_order_is_not(name, changed, missing, tmp_path):
    assert missing in {one.missing for one in found(name, 2, 4096, tmp_path, changed)}
