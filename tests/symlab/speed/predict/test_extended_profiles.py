"""Profiles that were extended to larger messages are what simulating the whole gives."""

import itertools
from dataclasses import astuple, replace

import pytest

from cases.case import Case
from kernels.catalogue import NVSHMEM_SPECS, SPECS, find
from kernels.tuning import ANY_SIZE, MAX_WORLD_SIZE
from memory.fabric import Executable
from reports.record.bundle import KERNELS_NAME
from reports.record.bundle import PUBLISHED as PLACE
from runner.request.experiments import CONF
from simulator.clock.costs import H200_TRIAL
from symlab.speed.predict import profile_cache, profiling, recorded_kernels
from symlab.speed.predict.case_work import weighed
from symlab.speed.predict.published import runnable_of


@pytest.fixture(scope="module")
def kernels():
    return recorded_kernels.read(CONF.parent / PLACE / "h200-x2" / KERNELS_NAME)


def _runnable(kernels, op, algorithm, size_bytes):
    (key,) = (
        key
        for key, one in kernels.launches.items()
        if (one.case.op, one.case.algorithm, one.case.size_bytes) == (op, algorithm, size_bytes)
        and one.case.dtype == "bfloat16"
    )
    return runnable_of(kernels, key)


@pytest.mark.parametrize(
    ("op", "algorithm", "how"),
    [
        ("all_reduce", "one_shot", "blocks"),
        ("all_gather", "push", "blocks"),
        ("send_recv", "pull", "rounds"),
        pytest.param("all_reduce", "two_shot", "blocks", marks=pytest.mark.slow),
        pytest.param("broadcast", "bulk", "blocks", marks=pytest.mark.slow),
        pytest.param("reduce_scatter", "push", "rounds", marks=pytest.mark.slow),
    ],
)
def test_an_extended_profile_is_that_of_the_whole(op, algorithm, how, kernels, monkeypatch):
    runnable = _runnable(kernels, op, algorithm, 1 << 20)
    if how == "rounds":  # one block has all the work, so that its rounds are extended
        runnable = replace(runnable.resized(1 << 20, 1), least_blocks=1)
    whole = profiling.profiled(runnable, H200_TRIAL)
    monkeypatch.setattr(profiling, "WHOLE_BYTES", 256 << 10)
    extended = profiling.profiled(runnable, H200_TRIAL)
    assert (whole.how, extended.how) == ("simulated", how)
    assert extended.least == whole.least
    if how == "blocks":
        assert extended.steps == pytest.approx(whole.steps)
    costs = H200_TRIAL.document()
    assert weighed(extended.steps, costs) == pytest.approx(weighed(whole.steps, costs), rel=0.03)
    # Flags are few bytes, and are not a block's share.
    for phase, other_phase in zip(extended.phases, whole.phases, strict=True):
        assert phase.memory_bytes == pytest.approx(other_phase.memory_bytes, rel=0.01, abs=16384)
        ways = (sorted(one.directions, key=str) for one in (phase, other_phase))
        for one, other in zip(*ways, strict=True):
            assert astuple(one) == pytest.approx(astuple(other), rel=0.01, abs=4096)


def _most(work, name):
    """The largest number of bytes of a direction, of any phase."""
    return max(getattr(one, name) for phase in work.phases for one in phase.directions)


def test_bytes_over_links_are_the_closed_forms(kernels):
    size = 64 << 10
    pulled = profiling.profiled(_runnable(kernels, "all_reduce", "one_shot", size), H200_TRIAL, {})
    assert _most(pulled, "answered") == size  # each of two ranks reads the other's whole input
    pushed = profiling.profiled(_runnable(kernels, "all_reduce", "lamport", size), H200_TRIAL, {})
    assert size <= _most(pushed, "written") <= size + 4096
    assert _most(pushed, "answered") == 0
    bulk = profiling.profiled(_runnable(kernels, "all_gather", "bulk", size), H200_TRIAL, {})
    assert _most(bulk, "copied") == size // 2, "a rank's half, to the other"
    assert _most(bulk, "written") < 4096, "flags"
    assert max(one.memory_bytes for one in bulk.phases) == pytest.approx(1.5 * size, abs=4096), "read, and both stored"


def test_bytes_in_memory_are_the_closed_forms_phase_by_phase(kernels):
    """reduce_scatter/push on 2 ranks, of N bytes: a rank reads the other's half of its input and stores it into the
    other's inbox, as the other does with its own; then it reads its inbox and its input's half, and writes their sum.
    That all threads look peers' addresses up, in the same few lines, is not traffic."""
    size = 64 << 10
    pushed = profiling.profiled(_runnable(kernels, "reduce_scatter", "push", size), H200_TRIAL, {})
    first, again = (one for one in pushed.phases if one.memory_bytes > 4096)
    assert first.memory_bytes == pytest.approx(size, abs=4096)
    assert _most(replace(pushed, phases=(first,)), "written") == pytest.approx(size / 2, abs=4096)
    assert again.memory_bytes == pytest.approx(1.5 * size, abs=4096)
    assert all(max(astuple(one)) < 4096 for one in again.directions), "nothing but flags over links"


def test_a_resized_message_has_whole_elements_for_each_rank(kernels):
    runnable = _runnable(kernels, "reduce_scatter", "push", 64 << 10)
    assert runnable.resized(4099, 1).case.size_bytes == 4096
    assert runnable.resized(1, 1).case.size_bytes == 4
    assert runnable.resized(0, 1).case.size_bytes == 0


@pytest.mark.parametrize(
    ("size", "blocks", "least", "found"),
    [
        (1 << 20, 64, 1, (1 << 20, 64)),
        (16 << 20, 64, 1, (1 << 20, 4)),
        (256 << 20, 64, 1, (4 << 20, 1)),
        (256 << 20, 64, 4, (16 << 20, 4)),
        (4 << 20, 96, 3, (1 << 20, 24)),
        (4 << 20, 33, 1, (4 << 20, 33)),
    ],
)
def test_blocks_are_halved_with_the_message_and_stay_multiples(size, blocks, least, found):
    assert profiling.shrunk(size, blocks, least, 1 << 20) == found


@pytest.mark.slow
def test_an_extended_profile_on_16_ranks_is_that_of_the_whole(cache, monkeypatch):
    """What predictions of many ranks rely on: fewer blocks with as much for each have the path of all."""
    case = Case("all_reduce", "two_shot", "bfloat16", "float32", "sum", 1 << 20, 16)
    runnable = profile_cache.runnable_of(case, find(case.name), "sm_90a", cache)
    extended = profiling.profiled(runnable, H200_TRIAL, {})
    monkeypatch.setattr(profiling, "WHOLE_RANKS", 16)
    whole = profiling.profiled(runnable, H200_TRIAL, {})
    assert (whole.how, extended.how) == ("simulated", "blocks")
    costs = H200_TRIAL.document()
    assert weighed(extended.steps, costs) == pytest.approx(weighed(whole.steps, costs), rel=0.03)


@pytest.mark.slow
def test_the_switch_asks_every_gpu_for_what_it_reduces(cache):
    """Closed forms of all_reduce through the switch on 4 ranks, of N bytes. multimem_one_shot: each rank reduces all,
    so that each GPU answers the switch 4 N and gets N. multimem_two_shot: each rank reduces a quarter and stores it to
    all, so that N leaves each GPU as answers and N/4 as a store, and N/4 comes as an answer and N as stores."""
    size, found = 64 << 10, {}
    for algorithm in ("multimem_one_shot", "multimem_two_shot"):
        case = Case("all_reduce", algorithm, "bfloat16", "float32", "sum", size, 4)
        runnable = profile_cache.runnable_of(case, find(case.name), "sm_90a", cache)
        (found[algorithm],) = (
            one for one in profiling.profiled(runnable, H200_TRIAL, {}).phases if one.memory_bytes > size
        )
        # Each replica's input is read, and each output written, by whomever.
        assert found[algorithm].memory_bytes == pytest.approx(2 * size, abs=4096)
    one_shot, two_shot = (one.directions for one in found.values())
    assert sorted(one.answered for one in one_shot) == [size, 4 * size]
    assert {round(one.answered / size, 2) for one in two_shot} == {0.25, 1.0}
    leaving = next(one for one in two_shot if one.answered == size)
    entering = next(one for one in two_shot if one.answered == size // 4)
    assert leaving.written == pytest.approx(size / 4, abs=4096), "and flags"
    assert entering.written == pytest.approx(size, abs=4096)


@pytest.mark.parametrize("spec", SPECS + NVSHMEM_SPECS, ids=lambda spec: spec.name)
def test_a_resized_message_has_the_workspaces_of_the_code_of_the_whole(spec):
    """Where a smaller message takes another step of the tuning, such as two_shot that pulls up to 2 MiB, the workspaces
    are still those of the step that the code was compiled with."""
    code = Executable(spec.name, "entry", "sm_90a", "", "", b"")
    accumulator = "float32" if "float32" in spec.accumulators else spec.accumulators[0]
    for ranks, size in itertools.product((2, 4, 8), (4 << 20, 16 << 20, 256 << 20)):
        size_bytes = min(size, spec.max_size_bytes or size)
        dtype = "bfloat16" if "bfloat16" in spec.dtypes else spec.dtypes[0]
        whole = Case(spec.op, spec.algorithm, dtype, accumulator, spec.reductions[0], size_bytes, ranks)
        runnable = profile_cache.runnable_with(whole, spec, code)
        most_bytes = profiling.most_whole_bytes(ranks)
        size_bytes, blocks = profiling.shrunk(size_bytes, runnable.blocks, runnable.least_blocks, most_bytes)
        for asked in ((min(size_bytes, most_bytes), blocks), (profiling.LEAST_BYTES, runnable.least_blocks)):
            small = runnable.resized(*asked)
            needed = {one.name: one.size_bytes for one in _of_step(spec, whole).workspaces(small.case)}
            found = {one.name: one.size_bytes for one in small.spec.workspaces(small.case)}
            assert found.keys() == needed.keys()
            assert all(found[name] >= size for name, size in needed.items()), (small.case, found, needed)
            assert sum(found.values()) <= 128 << 20


def _of_step(spec, case):
    """The kernel with the step of a case for all sizes, and flags for as many blocks as it has."""
    tuning = spec.tuning
    step = tuning.step(case)
    never = replace(step, blocks=tuning.max_blocks, up_to_bytes=-1)
    always = replace(step, up_to_bytes=ANY_SIZE, up_to_ranks=MAX_WORLD_SIZE)
    return spec.retuned(replace(tuning, steps=(never, always)))


def _clocked(name, ranks, size_bytes, folder):
    spec = find(name)
    accumulator = "float32" if "float32" in spec.accumulators else spec.accumulators[0]
    case = Case(*name.split("/"), "bfloat16", accumulator, spec.reductions[0], size_bytes, ranks)
    return profiling.clocked(profile_cache.runnable_of(case, spec, "sm_90a", folder), H200_TRIAL)


def test_one_shot_waits_for_two_barriers_and_one_load(cache):
    found = _clocked("all_reduce/one_shot", 4, 64 << 10, cache)
    assert found.path.counts == {
        "own_load": 1,  # the table of peers' flags
        "remote_load": 1,
        "hop": 2,
        "store": 2,
        "fence": 1,
        "fence_after_stores": 1,
        "barrier": 2,
    }
    assert found.path.total_us == pytest.approx(0.3 + 2 * (0.58 + 0.69) + 0.87)
    body = found.phases[1]
    for viewer in range(4):
        assert body.bytes("read", viewer=viewer, target=(viewer + 1) % 4) == 64 << 10


def test_two_shot_beyond_the_messages_that_it_pulls_is_simulated(cache):
    """Of 4 MiB it pushes, with a scratch that 1 MiB does not have."""
    case = Case("all_reduce", "two_shot", "bfloat16", "float32", "sum", 4 << 20, 2)
    work = profile_cache.work_of(case, find(case.name), "sm_90a", cache)
    assert work.how == "blocks"
    assert _most(work, "written") == pytest.approx(2 << 20, abs=65536), "in each phase: half to the other, its sum back"
