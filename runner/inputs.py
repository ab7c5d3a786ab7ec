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

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from kernels.dtypes import DTYPES
from kernels.numerics import FORMATS
from kernels.spec import Case

KEPT_BYTES = 256 * 1024 * 1024
"""Inputs of the latest cases are kept up to this size, so that algorithms and launches of one case share them."""

KEPT_DEVICE_BYTES = 8 * 1024 * 1024 * 1024
"""As many bytes as are kept on a GPU: 8 ranks' inputs of 256 MiB in three dtypes are 6 GiB."""

CHUNK_ELEMENTS = 1 << 22
"""Elements that are drawn at a time: a stream of 128 Mi elements needs no gigabytes on its way to its dtype."""

CPU = torch.device("cpu")

_Key = tuple[str, str, int, int, int, str]
_kept: OrderedDict[_Key, dict[int, torch.Tensor]] = OrderedDict()
"""By stream, the longest tensor of it and what was cut from that, by length."""

_lock = threading.Lock()


def make_input(case: Case, rank: int, numel: int, device: torch.device = CPU) -> torch.Tensor:
    """Rank's input of numel elements (1-D, the case's dtype, on the device). Shared with whoever asks for the same:
    not to be written to.

    ValueError for inputs nobody knows, and for a negative seed.
    """
    if case.inputs not in ("exact", "normal"):
        raise ValueError(f"inputs '{case.inputs}': must be exact or normal")
    if case.seed < 0:
        raise ValueError(f"seed {case.seed}: must be 0 or more")
    # only exact inputs depend on the world size
    world_size = case.world_size if case.inputs == "exact" else 0
    key = (case.inputs, case.dtype, world_size, case.seed, rank, str(device))
    with _lock:
        found = _from_kept(key, numel)
    if found is not None:
        return found
    made = _make(case, rank, numel).to(device)
    with _lock:
        return _from_kept(key, numel) or _keep(key, made)


def make_inputs(case: Case, ranks: Sequence[int], numel: int, device: torch.device = CPU) -> list[torch.Tensor]:
    """make_input for several ranks; large ones are drawn at the same time, each by a thread."""
    if numel < CHUNK_ELEMENTS or len(ranks) < 2:
        return [make_input(case, rank, numel, device) for rank in ranks]
    with ThreadPoolExecutor(min(len(ranks), os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda rank: make_input(case, rank, numel, device), ranks))


def forget_inputs() -> None:
    """Give all kept inputs up."""
    with _lock:
        _kept.clear()


def largest_exact(dtype: torch.dtype, world_size: int) -> int:
    """The largest m such that any sum of world_size integers from -m to m is exact in dtype, and on the way to it.

    Integers up to 2**p are numbers of a format with p bits of significand. Accumulators are never narrower than the
    dtype.
    """
    return (1 << FORMATS[dtype].significand_bits) // world_size


def _from_kept(key: _Key, numel: int) -> torch.Tensor | None:
    """A kept stream's beginning, the same tensor each time; None if what is kept is too short. Under the lock."""
    lengths = _kept.get(key)
    if lengths is None or max(lengths) < numel:
        return None
    _kept.move_to_end(key)
    if numel not in lengths:
        lengths[numel] = lengths[max(lengths)][:numel]
    return lengths[numel]


def _keep(key: _Key, made: torch.Tensor) -> torch.Tensor:
    """Keep a stream instead of a shorter piece of it, and drop what was not asked for for longest. Under the lock."""
    _kept[key] = {made.numel(): made}
    _kept.move_to_end(key)
    limit = KEPT_BYTES if made.device == CPU else KEPT_DEVICE_BYTES
    while len(_kept) > 1 and sum(lengths[max(lengths)].nbytes for lengths in _kept.values()) > limit:
        _kept.popitem(last=False)
    return made


def _make(case: Case, rank: int, numel: int) -> torch.Tensor:
    dtype = DTYPES[case.dtype]
    bits = np.random.Philox(np.random.SeedSequence(entropy=case.seed, spawn_key=(rank,)))
    generator = np.random.Generator(bits)
    made = torch.empty(numel, dtype=dtype)
    for start in range(0, numel, CHUNK_ELEMENTS):
        length = min(CHUNK_ELEMENTS, numel - start)
        if case.inputs == "normal":
            drawn = torch.from_numpy(generator.standard_normal(length, dtype=np.float32))
        else:
            drawn = _exact(bits.random_raw(length), largest_exact(dtype, case.world_size))
        made[start : start + length] = drawn.to(dtype)
    return made


def _exact(raw: np.ndarray, largest: int) -> torch.Tensor:
    """Raw 64 bits a number to float32 integers from -largest to largest without 0."""
    # 32 bits scaled to 1..m, one more for the sign: integer arithmetic, so the same everywhere
    magnitude = (((raw >> np.uint64(32)) * np.uint64(largest)) >> np.uint64(32)) + np.uint64(1)
    signed = np.where(raw & np.uint64(1), -magnitude.astype(np.int64), magnitude.astype(np.int64))
    return torch.from_numpy(signed).to(torch.float32)
