"""A case's buffers in symmetric memory, with guards around them, and what was changed of them that was not to be.

Every payload lies between two guard zones that are exact to the byte: the one before it ends where it begins, also
where it does not begin at a boundary of 16 bytes. Torch, which takes a second to import, is imported by what touches
contents: allocating and counting need none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory.fabric import Fabric
from memory.pool import Pool
from memory.tensor import SymmetricTensor, flat_bytes
from runner.case.layout import Layout, Piece

if TYPE_CHECKING:
    import torch

POISON = 0xFF
"""What fresh memory reads as; outputs are filled with it again before later launches."""

FIRST_GUARD_PATTERN, GUARD_PATTERN = 0x5A, 0xA5
"""What guards hold in the first launch, where the fabric can't tell what was written, and in later ones."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """size_bytes of a symmetric tensor of bytes, from offset_bytes on; what lies around them are guards.

    peer_offsets are each rank's offset_bytes, by rank, where they differ; empty: all have this one's.
    """

    name: str
    tensor: SymmetricTensor
    offset_bytes: int
    size_bytes: int
    peer_offsets: tuple[int, ...] = ()

    @property
    def address(self) -> int:
        return self.tensor.address + self.offset_bytes

    def part(self, starts: Sequence[int], rank: int, size_bytes: int) -> Buffer:
        """size_bytes of it that begin, on each rank, at that rank's start (bytes)."""
        offsets = tuple(self.offset_bytes + start for start in starts)
        return Buffer(self.name, self.tensor, offsets[rank], size_bytes, offsets if len(set(offsets)) > 1 else ())

    def peer_addresses(self) -> tuple[int, ...]:
        """Where this rank sees the first byte of each rank's, by rank."""
        addresses = self.tensor.peer_addresses()
        offsets = self.peer_offsets or (self.offset_bytes,) * len(addresses)
        return tuple(address + offset for address, offset in zip(addresses, offsets, strict=True))

    def peer_address(self, rank: int) -> int:
        """Where this rank sees the first byte of one rank's, also where another is out of reach."""
        return self.tensor.peer(rank).address + (self.peer_offsets[rank] if self.peer_offsets else self.offset_bytes)

    def multicast_address(self) -> int:
        """Of the first byte; only where it is at the same place on all ranks."""
        assert not self.peer_offsets, f"{self.name} begins at another place on every rank: there is no multicast of it"
        return self.tensor.multicast().address + self.offset_bytes

    def write(self, fabric: Fabric, data: torch.Tensor) -> None:
        """Copy a tensor of size_bytes into it."""

        assert data.nbytes == self.size_bytes, f"{self.name}: {data.nbytes} bytes for {self.size_bytes}"
        if self.size_bytes:
            fabric.write(self.tensor.region, self.offset_bytes, flat_bytes(data))

    def fill(self, fabric: Fabric, byte: int, device: torch.device) -> None:
        """Set every byte of it; device is where the memory is, so that nothing travels."""
        import torch

        self.write(fabric, torch.full((self.size_bytes,), byte, dtype=torch.uint8, device=device))

    def fill_guards(self, fabric: Fabric, device: torch.device, launch: int) -> None:
        """Make what lies before and after it ready for a launch. The pattern of launch 1 stays in all later ones.

        Before the first launch a fabric that can tell what was written keeps its poison there, which no read escapes.
        """
        if launch > 1 or (launch == 0 and fabric.never_written(self.tensor.region) is not None):
            return
        end = self.offset_bytes + self.size_bytes
        for start, size_bytes in ((0, self.offset_bytes), (end, self.tensor.size_bytes - end)):
            Buffer(self.name, self.tensor, start, size_bytes).fill(fabric, _guard_pattern(launch), device)

    def inspect(self, fabric: Fabric) -> torch.Tensor:
        """Its bytes (flat uint8) after all launches so far, to be looked at: see Fabric.inspect."""
        return fabric.inspect(self.tensor.region, self.offset_bytes, self.size_bytes)

    def never_written(self, fabric: Fabric) -> torch.Tensor | None:
        """Which of its bytes hold poison still, None if the fabric can't tell: see Fabric.never_written."""
        found = fabric.never_written(self.tensor.region)
        return None if found is None else found[self.offset_bytes :][: self.size_bytes]


def guarded(pool: Pool, name: str, size_bytes: int, guard_bytes: int, offset_bytes: int = 0) -> Buffer:
    """Collective: a new buffer with guard_bytes on either side, offset_bytes after a boundary of guard_bytes."""
    tensor = pool.bytes(size_bytes + offset_bytes + 2 * guard_bytes, name=name)
    return Buffer(name, tensor, guard_bytes + offset_bytes, size_bytes)


def halves(layout: Layout, payloads: Sequence[Buffer], rank: int) -> tuple[Buffer, Buffer]:
    """A rank's input and output in the payloads of a layout."""
    source = payloads[0].part(layout.input_starts, rank, layout.input_bytes)
    return source, payloads[-1].part(layout.output_starts, rank, layout.outputs_bytes[rank])


def fill(fabric: Fabric, payloads: Sequence[Buffer], source: Buffer, data: torch.Tensor) -> None:
    """Write the input, and poison into all else of the payloads."""
    for payload in payloads:
        if payload != source:
            payload.fill(fabric, POISON, data.device)
    source.write(fabric, data)


def changed_guards(fabric: Fabric, buffer: Buffer, where: str, launch: int, itemsize: int = 0) -> list[str]:
    """A line for each guard of a buffer that a launch wrote to. where: the buffer, in words. itemsize: bytes of one of
    its elements: then the line says which element that would be, and how far outside it lies."""
    untouched = None if launch else fabric.never_written(buffer.tensor.region)
    region = buffer.tensor.region
    faults: list[str] = []
    start, end = buffer.offset_bytes, buffer.offset_bytes + buffer.size_bytes
    for place, part, first_byte in (("before", slice(start), -start), ("after", slice(end, None), buffer.size_bytes)):
        what = f"{where}'s guard {place} the buffer"
        low, high, _ = part.indices(region.size_bytes)
        content = fabric.inspect(region, low, high - low)  # the guard alone: a peer may be writing to the buffer
        if untouched is None:
            found = changes(what, content, _guard_pattern(launch), first_byte, launch)
            changed = content != _guard_pattern(launch)
        else:
            found = _stores(what, content, untouched[part], first_byte, launch)
            changed = ~untouched[part]
        faults += [
            line + (_outside(changed, first_byte, buffer.size_bytes, itemsize) if itemsize else "") for line in found
        ]
    return faults


def _outside(changed: torch.Tensor, first_byte: int, size_bytes: int, itemsize: int) -> str:
    """Where changed bytes of a guard lie, which begins at first_byte of its buffer: elements, and how far outside."""
    where = changed.nonzero().flatten()
    first, last = first_byte + int(where[0]), first_byte + int(where[-1])
    elements = [byte // itemsize for byte in (first, last)]
    named = f"element {elements[0]}" if elements[0] == elements[1] else f"elements {elements[0]} to {elements[1]}"
    if first < 0:
        return f"; {named} of 0 to {size_bytes // itemsize - 1}, from {-first} bytes before the start"
    return f"; {named} of 0 to {size_bytes // itemsize - 1}, up to {last + 1 - size_bytes} bytes past the end"


def _guard_pattern(launch: int) -> int:
    return GUARD_PATTERN if launch else FIRST_GUARD_PATTERN


def changed_pieces(
    fabric: Fabric, payload: Buffer, pieces: Sequence[Piece], data: torch.Tensor, where: str, launch: int
) -> list[str]:
    """A line for each piece of a payload that is not the input, or the poison, that it was before a launch."""

    untouched = None if launch else payload.never_written(fabric)
    content, given = payload.inspect(fabric), flat_bytes(data)
    faults: list[str] = []
    for piece in pieces:
        found = content[piece.start : piece.end]
        if piece.input_start is None and untouched is not None:
            faults += _stores(where, found, untouched[piece.start : piece.end], piece.start, launch)
            continue
        expected = POISON if piece.input_start is None else given[piece.input_start :][: found.numel()]
        faults += changes(where, found, expected, piece.start, launch)
    return faults


def changes(
    what: str, found: torch.Tensor, expected: torch.Tensor | int, first_byte: int, launch: int
) -> Iterator[str]:
    """One line about the bytes that differ, if any do. expected: the bytes, or the one that all of them are.

    first_byte is the offset of found in its buffer.
    """
    import torch

    if isinstance(expected, int):
        expected = torch.full_like(found, expected)
    if torch.equal(found, expected):
        return
    wrong = (found != expected).nonzero().flatten()
    if len(wrong):
        index = int(wrong[0])
        yield (
            f"{what} changed at byte {first_byte + index} in launch {launch}: "
            f"{int(found[index]):#04x}, was {int(expected[index]):#04x} ({len(wrong)} bytes changed)"
        )


def _stores(what: str, found: torch.Tensor, untouched: torch.Tensor, first_byte: int, launch: int) -> Iterator[str]:
    """As changes, of bytes that nothing was to be stored to, whatever was."""
    if not bool(untouched.all()):
        wrong = (~untouched).nonzero().flatten()
        index = int(wrong[0])
        yield (
            f"{what} changed at byte {first_byte + index} in launch {launch}: "
            f"{int(found[index]):#04x}, was never written ({len(wrong)} bytes changed)"
        )
