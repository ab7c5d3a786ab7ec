"""Which registers an instruction can have, as ptxas judges it: size and kind of each operand against the types in the
instruction's name.

A register's size must be the type's. Of ld, st and cvt it may be larger. Bits (.b32) go with every kind of the size,
integers with integers, floats with floats. Opcodes that are not in the table below are not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from simulator.isa.registry import TYPES
from simulator.ptx.ir import Address, Immediate, Instruction, Negated, Operand, Pair, Register, Symbol, Vector

_WIDE_SPECIALS = frozenset({"%clock64", "%globaltimer", "%current_graph_exec", *(f"%pm{n}_64" for n in range(8))})
_DIMENSIONS = frozenset({"%tid", "%ntid", "%ctaid", "%nctaid"})
_SIMPLE = frozenset({*(f"{kind}{bits}" for kind in "us" for bits in (8, 16, 32, 64)), "f16", "f32", "f64"})


@dataclass(frozen=True, slots=True)
class Need:
    """What an operand must be: a type, "address", or "" for what is not judged.

    is_wider: the register may be larger. count: elements of a vector, 1 for none. has_predicate: d|p is possible.
    is_optional: the operand may be left out. is_target: it takes a result, so it is no literal.
    """

    type: str
    is_wider: bool = False
    count: int = 1
    has_predicate: bool = False
    is_optional: bool = False
    is_target: bool = False


def refusal(instruction: Instruction, types: Mapping[str, str]) -> str:
    """Return why the instruction does not assemble, "" if nothing is wrong with its operands. types: of the declared
    registers, by name."""
    guard = instruction.guard
    if guard is not None and types.get(guard[0].name, "pred") != "pred":
        return f"does not assemble: the guard {_name(guard[0].name)} is .{types[guard[0].name]}, it must be .pred"
    rule = _RULES.get(instruction.opcode)
    kinds = [word for word in instruction.qualifiers if word in TYPES]
    needs = None if rule is None else rule(instruction, kinds)
    if needs is None:
        return ""
    operands = instruction.operands
    least = sum(not one.is_optional for one in needs)
    if not least <= len(operands) <= len(needs):
        wanted = f"{least}" if least == len(needs) else f"{least} to {len(needs)}"
        return f"does not assemble: {len(operands)} operands, {instruction.mnemonic} has {wanted}"
    for operand, need in zip(operands, needs, strict=False):
        reason = _wrong(operand, need, types)
        if reason:
            return f"does not assemble: {reason} in {instruction.mnemonic}"
    return ""


def _wrong(operand: Operand, need: Need, types: Mapping[str, str]) -> str:
    """What is wrong with an operand, "" if nothing is."""
    if not need.type:
        return ""
    if need.type == "address" or isinstance(operand, Address):
        return _wrong_address(operand, need, types)
    if isinstance(operand, Pair):
        if not need.has_predicate:
            return f"a second result {_name(operand.second.name)}"
        second = Need("pred")
        return _wrong(operand.first, replace(need, has_predicate=False), types) or _wrong(operand.second, second, types)
    if isinstance(operand, Vector) or need.count > 1:
        return _wrong_vector(operand, need, types)
    if isinstance(operand, Negated):
        if need.type != "pred" or need.is_target:
            return f"!{_name(operand.register.name)} where a register .{need.type} is needed"
        return _wrong(operand.register, need, types)
    if isinstance(operand, Immediate):
        return "a literal where a register is needed" if need.is_target else _wrong_literal(operand, need)
    if isinstance(operand, Register) and operand.name in types and not _fits(need, types[operand.name]):
        at_least = " or larger" if need.is_wider and need.type != "pred" else ""
        return f"{_name(operand.name)} is .{types[operand.name]} where .{need.type}{at_least} is needed"
    return ""


def _wrong_address(operand: Operand, need: Need, types: Mapping[str, str]) -> str:
    if not isinstance(operand, Address):
        return "an operand that is no address ([..]) where an address is needed"
    if need.type != "address":
        return f"an address where .{need.type} is needed"
    base = operand.base
    if isinstance(base, Register) and base.name in types and _kind(types[base.name]) not in ("bits", "integer"):
        return f"{_name(base.name)} is .{types[base.name]} where an address is needed"
    return ""


def _wrong_vector(operand: Operand, need: Need, types: Mapping[str, str]) -> str:
    """ld, st, atom, red, multimem and mov have vectors: of one size, as many as the type says."""
    parts = operand.parts if isinstance(operand, Vector) else ()
    if len(parts) != need.count:
        found = f"a vector of {len(parts)}" if parts else "no vector"
        return f"{found} where {f'a vector of {need.count}' if need.count > 1 else 'one register'} is needed"
    if need.is_target and _kind(need.type) == "float":  # ptxas takes integers of the size here
        parts = tuple(one for one in parts if not _is_integer_of(one, need, types))
    sizes = {_bits(types[one.name]) for one in parts if isinstance(one, Register) and one.name in types}
    if len(sizes) > 1:
        return "registers of several sizes in a vector"
    return next((found for one in parts if (found := _wrong(one, replace(need, count=1), types))), "")


def _is_integer_of(part: Register | Immediate, need: Need, types: Mapping[str, str]) -> bool:
    kind = types.get(part.name, "pred") if isinstance(part, Register) else "pred"
    return _kind(kind) == "integer" and _bits(kind) == _bits(need.type)


def _wrong_literal(operand: Immediate, need: Need) -> str:
    kind, is_float = _kind(need.type), operand.width_bits > 0
    if kind == "float" and not is_float and need.type != "f16":
        return f"an integer literal where .{need.type} is needed"
    if is_float and (kind in ("integer", "pred") or (kind == "bits" and operand.width_bits != _bits(need.type))):
        return f"a float literal where .{need.type} is needed"
    return ""


def _fits(need: Need, register: str) -> bool:
    """Whether a register of a declared type can be the operand."""
    if need.type == "pred" or register == "pred":
        return need.type == register
    wanted, given = _kind(need.type), _kind(register)
    size, held = _bits(need.type), _bits(register)
    if held < size or (held > size and not need.is_wider):
        return False
    if given == "bits" or wanted == "bits":
        return True
    if wanted == "packed":
        return need.type == register or need.type in ("u16x2", "s16x2", "f32x2")
    if wanted == "float":
        return given == "float" and held == size
    return given in ("integer", "packed")


def _kind(name: str) -> str:
    if name == "pred":
        return "pred"
    if name.startswith(("bf16", "e4m3", "e5m2")) or name.endswith("x2"):
        return "packed"
    return {"b": "bits", "u": "integer", "s": "integer", "f": "float"}[name[0]]


def _bits(name: str) -> int:
    if name.startswith(("e4m3", "e5m2")):
        return 8 * int(name.partition("x")[2] or 1)
    number, _, pack = name.removeprefix("b").lstrip("busf").partition("x")
    return 1 if name == "pred" else int(number) * int(pack or 1)


def _name(register: str) -> str:
    """The name as it stands in the text, without the mark of its scope."""
    return register.partition("@")[0]


# What each opcode takes

Rule = Callable[[Instruction, list[str]], list[Need] | None]
_U32, _B32, _PRED, _ADDRESS, _ANY = Need("u32"), Need("b32"), Need("pred"), Need("address"), Need("")
_RULES: dict[str, Rule] = {}


def _rule(*opcodes: str) -> Callable[[Rule], Rule]:
    def note(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(opcodes, rule))
        return rule

    return note


def _result(name: str, **how: bool) -> Need:
    return Need(name, is_target=True, **how)


def _same(count: int, *last: Need) -> Rule:
    """A result and sources of the one type in the name, then those of other types."""

    def rule(instruction: Instruction, kinds: list[str]) -> list[Need] | None:
        if len(kinds) != 1:
            return None
        return [_result(kinds[0]), *[Need(kinds[0])] * (count - 1), *last]

    return rule


def _fixed(*needs: Need) -> Rule:
    return lambda instruction, kinds: list(needs)


_COUNTS = {
    2: "abs neg rcp sqrt rsqrt sin cos lg2 ex2 tanh not cnot brev",
    3: "add sub div rem addc subc copysign and or xor mul24",
    4: "fma sad mad24 madc",
}
for _count, _words in _COUNTS.items():
    _RULES.update(dict.fromkeys(_words.split(), _same(_count)))
_RULES |= {
    "min": _same(3, replace(_ANY, is_optional=True)),
    "max": _same(3, replace(_ANY, is_optional=True)),
    "selp": _same(3, _PRED),
    "shl": _same(2, _U32),
    "shr": _same(2, _U32),
    "bfe": _same(2, _U32, _U32),
    "bfi": _same(3, _U32, _U32),
    "szext": _same(2, _U32),
    "cvta": _same(2),
    "bmsk": _fixed(_result("u32"), _U32, _U32),
    "prmt": _fixed(_result("b32"), _B32, _B32, _B32),
    "shf": _fixed(_result("b32"), _B32, _B32, _U32),
    "dp4a": _fixed(_result("u32"), _U32, _U32, _U32),
    "dp2a": _fixed(_result("u32"), _U32, _U32, _U32),
    "activemask": _fixed(_result("b32")),
    "elect": _fixed(_result("u32", has_predicate=True), _U32),
    "nanosleep": _fixed(_U32),
    "isspacep": _fixed(_result("pred"), _ANY),
}


@_rule("mul", "mad")
def _products(instruction: Instruction, kinds: list[str]) -> list[Need] | None:
    if len(kinds) != 1:
        return None
    own = Need(kinds[0])
    wide = Need(f"{kinds[0][0]}{2 * _bits(kinds[0])}") if "wide" in instruction.qualifiers else own
    return [replace(wide, is_target=True), own, own, *([wide] if instruction.opcode == "mad" else [])]


@_rule("lop3")
def _lookup(instruction: Instruction, kinds: list[str]) -> list[Need] | None:
    if not {"and", "or"}.isdisjoint(instruction.qualifiers):
        return None
    return [_result("b32"), _B32, _B32, _B32, _U32]


@_rule("popc", "clz", "bfind")
def _counted(instruction: Instruction, kinds: list[str]) -> list[Need] | None:
    return [_result("u32"), Need(kinds[0])] if len(kinds) == 1 else None


@_rule("setp", "set", "slct", "testp")
def _compared(instruction: Instruction, kinds: list[str]) -> list[Need] | None:
    if len(kinds) != (2 if instruction.opcode in ("set", "slct") else 1):
        return None
    own, joined = Need(kinds[-1]), replace(_PRED, is_optional=True)
    if instruction.opcode == "slct":
        return [_result(kinds[0]), Need(kinds[0]), Need(kinds[0]), own]
    if instruction.opcode == "testp":
        return [_result("pred"), own]
    if instruction.opcode == "set":
        return [_result(kinds[0]), own, own, joined]
    return [_result("pred", has_predicate=True), own, own, joined]


@_rule("cvt")
def _converted(instruction: Instruction, kinds: list[str]) -> list[Need] | None:
    if len(kinds) != 2 or "pack" in instruction.qualifiers:
        return None
    target, source = (Need(one, is_wider=one in _SIMPLE or one == "f16x2") for one in kinds)
    if any(isinstance(one, Vector) for one in instruction.operands):
        return None
    more = [] if _SIMPLE.issuperset(kinds) else [replace(source, is_optional=True), replace(_ANY, is_optional=True)]
    return [replace(target, is_target=True), source, *more]


@_rule("mov")
def _moved(instruction: Instruction, kinds: list[str]) -> list[Need] | None:
    if len(kinds) != 1 or len(instruction.operands) != 2:
        return None if len(kinds) != 1 else [_result(kinds[0]), Need(kinds[0])]
    target, source = _result(kinds[0]), Need(kinds[0])
    sides = []
    for operand, need in zip(instruction.operands, (target, source), strict=True):
        if isinstance(operand, Vector):
            is_plain = kinds[0] in ("b16", "b32", "b64", "b128")
            count = len(operand.parts)
            if not is_plain or count not in (2, 4):
                return [_result(kinds[0], has_predicate=False), Need(kinds[0])]
            need = replace(need, type=f"b{_bits(kinds[0]) // count}", count=count)
        sides.append(need)
    return sides


@_rule("ld", "ldu", "st", "atom", "red")
def _accessed(instruction: Instruction, kinds: list[str]) -> list[Need] | None:
    words = set(instruction.qualifiers)
    if len(kinds) != 1 or not words.isdisjoint({"async", "bulk"}):
        return None
    count = next((int(word[1:]) for word in ("v2", "v4", "v8") if word in words), 1)
    is_access = instruction.opcode in ("ld", "ldu", "st")
    own = Need(kinds[0], is_wider=is_access, count=count)
    if kinds == ["b128"]:  # a register of 128 bits stands there as its halves
        own = Need("b64", count=2)
    policy = [Need("b64")] if "L2::cache_hint" in words else []
    if instruction.opcode in ("st", "red"):
        return [_ADDRESS, own, *policy]
    result = replace(own, is_target=True)
    if is_access:
        return [result, _ADDRESS, *policy]
    if instruction.operands[:1] == (Register("_"),):  # the old value is dropped
        result = _ANY
    return [result, _ADDRESS, own, *([own] if "cas" in words else []), *policy]


@_rule("shfl", "vote", "match", "redux")
def _together(instruction: Instruction, kinds: list[str]) -> list[Need] | None:
    words = instruction.qualifiers
    if len(kinds) != 1 or "sync" not in words:
        return None
    if instruction.opcode == "shfl":
        return [_result("b32", has_predicate=True), _B32, _B32, _B32, _U32]
    if instruction.opcode == "vote":
        return [_result(kinds[0]), _PRED, _U32]
    if instruction.opcode == "match":
        return [_result("u32", has_predicate="all" in words), Need(kinds[0]), _U32]
    return [_result(kinds[0]), Need(kinds[0]), _U32]


@_rule("bar", "barrier")
def _reduced(instruction: Instruction, kinds: list[str]) -> list[Need] | None:
    if "red" not in instruction.qualifiers or len(kinds) != 1:
        return None
    middle = [_U32] * (len(instruction.operands) - 2)
    return [_result(kinds[0]), *middle, _PRED] if 1 <= len(middle) <= 2 else None


def wrong_special(instruction: Instruction) -> str:
    """Return why a mov of a special register does not assemble, "" if it does or if there is none."""
    if instruction.opcode != "mov" or len(instruction.operands) != 2:
        return ""
    source = instruction.operands[1]
    kinds = [word for word in instruction.qualifiers if word in TYPES]
    if not isinstance(source, Register) or len(kinds) != 1:
        return ""
    if source.name == "%is_explicit_cluster":
        return "" if kinds == ["pred"] else f"does not assemble: {source.name} is .pred in {instruction.mnemonic}"
    sizes = _special_sizes(source.name)
    if _kind(kinds[0]) in ("bits", "integer") and _bits(kinds[0]) in sizes:
        return ""
    found = " or ".join(map(str, sizes))
    return f"does not assemble: {source.name} has {found} bits where .{kinds[0]} is needed in {instruction.mnemonic}"


def _special_sizes(name: str) -> tuple[int, ...]:
    """How many bits a mov may read of a special register."""
    if name == "%gridid":
        return 16, 32, 64
    if name in _WIDE_SPECIALS:
        return (64,)
    return (16, 32) if name.partition(".")[0] in _DIMENSIONS else (32,)


def symbols_of(instruction: Instruction) -> list[Symbol]:
    """Return the names in an instruction that are no registers."""
    bases = [one.base if isinstance(one, Address) else one for one in instruction.operands]
    return [one for one in bases if isinstance(one, Symbol)]


def width_of(instruction: Instruction) -> int:
    """Return how many bytes a load or a store moves."""
    kinds = [word for word in instruction.qualifiers if word in TYPES]
    count = next((int(word[1:]) for word in ("v2", "v4", "v8") if word in instruction.qualifiers), 1)
    return count * _bits(kinds[-1]) // 8 if kinds else 0
