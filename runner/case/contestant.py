"""A contestant: something that does a case, beside others that do the same one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cases.case import Case
from kernels.baselines import Baseline, find_baseline
from kernels.catalogue import find
from kernels.spec import KernelSpec
from memory.fabric import Executable


@dataclass(frozen=True, slots=True)
class Contestant:
    """A case and what does it: a kernel's spec with what was compiled of it, or a library's baseline without."""

    case: Case
    spec: KernelSpec | Baseline
    executable: Executable | None = None

    def __post_init__(self) -> None:
        check_names(self.case, self.spec, self.executable)

    @property
    def title(self) -> str:
        """What no other contestant of the same size is called."""
        return f"{self.case.name} {self.case.placement}"

    @property
    def size_bytes(self) -> int:
        return self.case.size_bytes


def check_names(case: Case, spec: KernelSpec | Baseline, executable: Executable | None) -> None:
    """ValueError unless a spec, and what was compiled of it, are what the case names."""
    wanted = case.algorithm if isinstance(spec, Baseline) else case.name
    if spec.name != wanted:
        raise ValueError(f"the case is {wanted}, its spec {spec.name}")
    if isinstance(spec, KernelSpec) != (executable is not None):
        raise ValueError(f"{spec.name} is a {'library: it has no' if executable else 'kernel: give its'} executable")
    if executable is not None and executable.name != wanted:
        raise ValueError(f"the case is {wanted}, its executable {executable.name}")


def spec_for(case: Case, brought: Iterable[KernelSpec] = ()) -> KernelSpec | Baseline:
    """What does a case: the brought kernel of that name, else the baseline or the catalogue's kernel.

    ValueError with the nearest names if there is none.
    """
    mine = next((spec for spec in brought if spec.name == case.name), None)
    return mine or find_baseline(case.algorithm) or find(case.name)
