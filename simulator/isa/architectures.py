"""Which architecture (.target) first has a form of PTX, as ptxas judges it. sm_80 has all that is not named here."""

from __future__ import annotations

import re
from collections.abc import Callable

from cases.multimem import FLOAT8_ARCHS
from simulator.isa.registry import TYPES
from simulator.number.numbers import NAMES8
from simulator.ptx.ir import Address, Instruction, Register

MINIMUM_TARGETS = frozenset(["sm_100a", "sm_100f", "sm_103a", "sm_103f"])
"""The .target lines under which redux has f32."""

_BRAIN = frozenset({"bf16", "bf16x2"})
_SHORT_PAIRS = frozenset({"u16x2", "s16x2"})
_OPCODES = frozenset({"elect", "griddepcontrol", "mapa", "getctarank", "multimem", "stmatrix"})
"""Opcodes of sm_90 and later."""
_CLUSTER_REGISTERS = re.compile(r"%(n?clusterid|cluster_n?cta\w+|is_explicit_cluster)\b")
_TENSOR_MEMORY = re.compile(r"sm_(100|101|103|110)[af]$")
_OF_FAMILIES = frozenset({"replace", "multicast::cluster::all"})
_Rule = Callable[[Instruction, frozenset[str]], int]


def lacks(instruction: Instruction, target: str) -> str:
    """Return why a module's .target does not have an instruction, "" if it has it."""
    words = frozenset(instruction.qualifiers)
    if instruction.opcode == "multimem" and any(_element(word) in NAMES8 for word in words):
        if target in FLOAT8_ARCHS:
            return ""
        return f"{target} has no multimem of 8-bit floats: it takes one of {', '.join(FLOAT8_ARCHS)}"
    if instruction.opcode == "redux" and "f32" in words:
        known = ", ".join(sorted(MINIMUM_TARGETS))
        return "" if target in MINIMUM_TARGETS else f"{target} has no redux of f32: it takes one of {known}"
    if instruction.opcode == "wgmma":
        return "" if target == "sm_90a" else f"{target} has no wgmma: it takes sm_90a"
    if (instruction.opcode == "tcgen05" or "cta_group::2" in words) and not _TENSOR_MEMORY.match(target):
        return f"{target} has no {instruction.mnemonic}: it takes sm_100a, sm_103a or sm_110a, or one for their family"
    if (not words.isdisjoint(_OF_FAMILIES) or instruction.opcode == "setmaxnreg") and target[-1] not in "af":
        text = f"{target} has no {instruction.mnemonic}: it takes a target for one family or one architecture"
        return f"{text}, such as sm_90a"
    number = re.match(r"sm_(\d+)", target)
    first = _first(instruction, words)
    if number is None or int(number[1]) >= first:
        return ""
    return f"{target} has no {instruction.mnemonic}: it takes sm_{first} or later"


def _first(instruction: Instruction, words: frozenset[str]) -> int:
    """The number of the first architecture that has an instruction."""
    opcode = instruction.opcode
    if opcode == "clusterlaunchcontrol" or "cp_mask" in words or "f32x2" in words:
        return 100
    for opcodes, needing, number in _WORDS:
        if opcode in opcodes.split() and not words.isdisjoint(needing):
            return number
    rule = _RULES.get(opcode)
    if rule is not None and (found := rule(instruction, words)):
        return found
    named = {opcode} | {word.rpartition("::")[2] for word in words}
    return 80 if named.isdisjoint(_OPCODES | {"cluster", "tensormap"}) else 90


def _element(word: str) -> str:
    return re.sub(r"x\d$", "", word) if word in TYPES else ""


def _accesses(instruction: Instruction, words: frozenset[str]) -> int:
    """256 bits at once."""
    kind = next((word for word in words if word in TYPES), "")
    bits = int("".join(filter(str.isdecimal, kind.partition("x")[0])) or 0)
    return 100 if instruction.elements * bits == 256 else 0


def _extremes(instruction: Instruction, words: frozenset[str]) -> int:
    if "f32" in words and len(instruction.operands) == 4:
        return 100
    return 90 if {"relu", "s32"} <= words else 0


def _conversions(instruction: Instruction, words: frozenset[str]) -> int:
    if any(_element(word) in NAMES8 for word in words):
        return 89
    kinds = [word for word in instruction.qualifiers if word in TYPES]
    if "bf16" not in kinds or kinds[:2] == ["bf16", "f32"]:
        return 0
    return 0 if kinds == ["f32", "bf16"] and "ftz" not in words else 90


def _barriers(instruction: Instruction, words: frozenset[str]) -> int:
    """mbarrier: those of sm_80 count threads one by one."""
    if words.isdisjoint({"arrive", "arrive_drop"}):
        return 0
    operands = instruction.operands
    has_count = not isinstance(operands[-1], Address) if operands else False
    return 90 if "noComplete" not in words and has_count else 0


def _moves(instruction: Instruction, words: frozenset[str]) -> int:
    names = [one.name for one in instruction.operands if isinstance(one, Register)]
    return 90 if any(_CLUSTER_REGISTERS.match(name) for name in names) else 0


_WORDS: tuple[tuple[str, frozenset[str] | set[str], int], ...] = (
    ("atom red", _BRAIN | {"b128", "v2", "v4", "v8", "async"}, 90),
    ("set setp ex2 tanh", _BRAIN, 90),
    ("add sub mul", _BRAIN | _SHORT_PAIRS, 90),
    ("min max", _SHORT_PAIRS, 90),
    ("fence", {"acquire", "release", "async", "mbarrier_init"}, 90),
    ("ld st", {"async"}, 90),
    ("cp", {"bulk"}, 90),
    ("mbarrier", {"expect_tx", "complete_tx", "try_wait", "relaxed"}, 90),
    ("mma", set(NAMES8), 89),
)
"""Opcodes, and their qualifiers that need an architecture."""
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("ld", "st"), _accesses),
    **dict.fromkeys(("min", "max"), _extremes),
    "cvt": _conversions,
    "mbarrier": _barriers,
    "mov": _moves,
}
