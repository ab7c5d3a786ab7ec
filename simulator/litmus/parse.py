"""Our format of litmus programs: instructions as PTX writes them, without types, under a line for each thread.

    # Message passing: the flag is released after the data.
    memory data, flag = 0
    thread T0 on rank 0 block 0
        st.weak [data], 1
        st.release.sys [flag], 1
    thread T1 on rank 1 block 0
        ld.acquire.sys r0, [flag]
        ld.weak r1, [data]
    never T1.r0 == 1 and T1.r1 == 0

It is not YAML because an instruction's brackets and colons would need quotes there. README.md lists all lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from simulator.litmus.program import (
    BARRIERS,
    SCOPES,
    Access,
    Address,
    Barrier,
    Branch,
    BulkCopy,
    Combined,
    CommitGroup,
    Compare,
    Compute,
    Condition,
    Expression,
    Fence,
    Instruction,
    Label,
    Memory,
    Operand,
    Place,
    Program,
    ProxyFence,
    Seen,
    Thread,
    WaitGroup,
    seen_by,
)

ORDERS = {
    "ld": ("weak", "relaxed", "acquire"),
    "st": ("weak", "relaxed", "release"),
    "atom": ("relaxed", "acquire", "release", "acq_rel"),
    "red": ("relaxed", "release"),
}
"""The orders that PTX has for each opcode; the first is the default."""

OPERATIONS = ("add", "and", "or", "xor", "min", "max", "exch", "cas")
COMPUTATIONS = ("mov", "add", "sub", "mul", "and", "or", "xor")
RELATIONS = ("==", "!=", "<=", ">=", "<", ">")
WORDS_OF_A_LOCATION = 8
"""Each location has 32 bytes."""

_NAME = r"[A-Za-z_]\w*"
_THREAD = re.compile(rf"thread ({_NAME}) on rank (\d+)(?: cluster (\d+))? block (\d+)")
_ADDRESS = re.compile(rf"\[({_NAME})(?:\+(\d+))?\]")
_TOKENS = re.compile(rf"\s*({_NAME}\.{_NAME}|{_NAME}(?:\+\d+)?|-?(?:0x[0-9a-fA-F]+|\d+)|[=!<>]=|[<>()])")
_MEMBAR = {"membar.cta": "cta", "membar.gl": "gpu", "membar.sys": "sys"}


class LitmusError(ValueError):
    """A line of a litmus program that is wrong: where it is, what is wrong, what would be right."""


@dataclass(slots=True)
class _Reading:
    """What was read so far."""

    initial: dict[str, tuple[int, ...]] = field(default_factory=dict)
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    threads: list[tuple[str, Place, list[Instruction]]] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)


def read(path: Path) -> Program:
    """Return the program of a file. Raises ValueError that names the file, and the line if one is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {getattr(error, 'strerror', None) or 'not text'}, give a litmus program") from None
    try:
        return parsed(text, path.stem)
    except LitmusError as error:
        raise ValueError(f"{path}, {error}") from None


def parsed(text: str, name: str) -> Program:
    """Return the program that a text describes. Raises LitmusError, naming the line."""
    reading = _Reading()
    titles: list[str] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = re.split(r"#|//", raw)[0].strip().rstrip(";").strip()
        if not line:
            if raw.strip().startswith("#") and not reading.initial:
                titles.append(raw.strip().lstrip("#").strip())
            continue
        try:
            _read_line(reading, line)
        except ValueError as error:
            raise LitmusError(f"line {number}: {error}") from None
    if not reading.threads:
        raise LitmusError("line 1: no thread, add one such as 'thread T0 on rank 0 block 0'")
    if not reading.conditions:
        raise LitmusError("line 1: no condition, end with one such as 'never T1.r0 == 1'")
    threads = tuple(Thread(one, place, tuple(code)) for one, place, code in reading.threads)
    memory = Memory(reading.initial, reading.aliases)
    return Program(name, " ".join(titles), memory, threads, tuple(reading.conditions))


def _read_line(reading: _Reading, line: str) -> None:
    first = line.split()[0]
    if first == "memory":
        _read_memory(reading, line.removeprefix("memory"))
    elif first in ("alias", "multicast"):
        _read_alias(reading, line, first)
    elif first == "thread":
        _read_thread(reading, line)
    elif first in ("exists", "never", "always"):
        expression = expression_of(line.removeprefix(first).strip())
        _check_seen(reading, expression)
        quantifier = cast(Literal["exists", "never", "always"], first)
        reading.conditions.append(Condition(quantifier, expression, line))
    elif not reading.threads:
        raise ValueError(
            f"'{line}' comes before the first thread, start with 'memory x' and 'thread T0 on rank 0 block 0'"
        )
    else:
        reading.threads[-1][2].append(_instruction(line, reading))


def _read_memory(reading: _Reading, text: str) -> None:
    for part in text.split(","):
        found = re.fullmatch(rf"\s*({_NAME})(?:\s*=\s*(-?\w+))?\s*", part)
        if found is None:
            raise ValueError(f"'{part.strip()}' is no location, write it as 'memory x = 0, flag'")
        _check_new(reading, found[1])
        value = _number(found[2] or "0") & (1 << 64) - 1
        words = (value & 0xFFFFFFFF, value >> 32, *(0,) * (WORDS_OF_A_LOCATION - 2))
        reading.initial[found[1]] = words


def _read_alias(reading: _Reading, line: str, kind: str) -> None:
    found = re.fullmatch(rf"{kind} ({_NAME}) of ({_NAME}(?:\s*,\s*{_NAME})*)", line)
    if found is None:
        example = "alias y of x" if kind == "alias" else "multicast m of x0, x1"
        raise ValueError(f"'{line}' is not understood, write it as '{example}'")
    _check_new(reading, found[1])
    targets = tuple(re.findall(_NAME, found[2]))
    for target in targets:
        if target not in reading.initial:
            raise ValueError(f"'{target}' is no location, declare it before: memory {target}")
    if (kind == "alias") != (len(targets) == 1):
        raise ValueError(f"'{line}': an alias is of one location, a multicast address of several")
    reading.aliases[found[1]] = targets


def _check_new(reading: _Reading, name: str) -> None:
    if name in reading.initial or name in reading.aliases:
        raise ValueError(f"'{name}' is declared twice, give each location and alias a name of its own")


def _read_thread(reading: _Reading, line: str) -> None:
    found = _THREAD.fullmatch(line)
    if found is None:
        raise ValueError(f"'{line}' is not understood, write it as 'thread T0 on rank 0 block 0'")
    if any(found[1] == name for name, _, _ in reading.threads):
        raise ValueError(f"there are two threads '{found[1]}', give each a name of its own")
    cluster = None if found[3] is None else int(found[3])
    reading.threads.append((found[1], Place(int(found[2]), int(found[4]), cluster), []))


def _check_seen(reading: _Reading, expression: Expression) -> None:
    """Raise ValueError if an expression is about a thread, register or location that the program does not have."""
    written = {name: _written(code) for name, _, code in reading.threads}
    for one in seen_by(expression):
        if one.thread and one.thread not in written:
            raise ValueError(f"'{one}': there is no thread {one.thread}, there are {', '.join(written)}")
        if one.thread and one.name not in written[one.thread]:
            raise ValueError(f"'{one}': thread {one.thread} does not write {one.name}")
        if not one.thread and one.name not in reading.initial:
            raise ValueError(f"'{one}' is no location, there are {', '.join(reading.initial)}")
        if one.word >= WORDS_OF_A_LOCATION:
            raise ValueError(f"'{one}' is beyond the {4 * WORDS_OF_A_LOCATION} bytes of a location")


def _written(code: Sequence[Instruction]) -> set[str]:
    names: set[str] = set()
    for one in code:
        if isinstance(one, Access):
            names.update(one.destinations)
        elif isinstance(one, Compute):
            names.add(one.destination)
    return names


# Instructions


def _instruction(line: str, reading: _Reading) -> Instruction:
    if found := re.fullmatch(rf"({_NAME}):", line):
        return Label(found[1], line)
    head, _, rest = line.partition(" ")
    operands = _operands(rest)
    words = head.split(".")
    if words[0] in ("ld", "st", "atom", "red"):
        return _checked(_access(words[0], words[1:], operands, line), reading)
    if words[0] == "multimem":
        return _checked(_multimem(words[1:], operands, line), reading)
    if words[0] == "fence" or head in _MEMBAR:
        return _fence(head, words, line)
    if words[0] == "bar" and len(words) == 2 and words[1] in ("sync", "arrive"):
        return _barrier(cast(Literal["sync", "arrive"], words[1]), operands, line)
    if head.startswith("cp.async.bulk"):
        return _checked(_bulk(head, operands, line), reading)
    if words[0] == "bra":
        return _branch(rest, line)
    if head in COMPUTATIONS and len(operands) == (2 if head == "mov" else 3):
        return Compute(head, _register(operands[0]), tuple(map(_operand, operands[1:])), line)
    raise ValueError(f"'{line}' is no instruction of a litmus program, see simulator/litmus/README.md for all")


def _operands(text: str) -> list[str]:
    return [part.strip() for part in re.findall(r"\{[^}]*\}|[^,{]+", text) if part.strip()]


def _access(opcode: str, words: list[str], operands: list[str], line: str, *, is_multimem: bool = False) -> Access:
    """An access from its qualifiers and operands."""
    rest = list(words)
    order = _taken(rest, ("volatile", "mmio", *ORDERS["atom"], "weak"))
    if order in ("volatile", "mmio"):
        order, scope = _volatile(opcode, order, rest, line)
    else:
        scope = _taken(rest, SCOPES)
        if is_multimem and opcode == "red" and (order == "") != (scope == ""):
            raise ValueError(f"'{line}': multimem.red has both an order and a scope, or neither")
        order = order or ORDERS[opcode][0]
        if order not in ORDERS[opcode]:
            raise ValueError(f"'{line}': {opcode} has no .{order}, it has {_listed(ORDERS[opcode])}")
        if (order == "weak") != (scope == "") and opcode in ("ld", "st"):
            raise ValueError(f"'{line}': a weak access has no scope, any other needs one of {_listed(SCOPES)}")
        scope = scope or ("gpu" if order != "weak" else "")
    operation = _taken(rest, OPERATIONS)
    count = int((_taken(rest, ("v2", "v4")) or "v1")[1:])
    bits = 64 if _taken(rest, ("b64", "u64")) else 32
    _taken(rest, ("b32", "u32"))
    if rest:
        raise ValueError(f"'{line}': unknown qualifier .{rest[0]}")
    if bool(operation) != (opcode in ("atom", "red") or (is_multimem and opcode == "ld")):
        raise ValueError(
            f"'{line}': {opcode} needs an operation such as .add"
            if not operation
            else f"'{line}': {opcode} has no .{operation}"
        )
    return _with_operands(opcode, (order, scope, operation), bits, count, operands, line, is_multimem)


def _volatile(opcode: str, order: str, rest: list[str], line: str) -> tuple[str, str]:
    """Order and scope of .volatile and .mmio: relaxed for the whole system (8.4.1, 8.4.2)."""
    if opcode not in ("ld", "st") or line.startswith("multimem"):
        raise ValueError(f"'{line}': only ld and st have .{order}")
    if order == "mmio" and {"v2", "v4"} & set(rest):
        raise ValueError(f"'{line}': .mmio has no vectors")
    if order == "mmio" and (_taken(rest, ("relaxed",)), _taken(rest, ("sys",))) != ("relaxed", "sys"):
        raise ValueError(f"'{line}': write .mmio.relaxed.sys, the only form")
    return "relaxed", "sys"


def _with_operands(
    opcode: str,
    how: tuple[str, str, str],
    bits: int,
    count: int,
    operands: list[str],
    line: str,
    is_multimem: bool,
) -> Access:
    order, scope, operation = how
    wanted = {"ld": 2, "st": 2, "atom": 4 if operation == "cas" else 3, "red": 2}[opcode]
    if len(operands) != wanted:
        raise ValueError(f"'{line}': {opcode} takes {wanted} operands")
    has_result = opcode in ("ld", "atom")
    at = 1 if has_result else 0
    address = _address(operands[at])
    destinations = tuple(map(_register, _elements(operands[0], count, line))) if has_result else ()
    values = operands[at + 1 :]
    expected: Operand = 0
    if operation == "cas":
        expected = _operand(values.pop(0))
    sources = tuple(map(_operand, _elements(values[0], count, line))) if values else ()
    if count > 1 and opcode in ("atom", "red"):
        raise ValueError(f"'{line}': vectors are for ld and st")
    kind = cast(Literal["ld", "st", "atom", "red"], opcode)
    return Access(kind, order, scope, address, bits, destinations, sources, operation, expected, is_multimem, line)


def _elements(text: str, count: int, line: str) -> list[str]:
    parts = [part.strip() for part in text.strip("{}").split(",")]
    if len(parts) != count or (count > 1) != text.startswith("{"):
        raise ValueError(f"'{line}': write {count} elements" + (" in braces" if count > 1 else " for one element"))
    return parts


def _multimem(words: list[str], operands: list[str], line: str) -> Access:
    opcode = {"ld_reduce": "ld", "st": "st", "red": "red"}.get(words[0] if words else "")
    if opcode is None:
        raise ValueError(f"'{line}': multimem has .ld_reduce, .st and .red")
    access = _access(opcode, words[1:], operands, line, is_multimem=True)
    if access.operation not in ("", "add"):
        raise ValueError(f"'{line}': of multimem's operations, litmus programs have .add")
    return access


def _fence(head: str, words: list[str], line: str) -> Instruction:
    if head in _MEMBAR:
        return Fence("sc", _MEMBAR[head], line)
    if words[1:2] == ["proxy"]:
        if words[2:] not in (["alias"], ["async"]):
            raise ValueError(f"'{line}': of the proxy fences, litmus programs have fence.proxy.alias and .async")
        return ProxyFence("alias" if words[2] == "alias" else "async", line)
    rest = words[1:]
    order = _taken(rest, ("sc", "acq_rel", "acquire", "release")) or "acq_rel"
    scope = _taken(rest, SCOPES)
    if rest or not scope:
        raise ValueError(f"'{line}': write fence, one of .sc .acq_rel .acquire .release, and one of {_listed(SCOPES)}")
    return Fence(order, scope, line)


def _barrier(kind: Literal["sync", "arrive"], operands: list[str], line: str) -> Barrier:
    if not operands or len(operands) > 2 or (kind == "arrive" and len(operands) != 2):
        raise ValueError(f"'{line}': write bar.sync ID, bar.sync ID, COUNT or bar.arrive ID, COUNT")
    name = _operand(operands[0])
    if isinstance(name, int) and not 0 <= name < BARRIERS:
        raise ValueError(f"'{line}': there is no barrier {name}, a block has 0 to {BARRIERS - 1}")
    return Barrier(kind, name, _number(operands[1]) if len(operands) == 2 else None, line)


def _bulk(head: str, operands: list[str], line: str) -> Instruction:
    if head == "cp.async.bulk" and len(operands) == 3:
        count = _number(operands[2])
        if count % 4 or count < 4:
            raise ValueError(f"'{line}': copy a multiple of 4 bytes")
        return BulkCopy(_address(operands[0]), _address(operands[1]), count // 4, line)
    if head == "cp.async.bulk.commit_group" and not operands:
        return CommitGroup(line)
    if head in ("cp.async.bulk.wait_group", "cp.async.bulk.wait_group.read") and len(operands) == 1:
        return WaitGroup(_number(operands[0]), head.endswith(".read"), line)
    raise ValueError(f"'{line}': write cp.async.bulk [TO], [FROM], BYTES, its .commit_group, or its .wait_group N")


def _branch(rest: str, line: str) -> Branch:
    found = re.fullmatch(rf"({_NAME})(?: if (\w+) ([=!<>]=?) (\w+))?", rest.strip())
    if found is None or (found[3] and found[3] not in RELATIONS):
        raise ValueError(f"'{line}': write bra LABEL, or bra LABEL if r0 == 1")
    if found[3] is None:
        return Branch(found[1], text=line)
    return Branch(found[1], found[3], _operand(found[2]), _operand(found[4]), line)


def _checked(one: Access | Instruction, reading: _Reading) -> Instruction:
    """The instruction, if its addresses exist, are aligned, and are multicast exactly for multimem."""
    if isinstance(one, Access):
        addresses = [(one.address, len(one.destinations or one.sources) * one.bits // 32)]
    elif isinstance(one, BulkCopy):
        addresses = [(one.destination, one.words), (one.source, one.words)]
    else:
        return one
    for address, words in addresses:
        if address.name not in reading.initial and address.name not in reading.aliases:
            raise ValueError(f"'{one.text}': '{address.name}' is not declared, add: memory {address.name}")
        is_multicast = len(reading.aliases.get(address.name, ())) > 1
        if is_multicast != (isinstance(one, Access) and one.is_multimem):
            raise ValueError(f"'{one.text}': a multicast address takes multimem's instructions and no others (8.2.3)")
        if address.word % max(words, 1) and isinstance(one, Access):
            raise ValueError(f"'{one.text}': the address is not aligned to the {4 * words} bytes of the access")
        if address.word + words > WORDS_OF_A_LOCATION:
            raise ValueError(f"'{one.text}': beyond the {4 * WORDS_OF_A_LOCATION} bytes of a location")
    return one


def _taken(words: list[str], wanted: Sequence[str]) -> str:
    """Remove the first word that is wanted from the list and return it, or return ""."""
    found = next((word for word in words if word in wanted), "")
    if found:
        words.remove(found)
    return found


def _listed(words: Sequence[str]) -> str:
    return ", ".join(f".{word}" for word in words)


def _address(text: str) -> Address:
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[2] or 0) % 4:
        raise ValueError(f"'{text}' is no address, write [x], or [x+4] for its second word")
    return Address(found[1], int(found[2] or 0) // 4)


def _register(text: str) -> str:
    if not re.fullmatch(_NAME, text):
        raise ValueError(f"'{text}' is no register, write one such as r0")
    return text


def _operand(text: str) -> Operand:
    return text if re.fullmatch(_NAME, text) else _number(text)


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError(f"'{text}' is no number") from None


# Conditions


def expression_of(text: str) -> Expression:
    """Return the expression that a text describes: comparisons, not, and, or, parentheses. Raises ValueError."""
    tokens: list[str] = []
    at = 0
    while text[at:].strip():
        found = _TOKENS.match(text, at)
        if found is None:
            raise ValueError(f"'{text[at:].strip()}' is not understood in a condition")
        tokens.append(found[1])
        at = found.end()
    stream = _Tokens(iter(tokens))
    expression = _disjunction(stream)
    if stream.next:
        raise ValueError(f"'{stream.next}' is one word too many in a condition")
    return expression


class _Tokens:
    """Words of a condition, with a look at the next one ("" at the end)."""

    def __init__(self, words: Iterator[str]) -> None:
        self._words = words
        self.next = next(words, "")

    def take(self) -> str:
        """Return the next word and go on."""
        word, self.next = self.next, next(self._words, "")
        return word


def _disjunction(stream: _Tokens) -> Expression:
    parts = [_conjunction(stream)]
    while stream.next == "or":
        stream.take()
        parts.append(_conjunction(stream))
    return parts[0] if len(parts) == 1 else Combined("or", tuple(parts))


def _conjunction(stream: _Tokens) -> Expression:
    parts = [_single(stream)]
    while stream.next == "and":
        stream.take()
        parts.append(_single(stream))
    return parts[0] if len(parts) == 1 else Combined("and", tuple(parts))


def _single(stream: _Tokens) -> Expression:
    if stream.next == "not":
        stream.take()
        return Combined("not", (_single(stream),))
    if stream.next == "(":
        stream.take()
        inner = _disjunction(stream)
        if stream.take() != ")":
            raise ValueError("a parenthesis of the condition is not closed")
        return inner
    left = _value(stream.take())
    relation = stream.take()
    if relation not in RELATIONS:
        raise ValueError(f"'{relation}' is no comparison, write one of {' '.join(RELATIONS)}")
    return Compare(relation, left, _value(stream.take()))


def _value(word: str) -> Seen | int:
    if re.fullmatch(rf"{_NAME}\.{_NAME}", word):
        thread, _, register = word.partition(".")
        return Seen(thread, register)
    if found := re.fullmatch(rf"({_NAME})(?:\+(\d+))?", word):
        if found[1] in ("and", "or", "not") or int(found[2] or 0) % 4:
            raise ValueError(f"'{word}' is no register or location, write T0.r0, x, or x+4 for its second word")
        return Seen("", found[1], int(found[2] or 0) // 4)
    return _number(word)
