"""The CUDA driver as NvshmemFabric uses it: load a cubin, launch, copy, and wait without ever blocking.

A synchronise call that blocks would wait for ever on a kernel that spins, and no signal or deadline would end it. So
all waiting here is asking a stream whether it is done, with short sleeps between. Every call's status is checked.
"""

from __future__ import annotations

import ctypes
import math
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memory.fabric import (
    PACKINGS,
    Argument,
    DeadlineExceeded,
    DeviceFault,
    Executable,
    FabricError,
    Launch,
    check_cluster_arch,
    check_dependent,
    check_shared_bytes,
    check_variable,
    packed,
)

if TYPE_CHECKING:
    import torch

EAGER_LOOKS = 200
"""Number of polls of a stream without a sleep: enough for a kernel of some microseconds."""

FIRST_SLEEP_S = 20e-6
LONGEST_SLEEP_S = 1e-3
SLEEP_GROWTH = 1.5


NVSHMEM_STATE = "nvshmemi_device_state_d"
"""The constant that NVSHMEM's host library fills in each CUlibrary with its device code (nvshmemx_culibrary_init)."""
KEPT_LAUNCHES = 1024
"""Number of prepared launches to keep. Packing eleven arguments took 22 us of a 2.5 GHz Xeon on 2026-11-21, and a loop
makes the same launch again and again."""


@dataclass(slots=True, eq=False)
class _Function:
    """A loaded kernel: the sizes of its parameters, its static shared memory, and the dynamic that it may have now.

    library: the CUlibrary of a kernel with NVSHMEM's device code, which is loaded as one; else None.
    """

    library: Any
    module: Any
    handle: Any
    sizes_bytes: tuple[int, ...]
    static_bytes: int
    dynamic_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """A launch that was checked. values: the packed arguments; table: the addresses of them, as cuLaunchKernel takes
    them. launch and arguments are kept because their identity is the key.
    """

    launch: Launch
    arguments: tuple[Argument, ...]
    handle: Any
    values: Any
    table: Any


def _table(contents: Sequence[bytes], arguments: Sequence[Argument]) -> tuple[Any, Any]:
    """Packed values one after another, each aligned as its kind wants, and the table of their addresses."""
    offsets, end = [], 0
    for content, argument in zip(contents, arguments, strict=True):
        alignment = PACKINGS[argument.kind].alignment_bytes
        offsets.append(-(-end // alignment) * alignment)
        end = offsets[-1] + len(content)
    values = (ctypes.c_uint64 * (2 * (end // 16 + 2)))()
    start = -(-ctypes.addressof(values) // 16) * 16
    for offset, content in zip(offsets, contents, strict=True):
        ctypes.memmove(start + offset, content, len(content))
    return values, (ctypes.c_void_p * max(len(offsets), 1))(*(start + offset for offset in offsets))


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


def lent_bytes(address: int, size_bytes: int, device: torch.device) -> tuple[torch.Tensor, weakref.ref[Any]]:
    """Return a device's memory at an address as a tensor of bytes, which never frees it, and what dies with the last
    tensor made from it. FabricError if torch copied it instead."""
    import torch

    lent = _Lent(address, size_bytes)
    tensor = torch.as_tensor(lent, device=device)
    if tensor.data_ptr() != address:
        raise FabricError(f"torch copied memory at {address:#x} instead of sharing it")
    return tensor, weakref.ref(lent)


def driver_bindings() -> Any:
    """Return the module cuda.bindings.driver; ImportError where there is none."""
    from cuda.bindings import driver

    return driver


class CudaDriver:
    """One GPU of this process, through cuda.bindings.driver. rank is what messages name. All work goes to the device's
    current stream. Tests have a stand-in.

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
        self.device = torch.device("cuda", device_index)
        self._functions: dict[tuple[str, str], _Function] = {}
        self._prepared: dict[tuple[str, str, int, int], _Prepared] = {}
        self._streams: set[int] = set()
        self._last = ""
        properties = torch.cuda.get_device_properties(device_index)
        self.name = str(properties.name)
        self.identity = str(properties.uuid)  # whatever its number in this process
        self.arch = f"sm_{properties.major}{properties.minor}a"
        self.l2_bytes = self._attribute("L2_CACHE_SIZE")
        self.block_shared_bytes = self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        self.multiprocessors = int(properties.multi_processor_count)

    def free_bytes(self) -> int:
        """Free memory of the GPU, in bytes."""
        free, _ = self._call("cuMemGetInfo")
        return int(free)

    def lend(self, address: int, size_bytes: int) -> tuple[torch.Tensor, weakref.ref[Any]]:
        """The memory as a flat uint8 tensor, and a reference that dies with the last tensor that shares it."""
        try:
            return lent_bytes(address, size_bytes, self.device)
        except FabricError as error:
            raise FabricError(f"rank {self._rank}: {error}", rank=self._rank) from error

    def load(self, executable: Executable) -> _Function:
        """Return the kernel's function, loaded now if it was not before."""
        key = (executable.digest, executable.entry)
        if key not in self._functions:
            if not executable.cubin and not executable.ptx:
                raise ValueError(f"{executable.name} has no cubin: it was compiled for the simulator only")
            # PTX that a user brought has no cubin: the driver compiles it.
            code, library = executable.cubin or executable.ptx.encode() + b"\0", None
            if NVSHMEM_STATE in executable.ptx:  # NVSHMEM takes a CUlibrary, of which this is the module
                library = self._call("cuLibraryLoadData", code, [], [], 0, [], [], 0)
                module = self._call("cuLibraryGetModule", library)
            else:
                module = self._call("cuModuleLoadData", code)
            function = self._call("cuModuleGetFunction", module, executable.entry.encode())
            self._call("cuFuncLoad", function)
            wanted = self._driver.CUfunction_attribute
            static = self._call("cuFuncGetAttribute", wanted.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function)
            most = self._call("cuFuncGetAttribute", wanted.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function)
            self._functions[key] = _Function(
                library, module, function, self._parameter_sizes(function), int(static), int(most)
            )
        return self._functions[key]

    def library_handle(self, executable: Executable) -> int:
        """The CUlibrary of a kernel with NVSHMEM's device code in it, loaded now if it was not before."""
        return int(self.load(executable).library)

    def launch(self, executable: Executable, launch: Launch, arguments: Sequence[Argument]) -> None:
        """Queue a kernel. ValueError for wrong arguments, and for more shared memory than a block can have."""
        given = tuple(arguments)  # the same object if it is a tuple
        key = (executable.digest, executable.entry, id(launch), id(given))
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self._prepare(executable, launch, given)
            if len(self._prepared) >= KEPT_LAUNCHES:
                self._prepared.clear()
            self._prepared[key] = prepared
        stream = self.stream() if launch.stream is None else launch.stream
        self._last = executable.name
        self._streams.add(stream)
        table = ctypes.addressof(prepared.table)
        if launch.cluster == (1, 1, 1) and not launch.cooperative and not launch.dependent:
            shape = (*launch.grid, *launch.block, launch.shared_bytes)
            self._call("cuLaunchKernel", prepared.handle, *shape, stream, table, 0)
        else:
            self._call("cuLaunchKernelEx", self._configuration(launch, stream), prepared.handle, table, 0)

    def _prepare(self, executable: Executable, launch: Launch, arguments: tuple[Argument, ...]) -> _Prepared:
        """Check a launch and pack its arguments."""
        if executable.arch not in (self.arch, self.arch.rstrip("a")):
            raise ValueError(f"{executable.name} was compiled for {executable.arch}, this GPU is {self.arch}")
        check_dependent(launch, executable)
        function = self.load(executable)
        values, table = _table(packed(executable.name, function.sizes_bytes, arguments), arguments)
        check_cluster_arch(executable.name, self.arch, math.prod(launch.cluster))
        check_shared_bytes(executable.name, launch, function.static_bytes, self.block_shared_bytes)
        if launch.shared_bytes > function.dynamic_bytes:
            attribute = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call("cuFuncSetAttribute", function.handle, attribute, launch.shared_bytes)
            function.dynamic_bytes = launch.shared_bytes
        if launch.cooperative:
            self._check_cooperative(executable.name, function, launch)
        return _Prepared(launch, arguments, function.handle, values, table)

    def _check_cooperative(self, name: str, function: _Function, launch: Launch) -> None:
        """Raise ValueError for a cooperative launch of more blocks than the GPU holds at once."""
        ask = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        each = int(self._call(ask, function.handle, launch.threads, launch.shared_bytes))
        if launch.blocks > each * self.multiprocessors:
            raise ValueError(
                f"{name}: a cooperative launch of {launch.blocks} blocks, and this GPU holds "
                f"{each * self.multiprocessors} of them at once: give at most that many"
            )

    def set_variable(self, executable: Executable, name: str, offset_bytes: int, content: bytes) -> None:
        """Write bytes into a module's variable at once. ValueError for an unknown one, and for bytes beyond its end."""
        module = self.load(executable).module
        status, address, size_bytes = self._driver.cuModuleGetGlobal(module, name.encode())
        if status == self._driver.CUresult.CUDA_ERROR_NOT_FOUND:
            raise ValueError(
                f"{executable.name} has no variable {name} that can be set (variables), name one that is .visible"
            )
        if status != self._driver.CUresult.CUDA_SUCCESS:
            raise DeviceFault(f"rank {self._rank}: cuModuleGetGlobal: {self._described(status)}", rank=self._rank)
        check_variable(executable.name, name, int(size_bytes), offset_bytes, content)
        held = ctypes.create_string_buffer(content, len(content))
        self._call("cuMemcpyHtoD", int(address) + offset_bytes, ctypes.addressof(held), len(content))

    def _configuration(self, launch: Launch, stream: int) -> Any:
        """The launch as cuLaunchKernelEx takes it: that call alone knows attributes of a launch."""
        driver = self._driver
        attributes = []
        if launch.cluster != (1, 1, 1):
            clustered = driver.CUlaunchAttribute()
            clustered.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            cluster = clustered.value.clusterDim
            cluster.x, cluster.y, cluster.z = launch.cluster
            attributes.append(clustered)
        if launch.cooperative:
            together = driver.CUlaunchAttribute()
            together.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            together.value.cooperative = 1
            attributes.append(together)
        if launch.dependent:
            early = driver.CUlaunchAttribute()
            early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            early.value.programmaticStreamSerializationAllowed = 1
            attributes.append(early)
        configuration = driver.CUlaunchConfig()
        configuration.gridDimX, configuration.gridDimY, configuration.gridDimZ = launch.grid
        configuration.blockDimX, configuration.blockDimY, configuration.blockDimZ = launch.block
        configuration.sharedMemBytes = launch.shared_bytes
        configuration.hStream = driver.CUstream(stream)
        configuration.attrs = attributes
        configuration.numAttrs = len(attributes)
        return configuration

    def note(self, what: str) -> None:
        """Take note that others queued work of that name: errors name what was queued last."""
        self._last = what

    def copy(self, destination: int, source: int, size_bytes: int) -> None:
        """Queue a copy between two addresses."""
        stream = self.stream()
        self._streams.add(stream)
        self._call("cuMemcpyDtoDAsync", destination, source, size_bytes, stream)

    def stream(self) -> int:
        """The handle of the device's current stream."""
        return int(self._torch.cuda.current_stream(self.device).cuda_stream)

    def wait_stream(self, stream: int | None, other: int | None) -> None:
        """Let later work of a stream wait for all that another one has now. None: the current stream."""
        later, earlier = (self.stream() if one is None else one for one in (stream, other))
        event = self._call("cuEventCreate", int(self._driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
        try:
            self._call("cuEventRecord", event, earlier)
            self._call("cuStreamWaitEvent", later, event, 0)
        finally:  # the driver keeps it until the stream has passed it
            self._call("cuEventDestroy", event)

    def wait(self, deadline: float | None) -> None:
        """Until all queued here is done. DeviceFault for an error of the device, DeadlineExceeded at monotonic time."""
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
                raise DeviceFault(f"rank {self._rank}: {self._described(status)}{after}", rank=self._rank)
            if deadline is not None and time.monotonic() >= deadline:
                what = f": {self._last} was launched last" if self._last else ""
                message = f"work launched on rank {self._rank} is still running at the deadline{what}"
                raise DeadlineExceeded(message, rank=self._rank)
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
                message = f"rank {self._rank}: cuFuncGetParamInfo: {self._described(status)}"
                raise FabricError(message, rank=self._rank)
            sizes.append(int(size))

    def _attribute(self, name: str) -> int:
        """An attribute of the GPU, by its name after CU_DEVICE_ATTRIBUTE_."""
        attribute = getattr(self._driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._call("cuDeviceGetAttribute", attribute, self._call("cuDeviceGet", self.device.index)))

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call the driver; what it returns beside its status. DeviceFault for errors that kernels leave behind."""
        status, *results = getattr(self._driver, name)(*arguments)
        if status != self._driver.CUresult.CUDA_SUCCESS:
            raise DeviceFault(f"rank {self._rank}: {name}: {self._described(status)}", rank=self._rank)
        return results[0] if len(results) == 1 else results

    def _described(self, status: Any) -> str:
        """ "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"."""
        texts = []
        for ask in (self._driver.cuGetErrorName, self._driver.cuGetErrorString):
            answer, text = ask(status)
            if answer == self._driver.CUresult.CUDA_SUCCESS and text:
                texts.append(text.decode() if isinstance(text, bytes) else str(text))
        return ": ".join(texts) or f"CUDA error {int(status)}"
