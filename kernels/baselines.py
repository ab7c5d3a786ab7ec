"""Libraries' own collectives, beside ours: which exist, what each does not support, and why.
runner/case/libraries.py runs them.

The table is data and imports nothing heavy. A baseline runs through its library's own interface and on memory that the
library wants: what it does inside (algorithm, order, precision of its sums) is its own matter, so results are held to
the bound of sums in the data's own type. Each has the placements that its interface has; asked for another one, it
runs in the one it has, and its case says so.

NCCL is used through torch.distributed, which decides what it takes: no unsigned integers but of 8 bits, no bitwise
reductions, and 8-bit floats only in some versions, so that here they are moved (as bytes, as all data that only moves)
and not added. Of ops that multiply it is cuBLAS and NCCL, one after the other. nccl/symmetric is the same calls on
memory that is registered as a symmetric window; only what NCCL has kernels of its own for there is offered. NVSHMEM's
host interface has sum, min and max. What flashinfer's kernels take is in kernels/flashinfer.py, and what SGLang's take
in kernels/sglang.py: their sources say that they add in float32, so their results are held to that.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from cases.case import Case
from cases.dtypes import ALL, INTEGERS, NONE
from cases.ops import collective
from cases.refusal import Refusal
from cases.sglang_sizes import PULL, PUSH, WORLD_SIZES
from cases.stress import NO_STRESS
from kernels import flashinfer, sglang
from kernels.spec import (
    Fold,
    refuses_chunks,
    refuses_counts,
    refuses_elements,
    refuses_no_multicast,
    refuses_unmapped,
    refuses_value,
    refuses_world_size,
)
from kernels.toolkit import version_of
from memory.fabric import Traits

if TYPE_CHECKING:
    import torch

ACCUMULATOR = "library"
"""The accumulator that a baseline's case names: the library chooses it."""

TORCH_ALIGNMENT_BYTES = 4
"""PyTorch's symmetric memory kernels take sizes and offsets that are multiples of this, and no others."""

TORCH_CHUNK_BYTES = 16
"""And chunks of whole vectors, where a rank's chunk begins in the middle of a buffer."""

NCCL, NCCL_SYMMETRIC, CUBLAS = "nccl", "nccl/symmetric", "cublas"

FUSED = "torch/fused"
"""PyTorch's matmuls in parts, by cuBLAS, on two streams with copies between GPUs. A call makes its output."""

TWO_SHOT_STAGED, MULTIMEM_STAGED = "torch/two_shot_staged", "torch/multimem_staged"
"""PyTorch's symmetric memory as vLLM and SGLang call it: the input is copied into a symmetric buffer, reduced there,
and copied to the output."""

FIRST_WINDOWS = (2, 9)
"""The first PyTorch that registers memory for NCCL as symmetric windows (register_mem_pool's argument symm)."""

_IN, _OUT = ("in_place",), ("out_of_place",)
_HALVES = ("float16", "bfloat16")


def _nothing() -> str:
    """What the installation lacks for most libraries."""
    return ""


def _missing_windows() -> str:
    """Why the installed PyTorch registers no symmetric windows."""
    version = version_of("torch")
    numbers = re.findall(r"\d+", version.partition("+")[0])
    if not version or tuple(map(int, numbers[:2])) >= FIRST_WINDOWS:  # without PyTorch another place says so
        return ""
    return f"PyTorch {version} registers no symmetric windows"


@dataclass(frozen=True, slots=True)
class Offer:
    """One op that a library does: call is what does it, by the library's name.

    size_multiple_bytes is what Case.size_bytes has to be a multiple of, chunk_multiple_bytes what a rank's chunk has
    to; world_sizes are all it runs on, none: no limit of its own.
    """

    op: str
    call: str
    dtypes: tuple[str, ...]
    reductions: tuple[str, ...] = (NONE,)
    placements: tuple[str, ...] = _OUT
    needs_multicast: bool = False
    size_multiple_bytes: int = 1
    chunk_multiple_bytes: int = 1
    world_sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Baseline:
    """One library's ways to do ops. fold and what follows are what a check asks of any algorithm.

    uses_heap: its buffers lie in the fabric's symmetric heap. missing gives what this installation lacks for it, in
    words; "" if nothing. module: what has to be compiled and loaded before it is opened; "" for nothing. adds_in: the
    accumulator that its sums are held to; "" where the dtype itself is all that it promises. is_dependent: its
    kernels use dependent launch. is_asked_for: it is measured only if a request names it.
    """

    algorithm: str
    offers: tuple[Offer, ...]
    min_world_size: int = 2
    uses_heap: bool = False
    fold: Fold = "unordered"
    owner: Callable[[Case, int], torch.Tensor] | None = None
    one_owner: bool = False
    same_order: bool = True
    positive_zero: Literal["", "inputs", "results"] = ""
    missing: Callable[[], str] = _nothing
    module: str = ""
    adds_in: str = ""
    is_dependent: bool = False
    is_asked_for: bool = False

    @property
    def name(self) -> str:
        return self.algorithm

    @property
    def ops(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(offer.op for offer in self.offers))

    def offer(self, op: str, world_size: int | None = None) -> Offer:
        """What it does of an op on that number of ranks, or on any; ValueError where it does nothing of the op."""
        found = [offer for offer in self.offers if offer.op == op]
        if not found:
            raise ValueError(f"{self.name} does not do {op}: it does {', '.join(self.ops)}")
        return next((offer for offer in found if world_size in offer.world_sizes), found[0])

    def placement(self, op: str, wanted: str, world_size: int | None = None) -> str:
        """The placement that a request for `wanted` runs in: that one, or the only one there is."""
        placements = self.offer(op, world_size).placements
        return wanted if wanted in placements else placements[0]


_NCCL_DTYPES = ("float64", "float32", *_HALVES, "int32", "int64")
_NCCL_REDUCTIONS = ("sum", "min", "max", "avg")
_WINDOW_DTYPES = ("float32", *_HALVES)
_WINDOW_SUMS = ("sum", "avg")
_TORCH_DTYPES = ("float32", "bfloat16")
_NVSHMEM_DTYPES = ("float64", "float32", *_HALVES, *INTEGERS)
_NVSHMEM_REDUCTIONS = ("sum", "min", "max")


def _flashinfer(name: str, world_sizes: tuple[int, ...], positive_zero: Literal["", "inputs"] = "") -> Baseline:
    """One of flashinfer's. Its interfaces take an input and an output, and say nothing of one buffer for both."""
    module = flashinfer.MODULES[name]
    call = "vllm_all_reduce" if module == flashinfer.VLLM_MODULE else "allreduce_fusion"
    offer = Offer(
        "all_reduce",
        f"flashinfer.comm.{call}",
        flashinfer.DTYPES,
        ("sum",),
        size_multiple_bytes=flashinfer.VECTOR_BYTES,
        world_sizes=world_sizes,
    )
    return Baseline(
        name,
        (offer,),
        one_owner=True,
        positive_zero=positive_zero,
        missing=partial(flashinfer.missing, module),
        module=module,
        adds_in=flashinfer.ACCUMULATOR,
        is_dependent=module == flashinfer.TRTLLM_MODULE,
    )


def _sglang(name: str, *offers: tuple[str, tuple[int, ...], tuple[str, ...]]) -> Baseline:
    """One of SGLang's, of offers of (kernel, numbers of ranks, placements)."""
    return Baseline(
        name,
        tuple(
            Offer(
                "all_reduce",
                kernel,
                sglang.DTYPES,
                ("sum",),
                placements,
                size_multiple_bytes=sglang.VECTOR_BYTES,
                world_sizes=world_sizes,
            )
            for kernel, world_sizes, placements in offers
        ),
        one_owner=True,
        positive_zero="inputs",
        missing=sglang.missing,
        module=sglang.MODULES[name],
        adds_in=sglang.ACCUMULATOR,
        is_dependent=True,
    )


BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "nccl",
        (
            Offer("all_reduce", "torch.distributed.all_reduce", _NCCL_DTYPES, _NCCL_REDUCTIONS, _IN),
            Offer("reduce_scatter", "torch.distributed.reduce_scatter_tensor", _NCCL_DTYPES, _NCCL_REDUCTIONS),
            Offer("all_gather", "torch.distributed.all_gather_into_tensor", ALL),
            Offer("broadcast", "torch.distributed.broadcast", ALL, placements=_IN),
            Offer("reduce", "torch.distributed.reduce", _NCCL_DTYPES, _NCCL_REDUCTIONS, _IN),
            Offer("all_to_all", "torch.distributed.all_to_all_single", ALL),
            Offer("all_to_all_v", "torch.distributed.all_to_all_single with split sizes", ALL),
            Offer("send_recv", "torch.distributed.batch_isend_irecv", ALL),
            Offer("all_gather_matmul", "torch.distributed.all_gather_into_tensor, torch.matmul", _HALVES, ("sum",)),
            Offer("matmul_reduce_scatter", "torch.matmul, torch.distributed.reduce_scatter_tensor", _HALVES, ("sum",)),
            Offer("matmul_all_reduce", "torch.matmul, torch.distributed.all_reduce", _HALVES, ("sum",)),
        ),
    ),
    Baseline(CUBLAS, (Offer("matmul", "torch.matmul", _HALVES, ("sum",)),), min_world_size=1),
    Baseline(
        NCCL_SYMMETRIC,
        (
            Offer("all_reduce", "torch.distributed.all_reduce", _WINDOW_DTYPES, _WINDOW_SUMS, _IN),
            Offer("reduce_scatter", "torch.distributed.reduce_scatter_tensor", _WINDOW_DTYPES, _WINDOW_SUMS),
            Offer("all_gather", "torch.distributed.all_gather_into_tensor", ALL),
        ),
        missing=_missing_windows,
    ),
    Baseline(
        "torch/one_shot",
        (
            Offer(
                "all_reduce",
                "torch.ops.symm_mem.one_shot_all_reduce_out",
                _TORCH_DTYPES,
                ("sum",),
                size_multiple_bytes=TORCH_ALIGNMENT_BYTES,
            ),
        ),
    ),
    Baseline(
        "torch/two_shot",
        (
            Offer(
                "all_reduce",
                "torch.ops.symm_mem.two_shot_all_reduce_",
                _TORCH_DTYPES,
                ("sum",),
                _IN,
                size_multiple_bytes=TORCH_ALIGNMENT_BYTES,
            ),
            Offer(
                "reduce_scatter",
                "torch.ops.symm_mem.reduce_scatter_out",
                _TORCH_DTYPES,
                ("sum",),
                chunk_multiple_bytes=TORCH_CHUNK_BYTES,
                world_sizes=(2, 4, 8),
            ),
        ),
    ),
    Baseline(
        "torch/multimem",
        (
            Offer(
                "all_reduce",
                "torch.ops.symm_mem.multimem_all_reduce_",
                _TORCH_DTYPES,
                ("sum",),
                _IN,
                needs_multicast=True,
                size_multiple_bytes=TORCH_ALIGNMENT_BYTES,
            ),
            Offer(
                "all_gather",
                "torch.ops.symm_mem.multimem_all_gather_out",
                ALL,
                needs_multicast=True,
                chunk_multiple_bytes=TORCH_CHUNK_BYTES,
            ),
        ),
    ),
    Baseline(
        FUSED,
        (
            Offer("all_gather_matmul", "torch.ops.symm_mem.fused_all_gather_matmul", _HALVES, ("sum",)),
            Offer("matmul_reduce_scatter", "torch.ops.symm_mem.fused_matmul_reduce_scatter", _HALVES, ("sum",)),
        ),
    ),
    Baseline(
        TWO_SHOT_STAGED,
        (
            Offer(
                "all_reduce",
                "copy, torch.ops.symm_mem.two_shot_all_reduce_, copy",
                _TORCH_DTYPES,
                ("sum",),
                size_multiple_bytes=TORCH_ALIGNMENT_BYTES,
            ),
        ),
        is_asked_for=True,
    ),
    Baseline(
        MULTIMEM_STAGED,
        (
            Offer(
                "all_reduce",
                "copy, torch.ops.symm_mem.multimem_all_reduce_, copy",
                _TORCH_DTYPES,
                ("sum",),
                needs_multicast=True,
                size_multiple_bytes=TORCH_ALIGNMENT_BYTES,
            ),
        ),
        is_asked_for=True,
    ),
    Baseline(
        "nvshmem",
        (
            Offer("all_reduce", "reduce", _NVSHMEM_DTYPES, _NVSHMEM_REDUCTIONS, ("out_of_place", "in_place")),
            Offer("reduce_scatter", "reducescatter", _NVSHMEM_DTYPES, _NVSHMEM_REDUCTIONS),
            Offer("all_gather", "fcollect", ALL),
            Offer("broadcast", "broadcast", ALL),
            Offer("all_to_all", "alltoall", ALL),
        ),
        uses_heap=True,
    ),
    _flashinfer(flashinfer.VLLM_ONE_SHOT, flashinfer.VLLM_WORLD_SIZES),
    _flashinfer(flashinfer.VLLM_TWO_SHOT, flashinfer.VLLM_WORLD_SIZES),
    _flashinfer(flashinfer.TRTLLM_LAMPORT, flashinfer.TRTLLM_WORLD_SIZES, "inputs"),
    _flashinfer(flashinfer.TRTLLM_TWO_SHOT, flashinfer.TRTLLM_WORLD_SIZES),
    _sglang(PUSH, ("all_reduce_one_shot_push_kernel", WORLD_SIZES, _IN)),
    _sglang(
        PULL,
        ("all_reduce_one_shot_kernel", tuple(one for one in WORLD_SIZES if sglang.pull_shots(one) == 1), _OUT),
        ("all_reduce_two_shot_kernel", tuple(one for one in WORLD_SIZES if sglang.pull_shots(one) == 2), _IN),
    ),
)


def find_baseline(algorithm: str) -> Baseline | None:
    """The baseline of that name; None for a kernel's name."""
    return next((baseline for baseline in BASELINES if baseline.algorithm == algorithm), None)


def names_for(op: str) -> tuple[str, ...]:
    """All baselines that do an op, in the table's order."""
    return tuple(baseline.algorithm for baseline in BASELINES if op in baseline.ops)


def usual_names_for(op: str) -> tuple[str, ...]:
    """The baselines that are measured where a request names none."""
    return tuple(one.algorithm for one in BASELINES if op in one.ops and not one.is_asked_for)


def refuses_baseline(baseline: Baseline, case: Case, traits: Traits) -> Refusal | None:
    """Return why the library can't run the case on a fabric with these traits; None if it can."""
    if traits.simulated:
        return Refusal("fabric", f"{baseline.name} needs GPUs", f"the fabric {traits.name} has none")
    if case.op not in baseline.ops:
        return Refusal("op", f"{baseline.name} does not do {case.op}", f"it does {', '.join(baseline.ops)}")
    if missing := baseline.missing():
        return Refusal("baselines", f"{baseline.name} is unavailable", missing)
    if case.stress != NO_STRESS:
        return Refusal("stress", f"{baseline.name} promises nothing of {case.stress}", "give baselines=none")
    if unfit := refuses_counts(collective(case.op), case.counts):
        return unfit
    offer = baseline.offer(case.op, case.world_size)
    for key, value, known in (
        ("dtype", case.dtype, offer.dtypes),
        ("reduction", case.reduction, offer.reductions),
        ("placement", case.placement, offer.placements),
    ):
        if unknown := refuses_value(baseline.name, key, value, known, f" for {case.op}"):
            return unknown
    refusal = _refuses_size(baseline, offer, case) or _refuses_world(baseline, offer, case, traits)
    if refusal is None and baseline.name in flashinfer.MODULES:
        return flashinfer.refuses_case(baseline.name, case)
    if refusal is None and baseline.name in sglang.MODULES:
        return sglang.refuses_case(baseline.name, case, traits.arch)
    return refusal


def _refuses_size(baseline: Baseline, offer: Offer, case: Case) -> Refusal | None:
    if unfit := refuses_elements(case, least_bytes=case.itemsize):
        return unfit
    if case.size_bytes % offer.size_multiple_bytes:
        wanted = f"multiples of {offer.size_multiple_bytes} bytes"
        return Refusal("sizes", f"{baseline.name} takes {wanted}, not {case.size_bytes}")
    meaning = collective(case.op)
    if unfit := refuses_chunks(meaning, case):
        return unfit
    chunk_bytes = case.size_bytes // case.world_size
    if meaning.chunked and chunk_bytes % offer.chunk_multiple_bytes:
        wanted = f"chunks of whole {offer.chunk_multiple_bytes} bytes"
        return Refusal("sizes", f"{baseline.name} takes {wanted}, not of {chunk_bytes}")
    if case.offset and not baseline.uses_heap:
        reason = f"{baseline.name} is run on buffers of its own, which begin at a boundary"
        return Refusal("offset", reason, "give offset=0")
    return None


def _refuses_world(baseline: Baseline, offer: Offer, case: Case, traits: Traits) -> Refusal | None:
    if unfit := refuses_world_size(case, traits):
        return unfit
    if case.world_size < baseline.min_world_size:
        reason = f"{baseline.name} is compared on {baseline.min_world_size} ranks or more, not on {case.world_size}"
        return Refusal("world_size", reason)
    if offer.world_sizes and case.world_size not in offer.world_sizes:
        every = (size for one in baseline.offers if one.op == case.op for size in one.world_sizes)
        sizes = ", ".join(map(str, every))
        return Refusal("world_size", f"{baseline.name} does {case.op} on {sizes} ranks, not on {case.world_size}")
    reaches_peers = baseline.algorithm.startswith("torch/") or bool(baseline.module)
    unmapped = refuses_unmapped(baseline.name, traits) if reaches_peers else None
    return unmapped or (refuses_no_multicast(baseline.name, traits) if offer.needs_multicast else None)


def library_of(algorithm: str, traits: Traits, compiled_with: str = "") -> str:
    """What a record calls the library behind a baseline, with the version that was loaded: "NCCL 2.28.9".

    compiled_with: what made the baseline's module, as the ranks that loaded it name it.
    """
    import torch

    if (baseline := find_baseline(algorithm)) is not None and baseline.module:
        is_flashinfer = algorithm in flashinfer.MODULES
        name, version = ("flashinfer", flashinfer.version()) if is_flashinfer else ("SGLang", sglang.version())
        how = ", ".join(filter(None, (compiled_with, "dependent launch" if baseline.is_dependent else "")))
        return f"{name} {version or '(not installed)'}" + (f" ({how})" if how else "")
    if algorithm == CUBLAS:
        return f"cuBLAS of CUDA {torch.version.cuda}"
    if algorithm.partition("/")[0] == NCCL:
        return f"NCCL {traits.nccl}" if traits.nccl else "NCCL (none is loaded)"
    if algorithm.startswith("torch/"):
        return f"PyTorch {torch.__version__.partition('+')[0]} symmetric memory"
    return traits.library
