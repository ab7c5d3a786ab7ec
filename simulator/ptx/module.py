"""A PTX module's top level: which kernels, functions and variables it has, and where their text lies.

Bodies are read by parse.py, only those that a kernel can reach.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache


class PtxSyntaxError(ValueError):
    """PTX that the parser can't read; the message names the line."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A kernel or function: its signature's texts, and where its body lies in the module's text; -1 without one."""

    name: str
    returns: str
    parameters: str
    directives: str
    start: int
    end: int
    line: int


@dataclass(frozen=True, slots=True)
class Statement:
    """A declaration at the top level: its text without the semicolon, and its line."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Module:
    """A module without its comments: text keeps the places of everything else.

    users: by line of inline assembly, the line of a user's kernel that it comes from (kernels/dsl/device.py)."""

    text: str
    target: str
    files: dict[int, str]
    entries: dict[str, Definition]
    functions: dict[str, Definition]
    statements: tuple[Statement, ...]
    users: dict[int, str]


_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.S)
_USER = re.compile(r"/\* at (\S+:\d+) \*/")
_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')
_LINE = re.compile(r"\.(?:version|target|address_size|file|loc)\b[^\n]*")
_SECTION = re.compile(r"\.section\b[^\n{]*\s*")
_END = re.compile(r'"[^"\n]*"|[;={]')
_HEAD = re.compile(r"(?:\.(?:visible|extern|weak)\s+)?(?:\.attribute\s*\([^)]*\)+\s*)?\.(entry|func)\b")
_SPACE = re.compile(r"\s+")
_NAME = re.compile(r"\s*([\w$%]+)\s*")


@lru_cache(maxsize=16)
def scan(ptx: str) -> Module:
    """Return the module's parts. Raises PtxSyntaxError naming the line."""
    text = _COMMENT.sub(_blanked, ptx)
    target = re.search(r"\.target\s+(\w+)", text)
    files = {int(number): path for number, path in _FILE.findall(text)}
    module = Module(text, target.group(1) if target else "", files, {}, {}, (), _users(ptx))
    statements: list[Statement] = []
    position = line = 0
    counted = 0
    while (position := _next(text, position)) < len(text):
        line += text.count("\n", counted, position)
        counted = position
        if (match := _LINE.match(text, position)) is not None:
            position = match.end()
            continue
        if (match := _SECTION.match(text, position)) is not None:
            position = match.end()
            if text[position : position + 1] == "{":
                position = closing(text, position + 1) + 1
            continue
        end = _end(text, position)
        if end < 0:
            break
        head = _HEAD.match(text, position)
        if head is not None:
            position = _define(module, head.group(1), head.end(), end, line + 1)
        elif text[end] == "{":
            position = closing(text, end + 1) + 1
        else:
            statements.append(Statement(" ".join(text[position:end].split()), line + 1))
            position = end + 1
    return Module(module.text, module.target, files, module.entries, module.functions, tuple(statements), module.users)


def _users(ptx: str) -> dict[int, str]:
    """Each line from a user's line in a comment to the end of the inline assembly, by its number from 1."""
    found: dict[int, str] = {}
    user = ""
    for number, line in enumerate(ptx.splitlines() if "/* at " in ptx else (), 1):
        if match := _USER.search(line):
            user = match.group(1)
        elif "end inline asm" in line:
            user = ""
        if user:
            found[number] = user
    return found


def _blanked(match: re.Match[str]) -> str:
    found = match.group()
    return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)


def _next(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _end(text: str, position: int) -> int:
    """Where a statement ends: its semicolon, or the brace of a body; an initialiser's braces belong to it."""
    for match in _END.finditer(text, position):
        if match.group() == "=":
            return text.find(";", match.end())
        if match.group() in ("{", ";"):
            return match.start()
    return -1


def closing(text: str, start: int) -> int:
    """Return where the brace closes that is open at start."""
    depth = 1
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    line = text.count("\n", 0, start) + 1
    raise PtxSyntaxError(f"PTX line {line}: a brace opens here and is never closed: the closing brace is missing")


def _define(module: Module, kind: str, start: int, end: int, line: int) -> int:
    """Note a kernel or a function; gives the place behind it."""
    returns, position = _parenthesised(module.text, start)
    match = _NAME.match(module.text, position)
    if match is None:
        raise PtxSyntaxError(f"PTX line {line}: a .{kind} without a name")
    parameters, position = _parenthesised(module.text, match.end())
    has_body = module.text[end] == "{"
    finish = closing(module.text, end + 1) if has_body else end
    found = Definition(
        match.group(1),
        returns,
        parameters,
        module.text[position:end],
        end + 1 if has_body else -1,
        finish,
        line,
    )
    names = module.entries if kind == "entry" else module.functions
    if has_body or found.name not in names:  # a declaration says nothing new
        names[found.name] = found
    return finish + 1


def _parenthesised(text: str, position: int) -> tuple[str, int]:
    """What stands between parentheses here, "" if there are none, and the place behind them."""
    position = _next(text, position)
    if text[position : position + 1] != "(":
        return "", position
    end = text.find(")", position)
    if end < 0:
        raise PtxSyntaxError("a closing parenthesis is missing")
    return text[position + 1 : end], end + 1
