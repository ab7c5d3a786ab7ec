"""SymmetricPool: an ExitStack for symmetric memory.

Symmetric memory is allocated and freed collectively, and machines answer ranks that disagree with silence or a hang. So
the ranks compare what they want before each allocation and each release, and a difference becomes a message. Memory is
given back in reverse order at the end of the scope it was made in: collectively after success; after a failure without
waiting for anybody, since the peers may be dead and the world has to be ended anyway.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from memory.fabric import Disagreement, Fabric, FabricError
from memory.placing import CountingPool
from memory.ranks import named, ranks_of
from memory.tensor import Released, SymmetricTensor

if TYPE_CHECKING:
    import torch


class SymmetricPool:
    """One rank's symmetric memory: allocated in agreement with all ranks, released in reverse order.

        with SymmetricPool(fabric) as pool:
            data = pool.tensor(1024, torch.bfloat16, name="data")
            with pool.scope():
                flags = pool.tensor(8, torch.int32, name="flags", fill=0)

    All ranks make the same calls in the same order. An exception that leaves a scope drops the scope's memory without
    waiting for the peers; the pool then allocates nothing more, because this rank can't know what the others did.
    """

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._scopes: list[list[SymmetricTensor]] = []
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        if self._scopes:
            raise ValueError("this SymmetricPool is already entered: use pool.scope() for a part of its life")
        self._open_scope()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close_scope(0, error)

    @property
    def live(self) -> tuple[SymmetricTensor, ...]:
        """What is held now, oldest first."""
        return tuple(tensor for scope in self._scopes for tensor in scope)

    @contextlib.contextmanager
    def scope(self) -> Iterator[Self]:
        """What is allocated within is released at the end of the with block. Scopes nest."""
        if not self._scopes:
            raise ValueError("a scope was asked of a SymmetricPool that is not open: use the pool in a with block")
        depth = self._open_scope()
        try:
            yield self
        except BaseException as error:
            self._close_scope(depth, error)
            raise
        self._close_scope(depth, None)

    def tensor(
        self,
        shape: int | Sequence[int],
        dtype: torch.dtype,
        *,
        name: str,
        fill: float | None = None,
        alignment_bytes: int = 256,
    ) -> SymmetricTensor:
        """Collective: a symmetric tensor of the innermost scope, filled on this rank, or poison.

        name is what messages use; no other live tensor may have it. Raises Disagreement when the ranks ask for
        different things, HeapFull when it does not fit, ValueError for a bad argument.
        """
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        tensor = self._allocated(shape, dtype, name, alignment_bytes)
        if fill is not None:
            tensor.fill(fill)
        return tensor

    def bytes(self, size_bytes: int, *, name: str, alignment_bytes: int = 256) -> SymmetricTensor:
        """Collective: a symmetric tensor of size_bytes of torch.uint8; see tensor(). Does not import torch."""
        return self._allocated((size_bytes,), None, name, alignment_bytes)

    def free(self, tensor: SymmetricTensor) -> None:
        """Collective: release a tensor before its scope ends. Raises Released if it is gone already."""
        for scope in self._scopes:
            if tensor in scope:
                self._release(scope, [tensor])
                return
        if not tensor.is_live:
            raise Released(f'symmetric tensor "{tensor.name}" was released twice')
        raise ValueError(f'symmetric tensor "{tensor.name}" belongs to another pool')

    def _allocated(
        self, shape: tuple[int, ...], dtype: torch.dtype | None, name: str, alignment_bytes: int
    ) -> SymmetricTensor:
        """A tensor of the innermost scope, which all ranks agree on. dtype None: bytes (torch.uint8)."""
        self._check_request(shape, name, alignment_bytes)
        wanted = f'allocate "{name}", shape {list(shape)}, {dtype or "torch.uint8"}, aligned to {alignment_bytes} bytes'
        self._agree(wanted, f'symmetric tensor "{name}"')
        size_bytes = math.prod(shape) * (dtype.itemsize if dtype is not None else 1)
        tensor = SymmetricTensor(self._fabric, self._fabric.allocate(size_bytes, alignment_bytes, name), shape, dtype)
        self._scopes[-1].append(tensor)
        return tensor

    def _check_request(self, shape: tuple[int, ...], name: str, alignment_bytes: int) -> None:
        if not self._scopes:
            raise ValueError(f'symmetric tensor "{name}" was asked of a pool that is not open: use it in a with block')
        if self._failure is not None:
            raise FabricError(f'no symmetric tensor "{name}": the pool dropped memory after {self._failure!r}')
        if not name:
            raise ValueError("a symmetric tensor needs a name: messages use it")
        if any(tensor.name == name for tensor in self.live):
            raise ValueError(f'there is a live symmetric tensor "{name}" already: names tell tensors apart')
        if any(length < 1 for length in shape):
            raise ValueError(f'symmetric tensor "{name}" of shape {list(shape)} is empty: lengths are 1 or more')
        if alignment_bytes < 1 or alignment_bytes & (alignment_bytes - 1):
            raise ValueError(f'symmetric tensor "{name}": alignment_bytes is {alignment_bytes}, not a power of two')

    def _agree(self, note: str, subject: str) -> None:
        notes = self._fabric.exchange(note)
        if any(other != note for other in notes):
            wants = "; ".join(
                f"{named(ranks)} want{'s' if len(ranks) == 1 else ''} to {one}"
                for one, ranks in ranks_of(notes).items()
            )
            raise Disagreement(f"the ranks disagree about {subject}: {wants}")

    def _open_scope(self) -> int:
        self._scopes.append([])
        return len(self._scopes) - 1

    def _close_scope(self, depth: int, error: BaseException | None) -> None:
        """End the scope at depth, and any inside it that was left open."""
        try:
            while len(self._scopes) > depth:
                scope = self._scopes[-1]
                if error is not None:
                    self._drop(scope, error)
                elif scope:
                    self._release(scope, scope[::-1])
                self._scopes.pop()
        except BaseException as late:
            for scope in reversed(self._scopes[depth:]):
                self._drop(scope, late)
            del self._scopes[depth:]
            raise

    def _release(self, scope: list[SymmetricTensor], tensors: list[SymmetricTensor]) -> None:
        names = ", ".join(f'"{tensor.name}"' for tensor in tensors)
        self._agree(f"release {names}", f"the release of symmetric tensor {names}")
        for tensor in tensors:
            # It leaves the scope only once it is freed: an exception in between finds it there, and drops it.
            self._fabric.free(tensor.expire())
            scope.remove(tensor)

    def _drop(self, scope: list[SymmetricTensor], error: BaseException) -> None:
        self._failure = self._failure or error
        while scope:
            tensor = scope.pop()
            # What led here matters more than a second failure; what stays held, the world's leak check names.
            with contextlib.suppress(Exception):
                self._fabric.drop(tensor.expire())


Pool = SymmetricPool | CountingPool
"""What programs allocate from: symmetric memory, or a count of what it would take."""
