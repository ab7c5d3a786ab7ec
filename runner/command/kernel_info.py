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
from memory.fabric import Executable, Launch

if TYPE_CHECKING:
    from runner.custom.description import CustomJob
    from runner.custom.program import CompiledCustom


def kernel_info(spec: KernelSpec, case: Case, executable: Executable) -> KernelInfo:
    """What a record says of the code that runs a case: executable is what was compiled of the spec."""
    from kernels.compile import source_digest

    assumptions = tuple(map(sentence_of, spec.assumptions)) or None
    is_compiled = spec.made is None or executable.host is not None
    return _info(executable, spec.launch(case), f"sha256:{source_digest(spec)}", is_compiled, assumptions)


def custom_kernel_info(custom: CustomJob, made: CompiledCustom) -> KernelInfo:
    """What a record says of the code of a custom kernel. Of PTX that was brought, its compiler is what it says."""
    assumptions = tuple(map(sentence_of, custom.assumptions)) or None
    return _info(made.whole, made.launch, custom.digest, custom.kernel.code.is_function, assumptions)


def _info(
    executable: Executable, launch: Launch, source_digest: str, is_ours: bool, assumptions: tuple[str, ...] | None
) -> KernelInfo:
    """is_ours: whether this machine's compiler made it."""
    from cases.code_digest import code_digest
    from kernels.compile import COMPILER, compiler_versions

    compiled = [f"{COMPILER} {compiler_versions().get(COMPILER, '(not installed)')}"] if is_ours else []
    return KernelInfo(
        name=executable.name,
        entry=executable.entry,
        arch=executable.arch,
        ptx_digest=executable.digest,
        cubin_digest=f"sha256:{hashlib.sha256(executable.cubin).hexdigest()}" if executable.cubin else "",
        source_digest=source_digest,
        compiler=", ".join([*compiled, *_tools(executable)]) or "not named in the PTX",
        grid=launch.blocks,
        block=launch.threads,
        multimem=_multimem(executable.ptx),
        code_digest=code_digest(executable.ptx),
        assumptions=assumptions,
    )


def _tools(executable: Executable) -> list[str]:
    """The versions of what made PTX of the DSL's code, and machine code of that, as both say themselves."""
    said = {"NVVM": executable.ptx[:2000], "ptxas": executable.cubin.decode("latin-1")}
    found = {name: re.search(r"Cuda compilation tools, release [\d.]+, V([\d.]+)", text) for name, text in said.items()}
    return [f"{name} {match[1]}" for name, match in found.items() if match]


@cache
def _multimem(ptx: str) -> tuple[str, ...]:
    return tuple(sorted(set(re.findall(r"\bmultimem\.(?:ld_reduce|st|red)\b[\w.:]*", ptx))))
