"""Which version of PTX (.version) first has a form, and an architecture, as ptxas judges it. 7.0 has all not named."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from simulator.isa.registry import TYPES
from simulator.number.numbers import NAMES8
from simulator.ptx.ir import Address, Instruction, Register

Version = tuple[int, int]
FIRST: Version = (7, 0)
"""The first version with sm_80, the oldest architecture that the simulator has."""

_BRAIN = frozenset({"bf16", "bf16x2"})
_SHORT_PAIRS = frozenset({"u16x2", "s16x2"})
_HALVES = frozenset({"f16", "f16x2"}) | _BRAIN
_ORDERS = frozenset({"acquire", "release", "acq_rel", "relaxed"})
_BRAIN_ARITHMETIC = frozenset({"add", "sub", "mul", "set", "setp", "ex2", "tanh", "atom", "red"})
_VECTORS = frozenset({"v2", "v4", "v8"})
_CLUSTER_REGISTERS = re.compile(r"%(n?clusterid|cluster_n?cta\w+|is_explicit_cluster)\b")
_WORDS: dict[str, Version] = {
    "b128": (8, 3),
    "f32x2": (8, 6),
    "u16x2": (8, 0),
    "s16x2": (8, 0),
    "mmio": (8, 2),
    "bulk": (8, 0),
    "cp_mask": (8, 6),
    "sync_restrict::shared::cta": (8, 6),
    "sync_restrict::shared::cluster": (8, 6),
    "mbarrier_init": (8, 0),
    "param::entry": (8, 3),
    "param::func": (8, 3),
    "multicast::cluster": (8, 0),
    "cluster": (7, 8),
    "L2::cache_hint": (7, 4),
}
"""Qualifiers that need a version wherever they stand."""
_OPCODES: dict[str, Version] = {
    "bmsk": (7, 6),
    "szext": (7, 6),
    "createpolicy": (7, 4),
    "applypriority": (7, 4),
    "discard": (7, 4),
    "elect": (8, 0),
    "griddepcontrol": (7, 8),
    "getctarank": (7, 8),
    "mapa": (7, 8),
    "multimem": (8, 1),
}
_ARCHITECTURES: dict[str, Version] = {
    "sm_80": (7, 0),
    "sm_86": (7, 1),
    "sm_87": (7, 4),
    "sm_89": (7, 8),
    "sm_90": (7, 8),
    "sm_90a": (8, 0),
    "sm_100": (8, 6),
    "sm_100a": (8, 6),
    "sm_100f": (8, 8),
    "sm_101": (8, 6),
    "sm_101a": (8, 6),
    "sm_103": (8, 8),
    "sm_103a": (8, 8),
    "sm_103f": (8, 8),
    "sm_110": (9, 0),
    "sm_110a": (9, 0),
    "sm_110f": (9, 0),
    "sm_120": (8, 7),
    "sm_120a": (8, 7),
    "sm_120f": (8, 8),
    "sm_121": (8, 8),
    "sm_121a": (8, 8),
    "sm_121f": (8, 8),
}
_REGISTERS: dict[str, Version] = {"%aggr_smem_size": (8, 1), "%current_graph_exec": (8, 0)}
_Rule = Callable[[Instruction, frozenset[str]], Version]


def version_of_target(target: str) -> Version:
    """Return the first version of PTX with an architecture, such as "sm_90a"; FIRST for one that is not known."""
    return _ARCHITECTURES.get(target, FIRST)


def version_of(instruction: Instruction, types: Mapping[str, str] = MappingProxyType({})) -> Version:
    """Return the first version of PTX that has an instruction. types: of registers, by name."""
    opcode, words = instruction.opcode, frozenset(instruction.qualifiers)
    found = [FIRST, _OPCODES.get(opcode, FIRST), *(_WORDS[word] for word in words if word in _WORDS)]
    if any(word.startswith(("L1::", "L2::")) for word in words):
        found.append((7, 4))
    is_lane_copy = opcode == "cp" and words.isdisjoint({"bulk", "mbarrier"})
    if any(word in ("shared::cta", "shared::cluster") for word in words) and not is_lane_copy:
        found.append((7, 8))
    if opcode in _BRAIN_ARITHMETIC and not words.isdisjoint(_BRAIN):
        found.append((7, 8))
    if opcode in _RULES:
        found.append(_RULES[opcode](instruction, words))
    if is_lane_copy and len(instruction.operands) > 3 and isinstance(last := instruction.operands[3], Register):
        found.append((7, 5) if types.get(last.name) == "pred" else FIRST)
    return max(found)


def _accesses(instruction: Instruction, words: frozenset[str]) -> Version:
    """256 bits at once; st.async."""
    if "async" in words:
        return 8, 1
    count = next((int(word[1:]) for word in ("v4", "v8") if word in words), 1)
    kind = next((word for word in words if word in TYPES), "")
    bits = int("".join(filter(str.isdecimal, kind.partition("x")[0])) or 0)
    return (8, 8) if count * bits == 256 else FIRST


def _atomics(instruction: Instruction, words: frozenset[str]) -> Version:
    is_late = "async" in words or not words.isdisjoint(_VECTORS)
    is_late |= not words.isdisjoint({"min", "max"}) and not words.isdisjoint(_HALVES)
    return (8, 1) if is_late else FIRST


def _extremes(instruction: Instruction, words: frozenset[str]) -> Version:
    if "xorsign" in words:
        return 7, 2
    return (8, 0) if {"relu", "s32"} <= words else FIRST


def _conversions(instruction: Instruction, words: frozenset[str]) -> Version:
    kinds = [word for word in instruction.qualifiers if word in TYPES]
    if any(re.sub(r"x\d$", "", kind) in NAMES8 for kind in kinds):
        return 7, 8
    if "bf16" not in kinds or kinds[:2] == ["bf16", "f32"]:
        return FIRST
    return (7, 1) if kinds == ["f32", "bf16"] and "ftz" not in words else (7, 8)


def _fences(instruction: Instruction, words: frozenset[str]) -> Version:
    if "proxy" not in words:
        is_one_sided = not words.isdisjoint({"acquire", "release"}) and "mbarrier_init" not in words
        return (8, 6) if is_one_sided else FIRST
    is_async = any(word.startswith("async") for word in words)
    return (8, 0) if is_async else (7, 5)


def _copies(instruction: Instruction, words: frozenset[str]) -> Version:
    if "bulk" in words and instruction.qualifiers[-1] != "read":
        spaces = [word for word in instruction.qualifiers if word.startswith("shared") or word == "global"]
        if spaces == ["shared::cta", "global"]:
            return 8, 6
    return FIRST


def _mbarriers(instruction: Instruction, words: frozenset[str]) -> Version:
    if "relaxed" in words and not words.isdisjoint({"arrive", "arrive_drop", "test_wait", "try_wait"}):
        return 8, 6
    if not words.isdisjoint({"expect_tx", "complete_tx"} | _ORDERS):
        return 8, 0
    if "try_wait" in words:
        return 7, 8
    if "parity" in words:
        return 7, 1
    is_arrival = not words.isdisjoint({"arrive", "arrive_drop"})
    has_count = bool(instruction.operands) and not isinstance(instruction.operands[-1], Address)
    return (7, 8) if is_arrival and has_count and "noComplete" not in words else FIRST


def _barriers(instruction: Instruction, words: frozenset[str]) -> Version:
    if "cluster" in words and not words.isdisjoint(_ORDERS):
        return 8, 0
    return (7, 8) if "cta" in words else FIRST


def _moves(instruction: Instruction, words: frozenset[str]) -> Version:
    names = [one.name for one in instruction.operands if isinstance(one, Register)]
    found = [_REGISTERS.get(name, (7, 8) if _CLUSTER_REGISTERS.match(name) else FIRST) for name in names]
    return max(found, default=FIRST)


def _switch(instruction: Instruction, words: frozenset[str]) -> Version:
    """multimem"""
    if "cp" in words:
        return 9, 1
    if any(re.sub(r"x\d$", "", word) in NAMES8 for word in words):
        return 8, 6
    return (8, 2) if any(word.startswith("acc::") for word in words) else FIRST


def _reductions(instruction: Instruction, words: frozenset[str]) -> Version:
    return (8, 6) if "f32" in words else FIRST


def _windows(instruction: Instruction, words: frozenset[str]) -> Version:
    return (7, 7) if "param" in words else FIRST


_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("ld", "st"), _accesses),
    **dict.fromkeys(("atom", "red"), _atomics),
    **dict.fromkeys(("min", "max"), _extremes),
    **dict.fromkeys(("bar", "barrier"), _barriers),
    **dict.fromkeys(("cvta", "isspacep"), _windows),
    "cvt": _conversions,
    "fence": _fences,
    "cp": _copies,
    "mbarrier": _mbarriers,
    "mov": _moves,
    "multimem": _switch,
    "redux": _reductions,
}
