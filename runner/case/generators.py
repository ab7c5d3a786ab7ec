"""Generators of random words and normal numbers: NumPy's Philox.

A rank's stream begins where SeedSequence(entropy=seed, spawn_key=key) puts NumPy's Philox4x64-10. HostGenerator is that
generator; runner/case/device_generator.py makes the same words and the same normal numbers on a GPU, bit for bit.
"""

from __future__ import annotations

import numpy as np
import torch

LOW_32 = 0xFFFFFFFF


def philox(seed: int, key: tuple[int, ...]) -> np.random.Philox:
    """Return NumPy's Philox for a seed and the key of a stream."""
    return np.random.Philox(np.random.SeedSequence(entropy=seed, spawn_key=key))


class HostGenerator:
    """NumPy's own generator. Each call goes on where the one before it ended."""

    def __init__(self, seed: int, key: tuple[int, ...]) -> None:
        self._bits = philox(seed, key)
        self._generator = np.random.Generator(self._bits)

    def words(self, count: int) -> torch.Tensor:
        """Return the next count words of 64 random bits, as int64."""
        return torch.from_numpy(self._bits.random_raw(count).view(np.int64))

    def normal(self, count: int, wide: bool) -> torch.Tensor:
        """Return the next count standard normal numbers in float32, or (wide) in float64."""
        if wide:
            return torch.from_numpy(self._generator.standard_normal(count, dtype=np.float64))
        return torch.from_numpy(self._generator.standard_normal(count, dtype=np.float32))


def upper_half(words: torch.Tensor) -> torch.Tensor:
    """The higher 32 of 64 bits as a number: int64's own shift would repeat the sign."""
    return (words >> 32).bitwise_and_(LOW_32)
