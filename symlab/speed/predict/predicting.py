"""From a case to its predicted time: compile, simulate, weigh; with the interval of its regime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from cases.case import Case
from cases.ops import collective
from kernels.spec import KernelSpec
from runner.case.layout import slot_bytes
from runner.gpu.reading import gpu_type
from runner.timing.calls import HEAP_SHARE, calls_for, slots_for
from symlab.speed.predict import matmuls
from symlab.speed.predict.assumptions import SWITCH, WAIT_FACTOR, corners
from symlab.speed.predict.case_work import CaseWork
from symlab.speed.predict.model import REGIMES, Rates, Terms, columns, terms_of, times_us
from symlab.speed.predict.predictable import is_dependent
from symlab.speed.predict.profile_cache import work_of
from symlab.speed.predict.profiling import Clock
from symlab.speed.predict.rates import Known, rates_of
from symlab.speed.predict.score import Score
from symlab.speed.predict.splits import SCORED_RANKS

HEAP_BYTES = 8 << 30
"""Symmetric heap that a prediction assumes for the slots of all contestants: that of the published runs."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A case's predicted time on a type of GPU, never measured.

    time_us with the interval low_us to high_us: measured / predicted (from, to) of 90 % of the cases of its regime
    (score.py), of the shortest and the longest time by the rates of assumptions.py's corners, the first of which is
    time_us. busbw_gbps: as records have it. regime: of model.REGIMES, or "matmul" (matmuls.py). remarks: why it is
    worth less than its interval says. is_calibrated: whether the type has floors of its own.
    """

    case: Case
    gpu: str
    time_us: float
    low_us: float
    high_us: float
    busbw_gbps: float
    regime: str
    remarks: tuple[str, ...]
    is_calibrated: bool

    @property
    def tflops(self) -> float:
        """Return 10^12 operations a second of a rank's product; 0.0 of an op that multiplies nothing."""
        return self.case.flops / self.time_us / 1e6

    @property
    def is_worth_telling(self) -> bool:
        """Whether the time itself says something: on an uncalibrated type only where the links decide."""
        return self.is_calibrated or self.regime == REGIMES[2]


def predicted(
    case: Case,
    spec: KernelSpec,
    known: Known,
    score: Score,
    arch: str,
    cache_dir: Path,
    contestants: int,
    clock: Clock | None = None,
) -> Prediction:
    """Return the prediction of a case that the kernel does not refuse.

    known: the type of GPU; score: constants and intervals; arch: to compile for; cache_dir: where compiled kernels and
    profiles are kept; contestants: number of kernels that are measured in turns, which push each other's buffers out of
    the L2 cache; clock: see profiling.profiled. RuntimeError if the compiler fails, WorldFailure if the kernel fails in
    the simulator.
    """
    if case.gemm is not None:
        return _matmul(case, known, score)
    work = work_of(case, spec, arch, cache_dir, clock)
    footprint = footprint_bytes(case, known.rates, contestants)
    all_terms = [terms_of(work, rates, footprint, is_dependent(case.algorithm)) for rates in corners(known)]
    times = tuple(map(float, times_us(columns(all_terms), astuple(score.constants))))
    regime = all_terms[0].regime(score.constants)
    low, high = score.intervals[regime]
    moved = collective(case.op).bus_factor(case.world_size) * case.size_bytes
    return Prediction(
        case=case,
        gpu=known.name,
        time_us=times[0],
        low_us=min(times) * low,
        high_us=max(times) * high,
        busbw_gbps=moved / times[0] / 1e3,
        regime=regime,
        remarks=tuple(_remarks(work, known, score, case)),
        is_calibrated=known.is_calibrated,
    )


def _matmul(case: Case, known: Known, score: Score) -> Prediction:
    time_us, (low, high) = matmuls.time_us(case, known.rates), matmuls.INTERVAL
    remarks = (*_of_floors(known, score), *matmuls.remarks(case))
    return Prediction(case, known.name, time_us, time_us * low, time_us * high, 0.0, "matmul", remarks, True)


def footprint_bytes(case: Case, rates: Rates, contestants: int) -> float:
    """Return what the slots of all contestants have together, on a GPU. contestants: see predicted."""
    calls = calls_for(case.size_bytes, None)
    budget_bytes = int(HEAP_BYTES * HEAP_SHARE) // contestants
    slots = slots_for(slot_bytes(case), "rotate", rates.l2_bytes, calls, budget_bytes)
    return float(slots * slot_bytes(case) * contestants)


def terms_for(case: Case, work: CaseWork, rates: Rates, contestants: int) -> Terms:
    """Return the terms of a case whose profile is known, by a type's rates. contestants: see predicted."""
    return terms_of(work, rates, footprint_bytes(case, rates, contestants), is_dependent(case.algorithm))


def ranking(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Return predictions of one size, the shortest first."""
    return sorted(predictions, key=lambda one: one.time_us)


def _remarks(work: CaseWork, known: Known, score: Score, case: Case) -> Iterator[str]:
    """Yield why a prediction is worth less than its interval says."""
    yield from _of_floors(known, score)
    if is_dependent(case.algorithm) and (case.op, case.world_size) != ("all_reduce", 2):
        yield "dependent launches: constants and interval are of all_reduce on 2 GPUs"
    if any(kind in work.steps for kind in (*SWITCH, "switch_store")):
        yield (
            "multimem: the cases that the model is fitted to have none, its waits are assumed and may be "
            f"{WAIT_FACTOR:g} times as long or as short"
        )
    if case.world_size not in SCORED_RANKS:
        scored = " and ".join(map(str, SCORED_RANKS))
        yield f"{case.world_size} ranks: the interval is of cases on {scored} GPUs"


def _of_floors(known: Known, score: Score) -> Iterator[str]:
    """Yield why the floors make a prediction worth less."""
    if not known.is_calibrated:
        yield f"uncalibrated: no floors of {known.name}, launches and waits are those of {score.gpu}"
    elif known.name != score.gpu:
        yield f"constants and interval of {score.gpu}, floors of {known.name}"
    elif known.rates != rates_of(gpu_type(score.gpu)).rates:
        yield f"constants and interval of {score.gpu} with the floors of conf/gpu, here with others"
