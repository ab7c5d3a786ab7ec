"""From the words of a command line to what is predicted: jobs, their types of GPU, and the cases of each."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache, partial

from cases.case import Case
from kernels.baselines import find_baseline, refuses_baseline, usual_names_for
from kernels.compile_error import CompilationError
from kernels.spec import KernelSpec
from memory.fabric import Traits
from runner.case.cases import cases_of
from runner.case.contestant import spec_for
from runner.case.expected import expected_refusal
from runner.request_error import first_line
from runner.world.world import WorldFailure
from symlab.speed.best import TableChooser
from symlab.speed.predict import matmuls
from symlab.speed.predict.asked_jobs import Asked, simulated
from symlab.speed.predict.predicting import HEAP_BYTES, Prediction, predicted
from symlab.speed.predict.profiling import DEADLINE_S, NotSimulated, clocked
from symlab.speed.predict.rates import rates_of
from symlab.speed.predict.score import Score
from symlab.speed.predict.shown import MISSING, Series

OWN = "a kernel of your own: constants and interval are those of the catalogue's kernels"
"""What is said of a brought kernel's prediction."""


def series_of(asked: Asked, score: Score) -> Series:
    """Predict the cases of a job, and say on stderr which one is simulated.
    A simulation may take the request's deadline_s, at least DEADLINE_S.
    RequestError for a job that has no cases."""
    known = rates_of(asked.type)
    limit_s = max(DEADLINE_S, asked.request.deadline_s)
    clock = partial(clocked, limit_s=limit_s)
    request, own = simulated(asked.request)
    cases = cases_of(request)
    missing: dict[str, dict[Case, str]] = {kind: {} for kind in MISSING}
    refused = missing["refused"]
    for case in cases:
        if (refusal := expected_refusal(case, request.fabric, own)) is not None:
            refused[case] = str(refusal)
        elif case.gemm is not None and case.name not in matmuls.ADDED:
            refused[case] = "matmuls are predicted by times of the catalogue's"
    predictions: list[Prediction] = []
    has_libraries = asked.request.baselines == "auto"
    for case in cases:
        if case in refused:
            continue
        beside = sum(other.size_bytes == case.size_bytes and other not in refused for other in cases)
        beside += len(libraries_beside(case)) if has_libraries else 0
        if case.gemm is None:
            print(f"simulating {case.id}", file=sys.stderr, flush=True)
        try:
            spec = spec_for(case, own)
            assert isinstance(spec, KernelSpec), "a library is not predicted"
            one = predicted(case, spec, known, score, asked.arch, request.cache_dir, beside, clock)
        except NotSimulated as error:
            missing["unfinished"][case] = f"{first_line(error)}; deadline_s gives it more"
            continue
        except (CompilationError, WorldFailure) as error:
            missing["failed"][case] = first_line(error)
            continue
        chosen = tuple(request.chooser.said([case])) if isinstance(request.chooser, TableChooser) else ()
        beyond = (OWN,) if spec in own else ()
        predictions.append(replace(one, remarks=(*one.remarks, *beyond, *chosen)))
    return Series(known, tuple(predictions), missing)


def libraries_beside(case: Case) -> tuple[str, ...]:
    """Return the libraries that baselines=auto measures in turns with a case on GPUs without multicast: their buffers
    take part of the L2 cache, too. Those that are not installed here are left out."""
    return _libraries(replace(case, algorithm="", inputs="normal", seed=0))


@cache
def _libraries(case: Case) -> tuple[str, ...]:
    traits = Traits("nvshmem", "sm_90a", case.world_size, HEAP_BYTES, False, "not asked for")
    found = []
    for name in usual_names_for(case.op):
        baseline = find_baseline(name)
        assert baseline is not None, "a usual name is a baseline's"
        named = replace(case, algorithm=name, placement=baseline.placement(case.op, case.placement, case.world_size))
        if refuses_baseline(baseline, named, traits) is None:
            found.append(name)
    return tuple(found)
