"""The profile of a case: kept in the folder of compiled kernels, or else made in the simulator and put there."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from cases.case import Case
from kernels.compile import executable, source_digest
from kernels.shares import VECTOR_BYTES
from kernels.sources import is_foreign
from kernels.spec import KernelSpec
from memory.atomic_file import replacing
from memory.fabric import Executable
from runner.environment.repository import source_digests
from runner.gpu.names import CONF
from simulator.clock.costs import H200_TRIAL
from symlab.speed.predict.case_work import CaseWork
from symlab.speed.predict.profiling import Clock, Runnable, least_steps, profiled

FORM = 4
"""The number of the form of kept profiles: another one is simulated anew."""


def work_of(case: Case, spec: KernelSpec, arch: str, cache_dir: Path, clock: Clock | None = None) -> CaseWork:
    """Return the profile of a case: from the folder of compiled kernels, or else simulated and put there if the folder
    can be written to. clock: see profiled."""
    runnable = runnable_of(case, spec, arch, cache_dir)
    path = cache_dir / f"profile-{_key(runnable)[:40]}.json"
    try:
        return CaseWork.of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        work = profiled(runnable, H200_TRIAL, least_steps(runnable, H200_TRIAL, clock), clock)
    with contextlib.suppress(OSError), replacing(path) as beside:
        beside.write_text(json.dumps(work.document()), encoding="utf-8")
    return work


def runnable_of(case: Case, spec: KernelSpec, arch: str, cache_dir: Path) -> Runnable:
    """Return a case with its kernel of today, compiled."""
    return runnable_with(case, spec, executable(spec, case, arch, cache_dir))


def runnable_with(case: Case, spec: KernelSpec, code: Executable) -> Runnable:
    """Return a case with the code that was compiled of its kernel."""
    small = replace(case, size_bytes=_least_bytes(case))
    launch = spec.launch(case) if code.host is None else code.host.launch
    # A function computes its grid itself, so that no message can have fewer blocks of it than it says.
    least = launch if code.host is not None else spec.launch(small)
    return Runnable(case, spec, code, launch, least.grid[0])


def _key(runnable: Runnable) -> str:
    parts: list[object] = [FORM, runnable.executable.digest, runnable.case.id, runnable.blocks, runnable.least_blocks]
    if is_foreign(runnable.spec.files):  # its launch and arguments are beside the code
        parts.append(source_digest(runnable.spec))
    clock = [H200_TRIAL.document(), simulator_digest()]
    return hashlib.sha256(json.dumps([parts, clock], sort_keys=True).encode()).hexdigest()


@cache
def simulator_digest() -> str:
    """Return the digest of the simulator's sources: another simulator may count other steps."""
    return source_digests(CONF.parent)["simulator"]


def _least_bytes(case: Case) -> int:
    """A vector for each rank, or less if the case is smaller."""
    return min(case.size_bytes, VECTOR_BYTES * case.world_size)
