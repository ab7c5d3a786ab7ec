"""PTX as frozen data: operands, instructions that keep their line numbers, basic blocks, kernels.

Nothing here computes: parse.py makes these from text, decode.py turns them into work for NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass

CLOCKS = frozenset({"%globaltimer", "%clock64"})
"""Special registers that change by themselves; mov reads them, at the moment it runs."""


@dataclass(frozen=True, slots=True)
class Register:
    """A virtual register, "%r12", or a special one, "%tid.x"."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal.

    bits is the two's complement or IEEE pattern; width_bits is 0 for an integer (the type decides), else 32 or 64.
    """

    bits: int
    width_bits: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name that isn't a register: a parameter, a shared variable, a label."""

    name: str


@dataclass(frozen=True, slots=True)
class Vector:
    """{a, b, ..}: registers or literals that one access moves together, or halves of a wider register."""

    parts: tuple[Register | Immediate, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """[base + offset_bytes]."""

    base: Register | Symbol | Immediate
    offset_bytes: int = 0


Operand = Register | Immediate | Symbol | Vector | Address


@dataclass(frozen=True, slots=True)
class Source:
    """Where in the kernel's Python an instruction comes from: "file.py:12", innermost first of inlined functions."""

    places: tuple[str, ...]

    def __str__(self) -> str:
        return " in ".join(self.places)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: opcode "add", qualifiers ("rn", "f32") as written, guard (predicate register, negated)."""

    opcode: str
    qualifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    line: int
    text: str
    guard: tuple[Register, bool] | None = None
    source: Source | None = None

    @property
    def mnemonic(self) -> str:
        return ".".join((self.opcode, *self.qualifiers))

    @property
    def is_group_wait(self) -> bool:
        """Whether threads may have to stay here until copies are done."""
        return self.opcode == "cp" and "wait_group" in self.qualifiers

    def where(self) -> str:
        """The PTX line and, where line information is there, the Python lines: for messages."""
        python = f", {self.source}" if self.source else ""
        return f"PTX line {self.line}: {self.text}{python}"


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions that run one after another: entered at the top only, left at the bottom only."""

    index: int
    label: str
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """A kernel parameter: its PTX name, type ("u64", "u32", .., an array's elements') and size."""

    name: str
    type: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SharedVariable:
    """A .shared array of the kernel: offset_bytes within the block's shared memory. An .extern one has size 0: it goes
    on to the end of what the launch gives."""

    name: str
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """An entry of a PTX module.

    registers maps a name to its class: "pred", "b8", "b16", "b32", "b64". shared_bytes are those of the variables that
    the kernel declares itself; a launch's dynamic shared memory begins behind them, at dynamic_offset_bytes.
    required_block and required_cluster are the block and the cluster (x, y, z) that a launch must have, None for any.
    """

    entry: str
    target: str
    parameters: tuple[KernelParameter, ...]
    registers: dict[str, str]
    shared: tuple[SharedVariable, ...]
    shared_bytes: int
    blocks: tuple[Block, ...]
    labels: dict[str, int]
    dynamic_offset_bytes: int
    required_block: tuple[int, int, int] | None
    required_cluster: tuple[int, int, int] | None
