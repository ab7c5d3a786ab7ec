"""The files that a kernel's code is made of: those it begins with, and every file that they import.

Imports are read from the source text, so nothing is executed. They count wherever they stand, within functions and
behind TYPE_CHECKING too, absolute or relative, and transitively. A module that lies beside a user's file counts as on
sys.path, where that file may put its folder (`import helpers`). Of the project, files of the packages kernels and cases
count, of everything else all but Python's library and installed packages. The project's other packages are host code
and don't count. An import by a computed name (importlib.import_module) is not found: add its file to KernelSpec.files.

A process reads each file once, when it first needs its content: what changes after that is noticed (Source.changed).
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path(__file__).resolve().parent
PACKAGES = ("cases", PACKAGE.name)
"""Those of the project whose files count."""

HOST_PACKAGES = frozenset({"memory", "reports", "runner", "simulator", "symlab"})
INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Names of the folders that installers fill, as long as no other name is asked for (pip install --target)."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file as this process first read it. name is the same on every machine: see name_of."""

    path: Path
    name: str
    content: bytes

    @property
    def changed(self) -> bool:
        """Whether the file now differs from what was read, or is gone."""
        try:
            return self.path.read_bytes() != self.content
        except OSError:
            return True


def name_of(path: Path) -> str:
    """Return the path from the project's root; for a file outside of it, the file name."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


@cache
def sources_of(files: tuple[str, ...]) -> tuple[Source, ...]:
    """Return the files and all that they import, each once, sorted by name. ValueError if one can't be read."""
    found: dict[Path, Source] = {}
    todo = [Path(file).resolve() for file in files]
    todo += [file for path in todo for file in _packages(path)]
    while todo:
        path = todo.pop()
        if path not in found:
            found[path] = read(path)
            todo += _imported(path)
    return tuple(sorted(found.values(), key=lambda source: (source.name, source.content)))


@cache
def digest_of(files: tuple[str, ...]) -> str:
    """Return the SHA-256 in hexadecimal of the names and contents of sources_of(files): equal in every checkout."""
    digest = hashlib.sha256()
    for source in sources_of(files):
        digest.update(f"{source.name}\0{len(source.content)}\0".encode())
        digest.update(source.content)
    return digest.hexdigest()


@cache
def read(path: Path) -> Source:
    """Return a file as first read; path is absolute and resolved. ValueError if it can't be read."""
    try:
        return Source(path, name_of(path), path.read_bytes())
    except OSError as error:
        raise ValueError(f"the source {path} can't be read: {error.strerror}") from error


def is_foreign(files: Iterable[str]) -> bool:
    """Return whether any of the files lies outside the project's packages whose files count."""
    return not all(any(Path(file).resolve().is_relative_to(ROOT / name) for name in PACKAGES) for file in files)


@cache
def _imported(path: Path) -> tuple[Path, ...]:
    """Return the files that a file imports, with the __init__.py of each package on the way."""
    if path.suffix in (".ptx", ".yaml"):
        return ()
    try:
        tree = ast.parse(read(path).content)
    except (SyntaxError, ValueError):
        return ()  # importing it fails, too
    found: list[Path] = []
    for node in _imports(tree.body):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found += _absolute(alias.name.split("."), path)
        else:
            module = node.module.split(".") if node.module else []
            if node.level > len(path.parents):
                continue
            folder = path.parents[node.level - 1] if node.level else None
            for alias in node.names:
                found += _files([*module, alias.name], folder) if folder else _absolute([*module, alias.name], path)
    return tuple(dict.fromkeys(found))


def _imports(body: Iterable[ast.AST]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield all import statements, also those within other statements."""
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, part, None)
            if isinstance(inner, list):
                yield from _imports(inner)


def _absolute(parts: list[str], path: Path) -> list[Path]:
    """Return the files of a module that a file imports by its whole name: on sys.path, and beside the file.

    A user's file may put its folder on sys.path when it runs: the answer is the same before and after."""
    found = _files(parts, None)
    name = parts[0]
    if path.is_relative_to(PACKAGE) or name in (*PACKAGES, *HOST_PACKAGES) or name in sys.stdlib_module_names:
        return found
    beside = _files(parts, path.parent)[len(_init(path.parent)) :]
    return [*found, *(file.resolve() for file in beside)]


def _files(parts: list[str], folder: Path | None) -> list[Path]:
    """Return the files of a module, outermost package first. The last parts may be names that it holds.

    folder is where a relative import begins; None for an absolute one.
    """
    found: list[Path] = []
    if folder is None:
        first, *parts = parts
        file, folders = _top_level(first)
        found += [file] if file else []
    else:
        folders = (folder,)
        found += _init(folder)
    for part in parts:
        module = next((one / f"{part}.py" for one in folders if (one / f"{part}.py").is_file()), None)
        package = next((one / part for one in folders if (one / part).is_dir()), None)
        if package is not None and (module is None or _init(package)):
            found += _init(package)
            folders = (package,)
        else:
            return [*found, module] if module else found
    return found


def is_installed(path: Path) -> bool:
    """Return whether an installer put a file there: its folder has an installer's name, or is on sys.path and holds
    what installers write down of packages."""
    if INSTALLED.intersection(path.parts):
        return True
    return any(
        path.is_relative_to(folder) and _has_metadata(folder) for folder in map(_resolved, filter(None, sys.path))
    )


@cache
def _resolved(folder: str) -> Path:
    return Path(folder).resolve()


@cache
def _has_metadata(folder: Path) -> bool:
    return any(folder.glob("*.dist-info"))


def _packages(path: Path) -> list[Path]:
    """Return the __init__.py of all packages that a file lies in, innermost first."""
    found: list[Path] = []
    for folder in path.parents:
        if not _init(folder):
            break
        found += _init(folder)
    return found


def _init(package: Path) -> list[Path]:
    """Return the __init__.py of a folder, if it has one."""
    file = package / "__init__.py"
    return [file] if file.is_file() else []


@cache
def _top_level(name: str) -> tuple[Path | None, tuple[Path, ...]]:
    """Return the file of a top-level module and the folders that hold modules below it; neither if it doesn't count."""
    if name in PACKAGES:
        return ROOT / name / "__init__.py", (ROOT / name,)
    if name in HOST_PACKAGES or name in sys.stdlib_module_names:
        return None, ()
    try:
        spec = importlib.util.find_spec(name)  # imports nothing: the name has no dots
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return None, ()
    file = Path(spec.origin).resolve() if spec.has_location and spec.origin else None
    folders = tuple(Path(folder).resolve() for folder in spec.submodule_search_locations or ())
    if any(is_installed(path) for path in (file, *folders) if path):
        return None, ()
    return file if file and file.suffix == ".py" else None, folders
