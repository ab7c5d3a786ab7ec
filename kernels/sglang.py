"""SGLang's custom all-reduce: what it takes, how SGLang launches it, and what an installation lacks for it.

Read from sglang 0.5.14 (jit_kernel/csrc/distributed/custom_all_reduce_{push,pull}.cuh and
srt/distributed/device_communicators/custom_all_reduce_v2.py). push stores every input into an inbox of each rank, where
+0.0 stands for "not written yet", in two banks in turn: Lamport's protocol. pull meets at flags and loads its peers'
inputs where they are: in one shot on two ranks, and beyond in two, whose second stores the sums over all inputs. Which
runs is a matter of ranks and bytes (cases/sglang_sizes.py). Both add in float32, in the order of ranks,
beginning with +0.0, and round once; both use dependent launch.

Thresholds, grids and blocks are SGLang's of VERSION: another version is refused. The kernels come from the
installed package's headers. Its Python interface is not used: importing sglang imports its server, and its
requirements fix other versions of CuTe DSL and PyTorch than ours. The table imports nothing of sglang.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from cases import sglang_sizes
from cases.case import Case
from cases.refusal import Refusal
from cases.sglang_sizes import PULL, PUSH
from kernels import toolkit

PACKAGE, VERSION = "sglang", "0.5.14"
HEADERS_PACKAGE = "apache-tvm-ffi"
"""Its headers are included by SGLang's, and its library is linked."""

MODULES = {PUSH: "sglang_push", PULL: "sglang_pull"}
"""Which compiled module each baseline needs."""

DTYPES = ("float32", "float16", "bfloat16")
ACCUMULATOR = "float32"
VECTOR_BYTES = 16
"""Sizes are whole vectors of this."""

PULL_THREADS = 512
PUSH_THREADS = (128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Launch:
    """A grid: its number of blocks, and of threads in each."""

    blocks: int
    threads: int


def pull_shots(world_size: int) -> int:
    """Return in how many shots SGLang pulls, 1 or 2, at the sizes at which it pulls."""
    return 1 if world_size == 2 else 2


def push_launch(size_bytes: int, multiprocessors: int) -> Launch:
    """Return the grid of a push: always a block a multiprocessor, of as few threads as have one vector each, if any."""
    vectors = -(-size_bytes // VECTOR_BYTES)
    fits = (threads for threads in PUSH_THREADS if threads * multiprocessors >= vectors)
    return Launch(multiprocessors, next(fits, PUSH_THREADS[-1]))


def pull_launch(size_bytes: int, multiprocessors: int) -> Launch:
    """Return the grid of a pull: as many blocks as give each thread one vector, at most one a multiprocessor."""
    return Launch(min(-(-size_bytes // (VECTOR_BYTES * PULL_THREADS)), multiprocessors), PULL_THREADS)


def refuses_case(name: str, case: Case, arch: str) -> Refusal | None:
    """Return why a baseline of SGLang's can't run a case of its dtypes and worlds; None if it can."""
    chosen = sglang_sizes.taken(case.size_bytes, case.world_size, arch)
    if name == chosen:
        return None
    asked = f"{case.size_bytes} bytes on {case.world_size} ranks"
    return Refusal("sizes", f"{name} is not what SGLang runs for {asked}", f"there it takes {chosen}")


def missing() -> str:
    """Return what this installation lacks for SGLang's kernels, in words; "" if nothing is known to be missing."""
    if not (found := version()):
        return f"{PACKAGE} is not installed"
    if found != VERSION:
        return f"its thresholds and grids are known of {PACKAGE} {VERSION}, not of {found}"
    if (place := sources()) is None or not all((place / "csrc" / "distributed" / one).is_file() for one in _SOURCES):
        return f"{PACKAGE} has no CUDA sources of its all-reduce"
    needed = {
        f"{HEADERS_PACKAGE}'s folder": tvm_ffi(),
        "nvcc": toolkit.nvcc(),
        "a C++ compiler": toolkit.host_compiler(),
    }
    absent = [what for what, there in needed.items() if there is None]
    return f"its kernels are compiled on first use, and {absent[0]} is missing" if absent else ""


_SOURCES = ("custom_all_reduce_push.cuh", "custom_all_reduce_pull.cuh")


def version() -> str:
    """Return SGLang's version as its package names it; "" where it is not installed."""
    return toolkit.version_of(PACKAGE)


def sources() -> Path | None:
    """Return the installed package's folder of CUDA sources, which has include/ and csrc/; None if there is none."""
    place = _folder("sglang")
    return place / "jit_kernel" if place is not None and (place / "jit_kernel").is_dir() else None


def tvm_ffi() -> Path | None:
    """Return the folder of apache-tvm-ffi, which has include/ and lib/; None if it is not installed."""
    return _folder("tvm_ffi")


def _folder(package: str) -> Path | None:
    """A package's folder, without importing it."""
    found = importlib.util.find_spec(package)
    places = list(found.submodule_search_locations or ()) if found else []
    return Path(places[0]) if places else None
