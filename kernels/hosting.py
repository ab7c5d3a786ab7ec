"""What a CuTe DSL function's host code launches: its grid, block and parameters, found by running it without a GPU.

A function's host half computes the launch and packs the kernel's parameters: it tiles tensors, rounds numbers of
blocks up, picks a cluster. The compiler gives that half as LLVM code that calls CUDA's runtime. Here it runs with
functions of ours in place of the runtime's, which note what would be launched. Nothing is guessed about parameters or
their layout, and what is launched is what a GPU would get.

Addresses are known on their own ranks alone, in other processes on GPUs. So the code runs with marks for addresses,
twice, with different marks; every word of the parameters that differs must be a mark plus a constant, and is noted as
such. A rank puts its addresses there, and needs no compiler.

Host code encodes tensor maps itself. It writes the first half of their 128 bytes and leaves the other as it was, which
says nothing.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from memory.fabric import Argument, Launch

_CLUSTER = 4  # cudaLaunchAttributeClusterDimension
_DEPENDENT = 6  # cudaLaunchAttributeProgrammaticStreamSerialization
_WORD_BYTES = 8
_MAP_BYTES = 128
_TOP = 1 << 64
_running = threading.Lock()  # the code notes its launches in one place


@dataclass(frozen=True, slots=True)
class Relocation:
    """A word of a parameter that holds an address: that of input `input`, plus `addend`."""

    parameter: int
    offset_bytes: int
    input: int
    addend: int


@dataclass(frozen=True, slots=True)
class HostLaunch:
    """One launch as host code makes it: the parameters' bytes, with relocations where addresses belong."""

    launch: Launch
    parameters: tuple[bytes, ...]
    relocations: tuple[Relocation, ...]

    def arguments(self, addresses: Sequence[int]) -> tuple[Argument, ...]:
        """Return the kernel's arguments. addresses: by input; inputs that are numbers have any value there."""
        contents = [bytearray(one) for one in self.parameters]
        for one in self.relocations:
            word = (addresses[one.input] + one.addend) % _TOP
            struct.pack_into("<Q", contents[one.parameter], one.offset_bytes, word)
        return tuple(Argument("bytes", bytes(one)) for one in contents)


@dataclass(frozen=True, slots=True)
class _Noted:
    """A launch that the code asked for. parameters are their bytes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    cluster: tuple[int, int, int]
    parameters: tuple[bytes, ...]
    dependent: bool


class _Config(ctypes.Structure):
    """cudaLaunchConfig_t."""

    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
    ]


class _Attribute(ctypes.Structure):
    """cudaLaunchAttribute."""

    _fields_ = [("id", ctypes.c_uint32), ("padding", ctypes.c_uint32), ("value", ctypes.c_uint32 * 16)]


@dataclass(slots=True)
class HostCode:
    """The host half of a compiled function.

    module is the compiler's, engine what compiles and finds its code, name the function's in it; sizes_bytes are those
    of the kernel's parameters. maps: the positions of those that are tensor maps.
    """

    module: Any
    name: str
    sizes_bytes: tuple[int, ...]
    maps: frozenset[int]
    engine: Callable[[Any], Any]
    _entry: Any = None
    _kept: list[Any] = field(default_factory=list)
    _noted: list[_Noted] = field(default_factory=list)

    def launch(self, inputs: Sequence[bytes], are_of_launch: Sequence[bool]) -> HostLaunch:
        """Return what is launched for inputs, each as the function's host code takes it; of one that is known at the
        launch alone (an address, a tensor, patience) the first 8 bytes are replaced by marks.

        Raises ValueError for a function that launches no kernel or several, or one with parameters that are no plain
        function of addresses.
        """
        marks = [(_mark(number, 0), _mark(number, 1)) for number in range(len(inputs))]
        found = [
            self._run(
                [
                    struct.pack("<Q", marks[number][turn]) + one[_WORD_BYTES:] if is_of_launch else one
                    for number, (one, is_of_launch) in enumerate(zip(inputs, are_of_launch, strict=True))
                ]
            )
            for turn in (0, 1)
        ]
        one, other = found
        if (one.grid, one.block, one.shared_bytes, one.cluster) != (
            other.grid,
            other.block,
            other.shared_bytes,
            other.cluster,
        ):
            raise ValueError("the launch depends on where the buffers lie (kernel), compute it from shapes and numbers")
        parameters, relocations = [], []
        for index, (first, second) in enumerate(zip(one.parameters, other.parameters, strict=True)):
            content, moved = _relocated(index, first, second, marks)
            parameters.append(content)
            relocations += moved
        launch = Launch(one.grid, one.block, one.shared_bytes, one.cluster, dependent=one.dependent)
        return HostLaunch(launch, tuple(parameters), tuple(relocations))

    def _run(self, inputs: Sequence[bytes]) -> _Noted:
        """Run the code once, and return the one launch that it asked for."""
        with _running:
            if self._entry is None:
                self._load()
            self._noted.clear()
            held = [ctypes.create_string_buffer(one, len(one)) for one in inputs]
            status = ctypes.c_int32(0)
            packed = (ctypes.c_void_p * (len(held) + 1))(*map(ctypes.addressof, held), ctypes.addressof(status))
            self._entry(ctypes.cast(packed, ctypes.c_void_p))
            noted = list(self._noted)
        if status.value:
            raise ValueError(f"its host code ended with CUDA's error {status.value} (kernel), look at what it prints")
        if len(noted) != 1:
            raise ValueError(
                f"it launches {len(noted)} kernels for these arguments (kernel), give a function that launches one"
            )
        return noted[0]

    def _load(self) -> None:
        """Compile the code for the host, with what stands in for CUDA's runtime."""
        engine = self.engine(self.module)
        text = str(self.module)
        for name in re.findall(r"llvm\.func @(_cu\w+)\(", text):
            callback = self._stand_in(name)
            self._kept.append(callback)
            engine.raw_register_runtime(name, ctypes.cast(callback, ctypes.c_void_p))
        self._kept.append(engine)
        self._entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.raw_lookup(f"_mlir_ciface_{self.name}"))

    def _stand_in(self, name: str) -> Any:
        """A function of CUDA's runtime: launches are noted, and all others succeed."""
        number, address, size = ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64
        if name == "_cudaLaunchKernelEx":
            return ctypes.CFUNCTYPE(number, address, address, address)(self._launch_by_config)
        if name == "_cudaLaunchKernel":
            kinds = (address, *[number] * 6, address, size, address)
            return ctypes.CFUNCTYPE(number, *kinds)(self._launch_by_numbers)
        if name == "_cudaGetDevice":
            return ctypes.CFUNCTYPE(number, address)(_zero)
        return ctypes.CFUNCTYPE(number)(lambda: 0)

    def _launch_by_config(self, config: int, kernel: int, parameters: int) -> int:
        given = _Config.from_address(config)
        cluster, dependent = (1, 1, 1), False
        for attribute in (_Attribute * given.count).from_address(given.attributes) if given.count else ():
            if attribute.id == _CLUSTER:
                cluster = (attribute.value[0], attribute.value[1], attribute.value[2])
            elif attribute.id == _DEPENDENT:
                dependent = bool(attribute.value[0])
        self._note(tuple(given.grid), tuple(given.block), given.shared_bytes, cluster, parameters, dependent)
        return 0

    def _launch_by_numbers(self, kernel: int, *values: int) -> int:
        self._note(values[:3], values[3:6], values[7], (1, 1, 1), values[6])
        return 0

    def _note(
        self,
        grid: Any,
        block: Any,
        shared_bytes: int,
        cluster: tuple[int, int, int],
        parameters: int,
        dependent: bool = False,
    ) -> None:
        count = len(self.sizes_bytes)
        at = (ctypes.c_void_p * count).from_address(parameters) if count else ()
        contents = tuple(
            ctypes.string_at(one, _MAP_BYTES // 2) + bytes(_MAP_BYTES // 2)
            if number in self.maps
            else ctypes.string_at(one, size)
            for number, (one, size) in enumerate(zip(at, self.sizes_bytes, strict=True))
        )
        self._noted.append(_Noted(grid, block, shared_bytes, cluster, contents, dependent))


def _mark(number: int, turn: int) -> int:
    """A number that stands for an address: of 46 bits, a multiple of 256, and no sum or difference of others."""
    digest = hashlib.sha256(f"{number}/{turn}".encode()).digest()
    return (int.from_bytes(digest[:8], "little") & ((1 << 46) - 1)) >> 8 << 8


def _zero(address: int) -> int:
    ctypes.c_int32.from_address(address).value = 0
    return 0


def _relocated(
    index: int, first: bytes, second: bytes, marks: Sequence[Sequence[int]]
) -> tuple[bytes, list[Relocation]]:
    """A parameter's content, and where addresses belong in it: from what two runs with different marks gave.

    Marks differ in both halves of a word. Where one half alone differs, and is not the first, it is padding, which the
    code never wrote.
    """
    content, moved = bytearray(first), list[Relocation]()
    by_difference = {(one - other) % _TOP: number for number, (one, other) in enumerate(marks)}
    for offset in range(0, len(first) - 3, 4):
        if first[offset : offset + 4] == second[offset : offset + 4]:
            continue
        if any(one.offset_bytes + 4 == offset for one in moved):
            continue
        words = [struct.unpack_from("<Q", one, offset)[0] if offset + 8 <= len(one) else 0 for one in (first, second)]
        number = by_difference.get((words[0] - words[1]) % _TOP)
        if number is not None and offset % _WORD_BYTES == 0:
            moved.append(Relocation(index, offset, number, words[0] - marks[number][0]))
            content[offset : offset + _WORD_BYTES] = bytes(_WORD_BYTES)
        elif offset % _WORD_BYTES:
            content[offset : offset + 4] = bytes(4)
        else:
            raise ValueError(
                f"parameter {index} of its kernel is no plain address (kernel), compute with addresses in the kernel"
            )
    return bytes(content), moved
