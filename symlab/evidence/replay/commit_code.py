"""What the code of a commit writes into records: the schema, and digests of sources. Read from its files, never run."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from kernels import sources as todays_sources

PATTERN = "^(SCHEMA_VERSION|DIGESTED) = "
"""Lines of modules that say it, for git grep."""

_LINE = re.compile(r"(SCHEMA_VERSION|DIGESTED) = (.+)")

_RULES = Path("kernels", "sources.py")
"""The module that decides which files a kernel is made of, and their digest."""

_FAMILY = Path("kernels", "family.py")
"""The module that every kernel of the catalogue begins with, beside its own."""

_BEGINS = re.compile(r"^\s*files=.*$", re.MULTILINE)
"""The line there that says so."""


@dataclass(frozen=True, slots=True)
class CommitCode:
    """schema: the version of records that the code writes; None if unknown. digested: the folders of which it writes a
    digest, () if unknown. kernels: the digest of the sources of each kernel by name, empty where another rule than
    today's decides which files count. names: those of the catalogue, () if unknown; nvshmem_names: those that call
    NVSHMEM."""

    schema: int | None = None
    digested: tuple[str, ...] = ()
    kernels: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    nvshmem_names: tuple[str, ...] = ()


def code_of(said: str, folder: Path) -> CommitCode:
    """Return what a commit's code writes. said: its lines with PATTERN; folder: its sources."""
    values: dict[str, list[object]] = {}
    for name, text in _LINE.findall(said):
        try:
            values.setdefault(name, []).append(ast.literal_eval(text))
        except (ValueError, SyntaxError):
            values.setdefault(name, []).append(None)
    files, on_nvshmem = _files(folder)
    schema, digested = (values[name][0] if len(values.get(name, ())) == 1 else None for name in _SAID)
    return CommitCode(
        schema=schema if type(schema) is int else None,
        digested=tuple(map(str, digested)) if isinstance(digested, tuple) else (),
        kernels=_kernels(folder, files | on_nvshmem),
        names=tuple(files),
        nvshmem_names=tuple(on_nvshmem),
    )


_SAID = ("SCHEMA_VERSION", "DIGESTED")


def has_kernel(folder: Path, name: str) -> bool:
    """Return whether the sources in a folder have a kernel of the catalogue, whose names once were its files."""
    return any(name in some for some in _files(folder)) or (folder / "kernels" / f"{name}.py").is_file()


def _files(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the kernels that a folder's catalogue lists by name, each with its file in kernels/ without .py, and those
    on NVSHMEM; {} where it does not list them as today's, or as one did whose names were the files."""
    path = folder / "kernels" / "catalogue.py"
    found: dict[str, dict[str, str]] = {"FILES": {}, "NVSHMEM_FILES": {}}
    try:
        for one in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.value is not None:
                key = one.target.id.replace("NAMES", "FILES")
                if key in found:
                    value = ast.literal_eval(one.value)
                    is_older = isinstance(value, tuple)
                    found[key] = {name: name if is_older else f"ways/{value[name]}" for name in value}
    except (OSError, ValueError, SyntaxError, TypeError):
        return {}, {}
    return found["FILES"], found["NVSHMEM_FILES"]


def _kernels(folder: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Return the digest of each kernel's sources in a folder of a project, by today's rules if these are its own."""
    here = todays_sources.ROOT
    try:
        if any(_rule(folder / path) != _rule(here / path) for path in (_RULES, _FAMILY)):
            return {}
        rules = _rules_of(folder.resolve())
        family = str(folder.resolve() / _FAMILY)
        paths = {name: folder.resolve() / "kernels" / f"{file}.py" for name, file in files.items()}
        return {name: f"sha256:{rules.digest_of((str(path), family))}" for name, path in paths.items()}
    except (OSError, ValueError):
        return {}


def _rule(path: Path) -> str:
    """Return the text that decides a digest: all of the rules, and one line of the family."""
    text = path.read_text(encoding="utf-8")
    return text if path.name == _RULES.name else "".join(_BEGINS.findall(text))


def _rules_of(folder: Path) -> ModuleType:
    """Return today's rules as a module of another project's folder, of which they read files."""
    name = "_symlab_rules_of_a_commit"
    spec = importlib.util.spec_from_file_location(name, folder / _RULES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look
    try:
        spec.loader.exec_module(module)  # its text was compared: it is today's
    finally:
        del sys.modules[name]
    return module
