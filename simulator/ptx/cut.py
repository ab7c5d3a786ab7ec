"""Basic blocks cut at their memory accesses: each piece has one at most, so that other threads can run between two.

A vector access gets two more pieces, which tear it: PTX makes it one access for each element, in no order. A group of
lanes runs either the whole access, or its first part, and later the rest.
"""

from __future__ import annotations

from dataclasses import replace

from simulator.ptx.dataflow import targets_of
from simulator.ptx.ir import Address, Block, Instruction, Kernel, Register

_UNSEEN = frozenset({"param", "param::entry", "param::func", "local", "const"})
"""State spaces that no other thread writes while a kernel runs."""


def is_access(instruction: Instruction) -> bool:
    """Whether other threads can tell when it runs: it reads or writes memory that they can reach."""
    if instruction.opcode in ("ld", "st"):
        return _UNSEEN.isdisjoint(instruction.qualifiers)
    own = ("atom", "red", "multimem", "mbarrier", "cp", "tcgen05", "tensormap", "clusterlaunchcontrol")
    return instruction.opcode in own and not instruction.is_group_wait


def elements_of(instruction: Instruction) -> int:
    """The number of elements of a vector access that can be torn; 1 of all others.

    A load that overwrites its own address stays whole: its rest would read elsewhere.
    """
    words = set(instruction.qualifiers)
    if (
        instruction.opcode not in ("ld", "st", "multimem")
        or not is_access(instruction)
        or words & {"nc", "red", "async"}
    ):
        return 1
    if instruction.unsupported or len(instruction.operands) < 2:
        return 1
    is_load = instruction.opcode == "ld" or "ld_reduce" in words
    address = instruction.operands[1 if is_load else 0]
    base = address.base if isinstance(address, Address) else None
    if is_load and isinstance(base, Register) and base.name in targets_of(instruction):
        return 1
    if is_load and instruction.guard is not None and instruction.guard[0].name in targets_of(instruction):
        return 1
    return instruction.elements


def cut_at_accesses(kernel: Kernel) -> Kernel:
    """Return the kernel in pieces. Labels, functions and the kernel's first block are those of its new blocks."""
    blocks: list[Block] = []
    starts: list[int] = []
    for block in kernel.blocks:
        starts.append(len(blocks))
        pieces = _pieces(block)
        for place, (instructions, kind) in enumerate(pieces):
            blocks.append(
                Block(
                    len(blocks),
                    block.label if place == 0 else "",
                    instructions,
                    is_last=block.is_last and place == len(pieces) - 1,
                    piece=kind if place or kind != "next" else "",
                )
            )
    return replace(
        kernel,
        blocks=tuple(blocks),
        labels={name: starts[index] for name, index in kernel.labels.items()},
        first=starts[kernel.first],
        functions=tuple(replace(one, first=starts[one.first] if one.first >= 0 else -1) for one in kernel.functions),
    )


def _pieces(block: Block) -> list[tuple[tuple[Instruction, ...], str]]:
    """A block's pieces in order, each with its kind (Block.piece)."""
    made: list[tuple[tuple[Instruction, ...], str]] = []
    current: list[Instruction] = []
    for instruction in block.instructions:
        if elements_of(instruction) > 1:
            if current or not made:
                made.append((tuple(current), "next"))
                current = []
            made.append(((instruction,), "whole"))
            made += [((replace(instruction, part=part),), kind) for part, kind in ((1, "first"), (2, "rest"))]
            continue
        if is_access(instruction) and any(map(is_access, current)):
            made.append((tuple(current), "next"))
            current = []
        current.append(instruction)
    if current or not made or made[-1][1] == "rest":
        made.append((tuple(current), "next"))
    return made
