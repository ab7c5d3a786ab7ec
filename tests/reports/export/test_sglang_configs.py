"""SGLang's allreduce_configs.json: the fastest of its all-reduces at each published size."""

import json

import pytest

from cases.record.record import Record
from reports.commands import export
from reports.export.sglang_configs import sglang_configs
from reports.record.bundle import PUBLISHED, read
from tests.depends import ROOT
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


def backends(multicast):
    """Of invented records, whose own kernels lead at first, then symmetric memory, then NCCL."""
    own = [serving_record("flashinfer/vllm_one_shot", size, multicast=multicast) for size in SIZES]
    found = [*serving(multicast=multicast), *(with_case(one, algorithm="sglang/push") for one in own)]
    return {one["size_bytes"]: one for one in json.loads(sglang_configs(found))["configs"]}


def test_symmetric_memory_counts_where_sglang_takes_it():
    chosen = backends(multicast=True)
    order = ["custom_allreduce", "torch_symm_mem", "nccl"]
    assert list(dict.fromkeys(chosen[size]["backend"] for size in sorted(chosen))) == order
    ranks = next(iter(chosen.values()))["tp_size"]
    taken = "torch/multimem_staged" if ranks in (4, 6, 8) else "torch/two_shot_staged"
    for size, one in chosen.items():
        if one["backend"] == "torch_symm_mem":
            assert one["time_us"] == pytest.approx(us(taken, size), abs=1e-3)
    assert {one["backend"] for one in backends(multicast=False).values()} == {"custom_allreduce", "nccl"}


def test_the_command_writes_it_and_says_what_it_is_of(tmp_path, capsys):
    place = tmp_path / "allreduce_configs.json"
    export(["--to", "sglang-configs", str(PLACE), "-o", str(place)], standalone_mode=False)
    assert "4 x NVIDIA H200" in capsys.readouterr().out
    assert len(json.loads(place.read_text())["configs"]) == 10


def test_records_without_its_kernels_are_refused(published):
    with pytest.raises(ValueError, match="sglang/push or sglang/pull"):
        sglang_configs([one for one in published if not one.case.algorithm.startswith("sglang")])
