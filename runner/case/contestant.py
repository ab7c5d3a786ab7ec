"""A contestant: something that does a case, beside others that do the same one."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.spec import Case
from memory.fabric import Executable


@dataclass(frozen=True, slots=True)
class Contestant:
    """A case and what does it: a kernel of ours, compiled, or (executable is None) the baseline that the case names."""

    case: Case
    executable: Executable | None = None
