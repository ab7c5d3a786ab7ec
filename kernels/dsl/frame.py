"""The frame that all kernels stand in: one CuTe DSL kernel whose body is an algorithm's plain function.

An algorithm is a function of a Frame, called while the kernel is traced: it asks the frame for its buffers, for
barriers over ranks, and for loops over vectors and elements, and so needs neither a parameter list nor the compiler's
decorators of its own. What depends on values of the device goes through functions (traverse.when, Frame.each_peer)
instead of Python's if and for. Everything known beforehand (world size, data type, threads, options) is a Python
value, by the names of the spec's choices.

Work on memory (copy, reduce from peers or from the switch) goes along spans: their vectors of 16 bytes, several in
flight, and the elements at their edges. Buffers that don't share the span's 16-byte boundaries are met element by
element, on their own side only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import cutlass
import cutlass.cute as cute

from kernels.dsl import device
from kernels.dsl.arithmetic import Reduction
from kernels.dsl.peers import Peers, Rows
from kernels.dsl.rank_barriers import OverMulticast, OverPeers, Watch
from kernels.dsl.status import ENTRY, EXIT, MIDDLE
from kernels.dsl.traverse import Span, either, line_slice_of, slice_of, when
from kernels.multimem import reduce_form
from kernels.shares import BATCH, LINE_BYTES, root_owners

Body = Callable[["Frame"], None]

PUSHED_IN_FLIGHT = 8
"""Vectors of its own memory that a thread loads before it stores the first to another rank's."""


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
        if choices.get("dependent_launch"):
            # Memory is touched after the wait alone, so the next launch may begin at once: it waits in its turn.
            device.let_next_begin()
            device.await_launches_before()
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
        if not self.choice("without_barriers"):
            self.barrier = self._barrier()

    def _barrier(self) -> OverPeers | OverMulticast:
        signals = self.address("signals")
        if ("multicast", "signals") in self._addresses:
            return OverMulticast(self.thread, self.watch, self.multicast("signals"), signals, self.world_size)
        orders = (self.choice("entry_signal", "release"), self.choice("exit_signal", "release"))
        return OverPeers(self.thread, self.watch, self.table("signals"), signals, self.world_size, *orders)

    def choice(self, name: str, default: Any = None) -> Any:
        """An option of the tuning, or of the algorithm."""
        return self.kernel.choices.get(name, default)

    # Buffers.

    def address(self, of: str) -> Any:
        """Where this rank's buffer begins."""
        return self._addresses["address", of]

    @property
    def counts(self) -> Any:
        """The table of how many elements this rank sends to each: world_size int64."""
        return self._addresses["counts", ""]

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
        """Return the rank that comes number ranks after another, around the ring; number: 0 to world_size - 1."""
        later = rank + number
        return cutlass.select_(later >= self.world_size, later - self.world_size, later)

    def steps(self, rank: Any, other: Any) -> Any:
        """Return how many ranks after the one the other comes, around the ring: 0 to world_size - 1."""
        number = other - rank
        return cutlass.select_(number < 0, number + self.world_size, number)

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
        """Barrier between the two halves of the work: what any rank did in the first is visible in the second."""
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

    def when(self, condition: Any, body: Callable[[], None]) -> None:
        """Call body where a condition on the device holds."""
        when(condition, body)

    # Spans of buffers.

    def span(self, anchor: Any, size: Any) -> Span:
        """The first size bytes of a buffer, to be walked along the 16-byte boundaries of its address."""
        return Span(anchor, cutlass.Int64(0), cutlass.Int64(size))

    def sliced(self, span: Span, rank: Any) -> Span:
        """A rank's slice of a span's vectors (kernels/shares.py); the edges are left to the caller."""
        return span.part(*slice_of(span.first, span.last, rank, self.world_size))

    def with_root_slice(self, span: Span, work: Callable[[Span], None]) -> None:
        """Call work with the rank's slice where the root has none (kernels/shares.py: root_owners)."""
        count = root_owners(self.world_size)
        if count == self.world_size:
            work(self.sliced(span, self.rank))
        else:
            number = self.steps(self.root, self.rank) - 1
            when(number >= 0, lambda: work(span.part(*line_slice_of(span.first, span.last, number, count))))

    def aligned(self, one: Any, other: Any) -> Any:
        """Whether two addresses have their 16-byte boundaries at the same offsets."""
        return ((one ^ other) & 15) == 0

    def at(self, address: Any) -> Peers:
        """A single buffer as the target of a reduction."""
        return Rows(None, 0, address, 1)

    def rows(self, base: Any, row_bytes: Any, own: Any) -> Peers:
        """What other ranks stored to rows in this rank's memory, and last its own: in the order of a fold."""
        return Rows(base, row_bytes, own, self.world_size)

    def place_by_lines(self, address: Any) -> tuple[Any, Any]:
        """The grid's lanes so that every eighth has the first vector of a line, where the first vector is at address:
        a warp's loads are whole lines. Lanes before the first line have vectors at the end."""
        before = (address & (LINE_BYTES - 1)) >> 4  # vectors of 16 bytes
        return cutlass.select_(self.index < before, self.lanes, cutlass.Int64(0)) + self.index - before, self.lanes

    # Accesses.

    def load(self, address: Any) -> Any:
        """16 bytes of a peer's, in the way that the tuning says."""
        return device.load_vector(address, kind=self.choice("peer_loads", "weak"))

    def load_from_switch(self, address: Any) -> list[Any]:
        """The switch's reduction of 16 bytes at a multicast address, as words, avg not divided yet: as many accesses
        as the form of kernels/multimem.py takes."""
        assert self.form is not None
        text, width = self.form.instruction(), self.form.width_bytes
        if width == 16:
            return list(device.multimem_load_vector(address, text))
        if width == 8:
            return [word for at in (0, 8) for word in device.multimem_load_pair(address + at, text)]
        return [device.multimem_load_word(address + at, text) for at in (0, 4, 8, 12)]

    def load_element(self, address: Any) -> list[Any]:
        """One element of the case's size as words."""
        return device.load_element(address, self.itemsize)

    def store_element(self, address: Any, words: Sequence[Any]) -> None:
        """Its other half."""
        device.store_element(address, words, self.itemsize)

    def load_near(self, address: Any, aligned: bool) -> Any:
        """16 bytes of own memory; aligned to 16 bytes, or only to an element."""
        return device.load_vector(address) if aligned else device.load_elements(address, self.itemsize)

    def store_near(self, address: Any, vector: Sequence[Any], aligned: bool) -> None:
        """16 bytes to an address that is aligned to 16 bytes, or only to an element."""
        if aligned:
            device.store_vector(address, tuple(vector))
        else:
            device.store_elements(address, vector, self.itemsize)

    def store_word_to_switch(self, address: Any, word: Any) -> None:
        """4 bytes to all ranks, at a 4-byte aligned multicast address."""
        device.multimem_store_word(address, word)

    # Loops.

    def each_vector(
        self,
        span: Span,
        aligned: Any,
        body: Callable[[bool, Sequence[Any]], None],
        place: tuple[Any, Any] | None = None,
    ) -> None:
        """Call body(aligned, offsets) for this thread's vectors of a span, several at a time.

        aligned says whether the near side has the span's boundaries; where it hasn't, one vector at a time: that is
        decided once, not for each vector. place is the thread's lane and the number of lanes, the grid's unless given.
        """
        index, lanes = place or (self.index, self.lanes)
        either(
            aligned,
            lambda: span.vectors(index, lanes, self.unroll, partial(body, True)),
            lambda: span.vectors(index, lanes, 1, partial(body, False)),
        )

    # Copies.

    def copy(self, source: Any, target: Any, size: Any, place: tuple[Any, Any] | None = None, *, push: bool) -> None:
        """Copy size bytes; place is as in each_vector. The far side is accessed by vectors: push says that it is the
        target. In place, where both are one, nothing is done."""
        anchor, near = (target, source) if push else (source, target)
        span = self.span(anchor, size)
        index, _ = place or (self.index, self.lanes)

        def each(aligned: bool, offsets: Sequence[Any]) -> None:
            vectors = [self.load_near(source + at, aligned) if push else self.load(source + at) for at in offsets]
            for at, vector in zip(offsets, vectors, strict=True):
                self.store_near(target + at, vector, aligned or push)

        def work() -> None:
            self.each_vector(span, self.aligned(anchor, near), each, place)
            span.edges(index, self.itemsize, lambda at: self.store_element(target + at, self.load_element(source + at)))

        when(source != target, work)

    def push_vectors(self, span: Span, source: Any, target: Any) -> None:
        """The vectors of a span from own memory to a place with the same boundaries."""

        def each(offsets: Sequence[Any]) -> None:
            vectors = [device.load_vector(source + at) for at in offsets]
            for at, vector in zip(offsets, vectors, strict=True):
                device.store_vector(target + at, vector)

        span.vectors(self.index, self.lanes, PUSHED_IN_FLIGHT, each)

    def copy_to_all(self, span: Span, source: Any, targets: Peers, aligned: Any) -> None:
        """The vectors of a span of source to the same bytes of all targets; aligned: targets' boundaries."""

        def each(aligned: bool, offsets: Sequence[Any]) -> None:
            vectors = [self.load(source + at) for at in offsets]
            for at, vector in zip(offsets, vectors, strict=True):
                targets.store(at, vector, partial(self.store_near, aligned=aligned))

        self.each_vector(span, aligned, each)

    def copy_edges_to_all(self, span: Span, source: Any, targets: Peers) -> None:
        """The edges of a span of source to the same bytes of all targets."""
        span.edges(
            self.index,
            self.itemsize,
            lambda at: targets.store(at, self.load_element(source + at), self.store_element),
        )

    def copy_to_switch(self, span: Span, source: Any, target: Any) -> None:
        """The vectors of a span of a multicast target, from source, through the switch to all ranks."""

        def each(aligned: bool, offsets: Sequence[Any]) -> None:
            vectors = [self.load_near(source + at, aligned) for at in offsets]
            for at, vector in zip(offsets, vectors, strict=True):
                device.multimem_store_vector(target + at, vector)

        self.each_vector(span, self.aligned(source, target), each)

    # Reductions.

    def reduce(
        self, span: Span, inputs: Peers, outputs: Peers, aligned: Any, place: tuple[Any, Any] | None = None
    ) -> None:
        """The reduction of each vector of a span over all inputs, to all outputs; aligned: outputs' boundaries. place:
        as in each_vector."""

        def each(aligned: bool, offsets: Sequence[Any]) -> None:
            for at, words in zip(offsets, inputs.fold(self.reduction, offsets, self.load), strict=True):
                outputs.store(at, words, partial(self.store_near, aligned=aligned))

        self.each_vector(span, aligned, each, place)

    def reduce_edges(self, span: Span, inputs: Peers, outputs: Peers) -> None:
        """The same for the elements at a span's edges."""

        def each(at: Any) -> None:
            (words,) = inputs.fold(self.reduction, [at], self.load_element)
            outputs.store(at, words, self.store_element)

        span.edges(self.index, self.itemsize, each)

    def reduce_by_switch(self, span: Span, source: Any, output: Any) -> None:
        """The switch's reduction of each vector of a span at the multicast address source, to this rank's output; all
        loads come first."""

        def each(aligned: bool, offsets: Sequence[Any]) -> None:
            loaded = [self.load_from_switch(source + at) for at in offsets]
            for at, words in zip(offsets, loaded, strict=True):
                self.store_near(output + at, self.reduction.scale(words), aligned)

        self.each_vector(span, self.aligned(source, output), each)

    def reduce_through_switch(self, span: Span, source: Any, target: Any) -> None:
        """The same to all ranks, at a multicast address with the same boundaries."""

        def each(offsets: Sequence[Any]) -> None:
            loaded = [self.load_from_switch(source + at) for at in offsets]
            for at, words in zip(offsets, loaded, strict=True):
                device.multimem_store_vector(target + at, tuple(self.reduction.scale(words)))

        span.vectors(self.index, self.lanes, self.unroll, each)


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
