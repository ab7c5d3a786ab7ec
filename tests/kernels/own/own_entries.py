"""Entries of YAML files that describe kernels, as files in a folder, for tests."""

import copy
import shutil

import yaml

from kernels.sources import ROOT

OWN = ROOT / "conf" / "exp" / "own"

SUM = {
    "op": "all_reduce",
    "kernel": "one_shot.ptx:one_shot",
    "launch": {"grid": "min(blocks, ceil_div(numel, 256))", "block": 256},
    "arguments": [
        *({"peers": "input"}, {"peers": "flags"}, "flags", "epochs"),
        *("output", "rank", "world_size", {"u32": "numel"}),
    ],
    "workspaces": {"flags": {"numel": "grid * world_size"}, "epochs": {"numel": "grid"}},
    "parameters": {"blocks": [4, 8]},
    "dtypes": ["float32"],
    "fold": "rank_order",
    "promises": ["late_rank", "no_host_barrier", "alternating_sizes", "graph_out_of_step"],
}
"""The PTX of conf/exp/own/one_shot.ptx."""

ADDED = {
    "op": "all_reduce",
    "kernel": "add_tensors.py:add_tensors",
    "arguments": [{"tensors": "input"}, {"tensor": "output"}, {"constexpr": "threads"}],
    "parameters": {"threads": [128, 64]},
    "dtypes": ["float32"],
    "fold": "rank_order",
}
"""The CuTe DSL function of conf/exp/own/add_tensors.py. Its ranks don't wait for each other."""


def changed(entry, **changes):
    """An entry with keys changed; those that are None are left out."""
    return {key: value for key, value in (copy.deepcopy(entry) | changes).items() if value is not None}


def write_entries(folder, **entries):
    """A YAML file of entries beside the kernels that they name."""
    folder.mkdir(exist_ok=True)
    for name in ("one_shot.ptx", "add_tensors.py"):
        shutil.copy(OWN / name, folder)
    file = folder / "kernels.yaml"
    file.write_text(yaml.safe_dump(entries, sort_keys=False), encoding="utf-8")
    return file
