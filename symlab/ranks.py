"""What a function gets on each rank of a world: memory and launches there, and what a compiled case is bound to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cases.assumptions import checked_assumptions
from cases.ops import collective
from kernels.spec import refuses
from memory.fabric import Argument, Deadlock, Executable, Fabric, Launch, Traits
from memory.pool import SymmetricPool
from memory.tensor import SymmetricTensor, View
from symlab.compiling import Compiled

if TYPE_CHECKING:
    import torch

    from runner.case.binding import BoundKernel

__tracebackhide__ = True
"""pytest shows the test's own lines, and none of this file."""

KernelArgument = SymmetricTensor | View | Argument | tuple[str, int | float | bytes]


class Rank:
    """One rank of a world: the first argument of a function that World.run calls.

    `rank` is its number from 0, `world_size` the number of ranks, `traits` says what the fabric can do (name, arch,
    multicast, ..), and `fabric` is the fabric itself. All ranks make collective calls, in the same order.

    >>> import symlab
    >>> compiled = symlab.compile(symlab.case("all_reduce/one_shot", size_bytes="1K", ranks=2))
    >>> def program(rank, inputs):
    ...     with rank.pool() as pool:
    ...         return rank.bind(pool, compiled).run(inputs[rank.rank])
    >>> with symlab.world(ranks=2) as world:
    ...     outputs = world.run(program, symlab.make_inputs(compiled.case))
    >>> symlab.check(compiled.case, outputs).faults
    ()
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric

    @property
    def rank(self) -> int:
        return self.fabric.rank

    @property
    def world_size(self) -> int:
        return self.fabric.world_size

    @property
    def traits(self) -> Traits:
        return self.fabric.traits

    def pool(self) -> SymmetricPool:
        """Return a pool to allocate symmetric memory from, in a with block, whose end releases all of it.

        `pool.tensor(shape, dtype, name=.., fill=..)` is collective and returns a symmetric tensor: `local` (a torch
        tensor that shares its memory), `read()` and `write(tensor)` (copies on the host), `address`, `peer(rank)` and
        `multicast()` (views with an `address`), all for as long as the block lasts. `pool.scope()` is a block within.
        """
        return SymmetricPool(self.fabric)

    def barrier(self) -> None:
        """Collective: wait until all ranks are here. Launched kernels are not waited for: see synchronize."""
        self.fabric.barrier()

    def exchange(self, text: str) -> tuple[str, ...]:
        """Collective: give a short text, and return all ranks' by rank."""
        return self.fabric.exchange(text)

    def synchronize(self) -> None:
        """Wait until everything that this rank launched is done."""
        self.fabric.synchronize()

    def launch(
        self,
        kernel: Compiled | Executable,
        *,
        arguments: Sequence[KernelArgument],
        grid: int | tuple[int, int, int] | None = None,
        block: int | tuple[int, int, int] | None = None,
        shared_bytes: int = 0,
        assumptions: Sequence[str] = (),
    ) -> None:
        """Queue a kernel with one argument for each of its parameters; synchronize waits for it.

        An argument is a symmetric tensor or a view of one (its address), or a pair of kind and value such as
        ("u32", 5): kinds are u32, u64, f32, f64, address and bytes. grid and block: numbers of
        blocks and of threads of a block, in x or in (x, y, z); None: those that a compiled kernel of a case runs with.
        assumptions: see World.launch.

        Raises ValueError for arguments that are not the kernel's, and for a launch that is not possible.
        """
        if isinstance(kernel, Compiled):
            usual, executable = kernel.launch, kernel.executable
            grid, block = grid or usual.grid, block or usual.block
        else:
            executable = kernel
        if grid is None or block is None:
            raise ValueError(
                f"no grid or block for {executable.name} (grid, block), give numbers of blocks and threads"
            )
        if assumptions:
            executable = replace(executable, assumptions=checked_assumptions(assumptions))
        given = tuple(_argument(index, one) for index, one in enumerate(arguments))
        self.fabric.launch(executable, Launch(grid, block, shared_bytes), given)

    def bind(self, pool: SymmetricPool, kernel: Compiled, *, patience_s: float = 10.0) -> Bound:
        """Collective: allocate what a compiled kernel of a case declares (input, output, flags, tables of peers).

        patience_s: seconds that the kernel waits for another rank on a GPU before it gives up.

        Raises ValueError for a case that the kernel can't run on this fabric, with the reason.
        """
        from runner.case.binding import bind

        case = kernel.case
        if refusal := refuses(kernel.kernel, collective(case.op), case, self.traits):
            raise ValueError(str(refusal))
        return Bound(self, kernel, bind(self.fabric, pool, kernel.kernel, [case], [kernel.executable], patience_s))


class Bound:
    """A compiled kernel with memory and arguments of its own on one rank; Rank.bind returns it.

    run(data) writes the rank's input, launches the kernel and returns the output; write, launch and read are its parts,
    for launches back to back.
    """

    def __init__(self, rank: Rank, kernel: Compiled, binding: BoundKernel) -> None:
        self._rank = rank
        self._kernel = kernel
        self._binding = binding
        self._is_published = False

    def run(self, data: torch.Tensor) -> torch.Tensor:
        """Collective: write the input, launch the kernel, and return the output."""
        self.write(data)
        self.launch()
        return self.read()

    def write(self, data: torch.Tensor) -> None:
        """Copy a 1-D tensor of the case's dtype into this rank's input. ValueError for another dtype or length."""
        from cases.dtypes import DTYPES

        case, source = self._kernel.case, self._binding.inputs[0]
        numel, dtype = source.size_bytes // case.itemsize, DTYPES[case.dtype]
        if data.dtype != dtype or data.shape != (numel,):
            raise ValueError(
                f"the input is {tuple(data.shape)} of {data.dtype} (data), give a 1-D tensor of {numel} elements of "
                f"{dtype}"
            )
        source.write(self._rank.fabric, data.detach().contiguous())

    def launch(self) -> None:
        """Queue the kernel; all ranks launch it. The first launch is collective: it waits for all ranks' inputs."""
        fabric = self._rank.fabric
        if not self._is_published:
            fabric.synchronize()
            fabric.barrier()
            self._is_published = True
        self._binding.launch(0)

    def read(self) -> torch.Tensor:
        """Wait for this rank's launches, and return a host copy of its output: 1-D, of the case's dtype.

        Raises Deadlock if the kernel gave up waiting for another rank.
        """
        fabric = self._rank.fabric
        fabric.synchronize()
        if report := self._binding.trouble():
            raise Deadlock(report, rank=fabric.rank)
        return self._binding.output(0).cpu().clone()


def _argument(index: int, value: KernelArgument) -> Argument:
    """What a kernel takes for a value. ValueError for a value of another type."""
    if isinstance(value, (SymmetricTensor, View)):
        return Argument("address", value.address)
    if isinstance(value, Argument):
        return value
    if isinstance(value, tuple) and len(value) == 2:
        kind: Any = value[0]
        return Argument(kind, value[1])
    raise ValueError(
        f"argument {index} is {value!r}, of type {type(value).__name__} (arguments), give a symmetric tensor, a view "
        'of one, or a pair such as ("u32", 5)'
    )
