"""Why NCCL can't run a case with what it was restricted to (library.nccl_algo, nccl_proto, nccl_channels)."""

from __future__ import annotations

from cases.case import Case
from cases.record.nccl_settings import NcclAlgorithm, NcclProtocol, NcclSettings
from cases.refusal import Refusal
from kernels.baselines import NCCL, NCCL_SYMMETRIC
from memory.fabric import Traits

KEY = "library"

_CHUNKED = (
    NcclAlgorithm.Ring,
    NcclAlgorithm.CollnetDirect,
    NcclAlgorithm.NVLS,
    NcclAlgorithm.PAT,
)
ALGORITHMS = {
    "all_reduce": tuple(one for one in NcclAlgorithm if one is not NcclAlgorithm.PAT),
    "reduce_scatter": _CHUNKED,
    "all_gather": _CHUNKED,
    "broadcast": (NcclAlgorithm.Ring,),
    "reduce": (NcclAlgorithm.Ring,),
}
"""The algorithms that NCCL has for an op. all_to_all and send_recv are sends and receives, which have none."""

_ON_THE_SWITCH = (NcclAlgorithm.NVLS, NcclAlgorithm.NVLSTree)

_SIMPLE_ONLY = (*_ON_THE_SWITCH, NcclAlgorithm.CollnetDirect, NcclAlgorithm.CollnetChain, NcclAlgorithm.PAT)
"""Algorithms that have the protocol Simple and no other."""


def refuses_settings(settings: NcclSettings, case: Case, traits: Traits) -> Refusal | None:
    """Return why NCCL can't run a case with these settings; None if it can, or if NCCL does not run the case.

    A restriction that NCCL has nothing for is an error of NCCL's, after which its communicator is lost.
    """
    name = case.algorithm
    if settings.is_own_choice or name not in (NCCL, NCCL_SYMMETRIC):
        return None
    if name == NCCL_SYMMETRIC:
        reason = "symmetric windows have kernels of their own, which no algorithm, protocol or channels choose"
        return Refusal(KEY, reason, "give baselines=[nccl]")
    known = ALGORITHMS.get(case.op)
    if known is None:
        return Refusal(KEY, f"NCCL's {case.op} has no algorithms, protocols or channels to choose from")
    algorithm = settings.algorithm
    if algorithm is None:
        return None
    if algorithm not in known:
        return Refusal(f"{KEY}.nccl_algo", f"NCCL has no {algorithm} for {case.op}", f"it has {', '.join(known)}")
    if algorithm in _SIMPLE_ONLY and settings.protocol not in (None, NcclProtocol.Simple):
        return Refusal(f"{KEY}.nccl_proto", f"NCCL's {algorithm} has no {settings.protocol}", "it has Simple")
    if algorithm in _ON_THE_SWITCH and not traits.multicast:
        return Refusal(f"{KEY}.nccl_algo", f"NCCL's {algorithm} needs multicast", traits.multicast_reason)
    return None
