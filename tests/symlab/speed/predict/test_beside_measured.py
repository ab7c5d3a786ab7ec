"""timing.predict: what stands beside a measured time is the model's time of the code that was timed, or a reason."""

import dataclasses
import math

import pytest

from cases.case import Case
from cases.record.request import RecordedEnvironment
from cases.record.timing import Timing
from kernels.baselines import find_baseline
from kernels.catalogue import find
from kernels.compile import executable
from runner.case.contestant import Contestant
from runner.gpu.reading import gpu_type
from runner.request.compose import compose_jobs, gpu_asked, hydra_over
from runner.request.gpu_types import NO_GPU
from runner.request.schema import TimingMode
from runner.request_error import RequestError
from simulator.run import schedule
from symlab.speed.predict import beside, budget, profile_cache, profiling
from symlab.speed.predict.beside import beside_measured, digest_of_rates
from symlab.speed.predict.of_request import check_beside, type_beside
from symlab.speed.predict.predicting import predicted
from symlab.speed.predict.rates import rates_of
from symlab.speed.predict.stored_score import stored
from tests.golden import refused, same_text
from tests.patience import NEVER_S, Clock
from tests.runner.conftest import on_its_fabric

CASE = Case("all_reduce", "one_shot", "bfloat16", "float32", "sum", 4096, 2, "out_of_place")
TIMING = Timing(
    mode="graph",
    window="kernel",
    l2="rotate",
    slots=50,
    slot_bytes=8192,
    warmup_calls=150,
    calls_per_sample=50,
    bus_factor=1.0,
    samples_us=((5.0, 6.0, 7.0), (5.5, 5.0, 7.5)),
    checked_before=64,
    checked_after=128,
    interleaved_with=("two_shot",),
    l2_bytes=62914560,
)


def contestant(cache, case=CASE):
    spec = find(case.name)
    return Contestant(case, spec, executable(spec, case, "sm_90a", cache))


def told(cache, timing=TIMING, type_="h200", case=CASE):
    found = beside_of(cache, timing, type_, case)
    assert found.time is not None, found.reason
    return found.time


@pytest.mark.parametrize("algorithm", ["one_shot", "multimem_one_shot"])
def test_the_time_beside_is_that_of_symlab_predict(cache, algorithm):
    """The interval, too: waits of multimem are assumed, and widen it."""
    case = dataclasses.replace(CASE, algorithm=algorithm)
    found = told(cache, case=case)
    known = rates_of(gpu_type("h200"))
    alone = predicted(case, find(case.name), known, stored(), "sm_90a", cache, 2)
    assert (found.time_us, found.low_us, found.high_us) == (alone.time_us, alone.low_us, alone.high_us)
    assert (found.regime, found.gpu, found.remarks) == (alone.regime, "h200", alone.remarks)
    low, high = stored().intervals[found.regime]
    is_wider = found.low_us < found.time_us * low and found.high_us > found.time_us * high
    assert is_wider == (algorithm == "multimem_one_shot")
    work = profile_cache.work_of(case, find(case.name), "sm_90a", cache)
    assert found.work == {**work.document(), "form": profile_cache.FORM}
    assert found.floors_digest == digest_of_rates(known.rates)


def test_the_ratio_is_of_the_measured_median_and_terms_make_the_time(cache):
    found = told(cache)
    assert found.ratio == TIMING.median_us / found.time_us
    assert math.isclose(found.terms.time_us, found.time_us, rel_tol=1e-12)
    rest = sum(found.path_us.values()) - found.terms.least_us
    assert math.isclose(found.terms.more_us, max(rest, 0.0), rel_tol=1e-9, abs_tol=1e-9)
    slow = told(cache, dataclasses.replace(TIMING, samples_us=((50.0,), (51.0,))))
    assert slow.time_us == found.time_us
    assert (slow.ratio, slow.verdict) == (51.0 / slow.time_us, "slower than predicted")
    assert slow.sentence().startswith(f"{slow.ratio:.2f} times the predicted {slow.time_us:.2f} us")
    quick = told(cache, dataclasses.replace(TIMING, samples_us=((1.0,), (1.0,))))
    assert quick.verdict == "faster than predicted"


def test_the_footprint_is_that_of_the_measurement(cache):
    """More buffers in turn than the L2 cache holds: the cold term, and nothing else, is longer."""
    few, many = told(cache), told(cache, dataclasses.replace(TIMING, slots=50, slot_bytes=1 << 22))
    assert few.terms.cold_us < many.terms.cold_us == pytest.approx(stored().constants.cold_us)
    assert dataclasses.replace(many.terms, cold_us=0.0) == dataclasses.replace(few.terms, cold_us=0.0)


def test_other_constants_or_floors_have_other_digests(cache):
    h200, h100 = told(cache), told(cache, type_="h100")
    assert h200.constants_digest == h100.constants_digest
    assert h200.floors_digest != h100.floors_digest
    assert h100.remarks == ("constants and interval of h200, floors of h100",)


def changed_timing(**changes):
    return dataclasses.replace(TIMING, **changes)


@pytest.mark.parametrize(
    "asked",
    [
        {"timing": changed_timing(mode="eager")},
        {"timing": changed_timing(window="both_barriers")},
        {"timing": changed_timing(l2="hot", slots=1)},
        {"case": dataclasses.replace(CASE, world_size=1)},
        {"type_": "b200"},
        {"case": dataclasses.replace(CASE, algorithm="one_shot@d")},
        {"case": Case("all_to_all_v", "push", "bfloat16", "none", "none", 4096, 2, counts="skewed")},
    ],
)
def test_what_the_model_is_not_of_has_a_reason(cache, asked):
    found = beside_of(cache, **asked)
    assert found.time is None
    same_text(found.reason)


def test_a_library_has_a_reason(cache):
    baseline = find_baseline("nccl")
    case = dataclasses.replace(CASE, algorithm="nccl", accumulator="library")
    found = beside_measured(Contestant(case, baseline), TIMING, gpu_type("h200"), cache)
    assert found.reason == "nccl is a library's, and the model is of the catalogue's kernels"


def test_a_case_that_takes_too_long_has_a_reason_and_no_profile_is_kept(tmp_path, cache, monkeypatch):
    clock = Clock(looks=3)
    for module in (budget, profiling, schedule):
        monkeypatch.setattr(module, "time", clock)
    one = contestant(cache, dataclasses.replace(CASE, size_bytes=1 << 16))
    found = beside_measured(one, TIMING, gpu_type("h200"), tmp_path, limit_s=NEVER_S)
    assert (found.time, found.reason) == (None, f"simulating it takes longer than {NEVER_S:g} s")
    assert not list(tmp_path.glob("profile-*"))


def test_a_kernel_that_fails_in_the_simulator_has_a_reason(tmp_path, cache):
    one = contestant(cache)
    broken = dataclasses.replace(one.executable, ptx="no PTX at all", digest="sha256:00")
    found = beside_measured(dataclasses.replace(one, executable=broken), TIMING, gpu_type("h200"), tmp_path)
    assert found.time is None
    assert found.reason.startswith("not simulated: ")
    assert "\n" not in found.reason


@pytest.mark.parametrize("error", [MemoryError(), TypeError("unhashable"), AttributeError("no such name")])
def test_whatever_goes_wrong_is_a_reason(cache, monkeypatch, error):
    def fails(*_):
        raise error

    monkeypatch.setattr(beside, "kept_work", fails)
    said = f"{type(error).__name__}: {error}".removesuffix(": ")
    assert beside_of(cache).reason == f"not simulated: {said}"


def test_the_code_that_was_timed_is_simulated_and_none_is_compiled(tmp_path, cache, monkeypatch):
    one = contestant(cache)

    def compiles(*_):
        raise AssertionError("compiled again")

    monkeypatch.setattr(profile_cache, "executable", compiles)
    assert beside_measured(one, TIMING, gpu_type("h200"), tmp_path).time is not None


def composed_job(*words, config_dir=None):
    with hydra_over(config_dir):
        (job,) = compose_jobs([*words, "timing.predict=true"], multirun=False)
    return job


def composed_request(*words):
    return on_its_fabric(composed_job(*words).request)


@pytest.mark.parametrize(
    ("words", "devices"),
    [
        (["fabric=simulator"], ()),
        (["fabric=nvshmem", "timing.mode=none"], ()),
        (["fabric=nvshmem", "timing.lead_in_calls=5"], ()),
        (["fabric=nvshmem", "timing.shared=true"], ()),
        (["fabric=nvshmem"], ("NVIDIA X1",)),
        (["fabric=nvshmem"], ("NVIDIA H200", "NVIDIA H100 80GB HBM3")),
        (["fabric=nvshmem"], ("NVIDIA B200",)),
    ],
)
def test_what_can_have_no_prediction_is_refused_in_one_line(words, devices):
    with refused(RequestError) as raised:
        check_beside(composed_request(*words), NO_GPU, devices)
    assert "\n" not in str(raised.value)


def test_the_type_is_that_of_the_gpus_or_the_one_that_is_named():
    assert type_beside(None, NO_GPU, ("NVIDIA H200", "NVIDIA H200")).name == "h200"
    named = composed_job("fabric=nvshmem", "fabric.gpu=b200")
    check_beside(on_its_fabric(named.request), named.gpu, ("NVIDIA X1",))
    assert type_beside(named.request.fabric.gpu, named.gpu, ("NVIDIA X1",)).name == "b200"
    check_beside(composed_request("fabric=nvshmem"), NO_GPU, ("NVIDIA H200",))
    check_beside(composed_request("fabric=nvshmem"), NO_GPU, ())


MINE = "like: h200\nfloors: null\ntrial:\n  source: 'measured: a test, 2026-11'\n  ranks: 2\n  relaxed_us: 9.5\n"


def relaxed_us_of(job):
    """What the type that a job's predictions are of has as its trial's latency."""
    found = type_beside(job.request.fabric.gpu, job.gpu, ())
    return found.trial.relaxed_us


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mine", "h200"])
def test_a_file_of_a_type_is_read_however_it_is_named(tmp_path, name):
    """On the command line, quoted, in an experiment, by an alias; also a file with the name of a known type."""
    path = tmp_path / f"{name}.yaml"
    path.write_text(MINE)
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "own.yaml").write_text(f"# @package _global_\nfabric:\n  gpu: {path}\n")
    for words in ([f"fabric.gpu={path}"], [f"fabric.gpu='{path}'"], [f"fabric.gpu={{like: '{path}'}}"], ["+exp=own"]):
        job = composed_job("fabric=nvshmem", *words, config_dir=tmp_path)
        assert relaxed_us_of(job) == 9.5, words
        assert gpu_asked(job.overrides, tmp_path) == job.gpu, "resumed, or replayed"
        check_beside(on_its_fabric(job.request), job.gpu, ())


def test_types_of_the_added_folder_are_known(tmp_path):
    """By name, and by what CUDA calls the GPUs of this machine."""
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "mine.yaml").write_text(f"{MINE}devices: [NVIDIA X1]\n")
    named = composed_job("fabric=nvshmem", "fabric.gpu=mine", config_dir=tmp_path)
    assert relaxed_us_of(named) == 9.5
    found = composed_job("fabric=nvshmem", config_dir=tmp_path)
    assert type_beside(None, found.gpu, ("NVIDIA X1",)).name == "mine"
    check_beside(on_its_fabric(found.request), found.gpu, ("NVIDIA X1",))


def test_without_predictions_gpus_keep_their_own_limits():
    with hydra_over():
        (job,) = compose_jobs(["fabric=nvshmem"], multirun=False)
        with refused(RequestError):
            compose_jobs(["fabric=nvshmem", "fabric.gpu=h200"], multirun=False)
    assert (job.request.timing.predict, job.request.timing.mode) == (False, TimingMode.graph)


def test_the_devices_are_those_of_the_ranks():
    ranks = [{"rank": one, "device": {"name": "NVIDIA H200"}} for one in range(2)]
    gpus = ({"model": "NVIDIA H100 80GB HBM3"},)
    assert RecordedEnvironment(world={"ranks": ranks}, gpus=gpus).devices == ("NVIDIA H200",)
    assert RecordedEnvironment(gpus=gpus).devices == ("NVIDIA H100 80GB HBM3",)
    assert RecordedEnvironment().devices == ()


def beside_of(cache, timing=TIMING, type_="h200", case=CASE):
    return beside_measured(contestant(cache, case), timing, gpu_type(type_), cache)
