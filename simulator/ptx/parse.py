"""PTX text to frozen instructions. Knows the syntax; what an opcode means is isa/'s business.

What it doesn't understand it names with its line (PtxSyntaxError) instead of skipping it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from simulator.ptx.ir import (
    Address,
    Block,
    Immediate,
    Instruction,
    Kernel,
    KernelParameter,
    Operand,
    Register,
    SharedVariable,
    Source,
    Symbol,
    Vector,
)


class PtxSyntaxError(ValueError):
    """PTX that the parser can't read; the message names the line."""


_REGISTER_CLASS = {
    **dict.fromkeys(("pred",), "pred"),
    **dict.fromkeys(("b8", "u8", "s8"), "b8"),
    **dict.fromkeys(("b16", "u16", "s16", "f16", "bf16"), "b16"),
    **dict.fromkeys(("b32", "u32", "s32", "f32", "f16x2", "bf16x2"), "b32"),
    **dict.fromkeys(("b64", "u64", "s64", "f64"), "b64"),
}
_SIZE_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}
_BLOCK_ENDS = frozenset({"bra", "ret", "exit", "bar", "barrier"})
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_ENTRY = re.compile(r"\.visible\s+\.entry\s+([\w$]+)\s*\((.*?)\)(.*?)\{", re.S)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)(?:\s+\.ptr)?(?:\s+\.(?:global|const|shared))?(?:\s+\.align\s+\d+)?"
    r"\s+([\w$]+)(?:\[(\d+)\])?$"
)
_WIDTH = re.compile(r"[busf](?:8|16|32|64)$")
_DIRECTIVE = r"\.{}\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?"
_REG = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$", re.S)
_REG_RANGE = re.compile(r"([%\w$]+)<(\d+)>$")
_SHARED = re.compile(r"(\.extern\s+)?\.shared\s+(?:\.align\s+(\d+)\s+)?\.[busf](\d+)\s+([\w$]+)(?:\[(\d*)\])?$")
_MODULE_SHARED = re.compile(r"[{}]|^\s*(?:\.(?:visible|weak)\s+)?((?:\.extern\s+)?\.shared\b[^;{}]*);", re.M)
_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:\s*,\s*function_name\s+[^,]+,\s*inlined_at\s+(\d+)\s+(\d+)\s+\d+)?")
_REMARK = re.compile(r"\.(?:loc|pragma)\b")
_LABEL = re.compile(r"([$\w]+):")
_GUARD = re.compile(r"@(!?)([%\w$]+)\s+")
_NUMBER = re.compile(r"(-?)(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_ADDRESS = re.compile(r"\[\s*([%$\w.]+)\s*(?:(\+\s*-|\+|-)\s*(\w+))?\s*\]$")
_SCOPE = re.compile(r"[{}]|(?<![\w$.:])([$\w]+):(?!:)")


@lru_cache(maxsize=64)
def parse_kernel(ptx: str, entry: str) -> Kernel:
    """The kernel called entry of a PTX module. Raises PtxSyntaxError naming the line; ValueError if it isn't there."""
    clean = _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), ptx)
    target = re.search(r"\.target\s+(\w+)", clean)
    for match in _ENTRY.finditer(clean):
        if match.group(1) == entry:
            break
    else:
        names = ", ".join(one.group(1) for one in _ENTRY.finditer(clean))
        raise ValueError(f"no kernel {entry} in this PTX; it has {names or 'none'}")
    parameters = tuple(_parameter(text) for text in match.group(2).split(",") if text.strip())
    files = {int(number): path for number, path in _FILE.findall(clean)}
    end = _closing(clean, match.end())
    body = _Body(files)
    body.declare_module_shared(clean, match.end(), end)
    body.read(clean[match.end() : end], first_line=clean.count("\n", 0, match.end()) + 1)
    blocks, labels = _blocks(body.items)
    dynamic_offset = -(-body.shared_bytes // body.dynamic_alignment) * body.dynamic_alignment
    return Kernel(
        entry=entry,
        target=target.group(1) if target else "",
        parameters=parameters,
        registers=body.registers,
        shared=(*body.shared, *(SharedVariable(name, dynamic_offset, 0) for name in body.dynamic)),
        shared_bytes=body.shared_bytes,
        blocks=blocks,
        labels=labels,
        dynamic_offset_bytes=dynamic_offset,
        required_block=_required(match.group(3), "reqntid"),
        required_cluster=_required(match.group(3), "reqnctapercluster"),
    )


def _required(directives: str, name: str) -> tuple[int, int, int] | None:
    """The x, y and z of a directive between a kernel's parameters and its body; those it leaves out are 1."""
    match = re.search(_DIRECTIVE.format(name), directives)
    if match is None:
        return None
    x, y, z = (int(one or 1) for one in match.groups())
    return x, y, z


def _closing(text: str, start: int) -> int:
    depth = 1
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    raise PtxSyntaxError("the kernel's closing brace is missing")


def _parameter(text: str) -> KernelParameter:
    match = _PARAMETER.search(" ".join(text.split()))
    if not match or not _WIDTH.match(match.group(1)):
        raise PtxSyntaxError(f"a kernel parameter of a kind the simulator doesn't bind: {' '.join(text.split())}")
    kind, name, count = match.groups()
    return KernelParameter(name, kind, _SIZE_BYTES[kind[1:]] * int(count or 1))


class _Body:
    """Reads a kernel's body statement by statement; braces of inline assembly open scopes of their own."""

    def __init__(self, files: dict[int, str]) -> None:
        self.files = files
        self.items: list[str | Instruction] = []  # a label's name, or an instruction
        self.registers: dict[str, str] = {}
        self.shared: list[SharedVariable] = []
        self.shared_bytes = 0
        self.dynamic: list[str] = []  # names of .extern .shared arrays: all begin at the same place
        self.dynamic_alignment = 1
        self.scopes: list[dict[str, str]] = [{}]
        self.marks = [""]  # what makes a scope's names unique
        self.scope_count = 0
        self.inlined: dict[tuple[int, int], tuple[int, int]] = {}
        self.source: Source | None = None

    def read(self, text: str, first_line: int) -> None:
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
                self.scopes.pop()
                self.marks.pop()
                position += 1
            elif _REMARK.match(text, position):
                end = text.find("\n", position)
                end = len(text) if end < 0 else end
                self.location(text[position:end])
                position = end
            elif label := _LABEL.match(text, position):
                self.items.append(self.name(label.group(1)))
                position = label.end()
            else:
                end = text.find(";", position)
                if end < 0:
                    raise PtxSyntaxError(f"PTX line {line}: statement without end: {text[position : position + 60]!r}")
                self.statement(text[position:end], line)
                line += text.count("\n", position, end)
                position = end + 1

    def open_scope(self, text: str, start: int) -> None:
        """Labels belong to their scope and may be jumped to before they come: they are looked up at once."""
        self.scope_count += 1
        self.marks.append(f"@{self.scope_count}")
        labels: dict[str, str] = {}
        depth = 0
        for match in _SCOPE.finditer(text, start):
            depth += {"{": 1, "}": -1}.get(match.group(), 0)
            if depth < 0:
                break
            if depth == 0 and match.group(1):
                labels[match.group(1)] = match.group(1) + self.marks[-1]
        self.scopes.append(labels)

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
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return name

    def statement(self, text: str, line: int) -> None:
        text = " ".join(text.split())
        if text.startswith(".reg"):
            self.declare(text, line)
        elif text.startswith((".shared", ".extern .shared")):
            self.declare_shared(text, line)
        elif text.startswith("."):
            raise PtxSyntaxError(f"PTX line {line}: a directive the simulator doesn't know: {text}")
        else:
            self.items.append(self.instruction(text, line))

    def declare(self, text: str, line: int) -> None:
        match = _REG.match(text)
        kind = _REGISTER_CLASS.get(match.group(1)) if match else None
        if match is None or kind is None:
            raise PtxSyntaxError(f"PTX line {line}: a register class the simulator doesn't have: {text}")
        for part in match.group(2).split(","):
            name = part.strip()
            many = _REG_RANGE.match(name)
            for one in [f"{many.group(1)}{number}" for number in range(int(many.group(2)))] if many else [name]:
                self.scopes[-1][one] = one + self.marks[-1]
                self.registers[one + self.marks[-1]] = kind

    def declare_module_shared(self, module: str, start: int, end: int) -> None:
        """Declare the module's shared variables that the kernel between start and end names."""
        names = set(re.findall(r"[\w$]+", module[start:end]))
        depth = 0
        for match in _MODULE_SHARED.finditer(module):
            depth += {"{": 1, "}": -1}.get(match.group(), 0)
            if depth == 0 and match.group(1):
                text = " ".join(match.group(1).split())
                name = re.search(r"([\w$]+)(?:\[\w*\])*$", text)
                if name and name.group(1) in names:
                    self.declare_shared(text, module.count("\n", 0, match.start(1)) + 1)

    def declare_shared(self, text: str, line: int) -> None:
        match = _SHARED.match(text)
        if not match or (match.group(5) == "" and not match.group(1)):
            raise PtxSyntaxError(f"PTX line {line}: a shared variable of a form the simulator doesn't know: {text}")
        extern, align, bits, name, count = match.groups()
        alignment = int(align or _SIZE_BYTES[bits])
        if extern:
            self.dynamic.append(name)
            self.dynamic_alignment = max(self.dynamic_alignment, alignment)
            return
        offset = -(-self.shared_bytes // alignment) * alignment
        size = _SIZE_BYTES[bits] * int(count or 1)
        self.shared.append(SharedVariable(name, offset, size))
        self.shared_bytes = offset + size

    def instruction(self, text: str, line: int) -> Instruction:
        guard = None
        rest = text
        if match := _GUARD.match(text):
            guard = (Register(self.name(match.group(2))), match.group(1) == "!")
            rest = text[match.end() :]
        head, _, tail = rest.partition(" ")
        opcode, *qualifiers = head.replace("::", "§").split(".")
        try:
            operands = tuple(self.operand(part, line) for part in _split(tail))
        except ValueError as error:
            if isinstance(error, PtxSyntaxError):
                raise
            raise PtxSyntaxError(f"PTX line {line}: an operand the simulator can't read: {text}") from None
        return Instruction(
            opcode, tuple(q.replace("§", "::") for q in qualifiers), operands, line, text, guard, self.source
        )

    def operand(self, text: str, line: int) -> Operand:
        if text.startswith("{"):
            parts = tuple(self.operand(part, line) for part in _split(text[1:-1]))
            if not all(isinstance(part, Register | Immediate) for part in parts):
                raise PtxSyntaxError(f"PTX line {line}: a vector of something else than registers: {text}")
            return Vector(parts)  # type: ignore[arg-type]
        if text.startswith("["):
            match = _ADDRESS.match(text)
            if match is None:
                raise PtxSyntaxError(f"PTX line {line}: an address the simulator can't read: {text}")
            base, sign, offset = match.groups()
            inner = self.operand(base, line)
            assert isinstance(inner, Register | Symbol | Immediate)
            shift = _integer(offset) if offset else 0
            return Address(inner, -shift if sign and sign.endswith("-") else shift)
        if text.startswith("0f") or text.startswith("0F"):
            return Immediate(int(text[2:], 16), 32)
        if text.startswith("0d") or text.startswith("0D"):
            return Immediate(int(text[2:], 16), 64)
        if _NUMBER.match(text):
            return Immediate(_integer(text))
        if text == "WARP_SZ":
            return Immediate(32)
        name = self.name(text)
        return Register(name) if name.startswith("%") or name == "_" or name in self.registers else Symbol(name)


def _integer(text: str) -> int:
    """Decimal, hexadecimal, binary or (from a leading 0 on) octal. Raises ValueError."""
    match = _NUMBER.match(text)
    if match is None:
        raise ValueError(text)
    sign, digits = match.groups()
    octal = len(digits) > 1 and digits[0] == "0" and digits.isdecimal()
    size = int(digits, 8 if octal else 0)
    return -size if sign else size


def _split(text: str) -> list[str]:
    """Operands at commas that no bracket or brace encloses."""
    parts, depth, start = [], 0, 0
    for position, char in enumerate(text):
        if char in "{[":
            depth += 1
        elif char in "}]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def _blocks(items: list[str | Instruction]) -> tuple[tuple[Block, ...], dict[str, int]]:
    """Cut at labels, and after branches, returns and barriers. A last empty block catches falling off the end."""
    blocks: list[Block] = []
    labels: dict[str, int] = {}
    names: list[str] = []
    current: list[Instruction] = []

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
            if item.opcode in _BLOCK_ENDS or item.is_group_wait:
                close()
    close()
    last = blocks[-1].instructions[-1:] if blocks else ()
    if not last or last[0].guard is not None or last[0].opcode not in ("ret", "exit", "bra"):
        blocks.append(Block(len(blocks), "", ()))
    return tuple(blocks), labels
