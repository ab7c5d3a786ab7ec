"""Clocks: what NVML says by name, and what is missing with its reason."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch

from runner.timing import gpu_state
from runner.timing.gpu_state import read_clocks, reason_names
from tests.golden import same_text
from tests.runner.environment.test_gpus import nvml, unsupported

DEVICE = torch.device("cuda", 1)


@pytest.fixture
def with_nvml(monkeypatch):
    def use(module):
        monkeypatch.setitem(sys.modules, "pynvml", module)
        monkeypatch.setattr(gpu_state, "_uuid", lambda device: "GPU-1")
        return module

    return use


def test_everything_is_read_and_nothing_left_open(with_nvml):
    module = with_nvml(nvml())
    same_text(json.dumps(read_clocks(DEVICE)))
    assert module.calls == ["init", "shutdown"]


def test_what_one_query_lacks_the_others_still_tell(with_nvml):
    found = read_clocks(DEVICE) if with_nvml(nvml(nvmlDeviceGetPowerUsage=unsupported)) else {}
    assert found["sm_mhz"] == 1980
    assert "power_w" not in found
    assert found["not_captured"] == "power_w: Not Supported"


def test_no_library_and_no_gpu_are_reasons(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py is not installed" in read_clocks(DEVICE)["not_captured"]
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    assert read_clocks(torch.device("cpu"))["not_captured"]


def test_the_uuid_is_the_drivers(monkeypatch):
    for text in ("12-34", "GPU-12-34"):
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device, text=text: SimpleNamespace(uuid=text))
        assert gpu_state._uuid(DEVICE) == "GPU-12-34"


def test_reasons_have_names_and_unknown_bits_their_number():
    assert reason_names(0) == []
    assert reason_names(0x1 | 0x80) == ["idle", "hardware power brake"]
    assert reason_names(0x4 | 0x1000) == ["software power cap", "0x1000"]
