"""Which registers an instruction can have, as ptxas judges it: size and kind of each operand against the types in the
instruction's name.

A register's size must be the type's. Of ld, st and cvt it may be larger. Bits (.b32) go with every kind of the size,
integers with integers, floats with floats. Opcodes that are not in the table below are not judged.
"""

from __future__ import annotations

import re
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
    kinds = tuple(word for word in instruction.qualifiers if word in TYPES)
    rule = _RULES.get(instruction.opcode)
    needs = _listed(instruction, kinds) if rule is None else rule(instruction, kinds)
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

Rule = Callable[[Instruction, tuple[str, ...]], list[Need] | None]
_OF_TWO = "abs neg rcp sqrt rsqrt sin cos lg2 ex2 tanh not cnot brev cvta"
_OF_THREE = "add sub mul div rem addc subc copysign and or xor mul24"
_SHAPES = {
    **dict.fromkeys(_OF_TWO.split(), "=t t"),
    **dict.fromkeys(_OF_THREE.split(), "=t t t"),
    **dict.fromkeys(("fma", "sad", "mad", "mad24", "madc"), "=t t t t"),
    **dict.fromkeys(("min", "max"), "=t t t any?"),
    **dict.fromkeys(("shl", "shr", "szext"), "=t t u32"),
    **dict.fromkeys(("popc", "clz", "bfind"), "=u32 t"),
    **dict.fromkeys(("dp4a", "dp2a"), "=u32 u32 u32 u32"),
    "mul.wide": "=wide t t",
    "mad.wide": "=wide t t wide",
    "selp": "=t t t pred",
    "bfe": "=t t u32 u32",
    "bfi": "=t t t u32 u32",
    "bmsk": "=u32 u32 u32",
    "prmt": "=b32 b32 b32 b32",
    "shf": "=b32 b32 b32 u32",
    "lop3": "=b32 b32 b32 b32 u32",
    "isspacep": "=pred any",
    "setp": "=pred|p t t pred?",
    "set": "=first last last pred?",
    "slct": "=first first first last",
    "testp": "=pred t",
    "shfl": "=b32|p b32 b32 b32 u32",
    "vote": "=t pred u32",
    "match.any": "=u32 t u32",
    "match.all": "=u32|p t u32",
    "redux": "=t t u32",
    "activemask": "=b32",
    "elect": "=u32|p u32",
    "nanosleep": "u32",
}
"""The operands of an opcode, or of one with a qualifier. t: the type in the name, wide: twice as wide, first and last:
of two types; =: a result, |p: with a predicate beside it if there is one; ?: it may be left out."""
_PART = re.compile(r"(=?)(\w+)(\|p)?(\?)?")
_ADDRESS, _ANY = Need("address"), Need("")


def _listed(instruction: Instruction, kinds: tuple[str, ...]) -> list[Need] | None:
    """What the table says; None if it says nothing."""
    names = (instruction.opcode, *(f"{instruction.opcode}.{word}" for word in instruction.qualifiers))
    types = {"any": ""}
    if len(kinds) == 1:
        types |= {"t": kinds[0], "wide": f"{kinds[0][0]}{2 * _bits(kinds[0])}"}
    elif len(kinds) == 2:
        types |= dict(zip(("first", "last"), kinds, strict=True))
    needs = []
    for target, name, pair, optional in _PART.findall(
        next((_SHAPES[one] for one in names[::-1] if one in _SHAPES), "")
    ):
        if (kind := types.get(name, name)) in ("t", "wide", "first", "last"):
            return None
        needs.append(Need(kind, has_predicate=bool(pair), is_optional=bool(optional), is_target=bool(target)))
    return needs or None


def _converted(instruction: Instruction, kinds: tuple[str, ...]) -> list[Need] | None:
    if len(kinds) != 2:
        return None
    target, source = (Need(one, is_wider=one in _SIMPLE or one == "f16x2") for one in kinds)
    more = [] if _SIMPLE.issuperset(kinds) else [replace(source, is_optional=True), replace(_ANY, is_optional=True)]
    return [replace(target, is_target=True), source, *more]


def _moved(instruction: Instruction, kinds: tuple[str, ...]) -> list[Need] | None:
    if len(kinds) != 1:
        return None
    sides = [Need(kinds[0], is_target=True), Need(kinds[0])]
    for at, operand in enumerate(instruction.operands[:2]):
        count = len(operand.parts) if isinstance(operand, Vector) else 0
        if count in (2, 4) and kinds[0] in ("b16", "b32", "b64", "b128"):
            sides[at] = replace(sides[at], type=f"b{_bits(kinds[0]) // count}", count=count)
    return sides


def _accessed(instruction: Instruction, kinds: tuple[str, ...]) -> list[Need] | None:
    words = set(instruction.qualifiers)
    if len(kinds) != 1 or "async" in words:
        return None
    is_access = instruction.opcode in ("ld", "st")
    own = Need(kinds[0], is_wider=is_access, count=instruction.elements)
    if kinds == ("b128",):  # a register of 128 bits stands there as its halves
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


def _reduced(instruction: Instruction, kinds: tuple[str, ...]) -> list[Need] | None:
    """A barrier with a reduction: behind the result a number, perhaps a count, and what is reduced."""
    middle = [Need("u32")] * (len(instruction.operands) - 2)
    return [Need(kinds[0], is_target=True), *middle, Need("pred")] if kinds and 1 <= len(middle) <= 2 else None


_RULES: dict[str, Rule] = {
    "cvt": _converted,
    "mov": _moved,
    **dict.fromkeys(("ld", "st", "atom", "red"), _accessed),
    **dict.fromkeys(("bar", "barrier"), _reduced),
}


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
    return instruction.elements * _bits(kinds[-1]) // 8 if kinds else 0
