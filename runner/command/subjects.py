"""What a case runs: a kernel, a library's own collective, or the kernel of op=custom. Each is refused, made, run and
described in its own way; runner/command/job.py takes all alike."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.ops import collective
from cases.record.record import Check, KernelInfo
from cases.refusal import Refusal
from kernels.baselines import NCCL, NCCL_SYMMETRIC, Baseline, library_of, refuses_baseline
from kernels.spec import KernelSpec
from kernels.tuned_name import has_tuning, values_of
from memory.fabric import Traits
from reports.table.text import size_text
from runner.case.contestant import Contestant, spec_for
from runner.case.nccl_settings import refuses_settings
from runner.command.case_programs import patience_s
from runner.command.kernel_info import custom_kernel_info, kernel_info
from runner.command.means import Means
from runner.command.plan import Job
from runner.world.world import World

if TYPE_CHECKING:
    from runner.case.library_modules import Brought
    from runner.custom.description import CustomJob
    from runner.custom.running import CompiledJob


class Subject:
    """What a case runs.

    library: the library that runs it, as records have it; "" of a kernel. hint: what to say with a failed timing.
    """

    library = hint = ""

    def __init__(self, job: Job, case: Case) -> None:
        self.job, self.case = job, case
        self.contestant: Contestant | CompiledJob | None = None
        """What was made of it."""

    @property
    def but_size(self) -> tuple[object, ...]:
        """Return what decides whether the case ends in time, but its size."""
        request = self.job.request
        return replace(self.case, size_bytes=0), request.deadline_s, request.launches, request.timing, request.fabric

    def module(self, traits: Traits) -> str:
        """Return what has to be brought onto the ranks before; "" for nothing."""
        return ""

    def refusal(self, means: Means, traits: Traits, module: Brought | None) -> Refusal | None:
        """Return why it does not run. module: what came of bringing its module."""
        raise NotImplementedError

    def make(self, means: Means, traits: Traits) -> None:
        """Compile it."""
        raise NotImplementedError

    def ran(self, world: World, means: Means) -> tuple[Check | None, str]:
        """Run and check it: the check (None: it was off), and what its faults are of. Raises WorldFailure."""
        assert isinstance(self.contestant, Contestant)
        return means.ran(world, self.contestant, self.job.request), ""

    def info(self) -> KernelInfo | None:
        """Return what its record says of the code that ran."""
        return None

    def given(self) -> dict[str, Any] | None:
        """Return what its record says that the kernel was given beside the case."""
        return None


def subject_of(job: Job, case: Case) -> Subject:
    """Return what a job runs for a case."""
    if job.custom is not None:
        return _Custom(job, job.custom)
    spec = spec_for(case, job.brought)
    return _Library(job, case, spec) if isinstance(spec, Baseline) else _Kernel(job, case, spec)


class _Kernel(Subject):
    def __init__(self, job: Job, case: Case, spec: KernelSpec) -> None:
        super().__init__(job, case)
        self.spec = spec

    def refusal(self, means: Means, traits: Traits, module: Brought | None) -> Refusal | None:
        return means.refuses(self.spec, collective(self.case.op), self.case, traits)

    def make(self, means: Means, traits: Traits) -> None:
        compiled = means.compiled(self.spec, self.case, traits.arch, self.job.request.cache_dir)
        self.contestant = Contestant(self.case, self.spec, compiled)

    def info(self) -> KernelInfo | None:
        one = self.contestant
        return None if one is None or one.executable is None else kernel_info(self.spec, self.case, one.executable)

    def given(self) -> dict[str, Any] | None:
        """The choices it was compiled with, its patience, a tuning on trial, and the table that chose it."""
        if self.contestant is None:
            return None
        choices = {name: _plain(value) for name, value in self.spec.choices(self.case).items()}
        given: dict[str, Any] = {"choices": choices, "patience_s": patience_s(self.job.request)}
        if has_tuning(self.case.algorithm):
            given["tuning"] = values_of(self.case.algorithm)
        chooser = self.job.request.chooser
        if chooser is not None and (chosen := chooser.described(self.case)) is not None:
            given["chosen"] = dict(chosen)
        return given


class _Library(Subject):
    def __init__(self, job: Job, case: Case, spec: Baseline) -> None:
        super().__init__(job, case)
        self.spec = spec
        self.brought: Brought | None = None

    def module(self, traits: Traits) -> str:
        return "" if refuses_baseline(self.spec, self.case, traits) else self.spec.module

    def refusal(self, means: Means, traits: Traits, module: Brought | None) -> Refusal | None:
        self.brought = module
        settings = self.job.request.fabric.nccl_settings
        refusal = refuses_baseline(self.spec, self.case, traits) or refuses_settings(settings, self.case, traits)
        if refusal is None and module is not None and module.problem:
            return Refusal("baselines", f"{self.spec.name} is unavailable", module.problem)
        late = means.late.get(self.but_size, self.case.size_bytes)
        if refusal is None and late < self.case.size_bytes:
            reason = f"{self.spec.name} did not end in time at {size_text(late)}, so larger sizes are not tried"
            return Refusal("deadline_s", reason, "give it more time, or these sizes alone")
        return refusal

    def make(self, means: Means, traits: Traits) -> None:
        compiled_with = self.brought.compiled_with if self.brought is not None else ""
        self.library = library_of(self.spec.name, traits, compiled_with)
        if self.spec.name in (NCCL, NCCL_SYMMETRIC):
            self.library = self.job.request.fabric.nccl_settings.named(self.library)
        self.contestant = Contestant(self.case, self.spec)


class _Custom(Subject):
    hint = (
        "; a kernel that is timed is launched again on what its last launch left in its buffers: timing.mode=none "
        "leaves timing out"
    )

    def __init__(self, job: Job, custom: CustomJob) -> None:
        super().__init__(job, custom.case)
        self.custom = custom
        self.compiled: CompiledJob | None = None

    def refusal(self, means: Means, traits: Traits, module: Brought | None) -> Refusal | None:
        return self.custom.refusal(traits)

    def make(self, means: Means, traits: Traits) -> None:
        from runner.custom.running import CompiledJob

        compiled = self.custom.compiled(traits.arch)
        self.contestant = self.compiled = CompiledJob(self.custom, compiled)

    def ran(self, world: World, means: Means) -> tuple[Check | None, str]:
        assert self.compiled is not None
        request = self.job.request
        outcomes = self.compiled.outcomes(world, request)
        judged = self.compiled.judged(outcomes) if request.check else None
        return (judged.check, judged.buffer and f"buffer {judged.buffer}: ") if judged else (None, "")

    def info(self) -> KernelInfo | None:
        return None if self.compiled is None else custom_kernel_info(self.custom, self.compiled.compiled)


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
