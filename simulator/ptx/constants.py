"""Literals and constant expressions of PTX: "42U", "0x2A", "1.5", "4 + 8 * 2", "~7 << 3", "table + 8".

Integers have 64 bits; operators are those whose precedence Python shares with C. A float literal alone keeps its bits
("0f7FC00001"), in an expression it is a 64-bit number. Comparisons, choices, casts and divisions, which no compiler
writes, can't be read.
"""

from __future__ import annotations

import ast
import operator
import re
import struct
from collections.abc import Callable
from typing import Any

from simulator.ptx.ir import Immediate, Symbol

_TOKEN = re.compile(
    r"\s*(?:(0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|0[xX][0-9a-fA-F]+U?\b|0[bB][01]+U?\b"
    r"|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?\b|[%A-Za-z_$][\w$.]*)|(<<|>>|[-+~*&^|()]))\s*"
)
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.Invert: operator.invert, ast.USub: operator.neg,
    ast.UAdd: operator.pos, ast.RShift: operator.rshift, ast.LShift: lambda a, b: a << b if b < 64 else 0,
}  # fmt: skip
WARP_SIZE = 32

_Value = int | float | Symbol | Immediate


def constant(text: str) -> Immediate | Symbol:
    """Return the value of a constant expression: integers as their bits, a name as a symbol. Raises ValueError."""
    found = _evaluated(text)
    if isinstance(found, float):
        return Immediate(struct.unpack("<Q", struct.pack("<d", found))[0], 64)
    if isinstance(found, int):
        return Immediate(found if -(1 << 63) <= found < 1 << 64 else found & ((1 << 64) - 1))
    return found


def _evaluated(text: str) -> _Value:
    literals: list[_Value] = []
    expression, position = "", 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(text)
        position = match.end()
        expression += f"{match.group(2) or f'_{len(literals)}'} "  # Python reads operators alone
        literals += [_literal(match.group(1))] if match.group(1) else []
    try:
        return _value(ast.parse(expression, mode="eval").body, literals)
    except (SyntaxError, TypeError, RecursionError, MemoryError):
        raise ValueError(text) from None


def _value(one: ast.expr, literals: list[_Value]) -> _Value:
    if isinstance(one, ast.Name):
        return literals[int(one.id[1:])]
    if isinstance(one, ast.UnaryOp):
        found: _Value = _OPERATORS[type(one.op)](_number(_value(one.operand, literals)))
        return found
    if not isinstance(one, ast.BinOp):
        raise ValueError(ast.unparse(one))
    left, right = _value(one.left, literals), _value(one.right, literals)
    if isinstance(left, Symbol) and isinstance(right, int) and isinstance(one.op, ast.Add | ast.Sub):
        return Symbol(left.name, _OPERATORS[type(one.op)](left.offset_bytes, right))
    if isinstance(right, Symbol) and isinstance(left, int) and isinstance(one.op, ast.Add):
        return Symbol(right.name, left + right.offset_bytes)
    made: _Value = _OPERATORS[type(one.op)](_number(left), _number(right))
    return made


def _literal(token: str) -> _Value:
    if token[:2] in ("0f", "0F") and len(token) == 10:
        return Immediate(int(token[2:], 16), 32)
    if token[:2] in ("0d", "0D") and len(token) == 18:
        return Immediate(int(token[2:], 16), 64)
    if token == "WARP_SZ":
        return WARP_SIZE
    if not token[0].isdigit():
        return Symbol(token)
    if re.fullmatch(r"\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+", token):
        return float(token)
    digits = token.removesuffix("U")
    octal = len(digits) > 1 and digits[0] == "0" and digits.isdecimal()
    size = int(digits, 8 if octal else 0)
    if size >= 1 << 64:
        raise ValueError(f"{token} has more than 64 bits")
    return size


def _number(one: _Value) -> int | float:
    """An operand of an operator: float literals as the numbers that they are."""
    if isinstance(one, Immediate):
        kind, integer = ("<f", "<I") if one.width_bits == 32 else ("<d", "<Q")
        number: float = struct.unpack(kind, struct.pack(integer, one.bits))[0]
        return number
    if isinstance(one, Symbol):
        raise ValueError(f"{one.name} in an expression that is not a name and an offset")
    return one
