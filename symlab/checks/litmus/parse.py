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

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from symlab.checks.litmus import program as nouns

ORDERS = {
    "ld": ("weak", "relaxed", "acquire"),
    "st": ("weak", "relaxed", "release"),
    "atom": ("relaxed", "acquire", "release", "acq_rel"),
    "red": ("relaxed", "release"),
}
"""The orders that PTX has for each opcode; the first is the default."""

COMPUTATIONS = ("mov", "add", "sub", "mul", "and", "or", "xor")
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.LtE: "<=", ast.GtE: ">=", ast.Lt: "<", ast.Gt: ">",
}  # fmt: skip
RELATIONS = tuple(_COMPARISONS.values())
WORDS_OF_A_LOCATION = 8
"""Each location has 32 bytes."""

_NAME = r"[A-Za-z_]\w*"
_THREAD = re.compile(rf"thread ({_NAME}) on rank (\d+)(?: cluster (\d+))? block (\d+)")
_ADDRESS = re.compile(rf"\[({_NAME})(?:\+(\d+))?\]")
_MEMBAR = {"membar.cta": "cta", "membar.gl": "gpu", "membar.sys": "sys"}


class LitmusError(ValueError):
    """A line of a litmus program that is wrong: where it is, what is wrong, what would be right."""


@dataclass(slots=True)
class _Reading:
    """What was read so far."""

    initial: dict[str, tuple[int, ...]] = field(default_factory=dict)
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    threads: list[tuple[str, nouns.Place, list[nouns.Instruction]]] = field(default_factory=list)
    conditions: list[nouns.Condition] = field(default_factory=list)


def read(path: Path) -> nouns.Program:
    """Return the program of a file. Raises ValueError that names the file, and the line if one is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {getattr(error, 'strerror', None) or 'not text'}, give a litmus program") from None
    try:
        return parsed(text, path.stem)
    except LitmusError as error:
        raise ValueError(f"{path}, {error}") from None


def parsed(text: str, name: str) -> nouns.Program:
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
    threads = tuple(nouns.Thread(one, place, tuple(code)) for one, place, code in reading.threads)
    memory = nouns.Memory(reading.initial, reading.aliases)
    return nouns.Program(name, " ".join(titles), memory, threads, tuple(reading.conditions))


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
        reading.conditions.append(nouns.Condition(quantifier, expression, line))
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
    reading.threads.append((found[1], nouns.Place(int(found[2]), int(found[4]), cluster), []))


def _check_seen(reading: _Reading, expression: nouns.Expression) -> None:
    """Raise ValueError if an expression is about a thread, register or location that the program does not have."""
    written = {name: _written(code) for name, _, code in reading.threads}
    for one in nouns.seen_by(expression):
        if one.thread and one.thread not in written:
            raise ValueError(f"'{one}': there is no thread {one.thread}, there are {', '.join(written)}")
        if one.thread and one.name not in written[one.thread]:
            raise ValueError(f"'{one}': thread {one.thread} does not write {one.name}")
        if not one.thread and one.name not in reading.initial:
            raise ValueError(f"'{one}' is no location, there are {', '.join(reading.initial)}")
        if one.word >= WORDS_OF_A_LOCATION:
            raise ValueError(f"'{one}' is beyond the {4 * WORDS_OF_A_LOCATION} bytes of a location")


def _written(code: Sequence[nouns.Instruction]) -> set[str]:
    names: set[str] = set()
    for one in code:
        if isinstance(one, nouns.Access):
            names.update(one.destinations)
        elif isinstance(one, nouns.Compute):
            names.add(one.destination)
    return names


# Instructions


def _instruction(line: str, reading: _Reading) -> nouns.Instruction:
    if found := re.fullmatch(rf"({_NAME}):", line):
        return nouns.Label(found[1], line)
    head, _, rest = line.partition(" ")
    operands = _operands(rest)
    words = head.split(".")
    if words[0] in _FORMS:
        return _checked(_access(head, operands, line), reading)
    if words[0] == "fence" or head in _MEMBAR:
        return _fence(head, line)
    if words[0] == "bar" and len(words) == 2 and words[1] in ("sync", "arrive"):
        return _barrier(cast(Literal["sync", "arrive"], words[1]), operands, line)
    if head.startswith("cp.async.bulk"):
        return _checked(_bulk(head, operands, line), reading)
    if words[0] == "bra":
        return _branch(rest, line)
    if head in COMPUTATIONS and len(operands) == (2 if head == "mov" else 3):
        return nouns.Compute(head, _register(operands[0]), tuple(map(_operand, operands[1:])), line)
    raise ValueError(f"'{line}' is no instruction of a litmus program, see symlab/checks/litmus/README.md for all")


def _operands(text: str) -> list[str]:
    return [part.strip() for part in re.findall(r"\{[^}]*\}|[^,{]+", text) if part.strip()]


_ACCESS = re.compile(
    r"(multimem\.)?(ld_reduce|ld|st|atom|red)(?:\.(weak|relaxed|acquire|release|acq_rel|volatile|mmio\.relaxed\.sys))?"
    r"(?:\.(cta|cluster|gpu|sys))?(?:\.(add|and|or|xor|min|max|exch|cas))?(?:\.v([24]))?(?:\.[bu](32|64))?"
)
_KINDS = (r"weak|relaxed|acquire|release|acq_rel|volatile|mmio", "cta|cluster|gpu|sys", "v[24]", "[bu](32|64)")
"""Qualifiers in the order of _ACCESS, but for operations, which are between scopes and vectors."""
_SCOPED = " and one of .cta .cluster .gpu .sys"
_FORMS = {
    "ld": f"ld.weak, .volatile, .mmio.relaxed.sys, or .relaxed or .acquire{_SCOPED}; then .v2 .v4 (not of .mmio), .b64",
    "st": f"st.weak, .volatile, .mmio.relaxed.sys, or .relaxed or .release{_SCOPED}; then .v2 .v4 (not of .mmio), .b64",
    "atom": "atom, perhaps .relaxed .acquire .release .acq_rel, perhaps a scope, and an operation such as .add",
    "red": "red, perhaps .relaxed .release, perhaps a scope, and an operation such as .add",
    "multimem": "multimem.st, or .ld_reduce or .red with .add; orders and scopes as ld and st, of .red both or none",
}
"""What each opcode takes, for messages."""


def _access(head: str, operands: list[str], line: str) -> nouns.Access:
    """An access. .volatile and .mmio are relaxed for the whole system (8.4.1, 8.4.2)."""
    is_multimem = head.startswith("multimem")
    words = head.split(".")
    words[1 + is_multimem :] = sorted(words[1 + is_multimem :], key=_place_of)
    found = _ACCESS.fullmatch(".".join(words))
    hint = f"'{line}': write {_FORMS['multimem' if is_multimem else head.split('.')[0]]}"
    if found is None or found[2] not in (("ld_reduce", "st", "red") if is_multimem else ("ld", "st", "atom", "red")):
        raise ValueError(hint)
    _, word, order, scope, operation, vector, bits = found.groups(default="")
    opcode = cast(Literal["ld", "st", "atom", "red"], "ld" if word == "ld_reduce" else word)
    is_right = bool(operation) == (opcode in ("atom", "red") or (is_multimem and opcode == "ld"))
    is_right &= not vector or (opcode in ("ld", "st") and order[:4] != "mmio")
    is_right &= not (is_multimem and (operation not in ("", "add") or (opcode == "red" and bool(order) != bool(scope))))
    if order[:4] in ("vola", "mmio"):
        is_right &= opcode in ("ld", "st") and not is_multimem and not scope
        order, scope = "relaxed", "sys"
    order = order or ORDERS[opcode][0]
    is_right &= order in ORDERS[opcode] and ((order == "weak") != bool(scope) or opcode in ("atom", "red"))
    if not is_right:
        raise ValueError(hint)
    wanted = {"ld": 2, "st": 2, "atom": 4 if operation == "cas" else 3, "red": 2}[opcode]
    if len(operands) != wanted:
        raise ValueError(f"'{line}': {opcode} takes {wanted} operands")
    count, has_result = int(vector or 1), opcode in ("ld", "atom")
    destinations = tuple(map(_register, _elements(operands.pop(0), count, line))) if has_result else ()
    address = _address(operands.pop(0))
    expected = _operand(operands.pop(0)) if operation == "cas" else 0
    sources = tuple(map(_operand, _elements(operands[0], count, line))) if operands else ()
    how = (opcode, order, scope or ("gpu" if order != "weak" else ""), address, int(bits or 32))
    return nouns.Access(*how, destinations, sources, operation, expected, is_multimem, line)


def _place_of(qualifier: str) -> float:
    """Where a qualifier stands, as programs have them in any order."""
    return next((at for at, one in enumerate(_KINDS) if re.fullmatch(one, qualifier)), 1.5)


def _elements(text: str, count: int, line: str) -> list[str]:
    parts = [part.strip() for part in text.strip("{}").split(",")]
    if len(parts) != count or (count > 1) != text.startswith("{"):
        raise ValueError(f"'{line}': write {count} elements" + (" in braces" if count > 1 else " for one element"))
    return parts


def _fence(head: str, line: str) -> nouns.Instruction:
    if head in _MEMBAR:
        return nouns.Fence("sc", _MEMBAR[head], line)
    if found := re.fullmatch(r"fence\.proxy\.(alias|async)", head):
        return nouns.ProxyFence("alias" if found[1] == "alias" else "async", line)
    found = re.fullmatch(r"fence(?:\.(sc|acq_rel|acquire|release))?\.(cta|cluster|gpu|sys)", head)
    if found is None:
        raise ValueError(
            f"'{line}': write fence, one of .sc .acq_rel .acquire .release,{_SCOPED}; or fence.proxy.alias, .async"
        )
    return nouns.Fence(found[1] or "acq_rel", found[2], line)


def _barrier(kind: Literal["sync", "arrive"], operands: list[str], line: str) -> nouns.Barrier:
    if not operands or len(operands) > 2 or (kind == "arrive" and len(operands) != 2):
        raise ValueError(f"'{line}': write bar.sync ID, bar.sync ID, COUNT or bar.arrive ID, COUNT")
    name = _operand(operands[0])
    if isinstance(name, int) and not 0 <= name < nouns.BARRIERS:
        raise ValueError(f"'{line}': there is no barrier {name}, a block has 0 to {nouns.BARRIERS - 1}")
    return nouns.Barrier(kind, name, _number(operands[1]) if len(operands) == 2 else None, line)


def _bulk(head: str, operands: list[str], line: str) -> nouns.Instruction:
    if head == "cp.async.bulk" and len(operands) == 3:
        count = _number(operands[2])
        if count % 4 or count < 4:
            raise ValueError(f"'{line}': copy a multiple of 4 bytes")
        return nouns.BulkCopy(_address(operands[0]), _address(operands[1]), count // 4, line)
    if head == "cp.async.bulk.commit_group" and not operands:
        return nouns.CommitGroup(line)
    if head in ("cp.async.bulk.wait_group", "cp.async.bulk.wait_group.read") and len(operands) == 1:
        return nouns.WaitGroup(_number(operands[0]), head.endswith(".read"), line)
    raise ValueError(f"'{line}': write cp.async.bulk [TO], [FROM], BYTES, its .commit_group, or its .wait_group N")


def _branch(rest: str, line: str) -> nouns.Branch:
    found = re.fullmatch(rf"({_NAME})(?: if (\w+) ([=!<>]=?) (\w+))?", rest.strip())
    if found is None or (found[3] and found[3] not in RELATIONS):
        raise ValueError(f"'{line}': write bra LABEL, or bra LABEL if r0 == 1")
    if found[3] is None:
        return nouns.Branch(found[1], text=line)
    return nouns.Branch(found[1], found[3], _operand(found[2]), _operand(found[4]), line)


def _checked(one: nouns.Access | nouns.Instruction, reading: _Reading) -> nouns.Instruction:
    """The instruction, if its addresses exist, are aligned, and are multicast exactly for multimem."""
    if isinstance(one, nouns.Access):
        addresses = [(one.address, len(one.destinations or one.sources) * one.bits // 32)]
    elif isinstance(one, nouns.BulkCopy):
        addresses = [(one.destination, one.words), (one.source, one.words)]
    else:
        return one
    for address, words in addresses:
        if address.name not in reading.initial and address.name not in reading.aliases:
            raise ValueError(f"'{one.text}': '{address.name}' is not declared, add: memory {address.name}")
        is_multicast = len(reading.aliases.get(address.name, ())) > 1
        if is_multicast != (isinstance(one, nouns.Access) and one.is_multimem):
            raise ValueError(f"'{one.text}': a multicast address takes multimem's instructions and no others (8.2.3)")
        if address.word % max(words, 1) and isinstance(one, nouns.Access):
            raise ValueError(f"'{one.text}': the address is not aligned to the {4 * words} bytes of the access")
        if address.word + words > WORDS_OF_A_LOCATION:
            raise ValueError(f"'{one.text}': beyond the {4 * WORDS_OF_A_LOCATION} bytes of a location")
    return one


def _address(text: str) -> nouns.Address:
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[2] or 0) % 4:
        raise ValueError(f"'{text}' is no address, write [x], or [x+4] for its second word")
    return nouns.Address(found[1], int(found[2] or 0) // 4)


def _register(text: str) -> str:
    if not re.fullmatch(_NAME, text):
        raise ValueError(f"'{text}' is no register, write one such as r0")
    return text


def _operand(text: str) -> nouns.Operand:
    return text if re.fullmatch(_NAME, text) else _number(text)


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError(f"'{text}' is no number") from None


# Conditions


def expression_of(text: str) -> nouns.Expression:
    """Return the expression that a text describes: comparisons, not, and, or, parentheses, as Python has them. Raises
    ValueError."""
    try:
        return _expression(ast.parse(text, mode="eval").body)
    except SyntaxError:
        raise ValueError(
            f"'{text}' is not understood as a condition, write one such as T0.r0 == 1 and x != 2"
        ) from None


def _expression(one: ast.expr) -> nouns.Expression:
    match one:
        case ast.BoolOp():
            operator: Literal["and", "or"] = "and" if isinstance(one.op, ast.And) else "or"
            return nouns.Combined(operator, tuple(map(_expression, one.values)))
        case ast.UnaryOp(op=ast.Not()):
            return nouns.Combined("not", (_expression(one.operand),))
        case ast.Compare(ops=[relation], comparators=[right]) if type(relation) in _COMPARISONS:
            return nouns.Compare(_COMPARISONS[type(relation)], _value(one.left), _value(right))
    raise ValueError(f"'{ast.unparse(one)}' is no comparison, write one of {' '.join(RELATIONS)}")


def _value(one: ast.expr) -> nouns.Seen | int:
    match one:
        case ast.Constant(value=int(number)) if type(number) is int:  # True is an int, too
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return -number
        case ast.Attribute(value=ast.Name(id=thread), attr=register):
            return nouns.Seen(thread, register)
        case ast.Name(id=name):
            return nouns.Seen("", name)
        case ast.BinOp(left=ast.Name(id=name), op=ast.Add(), right=ast.Constant(value=int(offset))) if offset % 4 == 0:
            return nouns.Seen("", name, offset // 4)
    raise ValueError(f"'{ast.unparse(one)}' is no register or location, write T0.r0, x, or x+4 for its second word")
