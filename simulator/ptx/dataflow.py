"""Which registers instructions and blocks read and write, which of them one block alone uses, and which stay alive."""

from __future__ import annotations

from simulator.ptx.ir import (
    CARRY,
    CLOCKS,
    Address,
    Block,
    Group,
    Instruction,
    Kernel,
    Negated,
    Operand,
    Pair,
    Register,
    Symbol,
    Vector,
)

_NO_TARGET = frozenset(
    [
        *("st", "red", "bra", "brx", "bar", "barrier", "ret", "exit", "fence", "membar", "nanosleep", "prefetch"),
        *("prefetchu", "trap", "brkpt", "applypriority", "discard", "griddepcontrol", "setmaxnreg", "stmatrix"),
        *("cp", "tensormap"),
    ]
)
COLLECTIVES = frozenset({"shfl", "vote", "match", "elect", "redux"})
"""What the lanes of a warp do together: it ends a block."""

ALIGNED = frozenset({"ldmatrix", "stmatrix", "movmatrix", "mma"})
"""Likewise what all of a warp do at the same place of the program."""

OF_WARPGROUPS = frozenset({"wgmma", "setmaxnreg"})
"""Likewise what all of a warpgroup do."""

_CROSSING = frozenset({"call", "brx", "bar", "barrier", *COLLECTIVES, *ALIGNED, *OF_WARPGROUPS})
BLOCK_ENDS = frozenset({"bra", "ret", "exit", *_CROSSING})
"""What ends a basic block."""
_FLOAT_ARITHMETIC = frozenset({"add", "sub", "mul", "fma", "div", "rcp", "min", "max", "setp", "cvt"})


def _names(operand: Operand) -> list[str]:
    if isinstance(operand, Register):
        return [] if operand.name in CLOCKS else [operand.name]
    if isinstance(operand, Vector | Group):
        return [part.name for part in operand.parts if isinstance(part, Register)]
    if isinstance(operand, Pair):
        return [operand.first.name, operand.second.name]
    if isinstance(operand, Negated):
        return [operand.register.name]
    if isinstance(operand, Address) and isinstance(operand.base, Register):
        return [operand.base.name]
    return []


def _has_target(instruction: Instruction) -> bool:
    if not instruction.operands:
        return False
    if instruction.opcode == "multimem":
        return "ld_reduce" in instruction.qualifiers
    if instruction.opcode == "mbarrier":
        words = {"arrive", "arrive_drop", "test_wait", "try_wait", "pending_count"}
        return not words.isdisjoint(instruction.qualifiers)
    if instruction.opcode in ("bar", "barrier"):
        return "red" in instruction.qualifiers
    if instruction.opcode == "tcgen05":
        return "ld" in instruction.qualifiers
    if instruction.opcode == "clusterlaunchcontrol":
        return "query_cancel" in instruction.qualifiers
    return instruction.opcode not in _NO_TARGET


def targets_of(instruction: Instruction) -> list[str]:
    found = [n for n in _names(instruction.operands[0]) if n != "_"] if _has_target(instruction) else []
    return [*found, CARRY] if found and "cc" in instruction.qualifiers else found


def sources_of(instruction: Instruction) -> list[str]:
    operands = instruction.operands[1:] if _has_target(instruction) else instruction.operands
    names = [name for operand in operands for name in _names(operand) if name != "_"]
    if instruction.opcode in ("addc", "subc", "madc"):
        names.append(CARRY)
    if instruction.guard is not None:
        names.append(instruction.guard[0].name)
        names += targets_of(instruction)  # lanes that don't run keep their value
    if instruction.opcode == "wgmma":
        names += targets_of(instruction)  # it adds to them
    if instruction.part == 2:
        names += targets_of(instruction)  # the elements that came first
    return names


def reads_clock(instruction: Instruction) -> bool:
    """Whether it may give something else the next time, though neither its registers nor memory changed."""
    return any(isinstance(operand, Register) and operand.name in CLOCKS for operand in instruction.operands)


def reads_memory(instruction: Instruction) -> bool:
    """Whether what it gives depends on memory, shared memory and mbarriers included."""
    if instruction.opcode == "multimem":
        return "ld_reduce" in instruction.qualifiers
    return instruction.opcode in ("ld", "ldmatrix", "atom") or _asks_barrier(instruction)


def writes_memory(instruction: Instruction) -> bool:
    """Whether it may change memory each time it runs, so that who runs it again and again gets somewhere."""
    if instruction.opcode == "mbarrier":
        return not _asks_barrier(instruction) and "pending_count" not in instruction.qualifiers
    if instruction.opcode == "multimem":
        return "ld_reduce" not in instruction.qualifiers
    meets = COLLECTIVES | ALIGNED | OF_WARPGROUPS
    return (
        instruction.opcode in ("st", "red", "cp", "call", "tcgen05", "tensormap", "clusterlaunchcontrol")
        or instruction.opcode in meets
    )


def deciding_loads(kernel: Kernel) -> frozenset[tuple[int, str]]:
    """Return line and text of the loads of which some value decides, by way of registers, where a thread goes on."""
    every = [one for block in kernel.blocks for one in block.instructions]
    decides = {one.guard[0].name for one in every if one.guard is not None and one.opcode in ("bra", "ret", "exit")}
    loads: list[tuple[Instruction, list[str]]] = []
    others: list[tuple[Instruction, list[str]]] = []
    for one in every:
        if targets := targets_of(one):
            (loads if reads_memory(one) else others).append((one, targets))
    others.reverse()  # what decides is mostly made shortly before
    size = -1
    while len(others) != size:
        size, rest = len(others), []
        for one, targets in others:
            if decides.isdisjoint(targets):
                rest.append((one, targets))
            else:
                decides.update(sources_of(one))
        others = rest
    return frozenset((one.line, one.text) for one, targets in loads if not decides.isdisjoint(targets))


def unawaited_loads(kernel: Kernel) -> dict[tuple[int, str], tuple[Instruction, str]]:
    """Return, by line and text of a tcgen05.ld, an instruction that some path comes to before tcgen05.wait::ld and that
    reads or gives one of its registers, and the register. Compilers put mov before the wait: it hands the value on."""
    found: dict[tuple[int, str], tuple[Instruction, str]] = {}
    every = (one for block in kernel.blocks for one in block.instructions)
    if not any(_is_tensor_load(one) for one in every):
        return found
    entering: list[dict[str, Instruction]] = [{} for _ in kernel.blocks]
    left = set(range(len(kernel.blocks)))
    while left:
        block = kernel.blocks[left.pop()]
        pending = dict(entering[block.index])
        for one in block.instructions:
            if one.opcode == "tcgen05" and "wait::ld" in one.qualifiers:
                pending.clear()
            used = pending.keys() & {*sources_of(one), *targets_of(one)} if pending else set()
            if used and one.opcode == "mov":
                pending.update(dict.fromkeys(targets_of(one), pending[min(used)]))
            for name in used if one.opcode != "mov" else ():
                found.setdefault((pending[name].line, pending[name].text), (one, name))
            if _is_tensor_load(one):
                pending.update(dict.fromkeys(targets_of(one), one))
        for way in _ways(kernel, block):
            if not pending.keys() <= entering[way].keys():
                entering[way] = {**pending, **entering[way]}
                left.add(way)
    return found


def _is_tensor_load(instruction: Instruction) -> bool:
    return instruction.opcode == "tcgen05" and "ld" in instruction.qualifiers


def _ways(kernel: Kernel, block: Block) -> list[int]:
    """The blocks that may follow a block; of a call, where it goes on afterwards."""
    end = block.instructions[-1] if block.instructions else None
    following = [block.following] if block.following >= 0 else []
    if end is None or end.opcode not in ("bra", "brx", "ret", "exit"):
        return following
    names = [one.name for one in end.operands if isinstance(one, Symbol)]
    if end.opcode == "brx":
        names = [name for table in names for name in kernel.targets.get(table, ())]
    ways = [kernel.labels[name] for name in names if name in kernel.labels]
    return ways + (following if end.guard is not None else [])


def _asks_barrier(instruction: Instruction) -> bool:
    return instruction.opcode == "mbarrier" and not {"try_wait", "test_wait"}.isdisjoint(instruction.qualifiers)


def registers_of(block: Block) -> tuple[set[str], set[str]]:
    reads: set[str] = set()
    writes: set[str] = set()
    for instruction in block.instructions:
        reads.update(sources_of(instruction))
        writes.update(targets_of(instruction))
    return reads, writes


def seen_as_bits(kernel: Kernel) -> set[str]:
    """Registers that something else than float arithmetic reads, to which every NaN is alike."""
    seen: set[str] = set()
    for block in kernel.blocks:
        for instruction in block.instructions:
            arithmetic = instruction.opcode in _FLOAT_ARITHMETIC
            if not arithmetic or not {"f32", "f64"}.issuperset(instruction.qualifiers[-1:]):
                seen.update(sources_of(instruction))
    return seen


def homes_of(kernel: Kernel) -> dict[str, int]:
    """Registers that one block alone uses, written there before they are read: name to block."""
    homes: dict[str, int] = {}
    shared = {one.register for function in kernel.functions for one in (*function.returns, *function.parameters)}
    for block in kernel.blocks:
        written: set[str] = set()
        for instruction in block.instructions:
            for name in sources_of(instruction):
                if name not in written:
                    shared.add(name)
            written.update(targets_of(instruction))
            if instruction.opcode in _CROSSING or instruction.is_of_tensor_memory:
                shared.update((*sources_of(instruction), *targets_of(instruction)))  # lanes may wait in between
        reads, writes = registers_of(block)
        for name in reads | writes:
            if homes.setdefault(name, block.index) != block.index:
                shared.add(name)
    return {name: block for name, block in homes.items() if name not in shared and name in kernel.registers}


def fragments_of(kernel: Kernel) -> frozenset[str]:
    """Return the registers that hold matrices of wgmma: D, and A where it is in registers."""
    every = (one for block in kernel.blocks for one in block.instructions if one.opcode == "wgmma")
    vectors = (operand for one in every for operand in one.operands[:2] if isinstance(operand, Vector))
    return frozenset(name for vector in vectors for name in _names(vector))


def live_in(kernel: Kernel, successors: list[list[int]]) -> list[set[str]]:
    """Registers that a lane at a block's start may still read: the usual backward data flow."""
    needs: list[set[str]] = []
    gives: list[set[str]] = []
    for block in kernel.blocks:
        written: set[str] = set()
        read: set[str] = set()
        for instruction in block.instructions:
            read.update(name for name in sources_of(instruction) if name not in written)
            written.update(targets_of(instruction))
        needs.append(read)
        gives.append(written)
    live = [set(one) for one in needs]
    changed = True
    while changed:
        changed = False
        for index in reversed(range(len(live))):
            after = set().union(*(live[other] for other in successors[index]))
            grown = live[index] | (after - gives[index])
            changed |= len(grown) != len(live[index])
            live[index] = grown
    return live
