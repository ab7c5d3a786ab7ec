"""A kernel's spec from a YAML file: PTX or a CuTe DSL function that does an op, with its launch and its arguments.

    add:                                   # "kernels.yaml:add" among algorithms
      op: all_reduce
      kernel: add.ptx:add_{dtype}          # or file.py:NAME of a @cute.jit function; paths begin at the YAML file
      launch: {grid: "min(32, ceil_div(numel, block))", block: 256}
      arguments: [{peers: input}, output, {u32: numel}, rank]
      dtypes: [float32]

Numbers are expressions of the case (expressions.py), so that one entry is a kernel of all sizes and ranks. Arguments
are those of op=custom (arguments.py), of the buffers input and output and of the workspaces, which keep what they hold
between launches. parameters name whole numbers to choose from, the first one by default: "kernels.yaml:add@block128" is
the kernel with another.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cases.case import Case
from cases.dtypes import ACCUMULATORS, ALL, ITEMSIZES, NONE
from cases.ops import COLLECTIVES, OPS, collective
from cases.refusal import Refusal, unknown_name
from kernels.own.arguments import (
    NUMBER_KINDS,
    WORDS,
    BroughtArgument,
    arguments_of,
    counts_launches,
    parts_of,
    references_of,
    tables_of,
)
from kernels.own.code import LAUNCH_KEYS, OwnCode, check_keys, code_at, launch_of, naming_key
from kernels.own.expressions import computed, evaluated
from kernels.own.functions import ShapedBuffer
from kernels.sources import read
from kernels.spec import ARCHS, KernelSpec, Parameter, Workspace
from kernels.tuning import MAX_WORLD_SIZE
from memory.fabric import Executable, Launch

KEYS = {
    **dict.fromkeys(("op", "kernel", "summary", "launch", "arguments", "workspaces", "parameters", "requires")),
    **dict.fromkeys(("dtypes", "accumulators", "reductions", "placements", "fold", "owner", "promises", "assumptions")),
    **dict.fromkeys(("max_size_bytes", "max_world_size")),
}
WORKSPACE_KEYS = ("dtype", "numel", "fill")
COUNTS = "counts"
"""The buffer of an op with counts for each peer: how many elements this rank sends to each, 64 bits each."""

TAKEN = (*WORDS, "input", "output", COUNTS, "status")
"""Names that no workspace can have: runner/case/binding.py knows a table and a workspace by the last two."""

OF_CASE = ("numel", "bytes", "itemsize", "world_size", "root", "input_numel", "output_numel")
"""What expressions may name of a case; those of arguments also rank, and all but the launch's grid and block."""

SAMPLES = tuple(itertools.product((2, 4, 8), (4096, 1 << 20, 64)))
"""Ranks, and elements of a rank's part, in cases that an entry is tried with when it is read."""

ARCH = "sm_90a"
"""What a function is compiled for to know its launch."""

Loader = Callable[[str, Path], Any]
"""The function at "file.py:NAME" beside a folder (kernels.brought.function_at), with its call and files."""


@dataclass(frozen=True, eq=False)
class Described:
    """An entry that was read. The name of its code may have {names} in it.

    chosen: the value of each parameter. owner: an expression, "" for none. made: what was compiled of a function, by
    case and architecture.
    """

    name: str
    op: str
    code: OwnCode
    launches: Mapping[str, Any]
    arguments: Sequence[Any]
    workspaces: Mapping[str, Mapping[str, Any]]
    requires: Sequence[str]
    chosen: Mapping[str, int]
    assumptions: tuple[str, ...]
    owner: str = ""
    made: dict[tuple[str, str], Executable] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.op}/{self.name}"

    def of_case(self, case: Case) -> dict[str, int]:
        """Return what a case and the parameters give names to."""
        counts = collective(case.op).elements(case)
        values = (case.numel, case.size_bytes, case.itemsize, case.world_size, case.root, *counts)
        return dict(zip(OF_CASE, values, strict=True)) | dict(self.chosen)

    def launch(self, case: Case) -> Launch:
        """Return the launch; a function's own, for which it is compiled, unless the entry says grid and block."""
        if self.code.is_function and not {"grid", "block"} <= set(self.launches):
            host = self.executable(case, ARCH).host
            assert host is not None
            found: Launch = host.launch
            return found
        return self._launch(case)

    def _launch(self, case: Case) -> Launch:
        names = self.of_case(case)
        given: dict[str, Any] = {}
        for key, value in self.launches.items():
            with naming_key(f"launch.{key}"):
                parts = value if isinstance(value, list) else [value]
                numbers = [one if isinstance(one, bool) else evaluated(one, names) for one in parts]
                given[key] = numbers if isinstance(value, list) else numbers[0]
        with naming_key("launch"):
            return launch_of(given)

    def names(self, case: Case, launch: Launch | None = None) -> dict[str, int]:
        """Return of_case() with grid and block: of a launch, None for the entry's, if it says one."""
        if launch is None and not {"grid", "block"} <= set(self.launches):
            return self.of_case(case)
        launch = launch or self._launch(case)
        return {"grid": launch.blocks, "block": launch.threads} | self.of_case(case)

    def places(self, case: Case) -> tuple[Workspace, ...]:
        """Return the workspaces."""
        return tuple(self._workspace(name, given, self.names(case)) for name, given in self.workspaces.items())

    def _workspace(self, name: str, given: Mapping[str, Any], names: Mapping[str, int]) -> Workspace:
        with naming_key(f"workspaces.{name}"):
            numel, dtype, fill = evaluated(given.get("numel"), names), given.get("dtype", "uint32"), given.get("fill")
            if numel < 1:
                raise ValueError(f"{given.get('numel')!r} is {numel} elements, give 1 or more")
            try:
                pattern = b"" if fill in (None, "zeros", "poison") else bytes.fromhex(str(fill))
            except ValueError:
                raise ValueError(f"{fill!r} is no fill: give zeros, poison, or bytes in hexadecimal") from None
            made = Workspace(name, numel, dtype, zeroed=fill in (None, "zeros"), fill=pattern)
            if made.size_bytes % len(pattern or b"0"):
                raise ValueError(f"{made.size_bytes} bytes are no whole number of fills of {len(pattern)}")
            return made

    def bound(self, case: Case, launch: Launch | None, rank: int) -> tuple[BroughtArgument, ...]:
        """Return the arguments of a rank. launch: as names() takes it. ValueError naming the one that is wrong."""
        names = self.names(case, launch) | {"rank": rank}
        given = []
        for number, value in enumerate(self.arguments):
            with naming_key(f"arguments[{number}]"):
                given.append(_with_values(value, names))
        key, is_function = "arguments[{}]", self.code.is_function
        found = arguments_of(given, case.world_size, self._buffers(case), key, is_function)
        for number, one in enumerate(found):
            if counts_launches(one) or any(part.kind == "pointer" for part in parts_of(one)):
                what = "launch: all launches have the same arguments, keep a count in a workspace"
                pointer = "a pointer to a struct: give the struct, {peers: ..} or {addresses: ..}"
                raise ValueError(
                    f"argument {number} is {what if counts_launches(one) else pointer} ({key.format(number)})"
                )
        return found

    def entry(self, case: Case) -> str:
        """Return the name of the PTX entry, or of the function, for a case."""
        names = self.names(case) | {"dtype": case.dtype}
        try:
            return self.code.name.format_map(names)
        except (KeyError, ValueError, IndexError, AttributeError) as error:
            known = ", ".join(names)
            raise ValueError(f"{self.code.place!r} names {error} in braces (kernel), give some of {known}") from None

    def executable(self, case: Case, arch: str) -> Executable:
        """Return what runs. ValueError for PTX of another architecture, arguments that don't fit, and a function that
        can't be compiled."""
        key = repr(sorted(self.choices(case).items())), arch
        if key not in self.made or not self.code.is_function:
            asked = {}
            if self.code.is_function and self.launches:
                launch = self._launch(case)
                asked = {what: getattr(launch, what) for what in self.launches}
            of_case = self.entry(case), self._by_rank(case), self._buffers(case)
            self.made[key] = self.code.compiled(self.full_name, *of_case, asked, arch, self.assumptions)
        return self.made[key]

    def check_arguments(self, case: Case) -> None:
        """Raise ValueError for arguments that the code can't take, as far as is known before it is compiled."""
        name, by_rank = self.entry(case), self._by_rank(case)
        with naming_key("kernel"):
            unfit = self.code.refuses_arguments(name, by_rank, self._buffers(case))
        if unfit:
            raise ValueError(f"{unfit} (arguments)")

    def _by_rank(self, case: Case) -> list[tuple[BroughtArgument, ...]]:
        return [self.bound(case, None, rank) for rank in range(case.world_size)]

    def _buffers(self, case: Case) -> dict[str, ShapedBuffer]:
        counts = collective(case.op).elements(case)
        buffers = {
            name: ShapedBuffer(case.dtype, (count,)) for name, count in zip(("input", "output"), counts, strict=True)
        }
        if collective(case.op).sends is not None:
            buffers[COUNTS] = ShapedBuffer("int64", (case.world_size,), symmetric=False)
        return buffers | {one.name: ShapedBuffer(one.dtype, (one.numel,)) for one in self.places(case)}

    def owners(self, case: Case, rank: int) -> Any:
        """Return the rank that owns each element of a rank's output, as KernelSpec.owner."""
        import torch

        index = torch.arange(self.of_case(case)["output_numel"])
        with naming_key("owner"):
            found = computed(self.owner, self.of_case(case) | {"rank": rank, "index": index})
        return found if isinstance(found, torch.Tensor) else torch.full_like(index, found)

    def choices(self, case: Case) -> dict[str, Any]:
        """Return what the code depends on; of a function the whole case, whose shapes may be constants of the code."""
        if not self.code.is_function:
            return {"entry": self.entry(case), **self.chosen}
        return {"dtype": case.dtype, **self.names(case)}

    def refusal(self, case: Case, arch: str) -> Refusal | None:
        """Return why a case can't run, as far as expressions and the compiler tell."""
        offset_bytes = case.offset * case.itemsize
        if offset_bytes % 16:
            hint = f"not {offset_bytes} bytes after one"
            return Refusal("offset", f"{self.full_name} takes buffers at boundaries of 16 bytes", hint)
        try:
            names = self.names(case)
            for text in self.requires:
                if not evaluated(text, names):
                    return Refusal("sizes", f"{self.full_name} requires {text}", f"numel is {case.numel} here")
            self.places(case)
            self.executable(case, arch)
        except ValueError as error:
            return Refusal("algorithms", f"{self.full_name}: {error}")
        return None


def _with_values(value: Any, names: Mapping[str, int]) -> Any:
    """An argument with numbers in place of expressions. Words stay: what they are is known on a rank."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return value
    ((kind, given),) = value.items()
    if kind in NUMBER_KINDS and isinstance(given, str) and given not in WORDS:
        return {kind: evaluated(given, names)}
    if kind == "constexpr" and isinstance(given, str) and given in names and given != "world_size":
        return {kind: names[given]}
    if kind in ("peer", "addresses") and isinstance(given, list) and len(given) == 2:
        return {kind: [given[0], evaluated(given[1], names)]}
    if kind in ("struct", "pointer") and isinstance(given, list):
        return {kind: [_with_values(one, names) for one in given]}
    if kind in ("struct", "pointer") and isinstance(given, Mapping):
        parts = {place: _with_values(one, names) for place, one in given.items() if place != "size"}
        return {kind: parts | ({"size": evaluated(given["size"], names)} if "size" in given else {})}
    return value


# From the file


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # its module has no types
    """What YAML says, without keys that stand twice: of those the last would count, without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        seen = set[str]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} stands there twice", key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def described(file: Path, name: str, load: Loader) -> KernelSpec:
    """Return the spec of an entry. name: the entry's, with @ and values of parameters behind it, if any. load: how a
    function is loaded. ValueError, in one line, for what can't be, naming the key."""
    base, _, marks = name.partition("@")
    given = _entry(file, base)
    parameters = _parameters(given.get("parameters", {}))
    chosen = _chosen(name, marks, parameters)
    changed = "".join(f"_{key}{value}" for key, value in chosen.items() if value != parameters[key][0])
    place = ":".join(_kernel(given.get("kernel")))
    with naming_key("kernel"):
        code = code_at(place, lambda path: file.parent, lambda text: load(text, file.parent))
    made = Described(
        name=base + changed,
        op=_op(given.get("op")),
        code=code,
        launches=_section(given, "launch", LAUNCH_KEYS, () if code.is_function else ("grid", "block")),
        arguments=_listed(given, "arguments"),
        workspaces={
            _identifier(str(one)): _section(given.get("workspaces", {}), one, WORKSPACE_KEYS, ("numel",), "workspaces.")
            for one in _mapping(given, "workspaces")
        },
        requires=[str(one) for one in _listed(given, "requires")],
        chosen=chosen,
        assumptions=tuple(_listed(given, "assumptions")),
        owner=str(given.get("owner", "")),
    )
    source = (str(code.source.path),) if code.source is not None else code.files
    return _spec(made, given, (str(file), *source))


def _spec(made: Described, given: Mapping[str, Any], files: tuple[str, ...]) -> KernelSpec:
    reduces, sends = collective(made.op).reduces, collective(made.op).sends
    dtypes = tuple(_listed(given, "dtypes")) or (() if reduces else ALL)
    if not dtypes:
        raise ValueError("no dtypes (dtypes), give those that the kernel adds, such as [float32]")
    # Of types of 32 bits and more native and float32 are one; of narrower ones a kernel has one of them.
    usual = dict.fromkeys(one for dtype in dtypes for one in _usual_accumulators(dtype))
    archs = tuple(arch for arch in ARCHS if not made.code.refuses_arch(arch))
    limits: dict[str, Any] = {"max_world_size": MAX_WORLD_SIZE, "max_size_bytes": None}
    for key in (key for key in limits if key in given):
        with naming_key(key):
            limits[key] = evaluated(given[key], {})
    if "dead_rank" in _listed(given, "promises"):
        raise ValueError("an entry has no place for a kernel's report (promises), leave dead_rank out")
    if (given.get("fold") == "from_next_rank") != bool(made.owner):
        raise ValueError("fold: from_next_rank needs an owner, which no other fold takes (fold), give both or neither")
    parsed = _tried(made, dtypes, archs[0] if archs else ARCH)
    return KernelSpec(
        op=made.op,
        algorithm=made.name,
        summary=str(given.get("summary", "")),
        dtypes=dtypes,
        accumulators=tuple(_listed(given, "accumulators")) or (tuple(usual) if reduces else (NONE,)),
        reductions=tuple(_listed(given, "reductions")) or (("sum",) if reduces else (NONE,)),
        placements=tuple(_listed(given, "placements")) or ("out_of_place",),
        needs_multicast=any(kind == "multicast" for one in parsed for kind, _ in references_of(one)),
        fold=given.get("fold", "unordered" if reduces else "rank_order"),
        parameters=(*(Parameter("peers", one) for one in tables_of(parsed)), *([Parameter("counts")] if sends else [])),
        owner=made.owners if made.owner else None,
        workspaces=made.places,
        launch=made.launch,
        build=lambda case: made.executable(case, ARCH),
        files=files,
        archs=archs,
        max_world_size=limits["max_world_size"],
        choices=made.choices,
        max_size_bytes=limits["max_size_bytes"],
        refusal=made.refusal,
        promises=frozenset(_listed(given, "promises")),
        assumptions=made.assumptions,
        made=made.executable,
        arguments=made.bound,
    )


def _tried(made: Described, dtypes: Sequence[str], arch: str) -> tuple[BroughtArgument, ...]:
    """The arguments in the first sample case that the entry takes, with all expressions computed. ValueError for what
    is wrong with them."""
    reduces = collective(made.op).reduces
    if dtypes[0] not in ITEMSIZES:
        raise ValueError(f"{unknown_name('dtype', str(dtypes[0]), ALL)} (dtypes)")
    cases = [
        Case(
            made.op,
            made.name,
            dtypes[0],
            "native" if reduces else NONE,
            "sum" if reduces else NONE,
            count * ranks * ITEMSIZES[dtypes[0]],
            ranks,
        )
        for ranks, count in SAMPLES
    ]
    with naming_key("requires"):
        fitting = [case for case in cases if all(evaluated(one, made.names(case)) for one in made.requires)]
    case = (fitting or cases)[0]
    made.places(case)
    parsed = made.bound(case, None, case.world_size - 1)
    made.check_arguments(case)
    if made.owner and not 0 <= int(made.owners(case, 0).min()) <= int(made.owners(case, 0).max()) < case.world_size:
        raise ValueError(f"{made.owner!r} is no rank of each element (owner), give one from 0 to world_size - 1")
    made._launch(case)
    if not made.code.is_function:
        made.executable(case, arch)
    return parsed


def _entry(file: Path, name: str) -> Mapping[str, Any]:
    """What a file says of a kernel."""
    try:
        found = yaml.load(read(file).content, _Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file.name}:{mark.line + 1}" if mark is not None else file.name
        raise ValueError(f"{where} is no YAML: {getattr(error, 'problem', None) or 'it is not UTF-8'}") from None
    if not isinstance(found, Mapping):
        raise ValueError(f"{file.name} names no kernels, give {{name: {{op: .., kernel: .., launch: ..}}}}")
    entries = {str(key): entry for key, entry in found.items()}
    if name not in entries:
        raise ValueError(f"there is no {name} in {file.name}: its kernels are {', '.join(entries)}")
    entry = entries[name]
    if not isinstance(entry, Mapping):
        raise ValueError(f"{entry!r} describes no kernel ({name}), give {{op: .., kernel: .., launch: ..}}")
    check_keys(entry, list(KEYS))
    return entry


def files_at(file: Path, name: str) -> tuple[Path, ...]:
    """Return the files that loading an entry reads or runs: its kernel's, and last its own. Nothing is run."""
    where, _ = _kernel(_entry(file, name.partition("@")[0]).get("kernel"))
    return ((file.parent / where).resolve(), file)


def variants(file: Path, name: str) -> tuple[str, ...]:
    """Return the names of an entry with each combination of its parameters, the usual one first."""
    parameters = _parameters(_entry(file, name).get("parameters", {}))
    values = itertools.product(*parameters.values())
    marks = ["-".join(f"{key}{value}" for key, value in zip(parameters, one, strict=True)) for one in values]
    return tuple(f"{name}@{one}" if one else name for one in marks)


def _parameters(given: Any) -> dict[str, tuple[int, ...]]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{given!r} names no parameters (parameters), give {{block: [256, 512]}}")
    found = {}
    for name, values in given.items():
        listed = values if isinstance(values, list) else [values]
        if not re.fullmatch("[a-z_]+", str(name)) or name in (*OF_CASE, "rank", "grid"):
            raise ValueError(f"a parameter is called {name!r} (parameters), give small letters, and no name of a case")
        if not listed or not all(type(one) is int and one >= 0 for one in listed) or len({*listed}) < len(listed):
            wanted = "give whole numbers, each once, the usual one first"
            raise ValueError(f"{values!r} are no choices (parameters.{name}), {wanted}")
        found[str(name)] = tuple(listed)
    return found


def _chosen(name: str, marks: str, parameters: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    chosen = dict[str, int]()
    for mark in marks.split("-") if "@" in name else ():
        found = re.fullmatch(r"([a-z_]+)(\d+)", mark)
        if found is None or int(found[2]) not in parameters.get(found[1], ()):
            known = ", ".join(f"{key}{value}" for key, values in parameters.items() for value in values) or "none"
            raise ValueError(f"{name} chooses {mark!r}, which is no value of a parameter: known are {known}")
        if found[1] in chosen:
            raise ValueError(f"{name} chooses {found[1]} twice, give one value of it, or {name.partition('@')[0]}@all")
        chosen[found[1]] = int(found[2])
    return {key: chosen.get(key, values[0]) for key, values in parameters.items()}


def _kernel(given: Any) -> tuple[str, str]:
    """The file and the name in it."""
    where, _, name = str(given).rpartition(":")
    if not where.endswith((".ptx", ".py")) or not name:
        raise ValueError(f"{given!r} names no kernel (kernel), give file.ptx:ENTRY, or file.py:NAME of a function")
    return where, name


def _op(given: Any) -> str:
    known = [one.op for one in COLLECTIVES]
    if given in OPS and given not in known:
        raise ValueError(f"entries of YAML do no {given} (op), give a KernelSpec in Python")
    if given not in known:
        raise ValueError(f"{unknown_name('op', str(given), known)} (op)")
    return str(given)


def _identifier(name: str) -> str:
    if not name.isidentifier() or name in TAKEN:
        raise ValueError(f"a workspace is called {name!r} (workspaces), give a name other than {', '.join(TAKEN)}")
    return name


def _section(given: Any, key: str, known: Sequence[str], wanted: Sequence[str], prefix: str = "") -> dict[str, Any]:
    """A section of an entry, with known keys alone."""
    found = given.get(key) if isinstance(given, Mapping) else None
    found = {} if found is None and not wanted else found
    if not isinstance(found, Mapping) or not set(wanted) <= set(found):
        example = ", ".join(f"{one}: .." for one in wanted or known[:1])
        raise ValueError(f"{found!r} lacks {' and '.join(wanted)} ({prefix}{key}), give {{{example}}}")
    check_keys(found, known, f"{prefix}{key}")
    return {str(one): value for one, value in found.items()}


def _listed(given: Mapping[str, Any], key: str) -> list[Any]:
    found = given.get(key, [])
    if not isinstance(found, list):
        raise ValueError(f"{found!r} is no list ({key}), give [{found}]")
    return found


def _mapping(given: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = given.get(key, {})
    if not isinstance(found, Mapping):
        raise ValueError(f"{found!r} has no names ({key}), give {{flags: {{numel: grid}}}}")
    return found


def _usual_accumulators(dtype: str) -> tuple[str, ...]:
    known = ACCUMULATORS.get(dtype, ())
    return known if ITEMSIZES.get(dtype, 0) >= 4 else known[-1:]
