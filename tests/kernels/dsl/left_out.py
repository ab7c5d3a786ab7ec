"""Kernels of the catalogue with a part left out, as tests need them that show that the part is missed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

from cases.case import Case
from kernels.spec import KernelSpec

Sabotage = Callable[[Any], None]
"""What makes a kernel that was built another one."""


def nothing(*arguments: Any, **names: Any) -> None:
    """Stand in for a function that is left out."""


def without(module: Any, name: str, instead: Callable[..., Any] = nothing) -> Sabotage:
    """A function of a module is left out while the kernel is traced."""

    def sabotage(kernel: Any) -> None:
        body = kernel.body

        def broken(frame: Any) -> None:
            with mock.patch.object(module, name, instead):
                body(frame)

        kernel.body = broken

    return sabotage


def no_barrier(which: str) -> Sabotage:
    """The entry's or the exit's barrier is left out."""
    return lambda kernel: setattr(kernel, f"{which}_barrier", False)


def sabotaged(spec: KernelSpec, defect: str, sabotage: Sabotage, file: str) -> KernelSpec:
    """The spec with a defect, by a name of its own. file: the test's, which is part of the code."""

    def build(case: Case) -> Any:
        kernel = spec.build(case)
        sabotage(kernel)
        return kernel

    files = (*spec.files, __file__, file)
    return replace(spec, algorithm=f"{spec.algorithm}_{defect}", build=build, files=files)
