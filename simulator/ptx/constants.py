"""Literals and constant expressions of PTX: "42U", "0x2A", "1.5", "4 + 8 * 2", "(.u64) -1 >> 60", "table + 8".

Integers have 64 bits, signed unless they don't fit or a U follows; operators are C's. A float literal alone keeps its
bits ("0f7FC00001"), in an expression it is a 64-bit number.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from simulator.ptx.ir import Immediate, Symbol

_TOKEN = re.compile(
    r"\s*(0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|0[xX][0-9a-fA-F]+U?\b|0[bB][01]+U?\b"
    r"|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?\b|\.[su]64\b|[%A-Za-z_$][\w$.]*"
    r"|<<|>>|<=|>=|==|!=|&&|\|\||[-+~!*/%<>&^|?:()])"
)
_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
WARP_SIZE = 32
MAX_DEPTH = 32
"""Of parentheses, signs and choices within each other."""


@dataclass(frozen=True, slots=True)
class _Whole:
    """A 64-bit integer: its bits, and whether it counts as unsigned."""

    bits: int
    unsigned: bool

    @property
    def value(self) -> int:
        return self.bits if self.unsigned or self.bits < 1 << 63 else self.bits - (1 << 64)


_Value = _Whole | float | Symbol | Immediate


def constant(text: str) -> Immediate | Symbol:
    """Return the value of a constant expression: integers as their bits, a name as a symbol. Raises ValueError."""
    reader = _Reader(_tokens(text))
    found = reader.choice()
    if reader.rest:
        raise ValueError(text)
    if isinstance(found, float):
        return Immediate(struct.unpack("<Q", struct.pack("<d", found))[0], 64)
    return Immediate(found.value) if isinstance(found, _Whole) else found


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(text)
        tokens.append(match.group(1))
        position = match.end()
    return tokens


class _Reader:
    """Reads an expression from tokens, by precedence."""

    def __init__(self, tokens: list[str]) -> None:
        self.rest = tokens
        self.depth = 0

    def choice(self) -> _Value:
        condition = self.binary(0)
        if not self.takes("?"):
            return condition
        with self.deeper():
            yes = self.choice()
            self.needs(":")
            no = self.choice()
        return yes if _truth(condition) else no

    @contextmanager
    def deeper(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ValueError(f"an expression nested more than {MAX_DEPTH} deep")
        yield
        self.depth -= 1

    def binary(self, level: int) -> _Value:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.rest and self.rest[0] in _LEVELS[level]:
            word = self.rest.pop(0)
            left = _combined(word, left, self.binary(level + 1))
        return left

    def unary(self) -> _Value:
        if not self.rest:
            raise ValueError("an expression without end")
        token = self.rest.pop(0)
        if token in ("+", "-", "~", "!"):
            with self.deeper():
                return _single(token, self.unary())
        if token == "(":
            with self.deeper():
                return self.enclosed()
        return _literal(token)

    def enclosed(self) -> _Value:
        if self.rest[:1] in (["."], [".s64"], [".u64"]):
            unsigned = self.rest.pop(0) == ".u64"
            self.needs(")")
            return _Whole(_whole(self.unary()).bits, unsigned)
        inner = self.choice()
        self.needs(")")
        return inner

    def takes(self, token: str) -> bool:
        if self.rest[:1] != [token]:
            return False
        self.rest.pop(0)
        return True

    def needs(self, token: str) -> None:
        if not self.takes(token):
            raise ValueError(f"{token} is missing")


def _literal(token: str) -> _Value:
    if token[:2] in ("0f", "0F") and len(token) == 10:
        return Immediate(int(token[2:], 16), 32)
    if token[:2] in ("0d", "0D") and len(token) == 18:
        return Immediate(int(token[2:], 16), 64)
    if token == "WARP_SZ":
        return _Whole(WARP_SIZE, False)
    if not token[0].isdigit():
        return Symbol(token)
    if re.fullmatch(r"\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+", token):
        return float(token)
    digits = token.removesuffix("U")
    octal = len(digits) > 1 and digits[0] == "0" and digits.isdecimal()
    size = int(digits, 8 if octal else 0)
    if size >= 1 << 64:
        raise ValueError(f"{token} has more than 64 bits")
    return _Whole(size, digits != token or size >= 1 << 63)


def _number(one: _Value) -> _Whole | float:
    """An operand of an operator: float literals as the numbers that they are."""
    if isinstance(one, Immediate):
        size, kind, integer = (4, "<f", "<I") if one.width_bits == 32 else (8, "<d", "<Q")
        assert size
        number: float = struct.unpack(kind, struct.pack(integer, one.bits))[0]
        return number
    if isinstance(one, Symbol):
        raise ValueError(f"{one.name} in an expression that is not a name and an offset")
    return one


def _whole(one: _Value) -> _Whole:
    found = _number(one)
    if isinstance(found, float):
        raise ValueError("an integer operator on a float")
    return found


def _truth(one: _Value) -> bool:
    found = _number(one)
    return bool(found.bits if isinstance(found, _Whole) else found)


def _made(number: int, unsigned: bool) -> _Whole:
    return _Whole(number & ((1 << 64) - 1), unsigned)


def _single(word: str, one: _Value) -> _Value:
    if word == "!":
        return _made(int(not _truth(one)), False)
    if word == "~":
        return _made(~_whole(one).bits, _whole(one).unsigned)
    found = _number(one)
    if isinstance(found, float):
        return -found if word == "-" else found
    return _made(-found.value, found.unsigned) if word == "-" else found


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
_BITS: dict[str, Callable[[int, int], int]] = {
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _combined(word: str, left: _Value, right: _Value) -> _Value:
    if isinstance(left, Symbol) or isinstance(right, Symbol):
        return _placed(word, left, right)
    if word in ("&&", "||"):
        both = (_truth(left), _truth(right))
        return _made(int(all(both) if word == "&&" else any(both)), False)
    a, b = _number(left), _number(right)
    if isinstance(a, float) or isinstance(b, float):
        return _of_floats(word, *(one if isinstance(one, float) else float(one.value) for one in (a, b)))
    unsigned = a.unsigned or b.unsigned
    if word in ("<<", ">>"):
        if b.bits > 63:
            return _made(-1 if word == ">>" and a.value < 0 else 0, a.unsigned)
        return _made(a.bits << b.bits if word == "<<" else a.value >> b.bits, a.unsigned)
    x, y = (a.bits, b.bits) if unsigned else (a.value, b.value)
    if word in _ARITHMETIC:
        return _made(_ARITHMETIC[word](x, y), unsigned)
    if word in _BITS:
        return _made(_BITS[word](x, y), unsigned)
    if word in _COMPARE:
        return _made(int(_COMPARE[word](x, y)), False)
    if y == 0:
        raise ValueError("a division by zero")
    quotient = abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1)
    return _made(quotient if word == "/" else x - quotient * y, unsigned)


def _of_floats(word: str, a: float, b: float) -> _Value:
    if word in _ARITHMETIC:
        return float(_ARITHMETIC[word](a, b))
    if word in _COMPARE:
        return _made(int(_COMPARE[word](a, b)), False)
    if word == "/":
        return a / b if b else math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a)
    raise ValueError(f"{word} of floats")


def _placed(word: str, left: _Value, right: _Value) -> Symbol:
    """A name and an offset."""
    if isinstance(left, Symbol) and not isinstance(right, Symbol) and word in ("+", "-"):
        shift = _whole(right).value
        return Symbol(left.name, left.offset_bytes + (shift if word == "+" else -shift))
    if isinstance(right, Symbol) and not isinstance(left, Symbol) and word == "+":
        return Symbol(right.name, right.offset_bytes + _whole(left).value)
    raise ValueError(f"{word} of names")
