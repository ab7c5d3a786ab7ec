"""SGLang's allreduce_configs.json: the fastest backend of each size, and which records entitle to it."""

from __future__ import annotations

import json

import pytest

from cases.record.record import Record
from reports.export.configs import sglang_configs
from tests.reports.export.serving import serving
from tests.reports.export.sweeps import timed
from tests.reports.synthetic import KIB, MIB, record, with_case

TIMES_US = {
    KIB: {"nccl": 9.0, "sglang/push": 2.0},
    64 * KIB: {"nccl": 11.0, "sglang/push": 4.0, "torch/two_shot_staged": 3.5},
    4 * MIB: {"nccl": 30.0, "sglang/pull": 40.0, "torch/two_shot_staged": 31.0},
    64 * MIB: {"nccl": 300.0},
}
"""Invented."""


def measured() -> list[Record]:
    return [
        timed(with_case(record(name, size), accumulator="library"), time_us)
        for size, times in TIMES_US.items()
        for name, time_us in times.items()
    ]


def test_each_size_has_its_fastest_backend() -> None:
    document = json.loads(sglang_configs(measured()))
    assert (document["tp_size"], document["ep_size"]) == (4, 1)
    assert [(one["size_bytes"], one["backend"], one["time_us"]) for one in document["configs"]] == [
        (KIB, "custom_allreduce", 2.0),
        (64 * KIB, "torch_symm_mem", 3.5),
        (4 * MIB, "nccl", 30.0),
    ], "64 MiB is no size at which SGLang has a kernel of its own"
    assert {(one["tp_size"], one["dtype"]) for one in document["configs"]} == {(4, "torch.bfloat16")}
    assert any(line.startswith("records sha256:") for line in document["made_of"])


def test_records_without_sglangs_kernels_entitle_to_nothing() -> None:
    for found in (serving(), []):
        with pytest.raises(ValueError, match=r"no record of sglang/push or sglang/pull \(RECORDS\), run "):
            sglang_configs(found)
    apart = [one for one in measured() if (one.case.algorithm == "nccl") == (one.case.size_bytes == 64 * MIB)]
    with pytest.raises(ValueError, match=r"nccl and SGLang's kernels were timed at no size together \(RECORDS\), run "):
        sglang_configs(apart)
