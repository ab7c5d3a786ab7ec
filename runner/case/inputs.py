"""What every rank puts in: a pure function of the case's data and the rank, the same in every process.

Every kind has the prefix property: a smaller buffer holds the beginning of a larger one. runner/case/streams.py says
how each number is drawn from (seed, rank, index).

Of ops that reduce:

- "exact": a sum has integers from -m to m without 0, m = largest_exact(dtype, world size): every partial sum of all
  ranks, in any order, is a number of the dtype, so that every right algorithm gives the same bits. No contribution is
  0, so that a rank left out changes every element. Where m would be 0 (float8 on many ranks) each element has 1 or -1
  from as many ranks as stay exact, and 0 from the others. avg has the same; divided by a power of two it is exact, too.
  Unsigned integers begin at 1, and no sum wraps around. min and max have integers up to largest_exact(dtype, 1). and
  (or) has bits that are zero (one) on about one rank each, so that a rank left out shows; xor has random bits.
- "normal": standard normal floats, rounded to the dtype (float8: what is too large saturates). Integers: all bits
  random, so that sums wrap around.
- "edge": NaN, infinities, zeros, subnormals, largest numbers, integers' limits, among normal ones.

Of ops that multiply "exact" are integers from -m to m without 0, too: the largest m with which all sums of products of
all ranks are numbers of the dtype, or 1: then only the accumulator's sums are exact.

Of ops that only move data: "exact" and "normal" are random bits, of any pattern; "edge" puts its values among such.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from cachetools import LRUCache
from torch.utils.weak import WeakIdKeyDictionary

from cases.case import Case, Inputs
from cases.dtypes import DTYPES, NONE
from kernels.numeric.formats import FORMATS, is_float, is_signed
from runner.case.digests import sha256_of
from runner.case.streams import LARGEST_DRAWN, Stream, draw

KEPT_BYTES = 256 * 1024 * 1024
"""Inputs of the latest cases are kept up to this size, so that algorithms and launches of one case share them."""

KEPT_DEVICE_BYTES = 8 * 1024 * 1024 * 1024
"""As many bytes as are kept on a GPU: 8 ranks' inputs of 256 MiB in three dtypes are 6 GiB."""

CHUNK_ELEMENTS = 1 << 22
"""Elements that are drawn at a time: a stream of 128 Mi elements needs no gigabytes on its way to its dtype."""

CPU = torch.device("cpu")

_Key = tuple[Stream, int, int, str]
_Cuts = dict[int, torch.Tensor]
"""The longest tensor of a stream and what was cut from it, by length."""


def _latest(most_bytes: int) -> LRUCache[_Key, _Cuts]:
    """Return a cache of at most that many bytes; the latest stream is kept, however long."""
    return LRUCache(most_bytes, lambda cuts: min(cuts[max(cuts)].nbytes, most_bytes))


_kept_on_cpu = _latest(KEPT_BYTES)
_kept_on_gpu = _latest(KEPT_DEVICE_BYTES)

_digests: MutableMapping[torch.Tensor, str] = WeakIdKeyDictionary()
"""Digests of inputs that somebody still has: all algorithms of a case have the same."""

_lock = threading.Lock()


def make_input(case: Case, rank: int, numel: int, device: torch.device = CPU) -> torch.Tensor:
    """Rank's input of numel elements (1-D, the case's dtype, on the device). Callers with equal
    arguments share the tensor: don't write to it.

    ValueError for unknown inputs, and for a negative seed.
    """
    if case.inputs not in tuple(Inputs):
        raise ValueError(f"inputs '{case.inputs}': must be one of {', '.join(Inputs)}")
    if case.seed < 0:
        raise ValueError(f"seed {case.seed}: must be 0 or more")
    stream = stream_of(case)
    key = (stream, case.seed, rank, str(device))
    with _lock:
        found = _from_kept(key, device, numel)
    if found is not None:
        return found
    made = draw(stream, case.seed, rank, numel, CHUNK_ELEMENTS, device)
    with _lock:
        return _from_kept(key, device, numel) or _keep(key, made)


def digest_of(data: torch.Tensor) -> str:
    """SHA-256 of a tensor's bytes, in hexadecimal. Made once for a tensor that make_input keeps."""
    with _lock:
        found = _digests.get(data)
    if found is None:
        found = sha256_of(data)
        with _lock:
            _digests[data] = found
    return found


def make_inputs(case: Case, ranks: Sequence[int], numel: int, device: torch.device = CPU) -> list[torch.Tensor]:
    """make_input for several ranks; large ones are drawn at the same time, each in a thread."""
    if numel < CHUNK_ELEMENTS or len(ranks) < 2:
        return [make_input(case, rank, numel, device) for rank in ranks]
    with ThreadPoolExecutor(min(len(ranks), os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda rank: make_input(case, rank, numel, device), ranks))


def forget_inputs() -> None:
    """Give all kept inputs up."""
    with _lock:
        _kept_on_cpu.clear()
        _kept_on_gpu.clear()


def largest_exact(dtype: torch.dtype, world_size: int) -> int:
    """The largest m such that any sum of world_size integers from -m to m is exact in dtype, and on the way to it; at
    most LARGEST_DRAWN. 0 where there is none.

    Integers up to 2**p are numbers of a format with p bits of significand. Accumulators are never narrower than the
    dtype.
    """
    whole_bits = FORMATS[dtype].significand_bits if is_float(dtype) else 8 * dtype.itemsize - is_signed(dtype)
    most = (1 << whole_bits) - (not is_float(dtype))
    return min(most // world_size, LARGEST_DRAWN)


def _most_of_products(case: Case) -> int:
    """The largest m such that every sum of products up to m, of all ranks, is exact in the dtype; 0: none."""
    assert case.gemm is not None
    return largest_exact(DTYPES[case.dtype], case.world_size * case.gemm[2])


def loses_nothing(case: Case) -> bool:
    """Whether no sum of a case with exact inputs, of an op that multiplies, is rounded."""
    return _most_of_products(case) > 0


def stream_of(case: Case) -> Stream:
    """The stream that a case's inputs are drawn from. Only some depend on the world size."""
    dtype = DTYPES[case.dtype]
    plain = "normal" if is_float(dtype) and case.reduction != NONE else "bits"
    if case.inputs == Inputs.edge:
        return Stream("edge", dtype, case.world_size, base=plain)
    if case.gemm is not None and case.inputs == Inputs.exact:
        return Stream("integers", dtype, largest=max(math.isqrt(_most_of_products(case)), 1))
    if case.inputs == Inputs.normal or case.reduction in (NONE, "xor"):
        return Stream(plain, dtype)
    if case.reduction in ("and", "or"):
        return Stream("ones" if case.reduction == "or" else "zeros", dtype, case.world_size)
    if case.reduction in ("min", "max"):
        return Stream("integers", dtype, largest=largest_exact(dtype, 1))
    if largest := largest_exact(dtype, case.world_size):
        return Stream("integers", dtype, largest=largest)
    return Stream("sparse", dtype, case.world_size, largest=largest_exact(dtype, 1))


def _from_kept(key: _Key, device: torch.device, numel: int) -> torch.Tensor | None:
    """A kept stream's beginning, the same tensor each time; None if what is kept is too short. Under the lock."""
    cuts = _kept_on(device).get(key)
    if cuts is None or max(cuts) < numel:
        return None
    if numel not in cuts:
        cuts[numel] = cuts[max(cuts)][:numel]
    return cuts[numel]


def _keep(key: _Key, made: torch.Tensor) -> torch.Tensor:
    """Keep a stream instead of a shorter piece of it. Under the lock."""
    _kept_on(made.device)[key] = {made.numel(): made}
    return made


def _kept_on(device: torch.device) -> LRUCache[_Key, _Cuts]:
    return _kept_on_cpu if device == CPU else _kept_on_gpu
