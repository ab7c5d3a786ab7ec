"""SGLang's allreduce_configs.json: the fastest of its all-reduces at each size.

The form is that of the tuner that SGLang pull request 34838 proposes, which times a backend after another, outside of
CUDA graphs. No release loads the file yet; `symlab` in it says what the figures are of.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from cases.record.record import Record
from cases.sglang_sizes import NCCL, PULL, PUSH, WORLD_SIZES, taken
from reports.export.choice import Times, regret_of
from reports.export.sources import Sources, left_out_text, sources
from reports.export.thresholds import (
    MULTIMEM,
    SGLANG_MULTIMEM,
    TWO_SHOT,
    capability_of,
    check_graph,
    curve,
    is_a_sum,
)
from reports.table.text import size_text

HOW = (
    "run symlab run +exp=allreduce_gpus dtype=bfloat16 baselines=[nccl,sglang/push,sglang/pull], and with multicast "
    "torch/two_shot_staged and torch/multimem_staged"
)


def sglang_configs(found: Sequence[Record]) -> str:
    """Return allreduce_configs.json, of records of nccl, of SGLang's kernels at all sizes at which it runs them, and of
    PyTorch's symmetric memory where SGLang takes that. ValueError for other records."""
    what = f"all_reduce of bfloat16 by {PUSH} or {PULL}, and {NCCL}"
    mine = sources(found, what, lambda record: is_a_sum(record, (NCCL, PUSH, PULL, TWO_SHOT, MULTIMEM)), HOW)
    check_graph(mine)
    if not (nccl := curve(mine, NCCL)):
        raise ValueError(f"no record of {what} (RECORDS), {HOW}")
    times = {"custom_allreduce": _own(mine, nccl), NCCL: nccl}
    capability = capability_of(mine)
    if mine.has_multicast and capability in SGLANG_MULTIMEM:
        name = MULTIMEM if mine.ranks in SGLANG_MULTIMEM[capability] else TWO_SHOT
        times["torch_symm_mem"] = _complete(curve(mine, name), dict.fromkeys(nccl, name))
    configs = []
    for size in sorted(times[NCCL]):
        backend, us = min(((name, one[size]) for name, one in times.items() if size in one), key=lambda one: one[1])
        configs.append({"size_bytes": size, "backend": backend, "time_us": round(us, 3), "tp_size": mine.ranks})
    says = [*mine.lines(), "times of CUDA graphs; no release of SGLang loads this file"]
    sizes = [size for size in sorted(times[NCCL]) if all(size in one for one in times.values())]
    says.append(left_out_text(regret_of(times, sizes)))
    document = {
        "tp_size": mine.ranks,
        "ep_size": 1,
        "configs": [{**one, "dtype": "torch.bfloat16"} for one in configs],
        "symlab": [f"# {line}" for line in says],
    }
    return json.dumps(document, indent=2) + "\n"


def _own(mine: Sources, sizes: Iterable[int]) -> Times:
    """Times of the kernel of its own that SGLang runs at each size. ValueError if one is missing."""
    if mine.ranks not in WORLD_SIZES:
        known = ", ".join(map(str, WORLD_SIZES))
        raise ValueError(f"SGLang has no all-reduce of its own for {mine.ranks} ranks (RECORDS), only for {known}")
    by_size = {size: taken(size, mine.ranks, mine.arch) for size in sizes}
    wanted = {size: name for size, name in by_size.items() if name != NCCL}
    curves = {name: curve(mine, name) for name in (PUSH, PULL)}
    return _complete({size: curves[name][size] for size, name in wanted.items() if size in curves[name]}, wanted)


def _complete(times: Times, wanted: Mapping[int, str]) -> Times:
    """The times. wanted: the contestant at each size of which they must have one; ValueError for the first without."""
    for size, name in wanted.items():
        if size not in times:
            raise ValueError(f"{name}, which SGLang takes at {size_text(size)}, was not timed there (RECORDS), {HOW}")
    return times
