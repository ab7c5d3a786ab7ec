"""A job as it runs: its cases, and what each of their records says beside the outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.record.request import RecordedEnvironment, RecordedRequest
from kernels.spec import KernelSpec
from runner.request.gpu_types import NO_GPU, GpuAsked
from runner.request.validate import ResolvedRequest

if TYPE_CHECKING:
    from runner.custom.description import CustomJob


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a command: its cases, and what every record of it says beside the outcome.

    brought are kernels that do the cases of their name, in place of the catalogue's where that has the name, too.
    custom is the kernel of a job of op=custom, which does its one case. gpu is the type of GPU that it asks for.
    """

    request: ResolvedRequest
    cases: tuple[Case, ...]
    fabric_settings: dict[str, Any]
    environment: Callable[[], RecordedEnvironment]
    asked: RecordedRequest
    brought: tuple[KernelSpec, ...] = ()
    custom: CustomJob | None = None
    gpu: GpuAsked = NO_GPU
