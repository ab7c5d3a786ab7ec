"""Predicted times of matmuls: the constants are those of measured times, and hold for other shapes."""

import dataclasses
import functools
import itertools
import json
from collections import defaultdict

import numpy as np
import pytest
from scipy import optimize

import symlab
from kernels.baselines import find_baseline
from kernels.fused import tuning_of, waves_of
from runner.gpu.reading import gpu_type
from symlab.speed.predict import matmuls
from symlab.speed.predict.rates import rates_of
from symlab.speed.predict.stored_score import PLACE, README

RATES = rates_of(gpu_type("h200")).rates
TABLE = json.loads(PLACE.with_name("matmuls_h200.json").read_text(encoding="utf-8"))


@functools.cache
def validated(name, ranks):
    return symlab.case(name, gemm=(512, 4096, 4096), ranks=ranks)


def case_of(op, name, ranks, *gemm):
    """A case of the table: each kernel is validated once, and its cases differ in gemm."""
    return dataclasses.replace(validated(f"{op}/{name}", ranks), gemm=gemm, size_bytes=2 * gemm[0] * gemm[1])


CASES = [case_of(*line[:-1]) for line in TABLE["times"]]
MEASURED = np.array([line[-1] for line in TABLE["times"]])
OPS = ("matmul", "all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce")
FUSED = [name for name in matmuls.ADDED if name != "matmul/tiles"]
START = np.array([3.0, 1.0, *[7.0] * 3, *[10.0] * len(FUSED), *[0.5] * len(FUSED)])


def features(case):
    """What each constant of START is multiplied by."""
    tuning, link_us = tuning_of(case), matmuls.link_us(case, RATES)
    waves = waves_of(case, tuning)
    depth = [waves * case.gemm[2] / 1e3 * (tuning.columns == columns) for columns in matmuls.DEPTH_NS]
    is_it = [float(case.name == name) for name in FUSED]
    others = np.sqrt(case.world_size - 1)
    return [1.0, waves, *depth, *(one * others for one in is_it), *(one * link_us for one in is_it)]


FEATURES = np.array([features(case) for case in CASES])


def fitted(kept):
    def errors(constants):
        return np.log(np.maximum(FEATURES[kept] @ constants, 0.1) / MEASURED[kept])

    return optimize.least_squares(errors, START, loss="huber", f_scale=0.03, x_scale=START).x


def test_the_constants_are_those_of_the_measured_times():
    kept = [matmuls.BEGIN_US, matmuls.WAVE_US, *matmuls.DEPTH_NS.values()]
    kept += [matmuls.ADDED[name][at] for at in (0, 1) for name in FUSED]
    assert fitted(np.full(len(CASES), True)) == pytest.approx(kept, rel=2e-3)
    predicted = [matmuls.time_us(case, RATES) for case in CASES]
    assert predicted == pytest.approx(FEATURES @ np.array(kept))


def test_shapes_that_were_left_out_have_the_errors_that_the_page_says():
    predicted = np.zeros(len(CASES))
    for shape in {case.gemm for case in CASES}:
        kept = np.array([case.gemm != shape for case in CASES])
        predicted[~kept] = FEATURES[~kept] @ fitted(kept)
    errors = np.abs(predicted / MEASURED - 1)
    fused = errors[[case.op != "matmul" for case in CASES]]
    said = (
        f"Of {len(CASES)} measured times, M, N and K left out, the median error is {np.median(errors):.1%}, the 95th "
    )
    said += f"percentile {np.quantile(errors, 0.95):.1%}; of fused ones alone {np.median(fused):.1%} and "
    said += f"{np.quantile(fused, 0.95):.1%}."
    assert said.replace("%", " %") in " ".join(README.read_text(encoding="utf-8").split())
    assert np.quantile(errors, 0.95) < 0.12
    ratios = np.quantile(MEASURED / predicted, [0.05, 0.95])
    assert ratios == pytest.approx(matmuls.INTERVAL, abs=0.01)


def test_the_law_of_2_gpus_has_the_errors_on_4_that_the_page_says():
    """As it was before 4 GPUs were measured: what is added did not grow with the number of other ranks."""
    ranks = np.array([case.world_size for case in CASES])
    before = FEATURES.copy()
    before[:, 5 : 5 + len(FUSED)] = before[:, 5 : 5 + len(FUSED)] > 0
    new = (ranks == 4) & [case.op != "matmul" for case in CASES]
    errors = np.abs(before[new] @ fitted(ranks < 4) / MEASURED[new] - 1)
    of_all = [f"{np.quantile(errors, share):.1%}" for share in (0.5, 0.95)]
    said = f"the {new.sum()} fused times of 4 GPUs by {of_all[0]} in the median, {of_all[1]} at"
    assert said.replace("%", " %") in " ".join(README.read_text(encoding="utf-8").split())


def test_no_prediction_is_below_the_links_or_the_memorys_time():
    for name, (m, n, k) in itertools.product(matmuls.ADDED, ((512, 64, 8192), (16384, 8192, 64), (16384, 64, 8192))):
        case = symlab.case(name, gemm=(m, n, k), ranks=2)
        c_us = 2 * m * n * (0.5 if "scatter" in name else 1.0) / RATES.memory_gbps / 1e3
        assert matmuls.time_us(case, RATES) > max(matmuls.link_us(case, RATES), c_us)


def test_what_was_measured_is_said():
    for is_fused in (False, True):
        sizes = np.array([case.gemm for case in CASES if (case.op != "matmul") == is_fused])
        ranges = zip(sizes.min(axis=0).tolist(), sizes.max(axis=0).tolist(), strict=True)
        assert tuple(ranges) == matmuls.MEASURED[is_fused]
    usual = symlab.case("matmul_all_reduce/inbox", gemm=(512, 4096, 4096), ranks=2, dtype="bfloat16")
    assert not list(matmuls.remarks(usual))
    for change in ({"world_size": 8}, {"dtype": "float16"}, {"gemm": (512, 4096, 4104 * 2)}):
        assert len(list(matmuls.remarks(dataclasses.replace(usual, **change)))) == 1


def test_the_page_of_kernels_has_these_times():
    """Over cuBLAS's; in parentheses the best library's."""
    times, rows = defaultdict(list), []
    for op, name, ranks, *gemm, us in (*TABLE["times"], *TABLE["times of libraries"]):
        times[op, find_baseline(name) is not None, ranks, tuple(gemm)].append(us)
    ratios = {key: min(us) / min(times["matmul", True, *key[2:]]) for key, us in times.items() if key[2] > 1}
    page = (PLACE.parents[3] / "kernels" / "README.md").read_text(encoding="utf-8")
    for gemm in {gemm for _, _, ranks, gemm in ratios if ranks == 4}:
        both = (
            [ratios[op, is_library, ranks, gemm] for is_library in (False, True)] for op in OPS[1:] for ranks in (2, 4)
        )
        rows.append(f"| {', '.join(map(str, gemm))} | {' | '.join(f'{us:.2f} ({them:.2f})' for us, them in both)} |")
    assert [row in page for row in rows] == [True] * 12, rows
    alone = defaultdict(list)
    for (op, is_library, _, gemm), ratio in ratios.items():
        if (op, is_library) == ("matmul", False):
            alone[gemm[1] == 5120 and gemm[0] < 4096].append(f"{ratio:.2f}")
    said = f"{min(alone[False])} to {max(alone[False])}, with 5120 columns and fewer rows to {max(alone[True])}."
    assert said in " ".join(page.split())
