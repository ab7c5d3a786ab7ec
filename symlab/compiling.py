"""Compile a kernel for a case."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cases.case import Case
from cases.code_digest import code_digest
from cases.ops import collective
from kernels.compile import executable
from kernels.spec import KernelSpec, refuses
from memory.fabric import Executable, Launch, Traits
from runner.request.schema import Schema
from symlab.describing import runner_of

_LARGEST_HEAP_BYTES = 1 << 62


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel that was compiled for a case; compile() returns it, and a world's ranks launch it.

    case and kernel are what was compiled. entry is the kernel's symbol in ptx. digest is "sha256:<hex>" of ptx,
    code_digest that of ptx without line information: it stays when comments, names and places of Python files change.
    cubin is the machine code for GPUs. launch has the grid and block that the kernel runs with.
    """

    case: Case
    kernel: KernelSpec
    executable: Executable

    def __repr__(self) -> str:
        """One line: a notebook shows it."""
        return f"<{self.kernel.name} for {self.arch}, compiled for {self.case.id}>"

    @property
    def arch(self) -> str:
        return self.executable.arch

    @property
    def entry(self) -> str:
        return self.executable.entry

    @property
    def ptx(self) -> str:
        return self.executable.ptx

    @property
    def cubin(self) -> bytes:
        return self.executable.cubin

    @property
    def digest(self) -> str:
        return self.executable.digest

    @property
    def code_digest(self) -> str:
        return code_digest(self.executable.ptx)

    @property
    def launch(self) -> Launch:
        return self.kernel.launch(self.case)


def compile(
    case: Case, *, kernel: str | KernelSpec | None = None, arch: str = "sm_90a", cache_dir: Path | str | None = None
) -> Compiled:
    """Compile the kernel of a case for an architecture, or take it from the cache. Needs no GPU.

    kernel: what case() was given, if that was not a name of the catalogue. cache_dir: folder of compiled kernels; None:
    the command's, ~/.cache/symlab/kernels. The result has ptx, digest, code_digest, arch, entry, cubin and launch.

    Raises ValueError for a case that the kernel refuses (it gives the reason) and for a library's collective, and
    RuntimeError if the compiler fails.

    >>> import symlab
    >>> compiled = symlab.compile(symlab.case("all_reduce/one_shot", size_bytes="4K", ranks=4))
    >>> compiled.arch, compiled.launch.block, compiled.code_digest[:7]
    ('sm_90a', (512, 1, 1), 'sha256:')
    """
    spec = runner_of(case, kernel)
    if not isinstance(spec, KernelSpec):
        raise ValueError(f"{case.name} is a library's collective (case), give a kernel: symlab.catalogue()")
    anywhere = Traits("any", arch, case.world_size, _LARGEST_HEAP_BYTES, multicast=True)
    if refusal := refuses(spec, collective(case.op), case, anywhere):
        raise ValueError(str(refusal))
    folder = Path(cache_dir or Schema().cache_dir).expanduser()
    return Compiled(case, spec, executable(spec, case, arch, folder))
