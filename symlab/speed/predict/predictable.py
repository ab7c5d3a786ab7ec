"""Which requests can be predicted: those whose settings the model is of. All others are refused, in one line each.

The model is of launches in a CUDA graph, one after another, with data in turn, timed on 2 and 4 GPUs without stress.
"""

from __future__ import annotations

from cases.case import Counts
from cases.ops import MATMUL
from cases.record.timing import L2State
from cases.stress import Stress
from kernels.baselines import names_for
from kernels.tuned_name import has_tuning, is_dependent_alone, step_of
from runner.gpu.gpu_type import GpuType
from runner.gpu.names import KEY
from runner.request.schema import TimingMode
from runner.request.validate import CUSTOM, Request
from runner.request_error import RequestError
from symlab.speed.predict import matmuls


def check_predictable(request: Request) -> None:
    """RequestError for a request with a setting that changes times, and of which the model knows nothing."""
    if request.op == CUSTOM:
        raise RequestError("a custom kernel has no collective to predict (op), name an op such as all_reduce")
    if request.fabric.gpu is None:
        raise RequestError(f"a prediction is of a type of GPU ({KEY}), name one: fabric.gpu=h200")
    timing = request.timing
    for key, value, predicted in (
        ("timing.mode", timing.mode, TimingMode.graph),
        ("timing.l2", timing.l2, L2State.rotate),
        ("counts", request.counts, Counts.uniform),
        ("stress", request.stress, Stress.none),
    ):
        if value != predicted:
            raise RequestError(f"{key}={value} is not predicted ({key}), leave it at {predicted}")
    if request.baselines != "auto" and request.baselines:
        raise RequestError(f"{_library(request.baselines[0])} (baselines), give baselines=none")
    for name in request.algorithms if isinstance(request.algorithms, tuple) else ():
        if name in names_for(request.op):
            raise RequestError(f"{_library(name)} (algorithms), name kernels of the catalogue")


def check_type(type_: GpuType, request: Request) -> None:
    """RequestError for a number of ranks that GPUs of a type can't have over their links, and for matmuls on a type
    that they are not predicted for."""
    ranks = request.world_size
    if request.gemm is not None and type_.name not in matmuls.GPUS:
        raise RequestError(
            f"{request.op} is predicted for {', '.join(matmuls.GPUS)}, where it was measured, not for {type_.name} "
            f"({KEY}), give fabric.gpu={matmuls.GPUS[0]}"
        )
    if ranks < 2 and request.op != MATMUL.op:
        raise RequestError("world_size is 1, and the model is of kernels between GPUs (world_size), give 2 or more")
    if ranks > type_.switch.gpus:
        raise RequestError(
            f"world_size is {ranks}, and {type_.switch.gpus} GPUs of {type_.name} reach each other over their links "
            f"(world_size, switch.gpus), give 2 to {type_.switch.gpus}"
        )


def is_dependent(name: str) -> bool:
    """Return whether a name asks for dependent launches, such as lamport@d. A name without a tuning that can be read
    does not."""
    try:
        return has_tuning(name) and (is_dependent_alone(name) or step_of(name).dependent)
    except ValueError:
        return False


def _library(name: str) -> str:
    return f"{name} is a library's, and the model is of the catalogue's kernels"
