"""Kernels by name or from a file, and cases of them."""

from __future__ import annotations

from cases.case import Case
from cases.ops import collective
from kernels import catalogue as known
from kernels.baselines import Baseline
from kernels.brought import spec_at
from kernels.spec import KernelSpec
from runner.case.contestant import spec_for

_ARGUMENTS = {
    "sizes.list[0]": "size_bytes",
    "sizes.list": "size_bytes",
    "sizes": "size_bytes",
    "world_size": "ranks",
    "algorithms": "kernel",
}
"""The arguments of case(), by the command's keys that stand for them."""


def catalogue(op: str | None = None) -> tuple[str, ...]:
    """Return the names of the kernels that come with symlab, as "op/algorithm"; op: those of one op.

    Raises ValueError for an unknown op.

    >>> import symlab
    >>> symlab.catalogue("send_recv")
    ('send_recv/pull', 'send_recv/push', 'send_recv/ll', 'send_recv/ll128')
    """
    if op is None:
        return (*known.NAMES, *known.MATMUL_FILES)
    return tuple(name for name in (*known.NAMES, *known.MATMUL_FILES) if name.startswith(f"{collective(op).op}/"))


def kernel(name: str) -> KernelSpec:
    """Return the specification of a kernel: what it takes, needs and promises.

    name is one of catalogue(), or the place of a kernel of your own: "path/to/file.py:NAME" (relative to the working
    folder) or "package.module:NAME", where NAME is a KernelSpec, or "path/to/file.yaml:NAME", an entry that describes
    PTX or a CuTe DSL function. CONTRIBUTING.md shows how a spec is written, runner/README.md an entry.

    Raises ValueError for an unknown name (it gives the nearest ones), and for a file, module or name that does not
    exist or raises an exception.

    >>> import symlab
    >>> one_shot = symlab.kernel("all_reduce/one_shot")
    >>> one_shot.needs_multicast, one_shot.max_world_size
    (False, 72)
    """
    return brought(name) or known.find(name)


def case(
    kernel: str | KernelSpec,
    *,
    size_bytes: int | str | None = None,
    ranks: int = 2,
    dtype: str = "auto",
    accumulator: str = "auto",
    reduction: str = "auto",
    placement: str = "out_of_place",
    inputs: str = "normal",
    seed: int = 0,
    root: int = 0,
    offset: int = 0,
    stress: str = "none",
    counts: str = "uniform",
    gemm: tuple[int, int, int] | None = None,
) -> Case:
    """Return one case of a kernel: everything that decides what runs and what must come out.

    kernel: a name or a place, as kernel() takes it, a specification that kernel() returned, or a library's collective
    such as "all_reduce/nccl". size_bytes: a number of bytes, or text such as "4K" or "1M" (binary), counted as
    nccl-tests does for the op; an op that divides its buffer among the ranks has it rounded down to equal chunks.
    ranks: the number of ranks. dtype: a name such as "bfloat16"; "auto" is float32 where the op has it. accumulator:
    "auto" is float32 where sums of the dtype can be kept in it, else "native". reduction: "auto" is "sum", or "none"
    for an op that only moves data. placement: "out_of_place" or "in_place". inputs: "normal", "exact" or "edge", drawn
    from seed. root: the rank that gives (broadcast) or gets (reduce). offset: number of elements after a 16-byte
    boundary at which buffers begin. stress: what launches run under, such as "late_rank". counts: of all_to_all_v, how
    many elements ranks send to each other: "uniform", "skewed" or "zeros". gemm: of an op that multiplies, (M, N, K) of
    the product that a rank computes, in place of size_bytes.

    The result has these values as attributes (the number of ranks as world_size), and `id`, a stable name.

    Raises ValueError, with the message of the command `symlab run` that names the argument in place of the key, for a
    value that no kernel of the op has.

    >>> import symlab
    >>> case = symlab.case("all_reduce/two_shot", size_bytes="4K", ranks=4, dtype="bfloat16")
    >>> case.accumulator, case.reduction, case.numel
    ('float32', 'sum', 2048)
    >>> symlab.case("all_reduce/two_shot", size_bytes="4K", ranks=99)
    Traceback (most recent call last):
    ...
    runner.request_error.RequestError: ranks is 99 (ranks), give 1 to 72
    """
    from symlab.requests import described, naming_arguments

    spec, op, algorithm = _named(kernel)
    values = {
        "op": op,
        "algorithms": [algorithm],
        "dtype": dtype,
        "accumulator": accumulator,
        "reduction": reduction,
        "world_size": ranks,
        "placement": placement,
    }
    if size_bytes is None and gemm is None:
        raise ValueError("there is no size (size_bytes), give a number of bytes, or gemm of an op that multiplies")
    if gemm is not None and len(gemm) != 3:
        raise ValueError(f"{gemm} is no product (gemm), give (m, n, k)")
    values |= {} if size_bytes is None else {"sizes": {"list": [size_bytes]}}
    values |= {} if gemm is None else dict(zip("mnk", gemm, strict=True))
    values |= {"inputs": inputs, "seed": seed, "root": root, "offset": offset, "stress": stress, "counts": counts}
    with naming_arguments(_ARGUMENTS):
        return described(values, spec)


def brought(kernel: str | KernelSpec) -> KernelSpec | None:
    """Return a specification that is given or brought; None for a name, which the catalogue or a library may have.

    Raises ValueError for a place without a kernel.
    """
    if isinstance(kernel, KernelSpec):
        return kernel
    if kernel.endswith((".py", ".yaml")):
        name = "SPEC" if kernel.endswith(".py") else "NAME"
        raise ValueError(f"{kernel} is a file (kernel), add the name in it: {kernel}:{name}")
    return spec_at(kernel) if ":" in kernel else None


def check_case(case: object) -> None:
    """Raise ValueError for what is no case."""
    if not isinstance(case, Case):
        raise ValueError(f"{case!r} is no case (case), give what symlab.case returns")


def runner_of(case: Case, kernel: str | KernelSpec | None) -> KernelSpec | Baseline:
    """Return what runs a case: the given kernel, else the catalogue's or the library's collective of the case's name.

    Raises ValueError for what is no case, a kernel of another name, and a case of an unknown name.
    """
    check_case(case)
    if kernel is None:
        try:
            return spec_for(case)
        except ValueError:
            message = f"unknown kernel '{case.name}' (kernel), give kernel= as it was given to symlab.case"
            raise ValueError(message) from None
    spec = brought(kernel) or known.find(str(kernel))
    wanted = case.name if isinstance(spec, KernelSpec) else case.algorithm
    if spec.name != wanted:
        raise ValueError(f"the case is {wanted}, the kernel is {spec.name} (kernel), give the kernel of the case")
    return spec


def _named(kernel: str | KernelSpec) -> tuple[KernelSpec | None, str, str]:
    """Return the specification that was brought, if there is one, and the op and the algorithm that a kernel names."""
    spec = brought(kernel)
    name = spec.name if spec is not None else str(kernel)
    op, _, algorithm = name.partition("/")
    if algorithm in ("", "auto", "all", "device_nvshmem"):
        known.find(name)  # raises ValueError with the nearest names
    return spec, op, algorithm
