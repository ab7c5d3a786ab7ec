"""PTX instructions on lanes: one table, filled by one file a family."""

from simulator.isa import (
    arithmetic,
    atomic,
    bits,
    bulk,
    control,
    convert,
    convert_modes,
    floats,
    hints,
    memory,
    modes,
    multimem,
    spaces,
    switch,
    system,
    warp,
)
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
    "bits",
    "bulk",
    "control",
    "convert",
    "convert_modes",
    "find",
    "floats",
    "hints",
    "key_of",
    "memory",
    "modes",
    "multimem",
    "spaces",
    "switch",
    "system",
    "warp",
]
