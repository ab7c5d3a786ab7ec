"""The frame that all kernels stand in: one CuTe DSL kernel whose body is an algorithm's plain function.

An algorithm is a function of a Frame, called while the kernel is traced: it asks the frame for its buffers, for
barriers over ranks, and for loops over vectors and elements, and so needs neither a parameter list nor the compiler's
decorators of its own. What depends on values of the device goes through functions (traverse.when, Frame.each_peer)
instead of Python's if and for. Everything known beforehand (world size, data type, threads, options) is a Python
value, by the names of the spec's choices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import cutlass
import cutlass.cute as cute

from kernels import device
from kernels.arithmetic import Reduction
from kernels.peers import Peers
from kernels.signals import OverMulticast, OverPeers, Watch
from kernels.status import ENTRY, EXIT, MIDDLE
from kernels.traverse import Span, slice_of, when

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


class Frame:
    """One thread's view of a launch. Made while a kernel is traced.

    thread, block: Int32; index counts the grid's threads, of which there are lanes (Int64); rank, root: Int32. numel,
    size: elements and bytes that the case names (Int64). world_size, itemsize, threads, unroll: Python integers;
    reduction: the arithmetic of an op that reduces, else None. choice(name) gives an option of the tuning.
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

    def peers(self, of: str, first: Any = 0) -> Peers:
        """A buffer on all ranks, in an order that begins with rank first."""
        return Peers(self.table(of), first, self.choice("contributors", self.world_size))

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

    def keep_epoch(self) -> None:
        """Write back the last epoch used. A kernel that doesn't leave() does this itself."""
        keep(self.thread, self._epoch_address, self.epoch)

    # Work.

    def span(self, anchor: Any, size: Any, begin: Any = 0) -> Span:
        """Bytes [begin, size) of a buffer, to be walked along the 16-byte boundaries of the address of its byte 0."""
        return Span(anchor, cutlass.Int64(begin), cutlass.Int64(size))

    def aligned(self, one: Any, other: Any) -> Any:
        """Whether two addresses have their 16-byte boundaries at the same offsets."""
        return ((one ^ other) & 15) == 0

    def load(self, address: Any) -> Any:
        """16 bytes of a peer's, in the way that the tuning says."""
        return device.load_vector(address, kind=self.choice("peer_loads", "weak"))

    def load_element(self, address: Any) -> list[Any]:
        """One element of the case's size as words."""
        return device.load_element(address, self.itemsize)

    def store_element(self, address: Any, words: Sequence[Any]) -> None:
        """Its other half."""
        device.store_element(address, words, self.itemsize)

    def store_where(self, aligned: Any, address: Any, vector: Sequence[Any]) -> None:
        """16 bytes to an address that is aligned to 16 bytes, or only to an element."""
        store_either(aligned, address, tuple(vector), self.itemsize)

    def load_where(self, aligned: Any, address: Any) -> Any:
        """16 bytes from an address that is aligned to 16 bytes, or only to an element."""
        return load_either(aligned, address, self.itemsize)

    def sliced(self, span: Span, rank: Any) -> Span:
        """A rank's slice of a span's vectors (kernels/shares.py); the edges belong to the last rank."""
        return span.part(*slice_of(span.first, span.last, rank, self.world_size))

    def copy(self, source: Any, target: Any, size: Any, index: Any, lanes: Any, *, push: bool) -> None:
        """Copy size bytes; this thread is lane index of lanes. The far side is accessed by vectors: push says that it
        is the target."""
        anchor, near = (target, source) if push else (source, target)
        span = self.span(anchor, size)
        each = partial(_copy_vectors, self, source, target, self.aligned(anchor, near), push)
        span.vectors(index, lanes, self.unroll, each)
        span.edges(index, self.itemsize, lambda at: self.store_element(target + at, self.load_element(source + at)))

    def when(self, condition: Any, body: Callable[[], None]) -> None:
        """Call body where a condition on the device holds."""
        when(condition, body)

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


def _reduction(choices: Mapping[str, Any]) -> Any:
    if "reduction" not in choices:
        return None
    return Reduction(choices["dtype"], choices["accumulator"], choices["reduction"], choices["world_size"])


def _copy_vectors(frame: Frame, source: Any, target: Any, aligned: Any, push: bool, offsets: Sequence[Any]) -> None:
    """Vectors at byte offsets: all loads come first."""
    if push:
        vectors = [frame.load_where(aligned, source + at) for at in offsets]
        for at, vector in zip(offsets, vectors, strict=True):
            device.store_vector(target + at, vector)
        return
    vectors = [frame.load(source + at) for at in offsets]
    for at, vector in zip(offsets, vectors, strict=True):
        frame.store_where(aligned, target + at, vector)


@cute.jit
def keep(thread: cutlass.Int32, address: cutlass.Int64, epoch: cutlass.Int32) -> None:
    if thread == 0:
        device.store_word(address, epoch)


@cute.jit
def store_either(
    aligned: cutlass.Boolean, address: cutlass.Int64, vector: cutlass.Constexpr, itemsize: cutlass.Constexpr
) -> None:
    if aligned:
        device.store_vector(address, vector)
    else:
        device.store_elements(address, vector, itemsize)


@cute.jit
def load_either(aligned: cutlass.Boolean, address: cutlass.Int64, itemsize: cutlass.Constexpr) -> Any:
    a, b, c, d = cutlass.Int32(0), cutlass.Int32(0), cutlass.Int32(0), cutlass.Int32(0)
    if aligned:
        a, b, c, d = device.load_vector(address)
    else:
        a, b, c, d = device.load_elements(address, itemsize)
    return a, b, c, d


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
