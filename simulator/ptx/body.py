"""Reads the body of a kernel or function: statements, scopes, declarations, labels, line information.

A form that it can't read becomes an instruction that says so (Instruction.unsupported) and faults when it is run; a
declaration of that kind is noted in Body.unsupported. Only text without structure, such as a statement without its
semicolon, raises PtxSyntaxError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from simulator.ptx.constants import constant
from simulator.ptx.declarations import Declared, bits_of, declared, split
from simulator.ptx.ir import (
    CARRY,
    Address,
    FrameVariable,
    Group,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Prototype,
    Register,
    SharedVariable,
    Source,
    Symbol,
    Unsupported,
    Vector,
)
from simulator.ptx.module import PtxSyntaxError

_TYPES = "b8 u8 s8 b16 u16 s16 f16 bf16 b32 u32 s32 f32 f16x2 bf16x2 b64 u64 s64 f64"
_REGISTER_CLASS = {"pred": "pred", **{name: f"b{bits_of(name)}" for name in _TYPES.split()}}
_REG = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$", re.S)
_REG_RANGE = re.compile(r"([%\w$]+)<(\d+)>$")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:\s*,\s*function_name\s+[^,]+,\s*inlined_at\s+(\d+)\s+(\d+)\s+\d+)?")
_REMARK = re.compile(r"\.(?:loc|pragma)\b")
_LABEL = re.compile(r"([$\w%]+)\s*:(?!:)")
_GUARD = re.compile(r"@\s*(!?)\s*([%\w$]+)\s+")
_PLAIN = re.compile(r"[%A-Za-z_$][\w$.]*$")
_PAIR = re.compile(r"([%\w$]+)\s*\|\s*([%\w$]+)$")
_ADDRESS = re.compile(r"\[\s*([%$\w.]+)\s*([+-].*)?\]$")
_TENSOR = re.compile(r"\[\s*([^,\]]+?)\s*,\s*(\{[^}]*\})\s*\]$")
_SCOPE = re.compile(r"[{}]|(?<![\w$.:])([$\w]+)\s*:(?!:)")
_PROTOTYPE = re.compile(r"\.callprototype\s*(?:\(([^)]*)\))?\s*[\w$]+\s*(?:\(([^)]*)\))?")


class Body:
    """Reads bodies, a kernel's first, then its functions'; braces of inline assembly open scopes of their own."""

    def __init__(self, files: dict[int, str], users: dict[int, str]) -> None:
        self.files, self.users = files, users
        self.items: list[str | Instruction] = []  # a label's name, or an instruction
        self.registers: dict[str, str] = {CARRY: "pred"}
        self.wide: dict[str, tuple[str, str]] = {}  # registers of 128 bits: the names of their halves
        self.types: dict[str, str] = {}  # of each register: the type that it was declared with
        self.shared: list[SharedVariable] = []
        self.shared_bytes = 0
        self.dynamic: list[str] = []  # names of .extern .shared arrays: all begin at the same place
        self.dynamic_alignment = 1
        self.frame: dict[str, FrameVariable] = {}
        self.frame_top = self.frame_bytes = 0
        self.prototypes: dict[str, Prototype] = {}
        self.targets: dict[str, tuple[str, ...]] = {}
        self.unsupported: list[Unsupported] = []
        self.scopes: list[dict[str, str]] = [{}]
        self.marks = [""]  # what makes a scope's names unique
        self.tops: list[int] = []  # of the frame, where each open scope began
        self.scope_count = 0
        self.inlined: dict[tuple[int, int], tuple[int, int]] = {}
        self.source: Source | None = None

    def begin(self, text: str) -> None:
        """Start on a function: its names and its frame are its own."""
        self.items, self.frame_top, self.frame_bytes, self.source = [], 0, 0, None
        self.open_scope(text, 0)

    def end(self) -> None:
        """Leave a function."""
        self.close_scope()

    def read(self, text: str, first_line: int) -> None:
        """Read statements until the text ends."""
        line = first_line
        position = 0
        while position < len(text):
            char = text[position]
            if char == "\n":
                line += 1
                position += 1
            elif char.isspace() or char == ";":
                position += 1
            elif char == "{":
                position += 1
                self.open_scope(text, position)
            elif char == "}":
                self.close_scope()
                position += 1
            elif _REMARK.match(text, position):
                end = text.find("\n", position)
                end = len(text) if end < 0 else end
                self.location(text[position:end])
                position = end
            elif label := _LABEL.match(text, position):
                self.items.append(self.name(label.group(1)))
                line += text.count("\n", position, label.end())
                position = label.end()
            else:
                end = text.find(";", position)
                if end < 0:
                    raise PtxSyntaxError(f"PTX line {line}: statement without end: {text[position : position + 60]!r}")
                self.statement(text[position:end], line)
                line += text.count("\n", position, end)
                position = end + 1

    # Scopes and places

    def open_scope(self, text: str, start: int) -> None:
        """Labels belong to their scope and may be jumped to before they come: they are looked up at once."""
        self.scope_count += 1
        self.marks.append(f"@{self.scope_count}")
        self.tops.append(self.frame_top)
        labels: dict[str, str] = {}
        depth = 0
        for match in _SCOPE.finditer(text, start):
            depth += {"{": 1, "}": -1}.get(match.group(), 0)
            if depth < 0:
                break
            if depth == 0 and match.group(1):
                labels[match.group(1)] = match.group(1) + self.marks[-1]
        self.scopes.append(labels)

    def close_scope(self) -> None:
        self.scopes.pop()
        self.marks.pop()
        self.frame_top = self.tops.pop()

    def location(self, text: str) -> None:
        match = _LOC.match(text)
        if not match:
            return
        number, row, outer_file, outer_row = match.groups()
        here = (int(number), int(row))
        places = [here]
        if outer_file is not None:
            self.inlined[here] = (int(outer_file), int(outer_row))
        while places[-1] in self.inlined and self.inlined[places[-1]] not in places:
            places.append(self.inlined[places[-1]])
        known = [f"{self.files[file]}:{number}" for file, number in places if file in self.files and number > 0]
        if known:
            self.source = Source(tuple(known))

    def name(self, name: str) -> str:
        """The unique name of what a name means in the innermost scope."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return name

    # Statements

    def statement(self, text: str, line: int) -> None:
        text = " ".join(text.split())
        try:
            if text.startswith(".reg"):
                self.declare(text)
            elif text.startswith((".branchtargets", ".calltargets", ".callprototype")):
                self.note_targets(text)
            elif text.startswith("."):
                self.declare_variables(text)
            else:
                self.items.append(self.instruction(text, line))
        except ValueError as error:
            self.unsupported.append(Unsupported(line, text, str(error)))

    def declare(self, text: str) -> None:
        match = _REG.match(text)
        is_wide = match is not None and match.group(1) == "b128"
        kind = "b64" if is_wide else _REGISTER_CLASS.get(match.group(1)) if match else None
        if match is None or kind is None:
            raise ValueError("the simulator has no such register class")
        for part in match.group(2).split(","):
            name = part.strip()
            many = _REG_RANGE.match(name)
            for one in [f"{many.group(1)}{number}" for number in range(int(many.group(2)))] if many else [name]:
                self.scopes[-1][one] = one + self.marks[-1]
                unique = one + self.marks[-1]
                if is_wide:
                    self.wide[unique] = (f"{unique}#0", f"{unique}#1")
                halves = self.wide[unique] if is_wide else (unique,)
                self.registers |= dict.fromkeys(halves, kind)
                self.types |= dict.fromkeys(halves, "b64" if is_wide else match.group(1))

    def note_targets(self, text: str) -> None:
        """A list of labels or of functions, or a prototype: the label before it is its name, and no place to go."""
        label = self.items.pop() if self.items and isinstance(self.items[-1], str) else ""
        assert isinstance(label, str)
        if text.startswith(".callprototype"):
            match = _PROTOTYPE.match(text)
            if match is None:
                raise ValueError("the simulator can't read this prototype")
            returns, parameters = (tuple(one.size_bytes for one in listed(part or "")) for part in match.groups())
            self.prototypes[label] = Prototype(returns, parameters)
            return
        names = split(text.partition(" ")[2])
        self.targets[label] = tuple(self.name(one) for one in names)

    def declare_variables(self, text: str) -> None:
        for one in declared(text):
            if one.space == "shared":
                self.declare_shared(one)
            elif one.space in ("local", "param") and not one.initial and one.size_bytes:
                self.declare_frame(one)
            else:
                raise ValueError(f"the simulator has no such .{one.space} variable in a function")

    def declare_frame(self, one: Declared, register: str = "") -> FrameVariable:
        """Give a .local or .param variable its place in the function's frame."""
        offset = -(-self.frame_top // one.alignment_bytes) * one.alignment_bytes
        name = one.name + self.marks[-1]
        self.scopes[-1][one.name] = name
        size = one.size_bytes
        made = FrameVariable(name, one.space, -1 if register else offset, size, register and self.name(register))
        if not register:
            self.frame[name] = made
            self.frame_top = offset + size
            self.frame_bytes = max(self.frame_bytes, self.frame_top)
        return made

    def declare_parameters(self, text: str) -> tuple[FrameVariable, ...]:
        """Declare what a function takes or returns."""
        made = []
        for part in split(" ".join(text.split())):
            if part.startswith(".reg"):
                self.declare(part)
                kind, name = part.split()[1].lstrip("."), part.split()[2]
                made.append(self.declare_frame(declared(f".param .{kind} {name}")[0], name))
            else:
                (one,) = declared(part)
                made.append(self.declare_frame(one))
        return tuple(made)

    def declare_shared(self, one: Declared) -> None:
        is_dynamic = one.linkage == "extern"
        if one.initial or (not one.count and not is_dynamic):
            raise ValueError("the simulator has no shared variable of this form")
        name = one.name + self.marks[-1]
        self.scopes[-1][one.name] = name
        if is_dynamic:
            self.dynamic.append(name)
            self.dynamic_alignment = max(self.dynamic_alignment, one.alignment_bytes)
            return
        offset = -(-self.shared_bytes // one.alignment_bytes) * one.alignment_bytes
        self.shared.append(SharedVariable(name, offset, one.size_bytes))
        self.shared_bytes = offset + one.size_bytes

    # Instructions

    def instruction(self, text: str, line: int) -> Instruction:
        guard = None
        rest = text
        if match := _GUARD.match(text):
            guard = (Register(self.name(match.group(2))), match.group(1) == "!")
            rest = text[match.end() :]
        head, _, tail = rest.partition(" ")
        opcode, *qualifiers = head.replace("::", "§").split(".")
        words = tuple(q.replace("§", "::") for q in qualifiers)
        operands: tuple[Operand, ...] = ()
        unsupported = ""
        try:
            parts = split(tail)
            if "tensor" in words:
                parts = [one for part in parts for one in _map_and_coordinates(part)]
            operands = self.call(parts) if opcode == "call" else tuple(map(self.operand, parts))
        except ValueError:
            unsupported = "the simulator can't read these operands"
        unsupported = unsupported or _wrong_width(opcode, words, operands)
        source = self.source
        if user := self.users.get(line):
            source = Source(source.places if source else (), user)
        return Instruction(opcode, words, operands, line, text, guard, source, unsupported)

    def call(self, parts: list[str]) -> tuple[Operand, ...]:
        """The operands of a call, always in this order: returned values, function, arguments, prototype if any."""
        returns = self.group(parts.pop(0)) if parts and parts[0].startswith("(") else Group(())
        target = self.operand(parts.pop(0)) if parts else None
        if not isinstance(target, Register | Symbol):
            raise ValueError("a call of nothing")
        arguments = self.group(parts.pop(0)) if parts and parts[0].startswith("(") else Group(())
        return (returns, target, arguments, *map(self.operand, parts))

    def group(self, text: str) -> Group:
        parts = tuple(self.operand(part) for part in split(text[1:-1]))
        if not all(isinstance(part, Register | Immediate | Symbol) for part in parts):
            raise ValueError(text)
        return Group(parts)  # type: ignore[arg-type]

    def operand(self, text: str) -> Operand:
        """Raises ValueError for what it can't read."""
        if _PLAIN.match(text) and text != "WARP_SZ":
            name = self.name(text)
            if name in self.wide:
                return Vector(tuple(map(Register, self.wide[name])), is_wide=True)
            return Register(name) if self.is_register(name) else Symbol(name)
        if (match := _PAIR.match(text)) is not None:
            first, second = (self.name(one) for one in match.groups())
            if self.is_register(first) and self.is_register(second):
                return Pair(Register(first), Register(second))
        if text.startswith("{"):
            parts = tuple(self.operand(part) for part in split(text[1:-1]))
            if not all(isinstance(part, Register | Immediate) for part in parts):
                raise ValueError(text)
            return Vector(parts)  # type: ignore[arg-type]
        if text.startswith("["):
            return self.address(text)
        if text.startswith("!"):
            inner = self.operand(text[1:].strip())
            if isinstance(inner, Register):
                return Negated(inner)
        return self.expression(text)

    def expression(self, text: str) -> Operand:
        found = constant(text)
        return Symbol(self.name(found.name), found.offset_bytes) if isinstance(found, Symbol) else found

    def is_register(self, name: str) -> bool:
        return name.startswith("%") or name == "_" or name in self.registers or name in self.wide

    def address(self, text: str) -> Address:
        match = _ADDRESS.match(text)
        if match is None:
            raise ValueError(text)
        base = self.operand(match.group(1))
        offset = constant("0 " + match.group(2)) if match.group(2) else Immediate(0)
        if not isinstance(base, Register | Symbol | Immediate) or not isinstance(offset, Immediate):
            raise ValueError(text)
        return Address(base, offset.bits)


def _map_and_coordinates(text: str) -> list[str]:
    """[map, {coordinates}] as two operands; another operand alone."""
    match = _TENSOR.match(text)
    return [text] if match is None else [f"[{match.group(1)}]", match.group(2)]


def _wrong_width(opcode: str, words: Sequence[str], operands: Sequence[Operand]) -> str:
    """Return what is wrong where registers of 128 bits and an instruction for others meet, or ""."""
    wide = [one for one in operands if isinstance(one, Vector) and one.is_wide]
    if "b128" not in words:
        return "a register of 128 bits, where the instruction takes others" if wide else ""
    if opcode == "mov":
        is_right = bool(wide) and all(isinstance(one, Vector) for one in operands)
    elif opcode == "clusterlaunchcontrol":
        is_right = len(wide) == ("query_cancel" in words)
    else:
        values = [one for one in operands if not isinstance(one, Address) and one != Register("_")]
        is_right = len(wide) == len(values) - ("L2::cache_hint" in words)
    return "" if is_right else "registers that have no 128 bits"


def listed(text: str) -> Iterable[Declared]:
    """The parameters of a signature that has no body."""
    for part in split(" ".join(text.split())):
        words = part.split()
        yield declared(f".param {words[1]} _" if part.startswith(".reg") else part)[0]
