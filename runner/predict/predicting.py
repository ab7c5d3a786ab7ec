"""From a case to its predicted time: compile, simulate, weigh; with the interval of its regime."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from kernels.catalogue import collective
from kernels.compile import executable
from kernels.shares import VECTOR_BYTES
from kernels.spec import Case, KernelSpec
from memory.atomic_file import replacing
from runner.case.slots import slot_bytes
from runner.environment.repository import source_digests
from runner.gpu.names import CONF
from runner.gpu.reading import gpu_type
from runner.predict.case_work import CaseWork
from runner.predict.model import REGIMES, terms_of
from runner.predict.profiling import Runnable, least_steps, profiled
from runner.predict.rates import Known, rates_of
from runner.predict.stored_score import SCORED_RANKS, Stored
from runner.timing.measure import HEAP_SHARE, calls_for, slots_for
from simulator.clock.costs import H200_TRIAL

HEAP_BYTES = 8 << 30
"""Symmetric heap that a prediction assumes for the slots of all contestants: that of the published runs."""

FORM = 1
"""The number of the form of kept profiles: another one is simulated anew."""

_SWITCH = ("switch_load", "switch_store", "switch_hop", "bulk_switch_store")


@dataclass(frozen=True, slots=True)
class Prediction:
    """A case's predicted time on a type of GPU, never measured.

    time_us with the interval low_us to high_us, in which 90 % of the cases of its regime were (score.py); busbw_gbps as
    records have it. regime: of model.REGIMES. remarks: why it is worth less than its interval says. is_calibrated:
    whether the type has floors of its own. work: what it was computed from.
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
    work: CaseWork

    @property
    def is_worth_telling(self) -> bool:
        """Whether the time itself says something: on an uncalibrated type only where the links decide."""
        return self.is_calibrated or self.regime == REGIMES[2]


def predicted(
    case: Case, spec: KernelSpec, known: Known, score: Stored, arch: str, cache_dir: Path, contestants: int
) -> Prediction:
    """Return the prediction of a case that the kernel does not refuse.

    known: the type of GPU; score: constants and intervals; arch: to compile for; cache_dir: where compiled kernels and
    profiles are kept; contestants: number of kernels that are measured in turns, which push each other's buffers out of
    the L2 cache. RuntimeError if the compiler fails, WorldFailure if the kernel fails in the simulator.
    """
    work = work_of(case, spec, arch, cache_dir)
    calls = calls_for(case.size_bytes, None)
    budget_bytes = int(HEAP_BYTES * HEAP_SHARE) // contestants
    slots = slots_for(slot_bytes(case), "rotate", known.rates.l2_bytes, calls, budget_bytes)
    terms = terms_of(work, known.rates, float(slots * slot_bytes(case) * contestants))
    time_us, regime = terms.time_us(score.constants), terms.regime(score.constants)
    low, high = score.intervals[regime]
    moved = collective(case.op).bus_factor(case.world_size) * case.size_bytes
    return Prediction(
        case=case,
        gpu=known.name,
        time_us=time_us,
        low_us=time_us * low,
        high_us=time_us * high,
        busbw_gbps=moved / time_us / 1e3,
        regime=regime,
        remarks=tuple(_remarks(work, known, score, case.world_size)),
        is_calibrated=known.is_calibrated,
        work=work,
    )


def work_of(case: Case, spec: KernelSpec, arch: str, cache_dir: Path) -> CaseWork:
    """Return the profile of a case: from the folder of compiled kernels, or else simulated and put there if the folder
    can be written to."""
    runnable = runnable_of(case, spec, arch, cache_dir)
    path = cache_dir / f"profile-{_key(runnable)[:40]}.json"
    try:
        return CaseWork.of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        work = profiled(runnable, H200_TRIAL, least_steps(runnable, H200_TRIAL))
    with contextlib.suppress(OSError), replacing(path) as beside:
        beside.write_text(json.dumps(work.document()), encoding="utf-8")
    return work


def runnable_of(case: Case, spec: KernelSpec, arch: str, cache_dir: Path) -> Runnable:
    """Return a case with its kernel of today, compiled."""
    small = replace(case, size_bytes=_least_bytes(case))
    return Runnable(case, spec, executable(spec, case, arch, cache_dir), spec.launch(case), spec.launch(small).grid[0])


def ranking(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Return predictions of one size, the shortest first."""
    return sorted(predictions, key=lambda one: one.time_us)


def _key(runnable: Runnable) -> str:
    parts = [FORM, runnable.executable.digest, runnable.case.id, runnable.blocks, runnable.least_blocks]
    clock = [H200_TRIAL.document(), simulator_digest()]
    return hashlib.sha256(json.dumps([parts, clock], sort_keys=True).encode()).hexdigest()


@cache
def simulator_digest() -> str:
    """Return the digest of the simulator's sources: another simulator may count other steps."""
    return source_digests(CONF.parent)["simulator"]


def _remarks(work: CaseWork, known: Known, score: Stored, ranks: int) -> Iterator[str]:
    """Why a prediction is worth less than its interval says."""
    if not known.is_calibrated:
        yield f"uncalibrated: no floors of {known.name}, launches and waits are those of {score.gpu}"
    elif known.name != score.gpu:
        yield f"constants and interval of {score.gpu}, floors of {known.name}"
    elif known.rates != rates_of(gpu_type(score.gpu)).rates:
        yield f"constants and interval of {score.gpu} with the floors of conf/gpu, here with others"
    if any(kind in work.steps for kind in _SWITCH):
        yield "multimem: the cases that the model is fitted to have none, its waits are assumed"
    if ranks not in SCORED_RANKS:
        scored = " and ".join(map(str, SCORED_RANKS))
        yield f"{ranks} ranks: the interval is of cases on {scored} GPUs"


def _least_bytes(case: Case) -> int:
    """A vector for each rank, or less if the case is smaller."""
    return min(case.size_bytes, VECTOR_BYTES * case.world_size)
