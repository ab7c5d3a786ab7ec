"""PTX instructions on lanes: one table, filled by one file a family."""

from simulator.isa import arithmetic, atomic, bulk, control, convert, floats, memory, multimem, spaces, switch, system, warp
from simulator.isa.registry import TABLE, LaneFrame, Operation, UnknownInstruction, find, key_of
from simulator.isa.system import BUILTINS

__all__ = [
    "BUILTINS",
    "TABLE",
    "LaneFrame",
    "Operation",
    "UnknownInstruction",
    "arithmetic",
    "atomic",
    "bulk",
    "control",
    "convert",
    "find",
    "floats",
    "key_of",
    "memory",
    "multimem",
    "spaces",
    "switch",
    "system",
    "warp",
]
