"""timing.predict: which requests can't have it, in one line each, and the type of GPU that predictions are of."""

from __future__ import annotations

from collections.abc import Sequence

from runner.gpu.gpu_type import GpuType
from runner.gpu.names import KEY
from runner.gpu.reading import gpu_type, type_of_device
from runner.request.gpu_types import GpuAsked
from runner.request.schema import TimingMode
from runner.request.validate import ResolvedRequest
from runner.request_error import RequestError
from simulator.gpu import Gpu

PREDICT = "timing.predict"


def check_beside(request: ResolvedRequest, asked: GpuAsked, devices: Sequence[str]) -> None:
    """RequestError for a request with timing.predict that measures nothing, times jobs beside each other, or runs on
    GPUs of which the model knows too little.

    asked: the GPU that the job asks for. devices: the names of this machine's GPUs; none if they are only known where
    the job runs.
    """
    if request.fabric.simulated:
        raise RequestError(
            f"nothing is measured in the simulator ({PREDICT}), leave it false, or ask symlab predict; on GPUs "
            "fabric=nvshmem measures"
        )
    if request.timing.mode == TimingMode.none:
        raise RequestError(f"nothing is timed with timing.mode=none ({PREDICT}), leave it false")
    if request.timing.lead_in_calls:
        raise RequestError(
            f"calls before a sample are not in the model (timing.lead_in_calls), leave it 0 or {PREDICT} false"
        )
    if request.timing.shared:
        raise RequestError(
            f"a prediction is simulated where timing.shared=true times other jobs ({PREDICT}), give one of them"
        )
    if request.fabric.gpu is not None or devices:
        type_beside(request.fabric.gpu, asked, devices)


def type_beside(gpu: Gpu | None, asked: GpuAsked, devices: Sequence[str]) -> GpuType:
    """Return the type of GPU to predict for: the one that fabric.gpu names, else that of the devices.

    gpu: fabric.gpu's limits. asked: the GPU that the job asks for, and the folders that have types. devices: names of
    GPUs as CUDA reports them. RequestError for devices of an unknown type, of several types, or of one without floors.
    """
    if gpu is not None:
        return asked.type(gpu)
    types = sorted({type_of_device(name, asked.folders) for name in devices})
    named = ", ".join(dict.fromkeys(devices)) or "unknown here"
    if len(types) != 1 or not types[0]:
        why = "of several types" if len(types) > 1 and all(types) else "of no known type"
        raise RequestError(f"the GPUs are {named}, {why} ({PREDICT}), name one: {KEY}=h200")
    found = gpu_type(types[0], asked.folders)
    if found.floors is None:
        raise RequestError(
            f"{found.name} has no floors ({PREDICT}), measure them with symlab calibrate, or name another "
            f"type: {KEY}=h200"
        )
    return found
