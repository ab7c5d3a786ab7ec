"""multimem instructions over several ranks, in both models of the switch, against exact sums and stated folds."""

import pytest

from cases.multimem import FLOAT8_ARCHS
from memory.fabric import DeviceFault
from tests.golden import refused
from tests.simulator.harness import HEADER, module, refuse_unsupported
from tests.simulator.multimem_bench import bench_of


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("model", ["exact", "stated"])
def test_vectors(ranks, model):
    bench_of(ranks).check(model)


@pytest.mark.parametrize("model", ["exact", "stated"])
def test_a_wrong_register_and_a_wrong_cell_are_noticed(model, monkeypatch):
    bench = bench_of(2)
    memories = bench.run(model)
    number = next(i for i, one in enumerate(bench.vectors) if one.after is not None and not one.outputs)
    memories[1][0][bench.outputs[0][next(iter(bench.outputs[0]))]] ^= 1
    memories[1][1][bench.cells[number]] ^= 1
    monkeypatch.setattr(bench, "run", lambda model: memories)
    with refused(AssertionError):
        bench.check(model)


FP8 = (
    "multimem.ld_reduce.relaxed.sys.global.add.acc::f16.e5m2x4 %r1, [%d1];",
    "multimem.ld_reduce.weak.global.min.v2.e4m3x2 {%h1, %h2}, [%d1];",
    "multimem.st.relaxed.sys.global.v4.e4m3x4 [%d1], {%r1, %r2, %r3, %r4};",
)


@pytest.mark.parametrize("text", FP8)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100", "sm_120f"])
def test_an_arch_without_8_bit_floats_in_its_switch_is_refused(text, arch):
    with refused(DeviceFault):
        refuse_unsupported(module(text, target=arch), "kernel")


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100", "sm_110a", "sm_120a"])
def test_an_arch_without_redux_of_floats_is_refused(arch):
    text = "redux.sync.min.abs.f32 %r1, %r2, -1;"
    with refused(DeviceFault):
        refuse_unsupported(module(text, target=arch))
    for other in ("sm_100a", "sm_103f"):
        refuse_unsupported(module(text, target=other))


@pytest.mark.parametrize("text", FP8)
@pytest.mark.parametrize("arch", FLOAT8_ARCHS)
def test_the_others_take_them(text, arch):
    refuse_unsupported(module(text, target=arch), "kernel")


def test_the_header_is_that_of_the_arch():
    assert ".target sm_100a\n" in module("", target="sm_100a")
    assert module("").startswith(HEADER)
