"""A kernel's spec by where it stands: "package.module:NAME" or "path/to/file.py:NAME".

So a kernel is brought from a file of its user's, and so every spec crosses to other processes: it holds functions that
can't be pickled, and travels as the Reference that it was loaded by. A file is loaded as a module of its own, whatever
it is called, as part of the packages that it lies in: relative imports work. The other side refuses what has changed.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import re
import sys
import traceback
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from kernels import sources
from kernels.spec import KernelSpec

_MISSING = object()
_NAME = re.compile(r"\w+/\w+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a spec stands: a module's import path (or a file's absolute path, the other one is ""), and a name in it.

    digest is that of the sources as they were loaded (kernels.sources.digest_of); "" for the project's own kernels.
    """

    module: str
    file: str
    name: str
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.file or self.module}:{self.name}"

    def load(self) -> KernelSpec:
        """The spec. ValueError, in one line, if there is none or its sources are not what the digest is of."""
        spec = _found(self)
        if _digest(spec) != self.digest:
            raise ValueError(f"{self} or what it imports changed after it was first loaded: run it again")
        return spec


def spec_at(text: str, folder: Path | None = None) -> KernelSpec:
    """The spec that "package.module:NAME" or "path/to/file.py:NAME" names.

    folder is where relative paths begin; None: the working folder. ValueError, in one line, for text that is no
    reference, a file, module or name that does not exist, a module that raises, and what is no KernelSpec.
    """
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise ValueError(f"{text!r} names no kernel: give file.py:NAME or package.module:NAME")
    if not place.endswith(".py") and "/" not in place:
        return _found(Reference(place, "", name))
    path = (folder or Path.cwd()) / Path(place).expanduser()
    if not path.is_file():
        raise ValueError(f"{text}: there is no file {path}")
    if path.suffix != ".py":
        raise ValueError(f"{text}: {path.name} is no Python file: give file.py:NAME")
    return _found(Reference("", str(path.resolve()), name))


def _found(reference: Reference) -> KernelSpec:
    """The spec of a reference, whatever its digest. Its origin is the reference, with the digest of what was found."""
    if reference.file and sources.read(Path(reference.file)).changed:
        raise ValueError(f"{reference.file} changed after this process first read it: run it again")
    try:
        module = _module_of(Path(reference.file)) if reference.file else importlib.import_module(reference.module)
        spec = getattr(module, reference.name, _MISSING)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{reference}: {_problem(reference, error)}") from error
    if not isinstance(spec, KernelSpec):
        raise ValueError(f"{reference}: {_lacking(module, reference.name, spec)}")
    if not _NAME.fullmatch(spec.name):
        raise ValueError(f"{reference}: {spec.name!r} is no op/algorithm in letters, digits and underscores")
    file = getattr(module, "__file__", None)
    if file is not None and str(Path(file).resolve()) not in spec.files:
        spec = replace(spec, files=(*spec.files, str(Path(file).resolve())))
    # A spec can't know by itself under which name it can be found: whoever finds it says so.
    object.__setattr__(spec, "origin", replace(reference, digest=_digest(spec)))
    return spec


def _digest(spec: KernelSpec) -> str:
    """What both sides compare. The project's own kernels are as they are, and need no reading."""
    return sources.digest_of(spec.files) if sources.is_foreign(spec.files) else ""


def _module_of(file: Path) -> ModuleType:
    """A file's module, executed once a process, under a name that no other file's has.

    The packages that it lies in become packages below one for the folder that holds the outermost of them.
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
    """Executes what kernels.sources has read, not what Python keeps compiled: the digest is of what was executed."""

    def get_code(self, fullname: str) -> CodeType:
        code = compile(sources.read(Path(self.path)).content, self.path, "exec", dont_inherit=True)
        assert isinstance(code, CodeType)
        return code


def _problem(reference: Reference, error: BaseException) -> str:
    """Why a module could not be imported, in one line, with the place that raised."""
    if isinstance(error, ModuleNotFoundError) and error.name and f"{reference.module}.".startswith(f"{error.name}."):
        return f"there is no module {error.name}"
    if isinstance(error, SyntaxError):
        return f"{Path(error.filename or '').name}:{error.lineno} is no Python: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    text = " ".join(str(error).split()) or "no message"
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno} raises {type(error).__name__}: {text}"


def _lacking(module: ModuleType, name: str, value: object) -> str:
    """Why a name in a module gives no spec, and which names would."""
    known = [one for one, other in vars(module).items() if isinstance(other, KernelSpec)]
    there = f"its kernels are {', '.join(known)}" if known else "it has no KernelSpec"
    if value is not _MISSING:
        return f"{name} is of type {type(value).__name__}, not KernelSpec: {there}"
    near = difflib.get_close_matches(name, known, n=1)
    return f"there is no {name} in it: {f'did you mean {near[0]}?' if near else there}"
