"""timing.predict: the model's time beside a measured one, made of the very code that was timed.

A prediction never costs a measurement: whatever goes wrong with it becomes the reason why there is none. It is made in
the controller's process when all samples of a size are taken, never while a GPU is being timed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cases.case import UNIFORM
from cases.record.prediction import PredictedTime, RecordedPrediction
from cases.record.timing import L2State, Mode, Timing, Window
from kernels.baselines import Baseline
from kernels.spec import KernelSpec
from runner.case.contestant import Contestant
from runner.command.plan import Job
from runner.gpu.gpu_type import GpuType
from runner.request_error import RequestError, first_line
from symlab.speed.predict.budget import Budget
from symlab.speed.predict.case_work import CaseWork
from symlab.speed.predict.model import Rates
from symlab.speed.predict.of_request import type_beside
from symlab.speed.predict.predictable import DEPENDENT, check_ranks, is_dependent
from symlab.speed.predict.predicting import weighed
from symlab.speed.predict.profile_cache import FORM, compiled_already, kept_work
from symlab.speed.predict.rates import Known, rates_of
from symlab.speed.predict.stored_score import Stored, stored

LIMIT_S = 120.0
"""Maximum time of simulating a case for its prediction."""


def predicted(contestant: Contestant, timing: Timing, job: Job) -> RecordedPrediction:
    """Return the model's word on a case that a job timed, or the reason why it has none. Raises nothing but
    interrupts."""
    try:
        type_ = type_beside(job.request.fabric.gpu, job.gpu, job.environment().devices)
    except RequestError as error:
        return RecordedPrediction(reason=str(error))
    except Exception as error:  # a measurement is kept, whatever goes wrong with its prediction
        return unpredicted(error)
    return beside_measured(contestant, timing, type_, job.request.cache_dir)


def beside_measured(
    contestant: Contestant, timing: Timing, type_: GpuType, cache_dir: Path, limit_s: float = LIMIT_S
) -> RecordedPrediction:
    """Return the prediction of a case that was timed, or the reason why there is none. Raises nothing but interrupts.

    contestant: the case with the code that ran. type_: the GPUs that it ran on. cache_dir: where profiles are kept.
    limit_s: time of simulating.
    """
    try:
        if reason := _unpredictable(contestant, timing, type_):
            return RecordedPrediction(reason=reason)
        spec, code = contestant.spec, contestant.executable
        assert isinstance(spec, KernelSpec)
        assert code is not None
        work = kept_work(compiled_already(contestant.case, spec, code), cache_dir, Budget(limit_s))
        known, score, ranks = rates_of(type_), stored(), contestant.case.world_size
        return predicted_beside(work, timing.footprint_bytes, timing.median_us, known, score, ranks)
    except TimeoutError as error:
        return RecordedPrediction(reason=str(error))
    except Exception as error:
        return unpredicted(error)


def unpredicted(error: Exception) -> RecordedPrediction:
    """Return what stands beside a timing whose prediction failed."""
    kind, said = type(error).__name__, first_line(error)
    return RecordedPrediction(reason=f"not simulated: {kind}" if said == kind else f"not simulated: {kind}: {said}")


def predicted_beside(
    work: CaseWork, footprint_bytes: float, measured_us: float, known: Known, score: Stored, ranks: int
) -> RecordedPrediction:
    """Return what a case's work gives on a type of GPU beside its timing.

    footprint_bytes, measured_us: the timing's, its median. known, score: what the model takes. ranks: of the case.
    """
    found = weighed(work, float(footprint_bytes), known, score, ranks)
    if not found.is_worth_telling:
        return RecordedPrediction(reason=f"{known.name} has no floors, and the links do not decide this case's time")
    return RecordedPrediction(
        PredictedTime(
            gpu=known.name,
            floors_digest=digest_of_rates(known.rates),
            constants_digest=digest_of_constants(score),
            time_us=found.time_us,
            low_us=found.low_us,
            high_us=found.high_us,
            regime=found.regime,
            ratio=measured_us / found.time_us,
            terms=found.terms,
            path_us={kind: count * known.rates.costs_us[kind] for kind, count in sorted(work.steps.items())},
            work=recorded_work(work),
            remarks=found.remarks,
        )
    )


def recorded_work(work: CaseWork) -> dict[str, Any]:
    """Return a case's work as records have it: with the form of profiles, as another one may count otherwise."""
    return {**work.document(), "form": FORM}


def digest_of_rates(rates: Rates) -> str:
    """Return "sha256:<hex>" of what the model takes of a type of GPU."""
    return digest_of(asdict(rates))


def digest_of_constants(score: Stored) -> str:
    """Return "sha256:<hex>" of the fitted constants and of the intervals."""
    return digest_of({"constants": asdict(score.constants), "intervals": score.intervals})


def digest_of(values: Mapping[str, object]) -> str:
    """Return the digest of plain values, whatever their order: "sha256:<hex>"."""
    return f"sha256:{hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()}"


def _unpredictable(contestant: Contestant, timing: Timing, type_: GpuType) -> str:
    """Return why a timed case has no prediction; "" if the model is of it."""
    case, spec = contestant.case, contestant.spec
    if isinstance(spec, Baseline):
        return f"{case.algorithm} is a library's, and the model is of the catalogue's kernels"
    if is_dependent(case.algorithm):
        return DEPENDENT
    if case.counts != UNIFORM:
        return f"counts={case.counts} is not predicted, {UNIFORM} is"
    for name, value, usual in _usual(timing):
        if value != usual:
            return f"timing.{name}={value} is not predicted, {usual} is"
    try:
        check_ranks(type_, case.world_size)
    except RequestError as error:
        return str(error)
    return ""


def _usual(timing: Timing) -> Sequence[tuple[str, str, str]]:
    """What a timing was taken by: name, value, and the value that the model is of."""
    return (
        ("mode", timing.mode, str(Mode.graph)),
        ("window", timing.window, str(Window.kernel)),
        ("l2", timing.l2, str(L2State.rotate)),
    )
