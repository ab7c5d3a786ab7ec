"""SGLang's allreduce_configs.json: the fastest way of an all_reduce at each measured size, as its tuner writes it.

The format is that of SGLang's proposed tuner (sgl-project/sglang#34838, open in August 2026): SGLang 0.5.14 neither
writes nor reads such a file. Its backends are SGLang's own kernels (the baselines sglang/push and sglang/pull, of which
SGLang takes one by ranks and bytes), NCCL, and PyTorch's symmetric memory on a copy (torch/two_shot_staged and
torch/multimem_staged). What the file was made of stands in a key of its own, for JSON has no comments.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from cases.record.nccl_settings import said_choice
from cases.record.record import Record
from reports.export.sources import is_undisturbed, sources, times_of

BACKENDS = {
    "sglang/push": "custom_allreduce",
    "sglang/pull": "custom_allreduce",
    "nccl": "nccl",
    "torch/two_shot_staged": "torch_symm_mem",
    "torch/multimem_staged": "torch_symm_mem",
}
"""SGLang's names of what our baselines run."""

HOW = (
    "run symlab run op=all_reduce dtype=bfloat16 algorithms=[two_shot] fabric=nvshmem "
    "baselines=[nccl,sglang/push,sglang/pull]"
)


def sglang_configs(found: Sequence[Record]) -> str:
    """Return the text of allreduce_configs.json. ValueError, in one line, if the records do not entitle to it."""
    if not any(BACKENDS.get(record.case.algorithm) == "custom_allreduce" for record in found):
        raise ValueError(f"no record of sglang/push or sglang/pull (RECORDS), {HOW}")
    mine = sources(found, "all_reduce by nccl and sglang/push or sglang/pull", _is_wanted, HOW)
    curves: dict[str, dict[int, float]] = {}
    for name, backend in BACKENDS.items():
        times = times_of(record for record in mine.records if record.case.algorithm == name)
        best = curves.setdefault(backend, {})
        best |= {size: min(time, best.get(size, time)) for size, time in times.items()}
    sizes = sorted(set(curves["nccl"]) & set(curves["custom_allreduce"]))
    if not sizes:
        raise ValueError(f"nccl and SGLang's kernels were timed at no size together (RECORDS), {HOW}")
    configs = []
    for size in sizes:
        time_us, backend = min((times[size], name) for name, times in curves.items() if size in times)
        configs.append(
            {
                "size_bytes": size,
                "backend": backend,
                "time_us": time_us,
                "tp_size": mine.ranks,
                "dtype": f"torch.{mine.dtype}",
            }
        )
    document = {"tp_size": mine.ranks, "ep_size": 1, "configs": configs, "made_of": mine.lines()}
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _is_wanted(record: Record) -> bool:
    case = record.case
    is_own_choice = not said_choice(record) and is_undisturbed(record)
    is_sum = (case.op, case.reduction) == ("all_reduce", "sum") and case.algorithm in BACKENDS
    return is_sum and (case.algorithm != "nccl" or is_own_choice)
