"""What kernels do with memory once they may: copy, reduce from peers or from the switch, along spans of vectors.

Each is done for the vectors of a span, 16 bytes at a time with several in flight, and for the elements at its edges.
Buffers that don't share the span's 16-byte boundaries are met element by element, on their own side only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import cutlass

from kernels.dsl import device
from kernels.dsl.peers import Peers, Rows
from kernels.dsl.traverse import Span, either, slice_of, when
from kernels.multimem import Form

PUSHED_IN_FLIGHT = 8
"""Vectors of its own memory that a thread loads before it stores the first to another rank's."""


class Work:
    """The part of a frame that works on memory; see kernels/dsl/frame.py for its values."""

    index: Any
    lanes: Any
    world_size: int
    itemsize: int
    unroll: int
    reduction: Any
    form: Form | None
    choice: Callable[..., Any]

    def when(self, condition: Any, body: Callable[[], None]) -> None:
        """Call body where a condition on the device holds."""
        when(condition, body)

    # Spans of buffers.

    def span(self, anchor: Any, size: Any) -> Span:
        """The first size bytes of a buffer, to be walked along the 16-byte boundaries of its address."""
        return Span(anchor, cutlass.Int64(0), cutlass.Int64(size))

    def sliced(self, span: Span, rank: Any, count: int | None = None) -> Span:
        """A rank's slice, one of count, of a span's vectors (kernels/shares.py); the edges are left to the caller."""
        return span.part(*slice_of(span.first, span.last, rank, count or self.world_size))

    def aligned(self, one: Any, other: Any) -> Any:
        """Whether two addresses have their 16-byte boundaries at the same offsets."""
        return ((one ^ other) & 15) == 0

    def at(self, address: Any) -> Peers:
        """A single buffer as the target of a reduction."""
        return Rows(None, 0, address, 1)

    def rows(self, base: Any, row_bytes: Any, own: Any) -> Peers:
        """What other ranks stored to rows in this rank's memory, and last its own: in the order of a fold."""
        return Rows(base, row_bytes, own, self.world_size)

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

    def reduce(self, span: Span, inputs: Peers, outputs: Peers, aligned: Any) -> None:
        """The reduction of each vector of a span over all inputs, to all outputs; aligned: outputs' boundaries."""

        def each(aligned: bool, offsets: Sequence[Any]) -> None:
            for at, words in zip(offsets, inputs.fold(self.reduction, offsets, self.load), strict=True):
                outputs.store(at, words, partial(self.store_near, aligned=aligned))

        self.each_vector(span, aligned, each)

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
