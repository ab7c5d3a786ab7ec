"""Literals and constant expressions of PTX: "42U", "0x2A", "1.5", "4 + 8 * 2", "~7 << 3", "table + 8".

Integers have 64 bits. A float literal alone keeps its bits ("0f7FC00001"), in an expression it is a 64-bit number.
Comparisons, choices, casts and divisions, which no compiler writes, can't be read.
"""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable
from typing import Any

from simulator.ptx.ir import Immediate, Symbol

_TOKEN = re.compile(
    r"\s*(0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|0[xX][0-9a-fA-F]+U?\b|0[bB][01]+U?\b"
    r"|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?\b|[%A-Za-z_$][\w$.]*|<<|>>|[-+~*&^|()])\s*"
)
_SIGNS: dict[str, Callable[[Any], Any]] = {"+": operator.pos, "-": operator.neg, "~": operator.invert}
_LEVELS: tuple[dict[str, Callable[[Any, Any], Any]], ...] = (
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {"<<": lambda a, b: a << b if b < 64 else 0, ">>": operator.rshift},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul},
)
"""Operators by precedence, the weakest first."""
WARP_SIZE = 32

_Value = int | float | Symbol | Immediate


def constant(text: str) -> Immediate | Symbol:
    """Return the value of a constant expression: integers as their bits, a name as a symbol. Raises ValueError."""
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(text)
        tokens.append(match.group(1))
        position = match.end()
    try:
        found = _combined(tokens, 0)
    except (TypeError, IndexError, RecursionError):
        raise ValueError(text) from None
    if tokens:
        raise ValueError(text)
    if isinstance(found, float):
        return Immediate(struct.unpack("<Q", struct.pack("<d", found))[0], 64)
    if isinstance(found, int):
        return Immediate(found if -(1 << 63) <= found < 1 << 64 else found & ((1 << 64) - 1))
    return found


def _combined(tokens: list[str], level: int) -> _Value:
    """Take from the front of tokens what operators of a level, and stronger ones, hold together; return its value."""
    if level == len(_LEVELS):
        return _single(tokens)
    left = _combined(tokens, level + 1)
    while tokens and tokens[0] in _LEVELS[level]:
        word = tokens.pop(0)
        right = _combined(tokens, level + 1)
        if word == "+" and isinstance(right, Symbol):
            left, right = right, left
        if isinstance(left, Symbol) and isinstance(right, int) and word in "+-":
            left = Symbol(left.name, _LEVELS[level][word](left.offset_bytes, right))
        else:
            left = _LEVELS[level][word](_number(left), _number(right))
    return left


def _single(tokens: list[str]) -> _Value:
    token = tokens.pop(0)
    if token in _SIGNS:
        found: _Value = _SIGNS[token](_number(_single(tokens)))
        return found
    if token != "(":
        return _literal(token)  # of another operator int() is a ValueError
    inner = _combined(tokens, 0)
    if tokens.pop(0) != ")":
        raise ValueError(") is missing")
    return inner


def _literal(token: str) -> _Value:
    if token[:2] in ("0f", "0F") and len(token) == 10:
        return Immediate(int(token[2:], 16), 32)
    if token[:2] in ("0d", "0D") and len(token) == 18:
        return Immediate(int(token[2:], 16), 64)
    if token == "WARP_SZ":
        return WARP_SIZE
    if token[0] in "_$%" or token[0].isalpha():
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
