"""Whole numbers as text: "numel // block", "min(32, ceil_div(numel, 1024))". Nothing but arithmetic is read."""

from __future__ import annotations

import ast
import operator
import threading
from collections.abc import Callable, Mapping
from typing import Any

_OPERATORS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max, "ceil_div": lambda one, other: -(-one // other)}
FORM = f"numbers, names, + - * // %, comparisons, and, or, x if y else z, {', '.join(_FUNCTIONS)}"

_PARSING = threading.Lock()
"""Ranks may be threads, and CPython 3.11 counts the depth of what all threads parse as one: SystemError."""


def evaluated(text: object, names: Mapping[str, int]) -> int:
    """Return the number that a whole number, or text over names, stands for. ValueError as computed() raises it."""
    if type(text) is int:
        return text
    return int(computed(text, names))


def computed(text: object, names: Mapping[str, Any]) -> Any:
    """Return what text over names comes to; with a tensor among them, element by element. ValueError, in one line, for
    other text, and for an unknown name in it, whether it matters here or not."""
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is no whole number: give one, or text of {FORM}")
    parsed = _parsed(text)
    found = [one.id for one in ast.walk(parsed) if isinstance(one, ast.Name)]
    if unknown := next((name for name in found if name not in names and name not in _FUNCTIONS), ""):
        raise ValueError(f"there is no {unknown} for {text!r}: names are {', '.join(names) or 'none'}")
    try:
        return _value(parsed, names)
    except ZeroDivisionError:
        raise ValueError(f"{text!r} divides by zero") from None
    except (TypeError, RecursionError, RuntimeError):  # the last of a tensor where one number is wanted
        raise ValueError(f"{text!r} can't be computed: give {FORM}") from None


def _parsed(text: str) -> ast.expr:
    try:
        with _PARSING:
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{text!r} is no expression: give {FORM}") from None


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.UnaryOp(op=ast.USub(), operand=one):
            return -_value(one, names)
        case ast.UnaryOp(op=ast.Not(), operand=one):
            return not _value(one, names)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return _OPERATORS[type(sign)](_value(left, names), _value(right, names))
        case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in _OPERATORS:
            return _OPERATORS[type(sign)](_value(left, names), _value(right, names))
        case ast.BoolOp(op=sign, values=values):
            found = [bool(_value(one, names)) for one in values]
            return all(found) if isinstance(sign, ast.And) else any(found)
        case ast.IfExp(test=test, body=body, orelse=other):
            return _value(body if _value(test, names) else other, names)
        case ast.Call(func=ast.Name(id=name), args=given, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(one, names) for one in given))
    said = "/ gives fractions, give //" if isinstance(getattr(node, "op", None), ast.Div) else f"give {FORM}"
    raise ValueError(f"{ast.unparse(node)!r} can't be computed: {said}")
