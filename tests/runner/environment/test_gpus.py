"""GPUs: what NVML says by name, and what is missing with its reason. No GPU is needed."""

import ctypes
import json
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from runner.environment import gpus as module
from runner.environment.gpus import gpus, rank_facts
from tests.golden import same_text


class FabricInfo(ctypes.Structure):
    """NVML's, as far as it is read."""

    _fields_ = (
        ("clusterUuid", ctypes.c_uint8 * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint32),
        ("state", ctypes.c_uint),
    )


def fabric_info(handle, pointer):
    info = ctypes.cast(pointer, ctypes.POINTER(FabricInfo)).contents
    info.state, info.cliqueId, info.clusterUuid[0] = 3, 7, 0xAB
    return 0


def no_link(handle, link):
    """Links 0 to 3 are there, 3 is down."""
    if link > 3:
        raise RuntimeError("Invalid Argument")
    return int(link < 3)


OF_A_DEVICE = {
    "Name": "NVIDIA H200",
    "MemoryInfo": SimpleNamespace(total=150 << 30),
    "MigMode": [0, 1],
    "EccMode": [1, 1],
    "PersistenceMode": 1,
    "EnforcedPowerLimit": 650_500,
    "PowerManagementDefaultLimit": 700_000,
    "Temperature": 41,
    "PowerUsage": 123_456,
    "CurrentClocksThrottleReasons": 0x24,
}
"""What nvmlDeviceGet.. says of each GPU."""


def nvml(**changes):
    """A pynvml that knows two GPUs, gpu-0 and gpu-1."""
    calls = []
    found = {f"nvmlDeviceGet{name}": Mock(return_value=value) for name, value in OF_A_DEVICE.items()} | {
        "nvmlInit": lambda: calls.append("init"),
        "nvmlShutdown": lambda: calls.append("shutdown"),
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_NVLINK_MAX_LINKS": 36,
        "c_nvmlGpuFabricInfoV_t": FabricInfo,
        "nvmlSystemGetDriverVersion": lambda: "580.159.04",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 13020,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: f"gpu-{index}",
        "nvmlDeviceGetHandleByUUID": lambda uuid: f"gpu-{uuid[-1]}",
        "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(busId=f"00000000:0{handle[-1]}:00.0"),
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle[-1]}",
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlDeviceGetClockInfo": lambda handle, kind: {1: 1980, 2: 3201}[kind],
        "nvmlDeviceGetMaxClockInfo": lambda handle, kind: {1: 1980, 2: 3201}[kind],
        "nvmlDeviceGetApplicationsClock": lambda handle, kind: {1: 1830, 2: 3200}[kind],
        "nvmlDeviceGetNvLinkState": no_link,
        "nvmlDeviceGetGpuFabricInfoV": fabric_info,
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: ["somebody", "else"] if handle == "gpu-1" else [],
        "calls": calls,
    }
    return SimpleNamespace(**found | changes)


TOLD = ("rank", "cores", "device", "torch_cuda", "nccl", "nvshmem")


def unsupported(*_):
    raise RuntimeError("Not Supported")


def look(monkeypatch, folder, library):
    """What is told on a machine whose driver's files lie in a folder."""
    monkeypatch.setitem(sys.modules, "pynvml", library)
    missing = {}
    return gpus(missing, folder, "libnothing.so.0"), missing


def test_all_that_nvml_tells(tmp_path, monkeypatch):
    library = nvml()
    found, missing = look(monkeypatch, tmp_path, library)
    assert library.calls == ["init", "shutdown"]
    assert [gpu["uuid"] for gpu in found["gpus"]] == ["GPU-0", "GPU-1"]
    same_text(json.dumps(found["gpus"][1], indent=1))
    assert found["cuda_driver"] == "13.2"
    assert set(missing) == {"gpu_clocks"}
    assert "timing.devices" in missing["gpu_clocks"]


def test_a_driver_that_does_not_say_its_version_is_no_gap_in_the_gpus(tmp_path, monkeypatch):
    found, missing = look(monkeypatch, tmp_path, nvml(nvmlSystemGetCudaDriverVersion_v2=unsupported))
    assert (len(found["gpus"]), found["cuda_driver"], missing["cuda_driver"]) == (2, None, "Not Supported")


def test_what_one_question_lacks_the_others_still_tell(tmp_path, monkeypatch):
    for function, key in {
        "MigMode": "mig",
        "ApplicationsClock": "application_sm_mhz",
        "GpuFabricInfoV": "fabric",
        "ComputeRunningProcesses": "other_processes",
    }.items():
        found, _ = look(monkeypatch, tmp_path, nvml(**{f"nvmlDeviceGet{function}": unsupported}))
        gpu = found["gpus"][1]
        assert key not in gpu
        assert gpu["not_captured"][key] == "Not Supported"
        assert gpu["ecc"] is True


def test_links_that_nvml_can_not_answer_for_are_unknown_not_none(tmp_path, monkeypatch):
    found, _ = look(monkeypatch, tmp_path, nvml(nvmlDeviceGetNvLinkState=Mock(side_effect=RuntimeError("GPU is lost"))))
    assert "nvlink" not in found["gpus"][0]
    assert found["gpus"][0]["not_captured"]["nvlink"] == "GPU is lost"
    found, _ = look(monkeypatch, tmp_path, nvml(nvmlDeviceGetNvLinkState=unsupported))
    assert found["gpus"][0]["nvlink"]["count"] == 0


def test_without_the_library_the_reason_is_said(tmp_path, monkeypatch):
    for library, why in ((None, "nvidia-ml-py is not installed"), (nvml(nvmlInit=unsupported), "Not Supported")):
        found, missing = look(monkeypatch, tmp_path, library)
        assert found == {"gpus": None, "cuda_driver": None}
        assert why in missing["gpus"]
        assert why in missing["cuda_driver"]


def test_no_driver_is_said_and_not_taken_for_no_gpu(tmp_path, monkeypatch):
    found, missing = look(monkeypatch, tmp_path / "nothing", nvml(nvmlInit=lambda: pytest.fail("asked")))
    assert found == {"gpus": None, "cuda_driver": None}
    assert missing == {"gpus": "no driver"}


def test_a_rank_says_what_it_has_and_what_it_lacks(monkeypatch):
    sizes = {"multi_processor_count": 132, "total_memory": 150 << 30, "L2_cache_size": 60 << 20}
    properties = SimpleNamespace(name="NVIDIA H200", uuid="12-34", major=9, minor=0, **sizes)
    torch = Mock()
    torch.version.cuda = "13.0"
    torch.device = lambda kind, index: SimpleNamespace(index=index)
    torch.cuda.current_device.return_value = 3
    torch.cuda.nccl.version.return_value = (2, 28, 9)  # what torch was built with
    torch.cuda.get_device_properties.return_value = properties
    version = SimpleNamespace(libnvshmem_version="3.8.0", nvshmem4py_version="0.3.1")
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "nvshmem.core", SimpleNamespace(get_version=lambda: version))
    monkeypatch.setattr(module, "CUDA_LIBRARY", "libnothing.so.0")
    monkeypatch.setattr(module, "loaded_version", lambda: "2.29.3")
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda process: {0, 1, 2, 8, 10, 11})
    found = rank_facts(SimpleNamespace(rank=1), None)
    same_text(json.dumps({key: found[key] for key in TOLD}, indent=1))
    assert set(found["not_captured"]) == {"cuda_driver"}


def test_a_rank_without_a_gpu_gives_reasons(monkeypatch):
    monkeypatch.setattr(module, "CUDA_LIBRARY", "libnothing.so.0")
    monkeypatch.delitem(sys.modules, "nvshmem.core", raising=False)
    found = rank_facts(object(), None)
    assert {"device", "nvshmem", "cuda_driver"} <= set(found["not_captured"])
    assert all(found["not_captured"].values())
