"""CountingFabric: one rank's Fabric that places allocations and holds no memory.

A program that allocates runs on it before any world exists, and peak_bytes is the symmetric heap that it would take.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, Any, NoReturn

from memory.fabric import HeapFull, Region, Traits
from memory.placing import HeapRules, first_fit

if TYPE_CHECKING:
    import torch

HEAP_BYTES = 1 << 48
"""Distance between the ranks' heaps, and the size of each: larger than any request."""


class CountingFabric:
    """Rank 0 of a world of world_size ranks, all of which make the same calls (see memory.fabric.Fabric).

    Addresses follow rules, the real fabric's. Contents do not exist: write() checks its bounds and copies nothing;
    read(), view() and inspect() return tensors on torch's meta device, which have a shape and no data.
    """

    def __init__(self, world_size: int, rules: HeapRules) -> None:
        self._world_size = world_size
        self._rules = rules
        self._regions: dict[int, Region] = {}
        self._spans: list[tuple[int, int]] = []
        self._peak_bytes = 0

    @property
    def rank(self) -> int:
        return 0

    @property
    def world_size(self) -> int:
        return self._world_size

    @property
    def traits(self) -> Traits:
        return Traits("counting", "", self._world_size, HEAP_BYTES, multicast=True, simulated=True)

    @property
    def peak_bytes(self) -> int:
        """Return the smallest heap in which all that was held at a time has its place, in whole granules."""
        return self._peak_bytes

    def exchange(self, note: str) -> tuple[str, ...]:
        return (note,) * self._world_size

    def barrier(self) -> None:
        """All ranks are here: there is one."""

    def allocate(self, size_bytes: int, alignment_bytes: int, name: str) -> Region:
        if size_bytes < 1 or alignment_bytes < 1 or alignment_bytes & (alignment_bytes - 1):
            raise ValueError(
                f"{name}: {size_bytes} bytes aligned to {alignment_bytes}; sizes are positive, alignments powers of two"
            )
        granule = self._rules.granule_bytes
        taken = -(-size_bytes // granule) * granule
        start, largest = first_fit(self._spans, HEAP_BYTES, taken, alignment_bytes, self._rules)
        if start is None:
            raise HeapFull(f"{name} needs {size_bytes:,} bytes; {largest:,} bytes would fit")
        insort(self._spans, (start, start + taken))
        self._peak_bytes = max(self._peak_bytes, start + taken)
        region = Region(name, HEAP_BYTES + start, size_bytes)
        self._regions[region.address] = region
        return region

    def declare_local(self, region: Region) -> None:
        self._found(region)

    def free(self, region: Region) -> None:
        self._found(region)
        self.drop(region)

    def drop(self, region: Region) -> None:
        if self._regions.get(region.address) == region:
            del self._regions[region.address]
            self._spans = [span for span in self._spans if span[0] != region.address - HEAP_BYTES]

    def peer_address(self, region: Region, peer: int) -> int:
        if not 0 <= peer < self._world_size:
            raise ValueError(
                f"{region.name}: rank {peer} does not exist; the world has ranks 0 to {self._world_size - 1}"
            )
        return self._found(region).address + peer * HEAP_BYTES

    def multicast_address(self, region: Region) -> int:
        """Return an address behind the heaps of all ranks."""
        return self._found(region).address + self._world_size * HEAP_BYTES

    def view(self, region: Region) -> torch.Tensor:
        return self.read(region, 0, region.size_bytes)

    def write(self, region: Region, offset_bytes: int, data: torch.Tensor) -> None:
        self._check_inside(region, offset_bytes, data.numel())

    def read(self, region: Region, offset_bytes: int, size_bytes: int) -> torch.Tensor:
        import torch  # takes a second, and what only counts needs none

        self._check_inside(region, offset_bytes, size_bytes)
        return torch.empty(size_bytes, dtype=torch.uint8, device="meta")

    def inspect(self, region: Region, offset_bytes: int = 0, size_bytes: int | None = None) -> torch.Tensor:
        return self.read(region, offset_bytes, region.size_bytes - offset_bytes if size_bytes is None else size_bytes)

    def never_written(self, region: Region) -> torch.Tensor | None:
        return None

    def launch(self, *arguments: Any, **named: Any) -> NoReturn:
        raise ValueError("a counting fabric holds no memory and runs no kernel: run the program in a world")

    def wait_stream(self, stream: int | None, other: int | None) -> None:
        """Nothing was launched."""

    def set_variable(self, *arguments: Any, **named: Any) -> NoReturn:
        raise ValueError("a counting fabric loads no kernel: run the program in a world")

    def pause(self, seconds: float) -> None:
        pass

    def synchronize(self) -> None:
        """Nothing was launched."""

    def _found(self, region: Region) -> Region:
        if self._regions.get(region.address) != region:
            raise ValueError(f"{region.name} is not allocated here (freed already, or another fabric's)")
        return region

    def _check_inside(self, region: Region, offset_bytes: int, size_bytes: int) -> None:
        self._found(region)
        if offset_bytes < 0 or offset_bytes + size_bytes > region.size_bytes:
            raise ValueError(
                f"{region.name}: bytes {offset_bytes} to {offset_bytes + size_bytes} of {region.size_bytes}"
            )
