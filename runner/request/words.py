"""What can stand in an override that is still being typed: keys, and the values of those that take words.

For completion in a shell, so it has to come at once: neither Hydra nor torch nor YAML is imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cases.dtypes import ACCUMULATORS, ALL, REDUCTIONS
from cases.ops import OPS
from cases.stress import Stress
from kernels.baselines import BASELINES, names_for
from kernels.catalogue import ALL_SPECS, SPECS
from runner.gpu.names import CONF, SUFFIX, gpu_names, names_in
from runner.request.experiments import experiments
from runner.request.schema import KEYS, SECTIONS
from runner.request.sizes import AUTO

GROUPS, SHORT = ("fabric", "track"), ("sizes", "check")
"""Sections that are groups of files in conf/, too, and those whose name is short for one of their keys."""

FOLDERS = ("records", "cache_dir")
"""Keys whose value is a folder."""


@dataclass(frozen=True, slots=True)
class Word:
    """One way to go on: the whole override so far. is_open: more has to follow, so no space belongs behind it."""

    text: str
    help: str = ""
    is_open: bool = False


def words_for(incomplete: str, given: Sequence[str] = (), config_dir: Path | None = None) -> list[Word]:
    """Return what an override that begins like this can be, beside those given already."""
    match = re.fullmatch(r"(\+{0,2}|~)([^=]*)(=?)(.*)", incomplete, re.DOTALL)
    assert match is not None
    plus, key, equals, value = match.groups()
    if equals:
        return list(_values(f"{plus}{key}=", key, value, given, config_dir))
    if plus == "~":
        return []
    keys = [("exp=", "a named experiment")] if plus == "+" else list(_keys(key))
    found = [Word(f"{plus}{name}", text, is_open=True) for name, text in keys if name.startswith(key)]
    return [Word("+exp=", "a named experiment", is_open=True), *found] if not incomplete else found


def is_folder(incomplete: str) -> bool:
    """Whether the value that is being typed is a folder's name."""
    key, equals, _ = incomplete.lstrip("+").partition("=")
    return bool(equals) and key in FOLDERS


def _keys(beginning: str) -> Iterator[tuple[str, str]]:
    """Keys with their "=", and sections with their "."; those of a section once its name is there."""
    inside = beginning.partition(".")[0] if "." in beginning else ""
    for key in KEYS:
        if key.rpartition(".")[0] == inside:
            yield f"{key}=", ""
    if not inside:
        yield from ((f"{name}=", "") for name in (*GROUPS, *SHORT))
        yield from ((f"{name}.", f"keys of {name}") for name in SECTIONS if name)
        yield "exp=", "a named experiment"


def _values(before: str, key: str, value: str, given: Sequence[str], config_dir: Path | None) -> Iterator[Word]:
    """What the last item of a value can be: of a list in brackets, of a sweep (a,b), or alone."""
    listed = value.rfind("[") > value.rfind("]")
    start = max(value.rfind(","), value.rfind("[") if listed else -1) + 1
    earlier, item = value[:start], value[start:]
    taken = re.split(r"[\[\],]", earlier)
    for word, text in _choices(key, item, listed, given, config_dir):
        if not word.startswith(item) or word in taken:
            continue
        if listed and word == item:
            yield Word(f"{before}{earlier}{word},", is_open=True)
            yield Word(f"{before}{earlier}{word}]")
        else:
            yield Word(f"{before}{earlier}{word}", text, is_open=listed or word.endswith(("[", "/")))


def _choices(
    key: str, item: str, listed: bool, given: Sequence[str], config_dir: Path | None
) -> Iterator[tuple[str, str]]:
    """The words that a key takes, each with its explanation."""
    if key == "exp":
        yield from experiments(config_dir).items()
    elif key in ("algorithms", "baselines"):
        op = _op(given, config_dir)
        words = names_for(op) if key == "baselines" else _algorithms(op)
        more = (
            ()
            if listed
            else (("auto", "none", "[") if key == "baselines" else ("auto", "all", "device_nvshmem", "best", "["))
        )
        yield from ((word, "") for word in (*more, *(words or (one.algorithm for one in BASELINES))))
    elif key in GROUPS:
        folders = (CONF, *([config_dir] if config_dir else []))
        names = {name for folder in folders for name in names_in(folder / key)}
        yield from ((name, "") for name in sorted(names))
    elif key == "fabric.gpu":
        gpus = gpu_names((CONF, *([config_dir] if config_dir else [])))
        yield from ((name, "") for name in ("null", *gpus))
    elif key == "dtype" and "/" in item:
        dtype = item.partition("/")[0]
        yield from ((f"{dtype}/{one}", "") for one in ACCUMULATORS.get(dtype, ()))
    else:
        yield from ((word, "") for word in _words(key))


def _words(key: str) -> tuple[str, ...]:
    """The words of a key that does not depend on others."""
    values: Mapping[str, tuple[str, ...]] = {
        "op": OPS,
        "dtype": ("auto", *ALL),
        "accumulator": ("auto", *dict.fromkeys(one for many in ACCUMULATORS.values() for one in many)),
        "reduction": ("auto", *REDUCTIONS),
        "stress": tuple(map(str, Stress)),
        "fabric.arch": tuple(dict.fromkeys(arch for spec in SPECS for arch in spec.archs)),
        "check": ("true", "false"),
        "sizes": ("[",),
        "sizes.list": ("[", "null"),
    }
    if key in values:
        return values[key]
    if key not in KEYS:
        return ()
    found = KEYS[key]
    usual = ("auto",) if found.default == AUTO else ("null",) if found.default is None and not found.words else ()
    return found.words or usual


def _algorithms(op: str) -> tuple[str, ...]:
    return tuple(spec.algorithm for spec in ALL_SPECS if spec.op == op)


def _op(given: Sequence[str], config_dir: Path | None) -> str:
    """The op that the overrides given so far choose; else the one that a configuration has by default."""
    chosen = {one.lstrip("+").partition("=")[0]: one.partition("=")[2] for one in given if "=" in one}
    if chosen.get("op") in OPS:
        return chosen["op"]
    for folder in (CONF, *([config_dir] if config_dir else [])):
        path = folder / "exp" / f"{chosen.get('exp', '')}{SUFFIX}"
        if path.is_file():
            match = re.search(r"^op: *(\w+)", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
            if match and match[1] in OPS:
                return match[1]
    return OPS[0]
