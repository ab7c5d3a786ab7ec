"""PTX text to a kernel with all functions and variables that it can reach. Knows the syntax; what an opcode means is
isa/'s business.

An instruction that it can't read stays in its place, says why (Instruction.unsupported) and faults when a thread gets
there: real modules carry branches that never run.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache

from memory.fabric import FIRST_ARCH_WITH_CLUSTERS
from simulator.ptx.body import Body, listed
from simulator.ptx.dataflow import BLOCK_ENDS
from simulator.ptx.declarations import SIZE_BYTES, declared, module_variable
from simulator.ptx.ir import (
    Block,
    FrameVariable,
    Function,
    Instruction,
    Kernel,
    KernelParameter,
    ModuleVariable,
    SharedVariable,
    Unsupported,
)
from simulator.ptx.module import Definition, Module, PtxSyntaxError, scan

__all__ = ["PtxSyntaxError", "entries_of", "parse_kernel"]

_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)(?:\s+\.ptr)?(?:\s+\.(?:global|const|shared|local))?"
    r"(?:\s+\.align\s+\d+)?\s+([\w$]+)(?:\[(\d+)\])?$"
)
_WIDTH = re.compile(r"[busf](?:8|16|32|64)$")
_DIRECTIVE = r"\.{}\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?"
_WORDS = re.compile(r"[\w$]+")
_DECLARED = re.compile(r"([\w$]+)\s*(?:\[[^\]]*\]\s*)*(?=,|$)")
_SHARED = re.compile(r"(?:\.(?:extern|visible|weak)\s+)?\.shared\b")
_VARIABLE = re.compile(r"(?:\.(?:extern|visible|weak|common)\s+)?\.(?:global|const)\b")
MAX_PARAMETER_BYTES = 32_764
"""Of a kernel's parameters together (PTX ISA 8.1 and later, sm_70 and later)."""


def check_start(name: str, ptx: str) -> None:
    """Raise ValueError for a module called name that begins with a byte order mark."""
    if ptx.startswith("\ufeff"):
        raise ValueError(
            f"{name}, line 1: it begins with a byte order mark, which no assembler takes, write it without"
        )


def entries_of(ptx: str) -> tuple[str, ...]:
    """Return the names of a module's kernels."""
    return tuple(scan(ptx).entries)


@lru_cache(maxsize=64)
def parse_kernel(ptx: str, entry: str) -> Kernel:
    """Return the kernel called entry of a PTX module. Raises PtxSyntaxError naming the line, and ValueError if the
    module has no such kernel."""
    module = module_with(ptx, entry)
    return _Linker(module, module.entries[entry]).kernel()


def module_with(ptx: str, entry: str) -> Module:
    """Return the module of a kernel, of which no body is read yet. Raises what parse_kernel does."""
    module = scan(ptx)
    if entry not in module.entries:
        raise ValueError(f"no kernel {entry} in this PTX; it has {', '.join(module.entries) or 'none'}")
    if module.entries[entry].start < 0:
        raise PtxSyntaxError(f"PTX line {module.entries[entry].line}: kernel {entry} has no body, it is only declared")
    return module


@dataclass(slots=True)
class _Read:
    """What was read of a function."""

    function: Function
    items: list[str | Instruction]


class _Linker:
    """Reads a kernel and what it names, directly or not."""

    def __init__(self, module: Module, entry: Definition) -> None:
        self.module, self.entry = module, entry
        self.body = Body(module.files, module.users)
        self.variables: dict[str, ModuleVariable] = {}
        self.unsupported: list[Unsupported] = []
        self.declared = self._declared()

    def _declared(self) -> dict[str, tuple[str, int]]:
        """The .global and .const statements of the module by the names in them."""
        found: dict[str, tuple[str, int]] = {}
        for one in self.module.statements:
            if _VARIABLE.match(one.text):
                for name in _DECLARED.findall(one.text.partition("=")[0]):
                    found.setdefault(name, (one.text, one.line))
        return found

    def kernel(self) -> Kernel:
        entry, body, text = self.entry, self.body, self.module.text
        parameters = _parameters(entry.parameters)
        inside = text[entry.start : entry.end]
        self._module_shared(self._reached_text())
        body.read(inside, first_line=text.count("\n", 0, entry.start) + 1)
        items, frame_bytes = body.items, body.frame_bytes
        functions = [self._function(one) for one in reversed(self._reached()) if one.start >= 0]
        blocks, labels = _all_blocks([*(one.items for one in functions), items])
        starts = [one.index + 1 for one in blocks if one.is_last][:-1]
        made = [
            replace(f, first=first) for f, first in zip((one.function for one in functions), [0, *starts], strict=False)
        ]
        made += [self._external(one) for one in self._reached() if one.start < 0]
        self._module_variables()
        dynamic_offset = -(-body.shared_bytes // body.dynamic_alignment) * body.dynamic_alignment
        return Kernel(
            entry=entry.name,
            target=self.module.target,
            parameters=parameters,
            registers=body.registers,
            shared=(*body.shared, *(SharedVariable(name, dynamic_offset, 0) for name in body.dynamic)),
            shared_bytes=body.shared_bytes,
            blocks=blocks,
            labels=labels,
            dynamic_offset_bytes=dynamic_offset,
            required_block=_required(entry.directives, "reqntid"),
            most_threads=_most_threads(entry.directives),
            required_cluster=_required(entry.directives, "reqnctapercluster"),
            most_cluster_blocks=(_required(entry.directives, "maxclusterrank") or (None,))[0],
            is_explicit_cluster=".explicitcluster" in entry.directives,
            first=starts[-1] if functions else 0,
            functions=tuple(made),
            frame=body.frame,
            frame_bytes=frame_bytes,
            variables=tuple(self.variables.values()),
            prototypes=body.prototypes,
            targets=body.targets,
            unsupported=(*self.unsupported, *self._early_clusters(), *body.unsupported),
            types=body.types,
        )

    def _early_clusters(self) -> list[Unsupported]:
        """What a kernel says of clusters for an architecture that has none."""
        number, text = re.match(r"sm_(\d+)", self.module.target), self.module.text
        if number is None or int(number[1]) >= FIRST_ARCH_WITH_CLUSTERS:
            return []
        reason = f"{self.module.target} has no clusters: they take sm_{FIRST_ARCH_WITH_CLUSTERS} or later"
        found = []
        for name in (".reqnctapercluster", ".maxclusterrank", ".explicitcluster"):
            if name in self.entry.directives:
                line = text.count("\n", 0, text.rfind(name, 0, self.entry.start)) + 1
                found.append(Unsupported(line, name, reason))
        return found

    # Functions

    def _reached(self) -> list[Definition]:
        """The functions that the kernel may call, in the order in which they are found: callers before the called."""
        functions = self.module.functions
        found: dict[str, Definition] = {}
        todo = [self.module.text[self.entry.start : self.entry.end]]
        seen: set[str] = set()
        while todo:
            for name in _WORDS.findall(todo.pop(0)):
                if name in seen:
                    continue
                seen.add(name)
                if name in functions:
                    found[name] = functions[name]
                    if functions[name].start >= 0:
                        todo.append(self.module.text[functions[name].start : functions[name].end])
                elif name in self.declared:
                    todo.append(self.declared[name][0].partition("=")[2])
        return list(found.values())

    def _reached_text(self) -> str:
        bodies = [self.entry, *(one for one in self._reached() if one.start >= 0)]
        return " ".join(self.module.text[one.start : one.end] for one in bodies)

    def _function(self, one: Definition) -> _Read:
        body, text = self.body, self.module.text[one.start : one.end]
        body.begin(text)
        try:
            returns, parameters = body.declare_parameters(one.returns), body.declare_parameters(one.parameters)
        except ValueError as error:
            raise PtxSyntaxError(f"PTX line {one.line}: parameters of {one.name}: {error}") from None
        body.read(text, first_line=self.module.text.count("\n", 0, one.start) + 1)
        body.end()
        return _Read(Function(one.name, self._number(one), returns, parameters, 0, body.frame_bytes), body.items)

    def _external(self, one: Definition) -> Function:
        """A function without a body: only the sizes of what it takes and returns are known."""
        sizes = []
        for text in (one.returns, one.parameters):
            sizes.append(tuple(FrameVariable(part.name, "param", 0, part.size_bytes) for part in listed(text)))
        return Function(one.name, self._number(one), sizes[0], sizes[1], -1, 0)

    def _number(self, one: Definition) -> int:
        return list(self.module.functions).index(one.name)

    # Variables

    def _module_shared(self, text: str) -> None:
        """Declare the module's shared variables that the kernel or its functions name."""
        names = set(_WORDS.findall(text))
        for one in self.module.statements:
            if _SHARED.match(one.text) and names & set(_WORDS.findall(one.text)):
                try:
                    for variable in declared(one.text):
                        if variable.name in names:
                            self.body.declare_shared(variable)
                except ValueError as error:
                    self.unsupported.append(Unsupported(one.line, one.text, str(error)))

    def _module_variables(self) -> None:
        """The .global and .const variables that the kernel can reach, also through those that it names."""
        todo = [name for name in dict.fromkeys(_WORDS.findall(self._reached_text())) if name in self.declared]
        while todo:
            name = todo.pop(0)
            if name in self.variables or name not in self.declared:
                continue
            text, line = self.declared[name]
            try:
                for one in declared(text):
                    if one.name == name:
                        self.variables[name] = module_variable(one)
                        todo += [relocation.symbol for relocation in self.variables[name].relocations]
            except ValueError as error:
                unsupported = Unsupported(line, text, str(error))
                if unsupported not in self.unsupported:
                    self.unsupported.append(unsupported)


def _required(directives: str, name: str) -> tuple[int, int, int] | None:
    """The x, y and z of a directive between a kernel's parameters and its body; those it leaves out are 1."""
    match = re.search(_DIRECTIVE.format(name), directives)
    if match is None:
        return None
    x, y, z = (int(one or 1) for one in match.groups())
    return x, y, z


def _most_threads(directives: str) -> int | None:
    """The maximum number of threads of a block, None for any. PtxSyntaxError beside .reqntid, as the assembler says."""
    most = _required(directives, "maxntid")
    if most is not None and ".reqntid" in directives:
        raise PtxSyntaxError("a kernel with both .maxntid and .reqntid; it can have one of them")
    return None if most is None else math.prod(most)


def _parameters(text: str) -> tuple[KernelParameter, ...]:
    parameters = tuple(_parameter(part) for part in text.split(",") if part.strip())
    total = sum(one.size_bytes for one in parameters)
    if total > MAX_PARAMETER_BYTES:
        raise PtxSyntaxError(f"a kernel with {total:,} bytes of parameters; it can have {MAX_PARAMETER_BYTES:,}")
    return parameters


def _parameter(text: str) -> KernelParameter:
    match = _PARAMETER.search(" ".join(text.split()))
    if not match or not _WIDTH.match(match.group(2)):
        raise PtxSyntaxError(f"a kernel parameter of a kind the simulator doesn't bind: {' '.join(text.split())}")
    alignment, kind, name, count = match.groups()
    element = SIZE_BYTES[kind[1:]]
    return KernelParameter(name, kind, element * int(count or 1), int(alignment or element))


def _all_blocks(bodies: list[list[str | Instruction]]) -> tuple[tuple[Block, ...], dict[str, int]]:
    blocks: list[Block] = []
    labels: dict[str, int] = {}
    for items in bodies:
        _blocks(items, blocks, labels)
    return tuple(blocks), labels


def _blocks(items: list[str | Instruction], blocks: list[Block], labels: dict[str, int]) -> None:
    """Cut at labels, and after branches, returns and barriers. A last empty block catches falling off the end."""
    names: list[str] = []
    current: list[Instruction] = []
    first = len(blocks)

    def close() -> None:
        if current or names:
            blocks.append(Block(len(blocks), names[0] if names else "", tuple(current)))
            labels.update(dict.fromkeys(names, len(blocks) - 1))
            current.clear()
            names.clear()

    for item in items:
        if isinstance(item, str):
            if current:
                close()
            names.append(item)
        else:
            current.append(item)
            if item.opcode in BLOCK_ENDS or item.is_group_wait or item.is_of_tensor_memory:
                close()
    close()
    last = blocks[-1].instructions[-1:] if len(blocks) > first else ()
    if not last or last[0].guard is not None or last[0].opcode not in ("ret", "exit", "bra"):
        blocks.append(Block(len(blocks), "", ()))
    blocks[-1] = replace(blocks[-1], is_last=True)
