"""What a GPU runs at: clocks, temperature, power, and why it is held back. Read through NVML, never set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from runner.environment.nvml import answers, reason, session

REASONS = {
    0x001: "idle",
    0x002: "application clocks setting",
    0x004: "software power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "hardware power brake",
    0x100: "display clocks setting",
}
"""NVML's bits for why clocks are not higher."""


def read_clocks(device: torch.device) -> dict[str, Any]:
    """A GPU's uuid, clocks (MHz), temperature (Celsius), power (W) and throttle reasons by name.

    The uuid is the one that the record's environment lists: ranks and the driver's order of GPUs need not agree. What
    NVML doesn't tell is named under "not_captured", with the reason; nothing is raised.
    """
    try:
        with session() as nvml:
            uuid = _uuid(device)
            return {"uuid": uuid, **_read(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid))}
    except Exception as error:
        return {"not_captured": reason(error)}


def reason_names(bits: int) -> list[str]:
    """The names of the throttle reasons in NVML's bits; unknown bits by their number."""
    names = [name for bit, name in REASONS.items() if bits & bit]
    unknown = bits & ~sum(REASONS)
    return [*names, f"{unknown:#x}"] if unknown else names


def _uuid(device: torch.device) -> str:
    """The driver's name of a device, which holds whatever CUDA_VISIBLE_DEVICES makes of its number."""
    text = str(torch.cuda.get_device_properties(device).uuid)
    return text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text}"


def _read(nvml: Any, handle: Any) -> dict[str, Any]:
    wanted: dict[str, Callable[[], Any]] = {
        "sm_mhz": lambda: int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        "memory_mhz": lambda: int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
        "temperature_c": lambda: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "throttle": lambda: reason_names(int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))),
    }
    found, missing = answers(wanted)
    return {**found, "not_captured": "; ".join(f"{name}: {why}" for name, why in missing.items())} if missing else found
