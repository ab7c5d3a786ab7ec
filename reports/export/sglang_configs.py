"""SGLang's allreduce_configs.json: the fastest of its all-reduces at each size.

The form is that of the tuner that SGLang pull request 34838 proposes, which times a backend after another, outside of
CUDA graphs. No release loads the file yet; `symlab` in it says what the figures are of.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from cases.record.record import Record
from reports.export.choice import FEWEST_SIZES, regret_of
from reports.export.sources import left_out_text, sources
from reports.export.thresholds import (
    MULTIMEM,
    NCCL,
    SGLANG_MULTIMEM,
    TWO_SHOT,
    capability_of,
    check_graph,
    curve,
    is_a_sum,
)

PUSH, PULL = "sglang/push", "sglang/pull"
HOW = "run symlab run +exp=allreduce_gpus dtype=bfloat16 baselines=[nccl,sglang/push,sglang/pull]"


def sglang_configs(found: Sequence[Record]) -> str:
    """Return allreduce_configs.json, of records of nccl and of SGLang's kernels at the sizes at which it runs them;
    PyTorch's symmetric memory counts where SGLang takes it. ValueError for other records."""
    what = f"all_reduce of bfloat16 by {PUSH} or {PULL}, and {NCCL}"
    mine = sources(found, what, lambda record: is_a_sum(record, (NCCL, PUSH, PULL, TWO_SHOT, MULTIMEM)), HOW)
    check_graph(mine)
    symmetric = MULTIMEM if mine.ranks in SGLANG_MULTIMEM.get(capability_of(mine), ()) else TWO_SHOT
    times = {
        "custom_allreduce": {**curve(mine, PUSH), **curve(mine, PULL)},
        "torch_symm_mem": curve(mine, symmetric) if mine.has_multicast else {},
        NCCL: curve(mine, NCCL),
    }
    times = {name: one for name, one in times.items() if one}
    if not {"custom_allreduce", NCCL} <= set(times):
        raise ValueError(f"no record of {what} (RECORDS), {HOW}")
    configs = []
    for size in sorted(times[NCCL]):
        backend, us = min(((name, one[size]) for name, one in times.items() if size in one), key=lambda one: one[1])
        configs.append({"size_bytes": size, "backend": backend, "time_us": round(us, 3), "tp_size": mine.ranks})
    says = [*mine.lines(), "times of CUDA graphs; no release of SGLang loads this file"]
    sizes = [size for size in sorted(times[NCCL]) if all(size in one for one in times.values())]
    if len(sizes) >= FEWEST_SIZES:
        says.append(left_out_text(regret_of(times, sizes)))
    document = {
        "tp_size": mine.ranks,
        "ep_size": 1,
        "configs": [{**one, "dtype": "torch.bfloat16"} for one in configs],
        "symlab": [f"# {line}" for line in says],
    }
    return json.dumps(document, indent=2) + "\n"
