"""A kernel's spec by the place it stands at: "package.module:NAME", "path/to/file.py:NAME" or "path/to/file.yaml:NAME".

A user brings a kernel of their own by such a place. And every spec crosses to other processes by its place: a spec
holds functions that can't be pickled, so its Place is sent, and the other side loads the spec from there. It refuses
files that changed meanwhile.

A file is loaded as a module under a name of its own, so that files of the same name don't clash, within the packages
that it lies in, so that relative imports work. An absolute import finds what is on sys.path, as everywhere.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import os
import re
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from kernels import sources
from kernels.own.described import described
from kernels.spec import KernelSpec

_MISSING = object()
_current: dict[Path, int] = {}
"""Sources whose code this process runs as they were read, with the time of their last change in nanoseconds."""

_NAME = re.compile(r"\w+/\w+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """A name in a module or in a file: module is an import path, file an absolute path, and one of the two is "".

    digest is that of the sources as they were loaded (kernels.sources.digest_of); "" for the project's own kernels.
    """

    module: str
    file: str
    name: str
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.file or self.module}:{self.name}"

    def load(self) -> KernelSpec:
        """Return the spec. Raises ValueError, in one line, if there is none or its sources have changed."""
        spec = _found(self)
        if _digest(spec) != self.digest:
            raise ValueError(f"{self} or what it imports changed after it was first loaded: run it again")
        return spec


def spec_at(text: str, folder: Path | None = None) -> KernelSpec:
    """Return the spec at "package.module:NAME" or "path/to/file.py:NAME".

    Relative paths begin at folder; None: at the working folder. Raises ValueError, in one line, for text of another
    form, for a file, module or name that does not exist, a module that raises, and a value that is no KernelSpec.
    """
    return _found(_place(text, folder, "kernel"))


@dataclass(frozen=True, slots=True)
class BroughtFunction:
    """A function from a file or a module. files are the absolute paths of the files that its code begins with."""

    place: Place
    call: Callable[..., Any]
    files: tuple[str, ...]


def function_at(text: str, folder: Path | None = None) -> BroughtFunction:
    """Return the function at "package.module:NAME" or "path/to/file.py:NAME", as spec_at does a spec.

    Raises ValueError, in one line, as spec_at does, and for a value that can't be called.
    """
    place = _place(text, folder, "function")
    module, value, before = _loaded(place)
    if not callable(value):
        known = [name for name, one in vars(module).items() if isinstance(one, FunctionType)]
        raise ValueError(f"{place}: {_lacking(place.name, value, known, 'function')}")
    file = getattr(module, "__file__", None)
    files = (str(Path(file).resolve()),) if file is not None else ()
    if files and sources.is_foreign(files):
        _check_current(place, files, before)
    return BroughtFunction(replace(place, digest=sources.digest_of(files)), value, files)


def module_files(module: str) -> tuple[Path, ...]:
    """Return the resolved files that importing a module runs: of each package on the way, and last its own.

    Nothing is imported. Raises ValueError, in one line, for a module that is not here, or that is no Python file.
    """
    found: list[Path] = []
    parts = module.split(".")
    folders: list[str] | None = None
    for number in range(1, len(parts) + 1):
        name = ".".join(parts[:number])
        try:
            spec = find_spec(name) if folders is None else PathFinder.find_spec(name, folders)
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            raise ValueError(f"{module}: there is no module {name}")
        if spec.has_location and spec.origin and spec.origin.endswith(".py"):
            found.append(Path(spec.origin).resolve())
        elif spec.has_location or spec.submodule_search_locations is None or number == len(parts):
            raise ValueError(f"{module}: the module {name} has no Python file of its own")
        folders = list(spec.submodule_search_locations or ())
    return tuple(found)


def _place(text: str, folder: Path | None, what: str) -> Place:
    """The place that a text names, without its digest. ValueError for text of another form and a missing file."""
    where, _, name = text.rpartition(":")
    if not where or not name:
        raise ValueError(f"{text!r} names no {what}: give file.py:NAME or package.module:NAME")
    if not where.endswith((".py", ".yaml")) and "/" not in where:
        return Place(where, "", name)
    path = (folder or Path.cwd()) / where
    if not path.is_file():
        raise ValueError(f"{text}: there is no file {path}")
    if path.suffix not in (".py", ".yaml")[: 1 + (what == "kernel")]:
        raise ValueError(f"{text}: {path.name} is no Python file: give file.py:NAME")
    return Place("", str(path.resolve()), name)


def _loaded(place: Place) -> tuple[ModuleType, object, set[str]]:
    """Return the module of a place, the value of its name (_MISSING without one), and what was imported before."""
    if place.file and sources.read(Path(place.file)).changed:
        raise ValueError(f"{place.file} changed after this process first read it: run it again")
    before = set(sys.modules)
    try:
        module = _module_of(Path(place.file)) if place.file else importlib.import_module(place.module)
        value = getattr(module, place.name, _MISSING)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too: a file must not end the command
        for name in set(sys.modules) - before:  # what it imported before it failed may be older than its files by then
            if name.startswith("symlab_brought_"):
                del sys.modules[name]
        raise ValueError(f"{place}: {_problem(place, error)}") from error
    return module, value, before


def _found(place: Place) -> KernelSpec:
    """Return the spec at a place, whatever the place's digest; its origin is the place with the digest found."""
    if place.file.endswith(".yaml"):
        return _of_entry(place)
    module, spec, before = _loaded(place)
    if not isinstance(spec, KernelSpec):
        known = [one for one, other in vars(module).items() if isinstance(other, KernelSpec)]
        raise ValueError(f"{place}: {_lacking(place.name, spec, known, 'KernelSpec')}")
    if not _NAME.fullmatch(spec.name):
        raise ValueError(f"{place}: {spec.name!r} is no op/algorithm in letters, digits and underscores")
    file = getattr(module, "__file__", None)
    if file is not None and str(Path(file).resolve()) not in spec.files:
        spec = replace(spec, files=(*spec.files, str(Path(file).resolve())))
    if sources.is_foreign(spec.files):
        _check_current(place, spec.files, before)
    # A spec does not know the name that it is bound to, so it is set here, where the name is known.
    object.__setattr__(spec, "origin", replace(place, digest=_digest(spec)))
    return spec


def _of_entry(place: Place) -> KernelSpec:
    """The spec of an entry of a YAML file."""
    try:
        spec = described(Path(place.file), place.name, function_at)
        if not _NAME.fullmatch(spec.name):
            raise ValueError(f"{spec.name!r} is no op/algorithm in letters, digits and underscores")
        if changed := [str(one.path) for one in sources.sources_of(spec.files) if one.changed]:
            raise ValueError(f"{changed[0]} changed after this process first read it: run it again")
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
    object.__setattr__(spec, "origin", replace(place, digest=_digest(spec)))
    return spec


def _check_current(place: Place, files: tuple[str, ...], before: set[str]) -> None:
    """Raise ValueError if this process runs older code of a source than the file holds. files: those it begins with.

    before: names of the modules that were imported already. A file that changed since is seen by its content if it was
    read before; if a module of it was imported before anything read it, by its time of change.
    """
    imported = {_identity(getattr(sys.modules.get(name), "__file__", None) or "") for name in before}
    for source in sources.sources_of(files):
        if not sources.is_foreign([str(source.path)]):
            continue
        identity = _identity(source.path)
        changed_ns = source.path.stat().st_mtime_ns if identity is not None else -1
        unread = identity is not None and identity in imported and _current.get(source.path) != changed_ns
        if source.changed:
            raise ValueError(f"{place}: {source.path} changed after this process first read it: run it again")
        if unread and changed_ns > _process_started_ns():
            raise ValueError(
                f"{place}: this process imported {source.path} before it was brought, and the file changed since the "
                "process began: bring the kernel first, or run it again"
            )
        _current[source.path] = changed_ns


def _identity(file: str | Path) -> tuple[int, int] | None:
    """Return the device and the inode of a file, the same for each path to it; None if it is none."""
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino)


@cache
def _process_started_ns() -> int:
    """Return when this process began, since the epoch; 0 if the system does not tell: every file is younger."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        up_s = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
    return time.time_ns() - int((up_s - ticks / os.sysconf("SC_CLK_TCK")) * 1e9)


def _digest(spec: KernelSpec) -> str:
    """Return the digest of a spec's sources; "" for a kernel of the project, whose files need not be read for it."""
    return sources.digest_of(spec.files) if sources.is_foreign(spec.files) else ""


def _module_of(file: Path) -> ModuleType:
    """Return a file's module, executed once a process, under a name that no other file has.

    Its packages are imported below a package made here, which stands for the folder that holds the outermost one.
    """
    folder, parts = file.parent, [file.stem.replace(".", "_")]
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    top = f"symlab_brought_{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"
    name = ".".join([top, *parts])
    if name in sys.modules:
        return sys.modules[name]
    if top not in sys.modules:
        outer = ModuleSpec(top, None, is_package=True)
        outer.submodule_search_locations = [str(folder)]
        sys.modules[top] = module_from_spec(outer)
    importlib.import_module(name.rpartition(".")[0])
    spec = spec_from_file_location(name, file, loader=_AsRead(name, str(file)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


class _AsRead(SourceFileLoader):
    """Executes the content that kernels.sources has read and digests, not a compiled file that Python keeps."""

    def get_code(self, fullname: str) -> CodeType:
        code = compile(sources.read(Path(self.path)).content, self.path, "exec", dont_inherit=True)
        assert isinstance(code, CodeType)
        return code


def _problem(place: Place, error: BaseException) -> str:
    """Return why a module could not be imported, in one line, with the file and line that raised."""
    if isinstance(error, ModuleNotFoundError) and error.name and f"{place.module}.".startswith(f"{error.name}."):
        return f"there is no module {error.name}"
    if isinstance(error, SyntaxError):
        where = [
            Path(error.filename or place.file or place.module).name,
            *([str(error.lineno)] if error.lineno else []),
        ]
        return f"{':'.join(where)} is no Python: {error.msg}"
    text = " ".join(str(error).split()) or "no message"
    return f"{where_raised(error)} raises {type(error).__name__}: {text}{_beside(place, error)}"


def where_raised(error: BaseException) -> str:
    """Return "file.py:12", the last line of a user's file that an exception passed, else its last line."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [frame for frame in frames if _is_users(Path(frame.filename))]
    last = own[-1] if own else frames[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


def _is_users(file: Path) -> bool:
    """Whether a file is neither one of kernels, nor installed, nor of Python's library."""
    is_library = file.is_relative_to(Path(traceback.__file__).parent)
    return sources.is_foreign([str(file)]) and sources.INSTALLED.isdisjoint(file.parts) and not is_library


def _beside(place: Place, error: BaseException) -> str:
    """How to import a module that lies beside the file, as Python finds one only for the file that it runs."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or not place.file:
        return ""
    folder, name = Path(place.file).parent, error.name.partition(".")[0]
    if not (folder / f"{name}.py").is_file() and not (folder / name).is_dir():
        return ""
    return f"; {name} lies beside the file: write from . import {name}"


def _lacking(name: str, value: object, known: list[str], kind: str) -> str:
    """Return why a name in a module gives no value of a kind, and which names, the known ones, would."""
    several = "kernels" if kind == "KernelSpec" else f"{kind}s"
    there = f"its {several} are {', '.join(known)}" if known else f"it has no {kind}"
    if value is not _MISSING:
        return f"{name} is of type {type(value).__name__}, not {kind}: {there}"
    near = difflib.get_close_matches(name, known, n=1)
    return f"there is no {name} in it: {f'did you mean {near[0]}?' if near else there}"
