"""The frame that all kernels stand in: one CuTe DSL kernel whose body is an algorithm's plain function.

An algorithm is a function of a Frame, called while the kernel is traced: it asks the frame for its buffers, for
barriers over ranks, and for loops over vectors and elements, and so needs neither a parameter list nor the compiler's
decorators of its own. What depends on values of the device goes through functions (traverse.when, Frame.each_peer)
instead of Python's if and for. Everything known beforehand (world size, data type, threads, options) is a Python
value, by the names of the spec's choices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cutlass
import cutlass.cute as cute

from kernels.dsl import device
from kernels.dsl.arithmetic import Reduction
from kernels.dsl.peers import Peers
from kernels.dsl.signals import OverMulticast, OverPeers, Watch
from kernels.dsl.status import ENTRY, EXIT, MIDDLE
from kernels.dsl.work import Work
from kernels.multimem import reduce_form
from kernels.tuning import BATCH

Body = Callable[["Frame"], None]


class Kernel:
    """One compiled variant: a body, its pointers by (kind, buffer), and the choices it was made with.

    A test may take a barrier out or set another choice, to prove that it is missed.
    """

    entry_barrier = True
    exit_barrier = True

    def __init__(self, body: Body, pointers: Sequence[tuple[str, str]], choices: Mapping[str, Any]) -> None:
        self.body = body
        self.names = tuple(pointers)
        self.choices = dict(choices)
        self.threads: int = choices["threads"]

    @cute.jit
    def __call__(
        self,
        pointers: list[cute.Pointer],
        numel: cutlass.Int64,
        rank: cutlass.Int32,
        root: cutlass.Int32,
        patience: cutlass.Int64,
        blocks: cutlass.Int32,
    ) -> None:
        self.kernel(pointers, numel, rank, root, patience).launch(
            grid=[blocks, 1, 1], block=[self.threads, 1, 1], min_blocks_per_mp=1
        )

    @cute.kernel
    def kernel(
        self,
        pointers: list[cute.Pointer],
        numel: cutlass.Int64,
        rank: cutlass.Int32,
        root: cutlass.Int32,
        patience: cutlass.Int64,
    ) -> None:
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        addresses = dict(zip(self.names, (pointer.toint() for pointer in pointers), strict=True))
        self.body(Frame(self, addresses, thread, block, numel, rank, root, patience))


class Frame(Work):
    """One thread's view of a launch. Made while a kernel is traced.

    thread, block: Int32; index counts the grid's threads, of which there are lanes (Int64); rank, root: Int32. numel,
    size: elements and bytes that the case names (Int64). world_size, itemsize, threads, unroll: Python integers;
    reduction: the arithmetic of an op that reduces, else None; form: the multimem instruction that does the same, if
    there is one. choice(name) gives an option of the tuning.
    """

    def __init__(
        self,
        kernel: Kernel,
        addresses: Mapping[tuple[str, str], Any],
        thread: Any,
        block: Any,
        numel: Any,
        rank: Any,
        root: Any,
        patience: Any,
    ) -> None:
        grid, _, _ = cute.arch.grid_dim()
        choices = kernel.choices
        self.kernel = kernel
        self.thread, self.block, self.blocks = thread, block, grid
        self.rank, self.root, self.numel = rank, root, numel
        self.world_size: int = choices["world_size"]
        self.itemsize: int = choices["itemsize"]
        self.threads = kernel.threads
        self.unroll: int = choices["unroll"]
        self.index = cutlass.Int64(block * kernel.threads + thread)
        self.lanes = cutlass.Int64(grid * kernel.threads)
        self.size = numel * self.itemsize
        self.reduction = _reduction(choices)
        self.form = reduce_form(*_kinds(choices)) if self.reduction else None
        self._addresses = addresses
        self._epoch_address = self.address("epochs") + cutlass.Int64(block) * 4
        self.epoch = device.load_word(self._epoch_address)
        self.watch = Watch(rank, block, self.address("status"), patience)
        self.barrier = self._barrier()

    def _barrier(self) -> OverPeers | OverMulticast:
        signals = self.address("signals")
        thread = self.threads - 1 - self.thread if self.choice("last_threads_signal") else self.thread
        if ("multicast", "signals") in self._addresses:
            return OverMulticast(thread, self.watch, self.multicast("signals"), signals, self.world_size)
        orders = (self.choice("entry_signal", "release"), self.choice("exit_signal", "release"))
        return OverPeers(thread, self.watch, self.table("signals"), signals, self.world_size, *orders)

    def choice(self, name: str, default: Any = None) -> Any:
        """An option of the tuning, or of the algorithm."""
        return self.kernel.choices.get(name, default)

    # Buffers.

    def address(self, of: str) -> Any:
        """Where this rank's buffer begins."""
        return self._addresses["address", of]

    def table(self, of: str) -> Any:
        """The table of where this rank sees all ranks' buffers."""
        return self._addresses["peers", of]

    def multicast(self, of: str) -> Any:
        """Where the multicast address of a buffer begins."""
        return self._addresses["multicast", of]

    def peer(self, of: str, rank: Any) -> Any:
        """Where this rank sees a rank's buffer."""
        return device.load_address(self.table(of), rank)

    def peers(self, of: str, first: Any = 0, count: int | None = None) -> Peers:
        """A buffer on all ranks, or count of them, in an order that begins with rank first."""
        count = self.choice("contributors", self.world_size) if count is None else count
        return Peers(self.table(of), first, count, self.world_size)

    def after(self, rank: Any, number: Any = 1) -> Any:
        """The rank that comes so many after another one, around the ring; number: 0 to world_size - 1."""
        later = rank + number
        return cutlass.select_(later >= self.world_size, later - self.world_size, later)

    # Barriers over ranks: call arrive and wait, do the work, and leave, in this order.

    def arrive(self) -> None:
        """Tell the other ranks that this one's inputs are written and its outputs may be."""
        if self.kernel.entry_barrier:
            self.epoch += 1
            self.barrier.arrive(self.epoch, ENTRY)

    def wait(self) -> None:
        """Wait until all other ranks have told the same."""
        if self.kernel.entry_barrier:
            self.barrier.wait(self.epoch, ENTRY)

    def meet(self) -> None:
        """In place of arrive and wait, between two halves of the work: what all ranks did in the first is seen."""
        if self.kernel.entry_barrier:
            self.epoch += 1
            self.barrier.arrive(self.epoch, MIDDLE)
            self.barrier.wait(self.epoch, MIDDLE)

    def leave(self) -> None:
        """Wait until all ranks have done their work; the last epoch used is kept for the next launch."""
        if self.kernel.exit_barrier:
            self.epoch += 1
            self.barrier.arrive(self.epoch, EXIT)
        self.keep_epoch()
        if self.kernel.exit_barrier:
            self.barrier.wait(self.epoch, EXIT)

    @property
    def next_epoch(self) -> Any:
        """The number of the next barrier."""
        return self.epoch + 1

    def keep_epoch(self) -> None:
        """Write back the last epoch used. A kernel that doesn't leave() does this itself."""
        keep(self.thread, self._epoch_address, self.epoch)

    def each_peer(self, count: int, body: Callable[[Any, Any, Any], None]) -> None:
        """Share out numbers 0 to count - 1 among groups of blocks: body(number, index, lanes) is called with the
        thread's lane within the group. The grid is a multiple of the choice "groups"."""
        groups = self.choice("groups", 1)
        number = self.block % groups if groups > 1 else cutlass.Int32(0)
        index = cutlass.Int64((self.block // groups) * self.threads + self.thread)
        lanes = cutlass.Int64((self.blocks // groups) * self.threads)
        if groups >= count:
            body(number, index, lanes)
        else:
            each_number(number, count, groups, index, lanes, body)

    def each_other(self, count: int, body: Callable[[Any], None]) -> None:
        """Call body(number) for 0 to count - 1, for all threads alike: written out for few, a loop for many."""
        if count <= BATCH:
            for number in range(count):
                body(number)
        else:
            each_number(cutlass.Int32(0), count, 1, self.index, self.lanes, lambda number, _index, _lanes: body(number))


def _reduction(choices: Mapping[str, Any]) -> Any:
    if "reduction" not in choices:
        return None
    return Reduction(*_kinds(choices), choices["world_size"])


def _kinds(choices: Mapping[str, Any]) -> tuple[str, str, str]:
    return choices["dtype"], choices["accumulator"], choices["reduction"]


@cute.jit
def keep(thread: cutlass.Int32, address: cutlass.Int64, epoch: cutlass.Int32) -> None:
    if thread == 0:
        device.store_word(address, epoch)


@cute.jit
def each_number(
    first: cutlass.Int32,
    count: cutlass.Constexpr,
    step: cutlass.Constexpr,
    index: cutlass.Int64,
    lanes: cutlass.Int64,
    body: cutlass.Constexpr,
) -> None:
    number = first
    while number < count:
        body(number, index, lanes)
        number += step
