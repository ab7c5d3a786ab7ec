"""Pickles for other processes, with tensors of every data type.

torch's own pickles of unsigned types wider than 8 bits and of 8-bit floats can't be loaded (torch 2.13).
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any


def dumps(value: object) -> bytes:
    """Return a pickle of a value, for pickle.loads. Tensors on the CPU become copies of their elements. Raises like
    pickle.dumps."""
    buffer = io.BytesIO()
    _Pickler(buffer).dump(value)
    return buffer.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or type(value) is not torch.Tensor or value.device.type != "cpu" or value.requires_grad:
            return NotImplemented
        content = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return _tensor, (str(value.dtype).removeprefix("torch."), tuple(value.shape), content)


def _tensor(dtype: str, shape: tuple[int, ...], content: bytes) -> Any:
    """Return the tensor of a data type's name, a shape and its elements' bytes in C order."""
    import torch

    of = getattr(torch, dtype)
    if not content:
        return torch.empty(shape, dtype=of)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(of).reshape(shape)
