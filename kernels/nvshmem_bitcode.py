"""NVSHMEM's device code: where its bitcode is, its version and digest, and the functions that kernels may call.

The bitcode is in the wheel nvidia-nvshmem-cu13, a file for each GPU architecture (54 MB for sm_90). It is never part of
this project: kernels/compile.py links the installed file into a kernel that declares functions of it
(KernelSpec.nvshmem). It is looked for in the environment that runs, then in the one that `make foreign` makes. No GPU
and no driver is needed.
"""

from __future__ import annotations

import difflib
import hashlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from types import MappingProxyType

from cases.refusal import Refusal

WHEEL = "nvidia-nvshmem-cu13"
_ROOT = Path(__file__).resolve().parent.parent
_BITCODES = MappingProxyType({9: 90, 10: 100, 12: 100})
"""The bitcode of a GPU architecture, by the major version of its compute capability."""

SCOPES = ("thread", "warp", "block")
"""Threads that make a call together: each alone, or all of a warp, or all of a block, with the same arguments."""

_BYTES, _SIGNAL = "byte *", "u64 *"
_PUT = (_BYTES, _BYTES, "u64", "s32")
_PUT_SIGNAL = (_BYTES, _BYTES, "u64", _SIGNAL, "u64", "s32", "s32")


@dataclass(frozen=True, slots=True)
class Function:
    """A function of NVSHMEM's device code as C has it: types of its arguments in order, and of its result ("": none).

    A type is "s32", "u32", "u64", "u8" or "u16", or one of these (or "byte") with " *".
    """

    name: str
    arguments: tuple[str, ...]
    result: str = ""


def scoped(name: str, scope: str) -> str:
    """Return the C name of a function for threads that call it together; scope: of SCOPES."""
    if scope not in SCOPES:
        raise ValueError(f"there is no scope {scope!r} of {name}: give {', '.join(SCOPES)}")
    return f"nvshmem_{name}" if scope == "thread" else f"nvshmemx_{name}_{scope}"


def _functions() -> Iterator[Function]:
    yield Function("nvshmem_my_pe", (), "s32")
    yield Function("nvshmem_n_pes", (), "s32")
    yield Function("nvshmem_team_my_pe", ("s32",), "s32")
    yield Function("nvshmem_team_n_pes", ("s32",), "s32")
    yield Function("nvshmem_ptr", (_BYTES, "s32"), "u64")
    yield Function("nvshmem_fence", ())
    yield Function("nvshmem_quiet", ())
    for scope, way in product(SCOPES, ("", "_nbi")):
        yield Function(scoped(f"putmem{way}", scope), _PUT)
        yield Function(scoped(f"getmem{way}", scope), _PUT)
        yield Function(scoped(f"putmem_signal{way}", scope), _PUT_SIGNAL)
    for scope in SCOPES:
        yield Function(scoped("barrier_all", scope), ())
        yield Function(scoped("sync_all", scope), ())
        yield Function(scoped("team_sync", scope), ("s32",), "s32")
    for bits in (8, 16, 32, 64):
        yield Function(f"nvshmem_uint{bits}_p", (f"u{bits} *", f"u{bits}", "s32"))
        yield Function(f"nvshmem_uint{bits}_g", (f"u{bits} *", "s32"), f"u{bits}")
    yield Function("nvshmemx_signal_op", (_SIGNAL, "u64", "s32", "s32"))
    yield Function("nvshmem_signal_fetch", (_SIGNAL,), "u64")
    yield Function("nvshmem_signal_wait_until", (_SIGNAL, "s32", "u64"), "u64")
    for kind in ("u32", "u64"):
        name, where = f"nvshmem_uint{kind[1:]}", f"{kind} *"
        yield Function(f"{name}_wait_until", (where, "s32", kind))
        yield Function(f"{name}_wait_until_all", (where, "u64", "s32 *", "s32", kind))
        yield Function(f"{name}_wait_until_any", (where, "u64", "s32 *", "s32", kind), "u64")
        yield Function(f"{name}_test", (where, "s32", kind), "s32")
        yield Function(f"{name}_atomic_fetch", (where, "s32"), kind)
        yield Function(f"{name}_atomic_compare_swap", (where, kind, kind, "s32"), kind)
        yield Function(f"{name}_atomic_swap", (where, kind, "s32"), kind)
        for what in ("add", "and", "or", "xor"):
            yield Function(f"{name}_atomic_fetch_{what}", (where, kind, "s32"), kind)
        for what in ("set", "add", "and", "or", "xor"):
            yield Function(f"{name}_atomic_{what}", (where, kind, "s32"))


FUNCTIONS: Mapping[str, Function] = MappingProxyType({one.name: one for one in _functions()})
"""The functions that kernels may call, by their names in C."""

_INSTEAD = "use put_signal instead (compile times of 2026-11-22: sm_90a, a machine of 2 cores)"
REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "reduce": f"it takes 106 s to compile: {_INSTEAD}",
        "reducescatter": f"not tried, as reduce takes 106 s to compile: {_INSTEAD}",
        "broadcast": f"it takes 130 s to compile: {_INSTEAD}",
        "alltoall": f"it takes 39 s to compile: {_INSTEAD}",
        "fcollect": f"it takes 21 s to compile: {_INSTEAD}",
    }
)
"""Collectives of teams, by a word of their names in C, with the reason why kernels can't call them."""


def refuses_function(name: str) -> str:
    """Return why kernels can't call a function of that name in C; "" if they can."""
    if name in FUNCTIONS:
        return ""
    words = name.split("_")
    for word, reason in REFUSED.items():
        if word in words or f"{word}mem" in words:
            return f"{name} is unsupported: {reason}"
    near = difflib.get_close_matches(name, FUNCTIONS, n=3, cutoff=0.5)
    return f"there is no function {name!r} here: " + (f"did you mean {' or '.join(near)}?" if near else "see FUNCTIONS")


@dataclass(frozen=True, slots=True)
class Bitcode:
    """A file of NVSHMEM's device code, and the version of the wheel that it is from ("": unknown)."""

    path: Path
    version: str

    @property
    def digest(self) -> str:
        """SHA-256 of its content, in hexadecimal."""
        state = self.path.stat()
        return _digest(self.path, state.st_size, state.st_mtime_ns)


@cache
def _digest(path: Path, size_bytes: int, modified_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def places() -> list[Path]:
    """Return the folders of installed packages in which the wheel is looked for, in order."""
    made_foreign = sorted((_ROOT / ".venv-foreign").glob("lib/python3*/site-packages"))
    return [*(Path(one) for one in sys.path if one), *made_foreign]


def bitcode(arch: str) -> Bitcode | None:
    """Return the bitcode for a GPU architecture such as "sm_90a"; None if no place has it. ValueError if there is none
    for the architecture."""
    number = int("".join(filter(str.isdigit, arch)))
    if number // 10 not in _BITCODES:
        raise ValueError(f"NVSHMEM has no bitcode for {arch}: take sm_90a or sm_100a")
    name = f"libnvshmem_device_sm_{_BITCODES[number // 10]}.bc"
    for place in places():
        path = place / "nvidia" / "nvshmem" / "lib" / name
        if path.is_file():
            return Bitcode(path, _version(place))
    return None


def _version(place: Path) -> str:
    found = sorted(place.glob(f"{WHEEL.replace('-', '_')}-*.dist-info"))
    return found[-1].name.removesuffix(".dist-info").rpartition("-")[2] if found else ""


def refuses_bitcode(name: str, arch: str) -> Refusal | None:
    """Return the refusal of the kernel called name, which calls NVSHMEM's device functions, if no bitcode is there."""
    if bitcode(arch) is not None:
        return None
    reason = f"{name} calls NVSHMEM's device functions, and there is no bitcode of them for {arch}"
    return Refusal("algorithms", reason, f"install {WHEEL} (pip install {WHEEL}), or make foreign")
