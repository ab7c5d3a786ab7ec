"""What every rank puts in: a pure function of (inputs, dtype, world size, seed, rank), the same in every process.

Rank r of a case with seed s draws from NumPy's Philox generator, seeded by SeedSequence(entropy=s, spawn_key=(r,)):
streams that are independent in both, and begin alike for every size, so that a smaller buffer holds the beginning of
a larger one.

- "exact": integers from -m to m without 0, m = largest_exact(dtype, world size): every partial sum of all ranks, in
  any order, is a number of the dtype, so that every right algorithm gives the same bits. No contribution is 0, so
  that a rank left out changes every element.
- "normal": standard normal float32, rounded to the dtype.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
import torch

from kernels.numerics import FORMATS
from kernels.spec import DTYPES, Case

KEPT_BYTES = 256 * 1024 * 1024
"""Inputs of the latest cases are kept up to this size, so that algorithms and launches of one case share them."""

_kept: OrderedDict[tuple[str, str, int, int, int, int], torch.Tensor] = OrderedDict()
_lock = threading.Lock()


def make_input(case: Case, rank: int, numel: int) -> torch.Tensor:
    """Rank's input of numel elements (1-D, the case's dtype). Shared with whoever asks for the same: not to be
    written to.

    ValueError for inputs nobody knows, and for a negative seed.
    """
    if case.inputs not in ("exact", "normal"):
        raise ValueError(f"inputs '{case.inputs}': must be exact or normal")
    if case.seed < 0:
        raise ValueError(f"seed {case.seed}: must be 0 or more")
    # only exact inputs depend on the world size
    world_size = case.world_size if case.inputs == "exact" else 0
    key = (case.inputs, case.dtype, world_size, case.seed, rank, numel)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    made = _make(case, rank, numel)
    with _lock:
        made = _kept.setdefault(key, made)
        while len(_kept) > 1 and sum(tensor.nbytes for tensor in _kept.values()) > KEPT_BYTES:
            _kept.popitem(last=False)
    return made


def largest_exact(dtype: torch.dtype, world_size: int) -> int:
    """The largest m such that any sum of world_size integers from -m to m is exact in dtype, and on the way to it.

    Integers up to 2**p are numbers of a format with p bits of significand. Accumulators are never narrower than the
    dtype.
    """
    return (1 << FORMATS[dtype].significand_bits) // world_size


def _make(case: Case, rank: int, numel: int) -> torch.Tensor:
    dtype = DTYPES[case.dtype]
    bits = np.random.Philox(np.random.SeedSequence(entropy=case.seed, spawn_key=(rank,)))
    if case.inputs == "normal":
        return torch.from_numpy(np.random.Generator(bits).standard_normal(numel, dtype=np.float32)).to(dtype)
    raw = bits.random_raw(numel)
    # 32 bits scaled to 1..m, one more for the sign: integer arithmetic, so the same everywhere
    magnitude = (
        ((raw >> np.uint64(32)) * np.uint64(largest_exact(dtype, case.world_size))) >> np.uint64(32)
    ) + np.uint64(1)
    signed = np.where(raw & np.uint64(1), -magnitude.astype(np.int64), magnitude.astype(np.int64))
    return torch.from_numpy(signed).to(torch.float32).to(dtype)
