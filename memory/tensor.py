"""Symmetric tensors: one name, shape and dtype on every rank, and the addresses at which kernels reach the replicas.

A tensor and the views of it live as long as the scope of the pool that made it. Afterwards every use is an error that
names the tensor, because the address may by then belong to somebody else.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memory.fabric import Fabric, Region

if TYPE_CHECKING:
    import torch


def flat_bytes(data: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bytes in its elements' order, flat, where it is: its own memory if its elements lie in a row.

    Strides need not be those of a row. Tensors of no or one element may have any, 0 from an expanded one or from NumPy,
    and torch takes neither contiguous() nor view(-1) as a reason to change them; it sees bytes only in a stride of 1.
    """
    import torch

    whole = data.detach().contiguous()
    return whole.as_strided((whole.numel(),), (1,)).view(torch.uint8)


class Released(ValueError):
    """A symmetric tensor, or a view of one, was used or released again after its release."""


class View:
    """Another way to reach a symmetric tensor: a peer's replica, or all replicas at once through multicast."""

    __slots__ = ("_address", "_tensor", "description")

    def __init__(self, tensor: SymmetricTensor, address: int, description: str) -> None:
        self._tensor = tensor
        self._address = address
        self.description = description

    @property
    def address(self) -> int:
        """Where this rank sees it. Raises Released once the tensor is gone."""
        if not self._tensor.is_live:
            raise Released(f'{self.description} was used after symmetric tensor "{self._tensor.name}" was released')
        return self._address

    def __repr__(self) -> str:
        return f"View({self.description}{'' if self._tensor.is_live else ', released'})"


class SymmetricTensor:
    """Memory of the same size at the same place of every rank's heap. SymmetricPool.tensor() makes them.

    name, shape, dtype, numel and size_bytes describe it and outlive it. All else raises Released after its scope.
    dtype None means bytes (torch.uint8): such a tensor imports torch, which takes a second, only for its content.
    """

    __slots__ = ("_dtype", "_fabric", "_live", "_local", "_region", "_views", "name", "shape")

    def __init__(self, fabric: Fabric, region: Region, shape: tuple[int, ...], dtype: torch.dtype | None) -> None:
        self._fabric = fabric
        self._region = region
        self._live = True
        self._local: torch.Tensor | None = None
        self._views: dict[int | None, View] = {}
        self.name = region.name
        self.shape = shape
        self._dtype = dtype

    @property
    def dtype(self) -> torch.dtype:
        if self._dtype is None:
            import torch

            self._dtype = torch.uint8
        return self._dtype

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self._region.size_bytes

    @property
    def is_live(self) -> bool:
        """False once it has been released."""
        return self._live

    @property
    def address(self) -> int:
        """Where this rank's own replica begins."""
        return self.region.address

    @property
    def region(self) -> Region:
        """What the fabric knows it as."""
        if not self._live:
            raise Released(f'symmetric tensor "{self.name}" was used after its release: its scope had ended')
        return self._region

    def peer(self, rank: int) -> View:
        """The replica of another rank; for the own rank, the own replica."""
        region = self.region
        if not 0 <= rank < self._fabric.world_size:
            last = self._fabric.world_size - 1
            raise ValueError(f'symmetric tensor "{self.name}" has replicas on ranks 0 to {last}, none on rank {rank}')
        if rank not in self._views:
            # The own address is never asked of the fabric: NVSHMEM would count it as a second owner of the memory.
            address = region.address if rank == self._fabric.rank else self._fabric.peer_address(region, rank)
            self._views[rank] = View(self, address, f'the view of rank {rank}\'s "{self.name}"')
        return self._views[rank]

    def peer_addresses(self) -> tuple[int, ...]:
        """Where this rank sees each rank's replica, by rank; the own address for the own rank."""
        return tuple(self.peer(rank).address for rank in range(self._fabric.world_size))

    def multicast(self) -> View:
        """All replicas at once, for multimem instructions. Raises NoMulticast where the fabric has none."""
        region = self.region
        if None not in self._views:
            address = self._fabric.multicast_address(region)
            self._views[None] = View(self, address, f'the multicast view of "{self.name}"')
        return self._views[None]

    @property
    def local(self) -> torch.Tensor:
        """This rank's replica as a torch tensor that shares its memory; becomes empty (shape (0,)) at the release.

        Slices made from it must not be kept beyond the scope: the simulator names a tensor that they outlive.
        """
        region = self.region
        if self._local is None:
            import torch

            # Set on the storage, not made by view(): a torch view would hold on to its base, also once it's emptied.
            raw = self._fabric.view(region)
            local = torch.empty(0, dtype=self.dtype, device=raw.device)
            start = raw.storage_offset() // self.dtype.itemsize
            strides = torch.empty(self.shape, device="meta").stride()
            self._local = local.set_(raw.untyped_storage(), start, self.shape, strides)
        return self._local

    def write(self, tensor: torch.Tensor) -> None:
        """Copy a host tensor of the same dtype and element count into this rank's replica, in order with launches."""

        region = self.region
        if tensor.dtype != self.dtype or tensor.numel() != self.numel:
            raise ValueError(
                f'symmetric tensor "{self.name}" takes {self.numel} elements of {self.dtype}, '
                f"not {tensor.numel()} of {tensor.dtype}"
            )
        self._fabric.write(region, 0, flat_bytes(tensor))

    def read(self) -> torch.Tensor:
        """A host copy of this rank's replica after all work launched so far."""
        data = self._fabric.read(self.region, 0, self.size_bytes)
        return data.view(self.dtype).view(self.shape)

    def fill(self, value: float) -> None:
        """Set every element of this rank's replica."""
        import torch

        try:
            data = torch.full(self.shape, value, dtype=self.dtype)
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f'symmetric tensor "{self.name}" of {self.dtype} can\'t be filled with {value!r}'
            ) from error
        self.write(data)

    def expire(self) -> Region:
        """End the life of the tensor, its views first; returns the region for the fabric to take back. For the pool."""
        self._views.clear()
        if self._local is not None:
            import torch

            nothing = torch.empty(0, dtype=self.dtype, device=self._local.device)
            self._local.set_(nothing.untyped_storage(), 0, (0,), (1,))
            self._local = None
        self._live = False
        return self._region

    def __repr__(self) -> str:
        where = f"at {self._region.address:#x}" if self._live else "released"
        return f'SymmetricTensor("{self.name}", {self.shape}, {self.dtype}, {where})'
