"""The code of a kernel of the user's own: PTX or a CuTe DSL function, from the place in a YAML file to what runs."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cases.refusal import unknown_name
from kernels.own.arguments import BroughtArgument
from kernels.own.functions import Shaped, compiled_function, function_calls
from kernels.own.parameters import parameters_of, refuses_entry, refuses_target
from kernels.sources import Source, read
from memory.fabric import Executable, Launch

LAUNCH_KEYS = ("grid", "block", "shared_bytes", "cluster", "cooperative", "dependent")

_TARGET = re.compile(r"^\s*\.target\s+(\w+)", re.MULTILINE)


@contextmanager
def naming_key(key: str) -> Iterator[None]:
    """Within, a ValueError names a key."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error} ({key})") from error


@dataclass(frozen=True, slots=True)
class OwnCode:
    """place is as it was written, and name what stands behind its colon: an entry of the PTX, or the function's name.

    source: the PTX file, or call: the function, with the files that its code begins with.
    """

    place: str
    name: str
    source: Source | None = None
    call: Any = None
    files: tuple[str, ...] = ()

    @property
    def is_function(self) -> bool:
        return self.source is None

    @property
    def ptx(self) -> str:
        """The text; "" of a function."""
        return self.source.content.decode("utf-8") if self.source is not None else ""

    @property
    def target(self) -> str:
        """The architecture that the PTX is for; "" of a function, which is compiled for any."""
        found = _TARGET.search(self.ptx)
        return found[1] if found else ""

    def refuses_arch(self, arch: str) -> str:
        """Return why PTX can't run on an architecture, in one line; "" if it can, and of a function."""
        return refuses_target(self.target, arch)

    def refuses_arguments(
        self, entry: str, by_rank: Sequence[Sequence[BroughtArgument]], buffers: Mapping[str, Shaped]
    ) -> str:
        """Return why it can't take arguments, as far as is known before it is compiled; "" if it may. entry: its name
        in the PTX. ValueError if the PTX has no such entry."""
        if not self.is_function:
            return refuses_entry(entry, by_rank[0], parameters_of(self.ptx, entry))
        try:
            function_calls(self.call, by_rank, buffers)
            inspect.signature(self.call).bind(*by_rank[0])
        except TypeError as error:
            return f"it can't take {len(by_rank[0])} arguments: {error}"
        except ValueError as error:
            # inspect has no signature of some callables: then the compiler says what they take
            return "" if str(error).startswith("no signature") else str(error)
        return ""

    def compiled(
        self,
        title: str,
        entry: str,
        by_rank: Sequence[Sequence[BroughtArgument]],
        buffers: Mapping[str, Shaped],
        asked: Mapping[str, Any],
        arch: str,
        assumptions: tuple[str, ...] = (),
    ) -> Executable:
        """Return what runs. title: its name in records; asked: what is said of a function's launch. ValueError for
        arguments that don't fit, PTX of another architecture, and a function that can't be compiled; RuntimeError if
        there is no compiler."""
        if self.is_function:
            made = compiled_function(self.call, title, by_rank, buffers, asked, arch)
            return replace(made, assumptions=assumptions)
        if unfit := self.refuses_arguments(entry, by_rank, buffers):
            raise ValueError(f"{unfit} (arguments)")
        if unfit := self.refuses_arch(arch):
            raise ValueError(f"{title}: {unfit}")
        digest = f"sha256:{hashlib.sha256(self.ptx.encode()).hexdigest()}"
        return Executable(title, entry, arch, self.ptx, digest, assumptions=assumptions)


def code_at(given: object, start: Callable[[Path], Path], load: Callable[[str], Any]) -> OwnCode:
    """Return the code at a place. start: the folder where a path begins; load: the function at a place, as
    kernels.brought has it. ValueError, in one line, for a place without any."""
    where, _, name = given.rpartition(":") if isinstance(given, str) else ("", "", "")
    if not isinstance(given, str) or not where or not name:
        raise ValueError(f"{given!r} names no kernel: give file.ptx:ENTRY, file.py:NAME or package.module:NAME")
    if not where.endswith(".ptx"):
        function = load(given)
        kind = getattr(function.call, "_decorator_kind", None)  # what CuTe DSL made of it, or of an object's __call__
        kind = kind or getattr(type(function.call).__call__, "_decorator_kind", None)
        if kind == "kernel":
            raise ValueError(
                f"{given} is a kernel of CuTe DSL without a launch: give the @cute.jit function that launches it"
            )
        if kind != "jit":
            what = type(function.call).__name__
            raise ValueError(f"{given} is of type {what}, and no @cute.jit function of CuTe DSL: give one")
        return OwnCode(given, name, call=function.call, files=function.files)
    path = Path(where).expanduser()
    path = start(path) / path
    if not path.is_file():
        raise ValueError(f"{given}: there is no file {path}")
    made = OwnCode(given, name, read(path.resolve()))
    try:
        if not made.target:
            raise ValueError(f"{given}: {path.name} is no PTX: it has no .target")
    except UnicodeDecodeError:
        raise ValueError(f"{given}: {path.name} is not text: give PTX, not machine code") from None
    return made


def launch_of(given: Mapping[str, Any]) -> Launch:
    """Return the launch that a section of a YAML file says; one that leaves grid and block out is of one cluster and
    thread. ValueError for one that no GPU can do."""
    shape: dict[str, Any] = {
        key: tuple(value) if isinstance(value, (list, tuple)) else value for key, value in given.items()
    }
    return Launch(**({"grid": shape.get("cluster", 1), "block": 1} | shape))


def check_keys(given: Mapping[Any, Any], known: Sequence[str], where: str = "") -> None:
    """Raise ValueError for a key that is not known. where: the section's key, "" for the whole."""
    for key in given:
        if key not in known:
            place = f"{where}.{key}" if where else str(key)
            raise ValueError(f"{unknown_name('key', str(key), known)} ({place})")
