"""What a record says of the code that runs a case."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from typing import TYPE_CHECKING

from cases.assumptions import sentence_of
from cases.case import Case
from cases.record.record import KernelInfo
from kernels.spec import KernelSpec
from memory.fabric import Executable

if TYPE_CHECKING:
    from runner.custom.description import CustomJob
    from runner.custom.program import CompiledCustom


def kernel_info(spec: KernelSpec, case: Case, executable: Executable) -> KernelInfo:
    """What a record says of the code that runs a case: executable is what was compiled of the spec."""
    from cases.code_digest import code_digest
    from kernels.compile import COMPILER, compiler_versions, source_digest

    launch = spec.launch(case)
    return KernelInfo(
        name=executable.name,
        entry=executable.entry,
        arch=executable.arch,
        ptx_digest=executable.digest,
        cubin_digest=f"sha256:{hashlib.sha256(executable.cubin).hexdigest()}" if executable.cubin else "",
        source_digest=f"sha256:{source_digest(spec)}",
        compiler=", ".join([f"{COMPILER} {compiler_versions().get(COMPILER, '(not installed)')}", *_tools(executable)]),
        grid=launch.blocks,
        block=launch.threads,
        multimem=_multimem(executable.ptx),
        code_digest=code_digest(executable.ptx),
        assumptions=tuple(map(sentence_of, spec.assumptions)) or None,
    )


def custom_kernel_info(custom: CustomJob, made: CompiledCustom) -> KernelInfo:
    """What a record says of the code of a custom kernel. Of PTX that was brought, its compiler is what it says."""
    from cases.code_digest import code_digest
    from kernels.compile import COMPILER, compiler_versions

    compiled = [] if custom.kernel.ptx else [f"{COMPILER} {compiler_versions().get(COMPILER, '(not installed)')}"]
    launch, executable = made.launch, made.executable
    return KernelInfo(
        name=executable.name,
        entry=executable.entry,
        arch=executable.arch,
        ptx_digest=executable.digest,
        cubin_digest=f"sha256:{hashlib.sha256(executable.cubin).hexdigest()}" if executable.cubin else "",
        source_digest=custom.digest,
        compiler=", ".join([*compiled, *_tools(executable)]) or "not named in the PTX",
        grid=launch.blocks,
        block=launch.threads,
        multimem=_multimem(executable.ptx),
        code_digest=code_digest(executable.ptx),
    )


def _tools(executable: Executable) -> list[str]:
    """The versions of what made PTX of the DSL's code, and machine code of that, as both say themselves."""
    said = {"NVVM": executable.ptx[:2000], "ptxas": executable.cubin.decode("latin-1")}
    found = {name: re.search(r"Cuda compilation tools, release [\d.]+, V([\d.]+)", text) for name, text in said.items()}
    return [f"{name} {match[1]}" for name, match in found.items() if match]


@cache
def _multimem(ptx: str) -> tuple[str, ...]:
    return tuple(sorted(set(re.findall(r"\bmultimem\.(?:ld_reduce|st|red)\b[\w.:]*", ptx))))
