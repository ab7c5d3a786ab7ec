"""The forms of atom and red that the PTX ISA defines: an independent list.

test_isa_atomic.py holds it to what ptxas takes, and the simulator's table to it.
"""

from __future__ import annotations

BITWISE, SIGNED_OR_NOT = ("b32", "b64"), ("u32", "s32", "u64", "s64")

DEFINED: dict[str, tuple[str, ...]] = {
    "and": BITWISE,
    "or": BITWISE,
    "xor": BITWISE,
    "cas": ("b16", "b32", "b64", "b128"),
    "exch": ("b32", "b64", "b128"),
    "add": ("u32", "s32", "u64", "f32", "f64", "f16", "f16x2", "bf16", "bf16x2"),
    "inc": ("u32",),
    "dec": ("u32",),
    "min": SIGNED_OR_NOT,
    "max": SIGNED_OR_NOT,
}
"""Every scalar form of atom that PTX ISA 9.0 defines ("Parallel Synchronization and Communication Instructions: atom");
red has them but for RETURNING."""

RETURNING = ("cas", "exch")
"""Operations whose point is the old value."""


def forms(opcode: str) -> dict[str, tuple[str, ...]]:
    """Return the types of each operation of atom or red that the simulator has to know."""
    return {word: kinds for word, kinds in DEFINED.items() if opcode == "atom" or word not in RETURNING}
