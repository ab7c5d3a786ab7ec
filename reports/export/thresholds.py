"""Maximum sizes of all-reduces in vLLM and SGLang: Python dictionaries by compute capability and world size, made of
records of the very calls that these programs make.

What entitles to which number:

- SYMM_MEM_ALL_REDUCE_MAX_SIZES of vLLM and TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES of SGLang bound PyTorch's symmetric
  memory, which both call on a copy and copy back. So they need the baselines torch/two_shot_staged and
  torch/multimem_staged, not torch/two_shot and torch/multimem, against nccl. Which of the two kernels runs is the
  program's choice, by capability and world size. Without multicast addresses both programs leave this path out, so
  records of GPUs without them entitle to nothing.
- CUSTOM_ALL_REDUCE_MAX_SIZES of vLLM bounds vLLM's own kernels, which come first. FlashInfer has a copy of them, the
  baselines flashinfer/vllm_one_shot and flashinfer/vllm_two_shot, of which vLLM takes one by a rule of its own. The
  number counts only where symmetric memory is on, so it needs the records above as well, and only up to 8 MiB.

Both programs take sums of bfloat16, in a CUDA graph when they serve; times of eager calls are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cases.record.nccl_settings import said_choice
from cases.record.record import Record
from reports.export.choice import Threshold, Times, threshold_of, threshold_regret
from reports.export.sources import Sources, is_undisturbed, left_out_text, regret_text, sources, times_of
from reports.table.text import size_text

NCCL, TWO_SHOT, MULTIMEM = "nccl", "torch/two_shot_staged", "torch/multimem_staged"
VLLM_ONE_SHOT, VLLM_TWO_SHOT = "flashinfer/vllm_one_shot", "flashinfer/vllm_two_shot"

HOW = (
    "run on GPUs with multicast: symlab run op=all_reduce dtype=bfloat16 algorithms=[two_shot] fabric=nvshmem "
    "baselines=[nccl,torch/two_shot_staged,torch/multimem_staged]"
)
HOW_CUSTOM = f"{HOW[:-1]},flashinfer/vllm_one_shot,flashinfer/vllm_two_shot]"

CAPABILITIES = {"sm_90a": "9.0", "sm_90": "9.0", "sm_100a": "10.0", "sm_100": "10.0", "sm_103a": "10.3"}
"""Compute capabilities by architecture, as vLLM writes them."""

VLLM_MULTIMEM = {"9.0": (4, 6, 8), "10.0": (6, 8), "10.3": (6, 8)}
SGLANG_MULTIMEM = {"9.0": (4, 6, 8), "10.0": (6, 8)}
"""Numbers of ranks on which the programs take multimem, by capability; two_shot on others."""

RANKS = (2, 4, 6, 8)
"""Numbers of ranks that the dictionaries of both programs have."""

MOST_CUSTOM_BYTES = 8 << 20
"""vLLM gives its own kernels no larger buffers, whatever the dictionary says."""

VECTOR_BYTES, WORD_BYTES = 16, 4
"""What sizes are multiples of: for vLLM's own kernels, for PyTorch's."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A number of a dictionary: its name there, what it says of its records, and the number in bytes."""

    name: str
    capability: str
    ranks: int
    maximum_bytes: int
    says: tuple[str, ...]


def vllm_sizes(found: Sequence[Record]) -> str:
    """Return a Python file with vLLM's dictionaries, as far as the records entitle to them. ValueError if to none."""
    symmetric = _symmetric(found, VLLM_MULTIMEM)
    entry = _entry(symmetric, "SYMM_MEM_ALL_REDUCE_MAX_SIZES", symmetric.threshold.up_to_bytes)
    entries, says = [entry], []
    if any(record.case.algorithm in (VLLM_ONE_SHOT, VLLM_TWO_SHOT) for record in found):
        entries.append(_custom(found, symmetric))
    else:
        says.append(f"no CUSTOM_ALL_REDUCE_MAX_SIZES: no record of vLLM's own kernels; {HOW_CUSTOM}")
    says.append("vllm/distributed/device_communicators/all_reduce_utils.py has these dictionaries: put the numbers")
    says.append("there, or update both levels of its dictionaries before the communicators are made")
    return _python("vllm", entries, says, lambda one: repr(one.capability))


def sglang_sizes(found: Sequence[Record]) -> str:
    """Return a Python file with SGLang's dictionary for PyTorch's symmetric memory. ValueError if the records do not
    entitle to it. SGLang keys it by the major capability, and takes sizes below the number."""
    symmetric = _symmetric(found, SGLANG_MULTIMEM)
    maximum = _above(symmetric.threshold.up_to_bytes, WORD_BYTES)
    entries = [_entry(symmetric, "TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES", maximum)]
    says = [
        "no thresholds of custom_all_reduce_v2: symlab runs SGLang's kernels only at the sizes at which SGLang does",
        "sglang/srt/distributed/device_communicators has this dictionary (all_reduce_utils.py, torch_symm_mem.py)",
    ]
    return _python("sglang", entries, says, lambda one: one.capability.partition(".")[0])


@dataclass(frozen=True, slots=True)
class _Symmetric:
    """PyTorch's symmetric memory against NCCL: records, times by bytes of both, and the threshold between them."""

    mine: Sources
    capability: str
    own: Times
    nccl: Times
    sizes: tuple[int, ...]
    threshold: Threshold


def _symmetric(found: Sequence[Record], multimem: Mapping[str, Sequence[int]]) -> _Symmetric:
    what = "all_reduce of bfloat16 by torch/two_shot_staged or torch/multimem_staged, and nccl"
    mine = sources(found, what, lambda record: is_a_sum(record, (NCCL, TWO_SHOT, MULTIMEM)), HOW)
    check_graph(mine)
    capability = capability_of(mine)
    if capability not in multimem or mine.ranks not in RANKS:
        known = f"{', '.join(multimem)} on {', '.join(map(str, RANKS))} ranks"
        raise ValueError(f"{mine.arch} on {mine.ranks} ranks has no entry there (RECORDS), known: {known}")
    if not mine.has_multicast:
        reason = "these GPUs gave no multicast addresses, without which symmetric memory is not used there"
        raise ValueError(f"{reason} (RECORDS), {HOW}")
    algorithm = MULTIMEM if mine.ranks in multimem[capability] else TWO_SHOT
    own, nccl = (curve(mine, name) for name in (algorithm, NCCL))
    sizes = _common(own, nccl, algorithm)
    threshold = threshold_of(own, nccl, sizes)
    if not threshold.up_to_bytes:
        raise ValueError(f"{algorithm} beats nccl at no size (RECORDS), there is no number to export: turn it off")
    return _Symmetric(mine, capability, own, nccl, sizes, threshold)


def _entry(one: _Symmetric, name: str, maximum_bytes: int) -> Entry:
    says = _says(one.mine, one.own, one.nccl, one.sizes, one.threshold)
    return Entry(name, one.capability, one.mine.ranks, maximum_bytes, says)


def _says(mine: Sources, own: Times, other: Times, sizes: Sequence[int], chosen: Threshold) -> tuple[str, ...]:
    return (
        *mine.lines(),
        f"up to {size_text(sizes[-1])} measured; loss at the measured sizes: {regret_text(chosen.in_use)}",
        left_out_text(threshold_regret(own, other, sizes)),
    )


def _custom(found: Sequence[Record], symmetric: _Symmetric) -> Entry:
    """vLLM's own kernels against the better of what comes after them: symmetric memory up to its number, then NCCL."""
    what = "all_reduce of bfloat16 by flashinfer/vllm_one_shot and flashinfer/vllm_two_shot"
    mine = sources(found, what, lambda record: is_a_sum(record, (VLLM_ONE_SHOT, VLLM_TWO_SHOT)), HOW_CUSTOM)
    check_graph(mine)
    both = symmetric.mine
    if (mine.gpu, mine.ranks, mine.setup) != (both.gpu, both.ranks, both.setup):
        raise ValueError(f"{what}: of {mine.ranks} x {mine.gpu}, nccl of {both.ranks} x {both.gpu} (RECORDS), give one")
    curves = {name: curve(mine, name) for name in (VLLM_ONE_SHOT, VLLM_TWO_SHOT)}
    sizes = [size for size in symmetric.sizes if size <= MOST_CUSTOM_BYTES]
    for size in sizes:
        if size not in curves[name := vllm_kernel(size, mine.ranks)]:
            missing = f"{name}, which vLLM takes at {size_text(size)}, was not timed there"
            raise ValueError(f"{missing} (RECORDS), {HOW_CUSTOM}")
    own = {size: curves[vllm_kernel(size, mine.ranks)][size] for size in sizes}
    after = {size: _after(symmetric, size) for size in sizes}
    threshold = threshold_of(own, after, sizes)
    says = _says(mine, own, after, sizes, threshold)
    maximum = _above(threshold.up_to_bytes, VECTOR_BYTES)
    return Entry("CUSTOM_ALL_REDUCE_MAX_SIZES", symmetric.capability, mine.ranks, maximum, says)


def _after(symmetric: _Symmetric, size: int) -> float:
    return (symmetric.own if size <= symmetric.threshold.up_to_bytes else symmetric.nccl)[size]


def vllm_kernel(size_bytes: int, ranks: int) -> str:
    """Return which of its two kernels vLLM takes, all GPUs being connected (csrc/custom_all_reduce.cuh)."""
    is_small = size_bytes < ((512 << 10) if ranks <= 4 else (256 << 10))
    return VLLM_ONE_SHOT if ranks == 2 or is_small else VLLM_TWO_SHOT


def capability_of(mine: Sources) -> str:
    """Return the compute capability, such as 9.0; "" for one that neither program has."""
    return CAPABILITIES.get(mine.arch, "")


def is_a_sum(record: Record, names: Sequence[str]) -> bool:
    """Whether it is a sum of bfloat16 by one of these; NCCL's only by its own choice."""
    case = record.case
    asked = (case.op, case.dtype, case.reduction) == ("all_reduce", "bfloat16", "sum")
    own_choice = not said_choice(record) and is_undisturbed(record)
    return asked and case.algorithm in names and (case.algorithm != NCCL or own_choice)


def check_graph(mine: Sources) -> None:
    """Raise ValueError for times of eager calls."""
    if any(record.timing is not None and record.timing.mode != "graph" for record in mine.records):
        raise ValueError(f"times are of {mine.setup} (RECORDS), run it with timing.mode=graph")


def curve(mine: Sources, name: str) -> Times:
    """Return a contestant's times in microseconds by bytes."""
    return times_of(record for record in mine.records if record.case.algorithm == name)


def _common(own: Times, other: Times, name: str) -> tuple[int, ...]:
    """The sizes that both were timed at. ValueError if there are none, or if one lacks a size of the other's."""
    if not own or list(own) != list(other):
        counts = f"{len(own)} sizes and nccl at {len(other)}"
        raise ValueError(f"{name} was timed at {counts}, not the same (RECORDS), {HOW}")
    return tuple(own)


def _above(up_to_bytes: int, step: int) -> int:
    """The least multiple of step that is larger: for a program that takes sizes below its number."""
    return (up_to_bytes // step + 1) * step if up_to_bytes else 0


def _python(consumer: str, entries: Sequence[Entry], says: Sequence[str], key: Callable[[Entry], str]) -> str:
    lines = [f"# made by symlab export --to {consumer}", *(f"# {line}" for line in says)]
    for one in entries:
        lines += ["", *(f"# {line}" for line in one.says)]
        lines += [f"{one.name} = {{{key(one)}: {{{one.ranks}: {one.maximum_bytes}}}}}"]
    return "".join(f"{line}\n" for line in lines)
