"""flashinfer's all-reduce kernels: what they take, how their data is laid out, and what an installation lacks for them.

Read from flashinfer 0.7.2 (flashinfer/comm/*.py, csrc/*.cu). Two modules are compiled by nvcc on first use, unless the
package brings them compiled. vllm_comm is vLLM's custom all-reduce: it takes one stage or two, by the number of ranks
and of bytes, and no argument of its interface chooses. trtllm_comm is TensorRT-LLM's: its one-shot is Lamport's
protocol, in three buffers in turn, with -0.0 for "not written yet"; its two-shot meets at barriers. (flashinfer's
other back ends, mnnvl and mnnvl-cutedsl, need multicast and are not offered here.)

Both add in float32 and round once. Both are compiled with -use_fast_math, by which float32's subnormal numbers, and
with them bfloat16's, become zero. The table imports nothing of flashinfer.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cases.case import Case, Inputs
from cases.refusal import Refusal
from kernels import toolkit

PACKAGE = "flashinfer-python"

VLLM_ONE_SHOT, VLLM_TWO_SHOT = "flashinfer/vllm_one_shot", "flashinfer/vllm_two_shot"
TRTLLM_LAMPORT, TRTLLM_TWO_SHOT = "flashinfer/trtllm_lamport", "flashinfer/trtllm_two_shot"

VLLM_MODULE, TRTLLM_MODULE = "vllm_comm", "trtllm_comm"

MODULES = {
    VLLM_ONE_SHOT: VLLM_MODULE,
    VLLM_TWO_SHOT: VLLM_MODULE,
    TRTLLM_LAMPORT: TRTLLM_MODULE,
    TRTLLM_TWO_SHOT: TRTLLM_MODULE,
}
"""Which compiled module each baseline needs."""

DTYPES = ("float32", "float16", "bfloat16")
ACCUMULATOR = "float32"
VECTOR_BYTES = 16
"""Sizes are whole vectors of this."""

VLLM_WORLD_SIZES, TRTLLM_WORLD_SIZES = (2, 4, 6, 8), (2, 4, 8, 16)

MOST_ELEMENTS = 1 << 30
"""Maximum number of elements, exclusive: indices of up to twice as many are 32-bit integers."""

MOST_WORKSPACE_BYTES = 1 << 30
"""Maximum bytes of all ranks' data together, exclusive, for TensorRT-LLM's: its workspace has three buffers of that
size, whose offsets are 32-bit integers. Beyond that flashinfer takes the two-shot without saying so."""

MOST_ROW_VECTORS, LEAST_ROW_VECTORS = 1024, 64
"""Vectors of a row of TensorRT-LLM's, whose kernels give each row to one cluster, each vector to one thread: no more
fit a block, and with fewer the kernel is not what its authors measure."""


def vllm_stages(world_size: int, size_bytes: int) -> int:
    """Return how many stages vLLM's all-reduce takes, 1 or 2; the library decides (CustomAllreduce::allreduce)."""
    if world_size == 2:
        return 1
    return 1 if size_bytes < (512 << 10 if world_size <= 4 else 256 << 10) else 2


@dataclass(frozen=True, slots=True)
class Rows:
    """How a flat buffer is shown to TensorRT-LLM's kernels, which know tokens (rows) of a hidden dimension."""

    count: int
    vectors: int

    def elements(self, itemsize: int) -> int:
        """Return the elements of a row, the hidden dimension."""
        return self.vectors * VECTOR_BYTES // itemsize


@cache
def rows_of(size_bytes: int, world_size: int, is_one_shot: bool) -> Rows | None:
    """Return the longest rows that a size splits into; None where there are none that the kernel takes.

    The two-shot wants more rows than ranks, and rows of at least as many vectors as ranks.
    """
    vectors = size_bytes // VECTOR_BYTES
    fewest_rows = 1 if is_one_shot else world_size + 1
    most = min(MOST_ROW_VECTORS, vectors // fewest_rows)
    least = max(min(LEAST_ROW_VECTORS, most // 2), 1 if is_one_shot else world_size)
    for length in range(most, least - 1, -1):
        if vectors % length == 0:
            return Rows(vectors // length, length)
    return None


def refuses_case(name: str, case: Case) -> Refusal | None:
    """Return why a baseline of flashinfer's can't run a case of its dtypes, sizes and worlds; None if it can."""
    if case.inputs == Inputs.edge and case.dtype != "float16":
        what = f"{name} takes subnormal numbers of {case.dtype} for zero"
        return Refusal("inputs", what, "flashinfer compiles it with -use_fast_math, give inputs=normal")
    if case.numel >= MOST_ELEMENTS:
        return Refusal("sizes", f"{name} takes fewer than {MOST_ELEMENTS} elements, not {case.numel}")
    if MODULES[name] == VLLM_MODULE:
        return _refuses_stages(name, case)
    together = case.world_size * case.size_bytes
    if together >= MOST_WORKSPACE_BYTES:
        what = f"{name} takes less than {MOST_WORKSPACE_BYTES} bytes of all ranks together, not {together}"
        return Refusal("sizes", what)
    if rows_of(case.size_bytes, case.world_size, name == TRTLLM_LAMPORT) is None:
        what = f"{name} takes whole rows of {LEAST_ROW_VECTORS} to {MOST_ROW_VECTORS} vectors of {VECTOR_BYTES} bytes"
        return Refusal("sizes", f"{what}, which {case.size_bytes} bytes don't split into")
    return None


def _refuses_stages(name: str, case: Case) -> Refusal | None:
    stages = vllm_stages(case.world_size, case.size_bytes)
    chosen = VLLM_ONE_SHOT if stages == 1 else VLLM_TWO_SHOT
    if name == chosen:
        return None
    taken = f"{case.size_bytes} bytes on {case.world_size} ranks"
    return Refusal("sizes", f"{name} is not what the library runs for {taken}", f"there it takes {chosen}")


def missing(module: str) -> str:
    """Return what this installation lacks for a module, in words; "" if nothing is known to be missing."""
    if not version():
        return f"{PACKAGE} is not installed"
    if is_prebuilt(module):
        return ""
    needed = {"nvcc": _nvcc(), "ninja": shutil.which("ninja"), "a C++ compiler": toolkit.host_compiler()}
    absent = [tool for tool, place in needed.items() if place is None]
    return f"flashinfer compiles {module}, and {absent[0]} is missing" if absent else ""


def version() -> str:
    """Return flashinfer's version as its package names it; "" where it is not installed."""
    return toolkit.version_of(PACKAGE)


def is_prebuilt(module: str) -> bool:
    """Return whether the package brings a module compiled, or a package of such modules is installed."""
    if importlib.util.find_spec("flashinfer_jit_cache") is not None:
        return True
    package = importlib.util.find_spec("flashinfer")
    places = (package.submodule_search_locations or ()) if package else ()
    return any((Path(place) / "data" / "aot" / module / f"{module}.so").is_file() for place in places)


def _nvcc() -> str | None:
    """Where flashinfer looks for nvcc."""
    named = os.environ.get("FLASHINFER_NVCC")
    return shutil.which(named) if named else toolkit.nvcc()
