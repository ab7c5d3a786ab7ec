"""From a spec's CuTe DSL object to an Executable, cached by content. The only file that drives cute.compile.

Needs no GPU and no driver. A cache entry is one JSON file, named by the SHA-256 of all that decides what comes out:
the spec's sources (kernels/sources.py) and this file, the compiler's version, the architecture, the variant. It's
written under another name and then renamed, so readers see all or nothing and writers at the same time do no harm. It
holds its key and a checksum over key and code: an entry that is damaged, or that lies under the name of another, is
removed, with a warning, and compiled again. What lies there runs on GPUs: the folder is made for this user alone, a
folder that others can write to is refused, and an entry that others can have written counts as damaged. cutlass (more
than a second to import) is imported only when something is compiled.

The PTX carries line information, with paths relative to the project's root: so its digest is the same in every
checkout.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import platform
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cases.case import Case
from kernels.compile_error import CompilationError, reason_of
from kernels.sources import ROOT, digest_of, is_foreign, name_of, sources_of
from kernels.spec import ARGUMENT_KINDS, KernelSpec
from kernels.toolkit import version_of
from kernels.tuned_name import base_of
from memory.atomic_file import replacing
from memory.fabric import Executable
from memory.held_interrupts import uninterrupted
from memory.private_folder import exposure, is_ours, make_private

if TYPE_CHECKING:
    from kernels.nvshmem_bitcode import Bitcode

log = logging.getLogger(__name__)
T = TypeVar("T")

COMPILER = "nvidia-cutlass-dsl"
COMPILER_PARTS = (COMPILER, *(f"{COMPILER}-libs-{part}" for part in ("base", "core", "cu12", "cu13")))
_PARTS = {member.name for member in fields(Executable)} - {"assumptions", "host"}
"""What a cache entry has of an executable: assumptions are the spec's, and host code is not cached."""

compiling = threading.RLock()  # cute.compile keeps global state


def executable(spec: KernelSpec, case: Case, arch: str, cache_dir: Path) -> Executable:
    """The compiled kernel for a case, from the cache if it's there, else compiled and put there.

    Raises ValueError for an arch the spec does not name and for a cache that others can write to, RuntimeError when the
    compiler fails or the sources have changed since this process first read them. A cache that can't be read or written
    costs a warning and time, never the result.
    """
    if arch not in spec.archs:
        raise ValueError(f"{spec.name} is not built for {arch!r}: it is for {', '.join(spec.archs)}")
    if spec.made is not None:
        return spec.made(case, arch)
    if exposed := exposure(cache_dir):
        raise ValueError(
            f"{cache_dir} {exposed}, and compiled kernels from there would run (cache_dir), name another folder, or "
            "take the others' permission away and remove what is in it"
        )
    key = cache_key(spec, case, arch)
    path = entry_path(spec, arch, key, cache_dir)
    found = _load(path, key)
    if found is not None:
        return replace(found, name=spec.name, assumptions=spec.assumptions)
    is_apart = is_foreign(spec.files)
    # In this process the compiler would abort if an exception passed through it; what it made is kept.
    with compiling, nullcontext() if is_apart else uninterrupted():
        found = _load(path, key)  # another thread may have been faster
        if found is None:
            step = partial(_compile, spec, case, arch)
            what = f"compiling {spec.name} {spec.variant(case)} for {arch}"
            found = compiled_apart(step, what, CompilationError) if is_apart else step()
            log.info("compiled %s %s for %s", spec.name, spec.variant(case), arch)
            _store(path, key, found)
    return replace(found, name=spec.name, assumptions=spec.assumptions)


def entry_path(spec: KernelSpec, arch: str, key: str, cache_dir: Path) -> Path:
    """Return where the cache has, or is to have, the kernel of a key."""
    return cache_dir / f"{spec.op}-{base_of(spec.algorithm)}-{arch}-{key[:32]}.json"


def cache_key(spec: KernelSpec, case: Case, arch: str) -> str:
    """SHA-256 of all that decides the compiled code. What a tuning on trial decides of it is in the variant."""
    switches = {name: value for name, value in os.environ.items() if name.startswith("CUTE_DSL_")}
    parts = {
        "name": base_of(spec.name),
        "variant": spec.variant(case),
        "arch": arch,
        "sources": source_digest(spec),
        "compile": _sha256((ROOT / "kernels" / "compile.py").read_bytes()),
        "compiler": compiler_versions(),
        "python": platform.python_version_tuple()[:2],
        "switches": switches,
        **({"nvshmem": _linked(spec, arch).digest} if spec.nvshmem else {}),
    }
    return _sha256(json.dumps(parts, sort_keys=True).encode())


def _linked(spec: KernelSpec, arch: str) -> Bitcode:
    """The device code that is linked into a kernel. Raises RuntimeError if it is not installed."""
    from kernels.nvshmem_bitcode import bitcode, refuses_bitcode

    found = bitcode(arch)
    if found is None:
        raise RuntimeError(str(refuses_bitcode(spec.name, arch)))
    return found


def source_digest(spec: KernelSpec) -> str:
    """Return the SHA-256 of all files that the spec's code is made of, as this process first read them."""
    return digest_of(spec.files)


def compiler_versions() -> dict[str, str]:
    """The versions of the compiler's packages that are installed, without importing any."""
    return {name: version for name in COMPILER_PARTS if (version := version_of(name))}


def _compile(spec: KernelSpec, case: Case, arch: str) -> Executable:
    try:
        import cutlass.cute as cute
        from cutlass.base_dsl.compiler import DumpDir
    except ImportError as error:
        raise RuntimeError(f"compiling {spec.name} needs {COMPILER}, which can't be imported: {error}") from error
    built = spec.build(case)
    if spec.nvshmem:
        built.nvshmem = (_linked(spec, arch).path, spec.nvshmem)
    built.kernel.set_name_prefix(
        f"{spec.op}_{base_of(spec.algorithm)}", remove_cutlass_symbol=True, keep_mangled_name=False
    )
    arguments = _arguments(spec)
    with tempfile.TemporaryDirectory(prefix="symlab-compile-") as folder:
        options = (cute.KeepPTX, cute.KeepCUBIN, cute.GenerateLineInfo(True), DumpDir(folder), cute.GPUArch(arch))
        try:
            with uninterrupted(), _without_link_warnings() if spec.nvshmem else nullcontext():
                artifacts = cute.compile[options](built, *arguments).artifacts
        except Exception as error:  # the compiler's errors have no common kind
            said = _missing_pointer(spec, error) or reason_of(error)
            raise CompilationError(f"compiling {spec.name} {spec.variant(case)} for {arch} failed: {said}") from error
        ptx, cubin = artifacts.PTX, artifacts.CUBIN
    if changed := [source.name for source in sources_of(spec.files) if source.changed]:
        # Stored under the new sources' key, the old code would be taken for theirs from now on.
        raise RuntimeError(f"{spec.name}: {', '.join(changed)} changed while this process was running; run it again")
    text = with_relative_paths(ptx.decode() if isinstance(ptx, bytes) else ptx)
    entry = re.search(r"\.entry\s+([\w$]+)", text)
    assert entry is not None, "PTX without an entry"
    return Executable(base_of(spec.name), entry.group(1), arch, text, f"sha256:{_sha256(text.encode())}", bytes(cubin))


LINK_WARNING = b"warning: Linking two modules of different data layouts"
"""The compiler's linker writes it for each call of NVSHMEM: the bitcode names the sizes of fewer types than the kernel,
and the same ones."""


@contextmanager
def _without_link_warnings() -> Iterator[None]:
    """Keep the linker's warnings about data layouts off standard error, to which it writes by itself; all else that is
    written there meanwhile comes out afterwards."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            lines = file.read().splitlines(keepends=True)
            is_warning = [line.startswith(LINK_WARNING) for line in lines]
            for at, line in enumerate(lines):
                is_blank_after = at > 0 and is_warning[at - 1] and not line.strip()
                if not is_warning[at] and not is_blank_after:
                    os.write(2, line)


def _missing_pointer(spec: KernelSpec, error: Exception) -> str:
    """What is wrong where a body asks its frame for a pointer that the spec does not declare; "" for other errors."""
    asked = error.args[0] if isinstance(error, KeyError) and error.args else None
    kinds = [kind for kind, what in ARGUMENT_KINDS.items() if what == "address"]
    if not (isinstance(asked, tuple) and len(asked) == 2 and asked[0] in kinds):
        return ""
    place = reason_of(error).rpartition(" ")[2]
    declared = ", ".join(f"{one.kind}('{one.of}')" for one in spec.parameters if one.kind in kinds)
    return f"there is no buffer {asked[1]!r} as {asked[0]}, the spec's buffers declare {declared} {place}"


def _arguments(spec: KernelSpec) -> list[Any]:
    """Return what replaces the parameters while compiling: their types, with values that are never read; pointers as a
    list, which becomes one parameter each; last the number of blocks."""
    import cutlass
    import cutlass.cute as cute

    pointers, others = [], []
    for parameter in spec.parameters:
        kind = ARGUMENT_KINDS[parameter.kind]
        if kind != "address":
            others.append({"u64": cutlass.Int64(1), "u32": cutlass.Int32(0)}[kind])
        else:
            # Any address: the compiler uses the alignment given here, and buffers may begin at any element.
            pointers.append(cute.runtime.make_ptr(cutlass.Int8, 0, cute.AddressSpace.gmem, assumed_align=1))
    return [pointers, *others, cutlass.Int32(1)]


def compiled_apart(step: Callable[[], T], what: str, error: type[Exception] = ValueError) -> T:
    """Return what a step returns that compiles brought code, in a process of its own. what: "compiling ring for
    sm_90a".

    Raises what the step raises, and `error` if it ends the process: with the line of the user's file and what it called
    there, where these can be told.
    """
    from kernels.place_of_end import place_of_end
    from memory.forked import ProcessEnded, forked

    with compiling:
        try:
            return forked(step)
        except ProcessEnded as ended:
            said = " ".join(filter(None, [f"{what} ended its process {ended.how}", place_of_end(ended.frames)]))
            raise error(f"{said} (kernel), look at what it calls there") from None


def with_relative_paths(ptx: str) -> str:
    """PTX whose `.file` lines name project files from the root, the compiler's as cutlass/.., others by name."""

    def relative(match: re.Match[str]) -> str:
        path = Path(match.group(2))
        name = name_of(path)
        if not path.is_relative_to(ROOT) and "cutlass" in path.parts:
            last = len(path.parts) - 1 - path.parts[::-1].index("cutlass")
            name = Path(*path.parts[last:]).as_posix()
        return f'{match.group(1)}"{name}"'

    return re.sub(r'^(\s*\.file\s+\d+\s+)"([^"]*)"', relative, ptx.rstrip("\0"), flags=re.MULTILINE)


def _load(path: Path, key: str) -> Executable | None:
    """Return the entry at path; None if there is none, or none of this key that can be used: that is removed."""
    try:
        with path.open("rb") as file:
            ours = is_ours(file.fileno())
            text = file.read() if ours else b""
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = error.strerror or str(error)
        _warn_once("the compile cache %s can't be read (%s): compiling instead", path.parent, reason)
        return None
    try:
        if not ours:
            raise ValueError("other users can have written it")
        return _decoded(text, key)
    except (ValueError, RecursionError) as error:
        _warn_once("the compile cache entry %s is corrupt (%s): removed, compiling again", path, str(error))
        try:
            path.unlink(missing_ok=True)
        except OSError as failure:
            _warn_once("the corrupt compile cache entry %s can't be removed: %s", path, str(failure))
        return None


def _decoded(text: bytes, key: str) -> Executable:
    """Return the executable of a cache entry. Raises ValueError if it is damaged, or another key's, and RecursionError
    for JSON that is nested too deeply."""
    entry = json.loads(text)
    if not isinstance(entry, dict) or entry.keys() != {"key", "checksum", "executable"}:
        raise ValueError("it has other parts than an entry")
    body = entry["executable"]
    if not isinstance(body, dict) or body.keys() != _PARTS or not all(isinstance(one, str) for one in body.values()):
        raise ValueError("its executable has other parts than an executable")
    if entry["checksum"] != _checksum(entry["key"], body):
        raise ValueError("its checksum does not fit")
    if entry["key"] != key:
        raise ValueError("it is the entry of another kernel, variant or version")
    return Executable(**{**body, "cubin": base64.b64decode(body["cubin"])})


def _store(path: Path, key: str, compiled: Executable) -> None:
    body = {
        "name": compiled.name,
        "entry": compiled.entry,
        "arch": compiled.arch,
        "ptx": compiled.ptx,
        "digest": compiled.digest,
        "cubin": base64.b64encode(compiled.cubin).decode(),
    }
    text = json.dumps({"key": key, "checksum": _checksum(key, body), "executable": body})
    try:
        make_private(path.parent)
        with _sigterm_held(), replacing(path) as beside:
            beside.touch(mode=0o600, exist_ok=False)
            beside.write_text(text)
    except OSError as error:
        reason = error.strerror or str(error)
        _warn_once("the compile cache %s can't be written (%s): going on without it", path.parent, reason)


@contextmanager
def _sigterm_held() -> Iterator[None]:
    """Within, let SIGTERM wait where it would end the process at once, so that a process that compiles ahead and is
    ended leaves no part of an entry.

    By a handler, which counts for the whole process: a blocked signal goes to another thread, and the compiler has
    some. Outside the main thread, where no handler can be set, nothing changes.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if came:
            os.kill(os.getpid(), signal.SIGTERM)


@cache
def _warn_once(message: str, place: Path, reason: str) -> None:
    """Log a warning once in this process: a command has one cache and may compile hundreds of kernels."""
    log.warning(message, place, reason)


def _checksum(key: object, body: dict[str, str]) -> str:
    return _sha256(json.dumps([key, body], sort_keys=True).encode())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
