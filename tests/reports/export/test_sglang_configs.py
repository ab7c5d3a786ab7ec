"""SGLang's allreduce_configs.json: the fastest of its all-reduces at each published size."""

import json
from dataclasses import replace

import pytest

from cases.record.record import Record
from cases.sglang_sizes import taken
from reports.commands import export
from reports.export.sglang_configs import sglang_configs
from reports.record.bundle import PUBLISHED, read
from tests.depends import ROOT
from tests.golden import refused
from tests.reports.export.serving import serving, serving_record, us
from tests.reports.export.sweeps import SIZES
from tests.reports.synthetic import with_case

PLACE = ROOT / PUBLISHED / "h200-x4-2026-11-28"
KERNELS = ("nccl", "sglang/push", "sglang/pull")


@pytest.fixture(scope="module")
def published() -> list[Record]:
    return read(sorted(PLACE.glob("*.xz"))[:1])


def test_each_size_has_the_fastest_that_sglang_has_there(published):
    said = json.loads(sglang_configs(published))
    assert (said["tp_size"], said["ep_size"]) == (4, 1)
    chosen = {one["size_bytes"]: one for one in said["configs"]}
    assert len(chosen) == 10
    for size, one in chosen.items():
        times = {
            record.case.algorithm: record.timing.median_us
            for record in published
            if record.timing is not None
            and (record.case.size_bytes, record.case.dtype) == (size, "bfloat16")
            and record.case.algorithm in KERNELS
        }
        fastest = min(times, key=times.__getitem__)
        assert one["backend"] == ("nccl" if fastest == "nccl" else "custom_allreduce")
        assert one["time_us"] == pytest.approx(times[fastest], abs=1e-3)
    assert {one["backend"] for one in chosen.values()} == {"nccl", "custom_allreduce"}


def invented(*left_out, multicast=True, arch="sm_90a"):
    """Records whose own kernels lead at first, then symmetric memory, then NCCL."""
    own = [serving_record("flashinfer/vllm_one_shot", size, multicast=multicast) for size in SIZES if size <= 16 << 20]
    own = [with_case(one, algorithm=taken(one.case.size_bytes, one.case.world_size, arch)) for one in own]
    found = [*serving(*left_out, multicast=multicast), *own]
    return [replace(one, fabric=replace(one.fabric, arch=arch)) for one in found]


def backends(**given):
    return {one["size_bytes"]: one for one in json.loads(sglang_configs(invented(**given)))["configs"]}


def test_symmetric_memory_counts_where_sglang_takes_it():
    chosen = backends(multicast=True)
    order = ["custom_allreduce", "torch_symm_mem", "nccl"]
    assert list(dict.fromkeys(chosen[size]["backend"] for size in sorted(chosen))) == order
    ranks = next(iter(chosen.values()))["tp_size"]
    symmetric = "torch/multimem_staged" if ranks in (4, 6, 8) else "torch/two_shot_staged"
    for size, one in chosen.items():
        if one["backend"] == "torch_symm_mem":
            assert one["time_us"] == pytest.approx(us(symmetric, size), abs=1e-3)
    for without in ({"multicast": False}, {"arch": "sm_103a"}):
        assert {one["backend"] for one in backends(**without).values()} == {"custom_allreduce", "nccl"}


def test_the_command_writes_it_and_says_what_it_is_of(tmp_path, capsys):
    place = tmp_path / "allreduce_configs.json"
    export(["--to", "sglang-configs", str(PLACE), "-o", str(place)], standalone_mode=False)
    assert "4 x NVIDIA H200" in capsys.readouterr().out
    assert len(json.loads(place.read_text())["configs"]) == 10


def without(records, *algorithms, sizes=SIZES):
    return [one for one in records if one.case.algorithm not in algorithms or one.case.size_bytes not in sizes]


def test_records_that_lack_what_sglang_takes_or_are_of_two_kinds_are_refused(published):
    (last,) = (one for one in invented() if one.case.algorithm == "nccl" and one.case.size_bytes == SIZES[-1])
    for records in (
        without(published, "sglang/push", "sglang/pull"),
        without(published, "sglang/push"),
        without(published, "nccl"),
        without(invented(), "sglang/pull", sizes=SIZES[6:7]),
        invented("torch/multimem_staged", "torch/two_shot_staged"),
        [*invented(), with_case(last, placement="in_place")],
        [*invented(), replace(last, library="NCCL 9.9.9")],
        [one for one in invented() if one.case.size_bytes in SIZES[:3]],
        [serving_record("nccl", size, world_size=3) for size in SIZES],
    ):
        with refused():
            sglang_configs(records)
