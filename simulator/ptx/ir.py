"""PTX as frozen data: operands, instructions that keep their line numbers, basic blocks, kernels.

Nothing here computes: parse.py makes these from text, decode.py turns them into work for NumPy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

CLOCKS = frozenset({"%globaltimer", "%clock64", "%clock", "%clock_hi", "%globaltimer_lo", "%globaltimer_hi"})
"""Special registers that change by themselves; mov reads them, at the moment it runs."""


CARRY = "%carry"
"""The register of the condition code: .cc writes it, addc, subc and madc read it."""


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
    """A name that isn't a register: a variable, a parameter, a function, a label; plus offset_bytes ("table+8")."""

    name: str
    offset_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Vector:
    """{a, b, ..}: registers or literals that one access moves together, or halves of a wider register.

    is_wide: it stands for one register of 128 bits, the lower half first.
    """

    parts: tuple[Register | Immediate, ...]
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class Address:
    """[base + offset_bytes]."""

    base: Register | Symbol | Immediate
    offset_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Pair:
    """d|p: two destinations of one instruction."""

    first: Register
    second: Register


@dataclass(frozen=True, slots=True)
class Negated:
    """!p: the opposite of a predicate."""

    register: Register


@dataclass(frozen=True, slots=True)
class Group:
    """(a, b, ..): what a call passes, or what it returns."""

    parts: tuple[Register | Immediate | Symbol, ...]


Operand = Register | Immediate | Symbol | Vector | Address | Pair | Negated | Group


@dataclass(frozen=True, slots=True)
class Source:
    """Where in the kernel's Python an instruction comes from: "file.py:12", innermost first of inlined functions.

    user: the line of a user's kernel that called the library in whose code these places are, "" if none did."""

    places: tuple[str, ...]
    user: str = ""

    def __str__(self) -> str:
        inlined = " in ".join(self.places)
        return f"{self.user} by way of {inlined}" if self.user and inlined else self.user or inlined

    @property
    def nearest(self) -> str:
        """The user's line with the innermost place behind it, or that place."""
        return str(Source(self.places[:1], self.user))


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: opcode "add", qualifiers ("rn", "f32") as written, guard (predicate register, negated).

    unsupported: why the simulator can't run it, "" if the parser could read it; a thread that gets there faults.
    part: of a vector access that is torn, 1 for the elements that come first, 2 for the others; 0: all at once.
    """

    opcode: str
    qualifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    line: int
    text: str
    guard: tuple[Register, bool] | None = None
    source: Source | None = None
    unsupported: str = ""
    part: int = 0

    @property
    def mnemonic(self) -> str:
        return ".".join((self.opcode, *self.qualifiers))

    @property
    def elements(self) -> int:
        """How many elements it moves together: those of a vector, or 1."""
        return next((int(word[1:]) for word in ("v2", "v4", "v8") if word in self.qualifiers), 1)

    @property
    def is_group_wait(self) -> bool:
        """Whether threads may have to stay here until copies are done."""
        return self.opcode == "cp" and not {"wait_group", "wait_all"}.isdisjoint(self.qualifiers)

    @property
    def is_of_tensor_memory(self) -> bool:
        """Whether it is a tcgen05, or a copy of a map, that all of a warp carry out at the same place."""
        return (
            self.opcode in ("tcgen05", "tensormap")
            and "aligned" in self.qualifiers
            and self.qualifiers[0][:5] != "wait:"
        )

    @property
    def is_cluster_barrier(self) -> bool:
        """Whether it is an arrival at the barrier of all threads of a cluster, or a wait there."""
        return self.opcode == "barrier" and "cluster" in self.qualifiers

    def where(self) -> str:
        """The PTX line and, where line information is there, the Python lines: for messages."""
        python = f", {self.source}" if self.source else ""
        return f"PTX line {self.line}: {self.text}{python}"


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A form that the simulator does not have: its PTX line, its text, and the reason."""

    line: int
    text: str
    reason: str

    def __str__(self) -> str:
        return f"PTX line {self.line}: {self.text}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions that run one after another: entered at the top only, left at the bottom only.

    is_last: of its function, behind which nothing follows. piece: of a block that was cut at its accesses (cut.py), ""
    for its start, "next" for what follows the piece before; "whole", "first" and "rest" of one vector access follow
    each other, and lanes run either the first of these three or the other two.
    """

    index: int
    label: str
    instructions: tuple[Instruction, ...]
    is_last: bool = False
    piece: str = ""

    @property
    def following(self) -> int:
        """The block that comes next in the program, -1 after the last one of a function."""
        return -1 if self.is_last else self.index + (3 if self.piece == "whole" else 1)


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """A kernel parameter: its PTX name, type ("u64", "u32", .., an array's elements') and size."""

    name: str
    type: str
    size_bytes: int
    alignment_bytes: int


@dataclass(frozen=True, slots=True)
class SharedVariable:
    """A .shared array of the kernel: offset_bytes within the block's shared memory. An .extern one has size 0: it goes
    on to the end of what the launch gives."""

    name: str
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FrameVariable:
    """A variable of each thread: a .local array, or a .param of a function or of a call.

    offset_bytes: within the frame of the function that declares it; register: the name of a .reg parameter, which is in
    no frame.
    """

    name: str
    space: str
    offset_bytes: int
    size_bytes: int
    register: str = ""


@dataclass(frozen=True, slots=True)
class Relocation:
    """A part of a variable's first value that is an address: of a symbol, plus addend; size_bytes of it from shift on.

    is_generic: converted with generic(); else an address in the symbol's own state space.
    """

    offset_bytes: int
    size_bytes: int
    symbol: str
    addend: int
    shift_bits: int
    is_generic: bool


@dataclass(frozen=True, slots=True)
class ModuleVariable:
    """A .global or .const variable of the module: one a rank, alive as long as the simulated world.

    initial: its first bytes. linkage: "extern" for one that the module does not define.
    """

    name: str
    space: str
    alignment_bytes: int
    size_bytes: int
    initial: bytes
    relocations: tuple[Relocation, ...]
    linkage: str


@dataclass(frozen=True, slots=True)
class Function:
    """A .func that a kernel may call: its blocks begin at first, and its threads' frames have frame_bytes.

    number: its place among the module's functions. first is -1 for one that has no body here (.extern).
    """

    name: str
    number: int
    returns: tuple[FrameVariable, ...]
    parameters: tuple[FrameVariable, ...]
    first: int
    frame_bytes: int


@dataclass(frozen=True, slots=True)
class Prototype:
    """The sizes of what an indirect call returns and passes (.callprototype)."""

    returns: tuple[int, ...]
    parameters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """An entry of a PTX module, with the functions that it may call: their blocks lie before its own.

    registers maps a name to its class: "pred", "b8", "b16", "b32", "b64"; types maps it to the type that it is declared
    with. shared_bytes are those of the variables that
    the kernel declares itself; a launch's dynamic shared memory begins behind them, at dynamic_offset_bytes.
    required_block and required_cluster are the block and the cluster (x, y, z) that a launch must have, None for any.
    most_threads: of a block, None for any; .maxntid bounds the product of its sizes, not each of them.
    most_cluster_blocks: of a cluster, None for any. is_explicit_cluster: a launch must have a cluster.
    first is the block where it begins. frame holds the variables of each thread by name, frame_bytes is the size of the
    kernel's own frame. unsupported: declarations that the simulator does not have; instructions say so themselves.
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
    most_cluster_blocks: int | None = None
    most_threads: int | None = None
    is_explicit_cluster: bool = False
    first: int = 0
    functions: tuple[Function, ...] = ()
    frame: dict[str, FrameVariable] = field(default_factory=dict)
    frame_bytes: int = 0
    variables: tuple[ModuleVariable, ...] = ()
    prototypes: dict[str, Prototype] = field(default_factory=dict)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unsupported: tuple[Unsupported, ...] = ()
    types: dict[str, str] = field(default_factory=dict)

    def refuses_block(self, name: str, block: tuple[int, int, int]) -> str:
        """Return why the kernel called name can't have a block (x, y, z), in one line; "" if it can."""
        if self.required_block not in (None, block):
            return f"{name} is compiled for blocks of {self.required_block} threads, not {block} (.reqntid)"
        if self.most_threads is not None and math.prod(block) > self.most_threads:
            most, given = self.most_threads, math.prod(block)
            return f"{name} is compiled for blocks of at most {most} threads, not {given} (.maxntid)"
        return ""
