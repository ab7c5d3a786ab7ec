"""The CUDA driver as NvshmemFabric uses it: load a cubin, launch, copy, and wait without ever blocking.

A synchronise call that blocks would wait for ever on a kernel that spins, and no signal or deadline would end it. So
all waiting here is asking a stream whether it is done, with short sleeps between. Every call's status is checked.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from memory.fabric import DeadlineExceeded, DeviceFault, Executable, FabricError

if TYPE_CHECKING:
    import torch

EAGER_LOOKS = 200
"""How often a stream is asked without a sleep: a kernel of some microseconds is waited for so."""

FIRST_SLEEP_S = 20e-6
LONGEST_SLEEP_S = 1e-3
SLEEP_GROWTH = 1.5


class Driver(Protocol):
    """What NvshmemFabric needs of a GPU. All work goes to the device's current stream. Tests have a stand-in."""

    @property
    def device(self) -> torch.device: ...

    @property
    def arch(self) -> str: ...

    @property
    def l2_bytes(self) -> int: ...
    @property
    def multiprocessors(self) -> int: ...

    @property
    def name(self) -> str: ...

    def free_bytes(self) -> int:
        """Memory of the GPU that nobody holds."""
        ...

    def lend(self, address: int, size_bytes: int) -> tuple[torch.Tensor, weakref.ref[Any]]:
        """The memory as a flat uint8 tensor, and a reference that dies with the last tensor that shares it."""
        ...

    def launch(self, executable: Executable, grid: int, block: int, arguments: Sequence[int]) -> None:
        """Queue a kernel. ValueError for a wrong number of arguments or one that does not fit its parameter."""
        ...

    def copy(self, destination: int, source: int, size_bytes: int) -> None:
        """Queue a copy between two addresses."""
        ...

    def stream(self) -> int:
        """The handle of the device's current stream."""
        ...

    def wait(self, deadline: float | None) -> None:
        """Until all queued here is done. DeviceFault for an error of the device, DeadlineExceeded at monotonic time."""
        ...


KEPT_TABLES = 1024
"""Packed arguments of launches that are kept. Packing eleven took 22 us of a 2.5 GHz Xeon on 2026-11-21, and
a loop makes the same launch again and again."""


def _table(name: str, sizes: Sequence[int], arguments: Sequence[int]) -> tuple[Any, list[Any]]:
    """A kernel's arguments as cuLaunchKernel takes them: addresses of values, and the values that have to stay."""
    if len(arguments) != len(sizes):
        raise ValueError(f"{name} has {len(sizes)} parameters, and was given {len(arguments)}")
    values = [
        packed(value, size, f"{name}, parameter {index}")
        for index, (value, size) in enumerate(zip(arguments, sizes, strict=True))
    ]
    cells = [ctypes.create_string_buffer(value, len(value)) for value in values]
    return (ctypes.c_void_p * max(len(cells), 1))(*(ctypes.addressof(cell) for cell in cells)), cells


class _Lent:
    """Memory as torch takes it from others; the tensors made from it keep this object alive."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (size_bytes,),
            "strides": None,
            "typestr": "|u1",
            "version": 3,
        }


class CudaDriver:
    """One GPU of this process, through cuda.bindings.driver. rank is what messages name.

    It makes the device current and its context exist. Kernels are loaded once per digest, and at once: under lazy
    loading a first launch would load its code while an earlier kernel spins, and wait for that kernel.
    """

    def __init__(self, device_index: int, rank: int) -> None:
        import torch
        from cuda.bindings import driver

        torch.cuda.set_device(device_index)
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.zeros(1, device=f"cuda:{device_index}")  # the context exists from here on
        self._driver = driver
        self._torch = torch
        self._rank = rank
        self._device = torch.device("cuda", device_index)
        self._functions: dict[tuple[str, str], tuple[Any, tuple[int, ...]]] = {}
        self._tables: dict[tuple[str, tuple[int, ...]], tuple[Any, list[Any]]] = {}
        self._streams: set[int] = set()
        self._last = ""
        properties = torch.cuda.get_device_properties(device_index)
        self._name = str(properties.name)
        self._arch = f"sm_{properties.major}{properties.minor}a"
        size = self._call(
            "cuDeviceGetAttribute", driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, self._cu()
        )
        self._l2_bytes = int(size)
        self._multiprocessors = int(properties.multi_processor_count)

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def arch(self) -> str:
        """ "sm_90a": what kernels for this GPU are compiled for."""
        return self._arch

    @property
    def l2_bytes(self) -> int:
        return self._l2_bytes

    @property
    def multiprocessors(self) -> int:
        return self._multiprocessors

    @property
    def name(self) -> str:
        """ "NVIDIA H200"."""
        return self._name

    def free_bytes(self) -> int:
        free, _ = self._call("cuMemGetInfo")
        return int(free)

    def lend(self, address: int, size_bytes: int) -> tuple[torch.Tensor, weakref.ref[Any]]:
        lent = _Lent(address, size_bytes)
        tensor = self._torch.as_tensor(lent, device=self._device)
        if tensor.data_ptr() != address:
            raise FabricError(f"rank {self._rank}: torch copied memory at {address:#x} instead of sharing it")
        return tensor, weakref.ref(lent)

    def load(self, executable: Executable) -> tuple[Any, tuple[int, ...]]:
        """The kernel's function and the sizes in bytes of its parameters, loaded now if it was not before."""
        key = (executable.digest, executable.entry)
        if key not in self._functions:
            if not executable.cubin:
                raise ValueError(f"{executable.name} has no cubin: it was compiled for the simulator only")
            module = self._call("cuModuleLoadData", executable.cubin)
            function = self._call("cuModuleGetFunction", module, executable.entry.encode())
            self._call("cuFuncLoad", function)
            self._functions[key] = (function, self._parameter_sizes(function))
        return self._functions[key]

    def launch(self, executable: Executable, grid: int, block: int, arguments: Sequence[int]) -> None:
        if executable.arch not in (self.arch, self.arch.rstrip("a")):
            raise ValueError(f"{executable.name} was compiled for {executable.arch}, this GPU is {self.arch}")
        function, sizes = self.load(executable)
        key = (executable.digest, tuple(arguments))
        if key not in self._tables:
            if len(self._tables) >= KEPT_TABLES:
                self._tables.clear()
            self._tables[key] = _table(executable.name, sizes, arguments)
        table, _ = self._tables[key]
        stream = self.stream()
        self._last = executable.name
        self._streams.add(stream)
        self._call("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, 0, stream, ctypes.addressof(table), 0)

    def copy(self, destination: int, source: int, size_bytes: int) -> None:
        stream = self.stream()
        self._streams.add(stream)
        self._call("cuMemcpyDtoDAsync", destination, source, size_bytes, stream)

    def stream(self) -> int:
        return int(self._torch.cuda.current_stream(self._device).cuda_stream)

    def wait(self, deadline: float | None) -> None:
        for stream in {self.stream(), *self._streams}:
            self._wait_for(stream, deadline)
        self._streams.clear()

    def _wait_for(self, stream: int, deadline: float | None) -> None:
        driver = self._driver
        looks, sleep_s = 0, FIRST_SLEEP_S
        while True:
            (status,) = driver.cuStreamQuery(stream)
            if status == driver.CUresult.CUDA_SUCCESS:
                return
            if status != driver.CUresult.CUDA_ERROR_NOT_READY:
                after = f" (last launched: {self._last})" if self._last else ""
                raise DeviceFault(f"rank {self._rank}: {self._described(status)}{after}")
            if deadline is not None and time.monotonic() >= deadline:
                what = f": {self._last} was launched last" if self._last else ""
                raise DeadlineExceeded(f"work launched on rank {self._rank} is still running at the deadline{what}")
            looks += 1
            if looks > EAGER_LOOKS:
                time.sleep(sleep_s)
                sleep_s = min(sleep_s * SLEEP_GROWTH, LONGEST_SLEEP_S)

    def _parameter_sizes(self, function: Any) -> tuple[int, ...]:
        """Bytes of each of a function's parameters. The driver says that there are no more by refusing the index."""
        driver = self._driver
        sizes: list[int] = []
        while True:
            status, _, size = driver.cuFuncGetParamInfo(function, len(sizes))
            if status == driver.CUresult.CUDA_ERROR_INVALID_VALUE:
                return tuple(sizes)
            if status != driver.CUresult.CUDA_SUCCESS:
                raise FabricError(f"rank {self._rank}: cuFuncGetParamInfo: {self._described(status)}")
            sizes.append(int(size))

    def _cu(self) -> Any:
        return self._call("cuDeviceGet", self._device.index)

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call the driver; what it returns beside its status. DeviceFault for errors that kernels leave behind."""
        status, *results = getattr(self._driver, name)(*arguments)
        if status != self._driver.CUresult.CUDA_SUCCESS:
            raise DeviceFault(f"rank {self._rank}: {name}: {self._described(status)}")
        return results[0] if len(results) == 1 else results

    def _described(self, status: Any) -> str:
        """ "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"."""
        texts = []
        for ask in (self._driver.cuGetErrorName, self._driver.cuGetErrorString):
            answer, text = ask(status)
            if answer == self._driver.CUresult.CUDA_SUCCESS and text:
                texts.append(text.decode() if isinstance(text, bytes) else str(text))
        return ": ".join(texts) or f"CUDA error {int(status)}"


def packed(value: int, size_bytes: int, what: str) -> bytes:
    """An integer as a kernel's parameter takes it: signed or unsigned, little-endian. ValueError if it does not fit."""
    bits = 8 * size_bytes
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise ValueError(f"{what}: {value} does not fit in its {size_bytes} bytes")
    return (value % (1 << bits)).to_bytes(size_bytes, "little")
