"""PTX instructions on lanes: one table, filled by one file a family."""

from simulator.isa import arithmetic, atomic, bulk, control, convert, floats, memory, multimem, switch
from simulator.isa.registry import TABLE, LaneFrame, Operation, UnknownInstruction, find, key_of

__all__ = [
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
    "switch",
]
