"""The parameters of an entry in PTX text, by its declaration alone: nothing of its body is read.

So arguments are checked before anything runs, whatever instructions the body has and whatever will run it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernels.own.arguments import BroughtArgument

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([\w$%]+)")
_TYPE = re.compile(r"\.([busf])(8|16|32|64)\b")
_LENGTH = re.compile(r"\[\s*(\d+)\s*\]\s*$")
_TARGET = re.compile(r"^\s*\.target\s+(sm_(\d+)([af]?))", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PtxParameter:
    """A parameter as PTX declares it: type is "u64", "f32", "b8", ..; size_bytes covers a whole array."""

    type: str
    size_bytes: int


def parameters_of(ptx: str, name: str) -> tuple[PtxParameter, ...]:
    """Return the parameters of an entry of a PTX module. ValueError, in one line, if it has none of that name, or can't
    be read."""
    text = _COMMENT.sub(" ", ptx)
    if _TARGET.search(text) is None:
        raise ValueError("it is no PTX: it has no .target")
    names = _ENTRY.findall(text)
    if name not in names:
        raise ValueError(f"there is no entry {name} in the PTX: its entries are {', '.join(names) or 'none'}")
    after = text[next(found.end() for found in _ENTRY.finditer(text) if found[1] == name) :].lstrip()
    listed = after[1 : after.find(")")] if after.startswith("(") else ""
    return tuple(_parameter(name, one) for one in listed.split(",") if one.strip())


def _parameter(entry: str, text: str) -> PtxParameter:
    found = _TYPE.search(text)
    if found is None or ".param" not in text:
        raise ValueError(f"a parameter of {entry} can't be read: {' '.join(text.split())}")
    length = _LENGTH.search(text)
    return PtxParameter(found[1] + found[2], int(found[2]) // 8 * (int(length[1]) if length else 1))


def refuses_entry(name: str, arguments: Sequence[BroughtArgument], parameters: Sequence[PtxParameter]) -> str:
    """Return why arguments don't fit an entry's parameters, in one line; "" if they do. name: of the kernel."""
    if len(parameters) != len(arguments):
        one, given = "" if len(parameters) == 1 else "s", "" if len(arguments) == 1 else "s"
        return f"{name} has {len(parameters)} parameter{one}, and was given {len(arguments)} argument{given}"
    for number, (parameter, argument) in enumerate(zip(parameters, arguments, strict=True)):
        kind, size_bytes = argument.kind, argument.size_bytes
        if parameter.size_bytes != size_bytes:
            said = f", give it size: {parameter.size_bytes}" if kind == "struct" else ""
            return (
                f"parameter {number} of {name} is .{parameter.type} of {parameter.size_bytes} bytes, and argument "
                f"{number} ({kind}) has {size_bytes}{said if size_bytes < parameter.size_bytes else ''}"
            )
        if not fits(kind, parameter.type):
            takes = "a float" if parameter.type[0] == "f" else "a whole number, or the float's bits as one"
            declared = f"is .{parameter.type}, which takes {takes}"
            return f"parameter {number} of {name} {declared}, and argument {number} is {kind}"
    return ""


def fits(kind: str, declared: str) -> bool:
    """Return whether an argument of a kind can be meant for a parameter that PTX declares as a type, such as "u32".

    A float is for .f32 and .f64, or for bytes (.b8): a .b32 does not say that it is one, so its bits have to be given.
    """
    return kind in ("bytes", "struct") or declared == "b8" or (kind[0] == "f") == (declared[0] == "f")


def refuses_target(target: str, arch: str) -> str:
    """Return why PTX for a target can't run on an architecture, in one line; "" if it can.

    PTX for sm_X runs on all later ones; PTX with an architecture's own features (sm_90a) on that one alone.
    """
    found = re.fullmatch(r"sm_(\d+)([af]?)", target), re.fullmatch(r"sm_(\d+)([af]?)", arch)
    if found[0] is None or found[1] is None:
        return ""
    (least, own), (there, there_own) = found[0].groups(), found[1].groups()
    if own == "a" and target != arch:
        return f"its PTX is for {target} alone, not for {arch}"
    if own == "f" and (int(least) // 10 != int(there) // 10 or not there_own):
        return f"its PTX is for the family of {target}, not for {arch}"
    return f"its PTX is for {target} and later, not for {arch}" if int(there) < int(least) else ""
