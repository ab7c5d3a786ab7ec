"""SHA-256 of tensors' bytes, wherever they are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch

from memory.tensor import flat_bytes

PIECE_BYTES = 64 << 20
"""What is brought from a GPU at a time, into one of two pieces of pinned memory: one is hashed as the other arrives."""

SMALL_BYTES = 1 << 20
"""Up to here a tensor is brought at once."""


def sha256_of(data: torch.Tensor) -> str:
    """SHA-256 of a tensor's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    content = flat_bytes(data)
    is_small = content.device.type == "cpu" or content.numel() <= SMALL_BYTES
    for piece in [content.cpu()] if is_small else _brought(content):
        digest.update(piece.numpy().data)
    return digest.hexdigest()


def _brought(content: torch.Tensor) -> Iterator[torch.Tensor]:
    """The bytes of a tensor on a GPU as pieces on the host, each until the next but one is asked for."""
    stream = torch.cuda.current_stream(content.device)
    places = [torch.empty(min(PIECE_BYTES, content.numel()), dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    coming: list[tuple[torch.Tensor, torch.cuda.Event]] = []
    for number, start in enumerate(range(0, content.numel(), PIECE_BYTES)):
        piece = content[start : start + PIECE_BYTES]
        target = places[number % 2][: piece.numel()]
        target.copy_(piece, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record(stream)
        coming.append((target, arrived))
        if len(coming) > 1:
            yield _waited(*coming.pop(0))
    for one in coming:
        yield _waited(*one)


def _waited(target: torch.Tensor, arrived: torch.cuda.Event) -> torch.Tensor:
    arrived.synchronize()
    return target
