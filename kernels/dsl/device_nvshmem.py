"""NVSHMEM's device functions for kernels: put, get, signals, waits, atomics, fences and barriers, linked from bitcode.

A kernel makes an Nvshmem and calls its methods; each is one call of the C function of the same name, whose code the
compiler links in (kernels/nvshmem_bitcode.py says from where). PEs are ranks. Memory is named by byte addresses of the
own rank, Int64: where an argument is another rank's memory, it is the own address of the same symmetric buffer.

Completion. put and get without nbi return when their source may be overwritten (put) or their result is there (get). A
put's data reaches the other rank later: `quiet` waits until all puts of the calling thread have, and put_signal writes
its signal behind its data. With nbi they may return earlier: `quiet` completes them, source and result included.

Order. Puts are ordered neither with each other nor with signal_op. `fence` orders those of the calling thread before
it, to each rank, before those after it. put_signal alone orders its own data before its own signal. Who has seen a
signal by signal_wait_until or wait_until reads the data that was ordered before it; an access before that is a race.

Threads. scope says who calls together, with the same arguments: "thread", "warp" (32 threads) or "block". A call by a
block begins with a barrier of the block, and put_signal and the barriers end with one; a put with nbi need not, so a
thread that signals for it needs a barrier of the block, then `fence`, then signal_op.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cutlass
import cutlass._mlir.dialects.cute as cute_ir
import cutlass.cute as cute
from cutlass.base_dsl.typing import get_mlir_types

from kernels.nvshmem_bitcode import FUNCTIONS, refuses_function, scoped

if TYPE_CHECKING:
    from collections.abc import Collection

    from kernels.dsl.frame import Frame

EQUAL, NOT_EQUAL, GREATER, AT_MOST, LESS, AT_LEAST = range(6)
"""Comparisons of waits."""

SET, ADD = 9, 10
"""What a signal does to the word that it reaches."""

WORLD = 0
"""The team of all PEs."""

_NUMBERS = {
    "s32": cutlass.Int32,
    "u8": cutlass.Uint8,
    "u16": cutlass.Uint16,
    "u32": cutlass.Uint32,
    "u64": cutlass.Uint64,
}
_ELEMENTS = {**_NUMBERS, "byte": cutlass.Int8}


class _Pointer:
    """The type of a pointer to global memory, as cute.extern asks for it."""

    def __init__(self, element: Any) -> None:
        self.element = element

    def __get_mlir_types__(self) -> list[Any]:
        alignment = self.element.width // 8
        return [cute_ir.PtrType.get(self.element.mlir_type, cute.AddressSpace.gmem, alignment)]

    def isinstance(self, value: Any) -> bool:
        """Whether a value is of this type."""
        same: bool = get_mlir_types(value) == self.__get_mlir_types__()
        return same


@cache
def _type(name: str) -> Any:
    return _Pointer(_ELEMENTS[name.removesuffix(" *")]) if name.endswith("*") else _NUMBERS[name]


@cache
def _extern(name: str, bitcode: Path) -> Any:
    """A function of the bitcode, callable while a kernel is traced."""
    import inspect

    function = FUNCTIONS[name]

    def call(*_: Any) -> None: ...

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    listed = [inspect.Parameter(f"a{at}", kind, annotation=_type(one)) for at, one in enumerate(function.arguments)]
    result = _type(function.result) if function.result else None
    call.__signature__ = inspect.Signature(listed, return_annotation=result)  # type: ignore[attr-defined]
    call.__name__ = name
    return cute.extern(name=name, source=cute.BitCode(str(bitcode)))(call)


class Nvshmem:
    """NVSHMEM's device functions in a kernel. Made while a kernel is traced.

    bitcode: the file that is linked. functions: the C names that may be called; None: all of FUNCTIONS.
    """

    def __init__(self, bitcode: Path, functions: Collection[str] | None = None) -> None:
        self._bitcode = bitcode
        self._functions = functions

    @staticmethod
    def of(frame: Frame) -> Nvshmem:
        """Those of a frame's kernel: what its spec declares (KernelSpec.nvshmem). ValueError if it declares none."""
        linked = getattr(frame.kernel, "nvshmem", None)
        if linked is None:
            raise ValueError("the spec declares no function of NVSHMEM (nvshmem), give their names in C")
        return Nvshmem(*linked)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function by its name in C, of FUNCTIONS: addresses and numbers in C's order. ValueError for one that
        is unknown or not declared."""
        if unfit := refuses_function(name):
            raise ValueError(unfit)
        if self._functions is not None and name not in self._functions:
            raise ValueError(f"the kernel calls {name}, which its spec does not declare (nvshmem)")
        function = FUNCTIONS[name]
        values = [_value(kind, one) for kind, one in zip(function.arguments, arguments, strict=True)]
        return _extern(name, self._bitcode)(*values)

    # Who and where.

    def my_pe(self) -> Any:
        """This rank, Int32."""
        return self.call("nvshmem_my_pe")

    def n_pes(self) -> Any:
        """Number of ranks, Int32."""
        return self.call("nvshmem_n_pes")

    def team_my_pe(self, team: int = WORLD) -> Any:
        """This rank's number in a team, Int32."""
        return self.call("nvshmem_team_my_pe", team)

    def team_n_pes(self, team: int = WORLD) -> Any:
        """Number of ranks in a team, Int32."""
        return self.call("nvshmem_team_n_pes", team)

    def ptr(self, address: Any, pe: Any) -> Any:
        """Where this rank sees a rank's memory, Int64; 0 if loads and stores don't reach it."""
        return cutlass.Int64(self.call("nvshmem_ptr", address, pe))

    # Data. Sizes are in bytes, of any alignment; a multiple of 16 at 16-byte aligned addresses is fastest.

    def p(self, target: Any, value: Any, pe: Any, bits: int = 32) -> None:
        """Store one value of 8, 16, 32 or 64 bits to a rank, as put does."""
        self.call(f"nvshmem_uint{bits}_p", target, value, pe)

    def g(self, source: Any, pe: Any, bits: int = 32) -> Any:
        """Load one value of 8, 16, 32 or 64 bits from a rank."""
        return self.call(f"nvshmem_uint{bits}_g", source, pe)

    def put(
        self, target: Any, source: Any, size_bytes: Any, pe: Any, *, scope: str = "block", nbi: bool = False
    ) -> None:
        """Copy size_bytes of own memory at source to a rank's at target. It is not ordered with other puts, and has
        arrived after `quiet`; without nbi, the source may be overwritten when it returns."""
        self.call(scoped("putmem_nbi" if nbi else "putmem", scope), target, source, size_bytes, pe)

    def get(
        self, target: Any, source: Any, size_bytes: Any, pe: Any, *, scope: str = "block", nbi: bool = False
    ) -> None:
        """Copy size_bytes of a rank's memory at source to the own at target: there when it returns, with nbi after
        `quiet`."""
        self.call(scoped("getmem_nbi" if nbi else "getmem", scope), target, source, size_bytes, pe)

    # Signals: words of 64 bits, 8-byte aligned, in symmetric memory.

    def put_signal(
        self,
        target: Any,
        source: Any,
        size_bytes: Any,
        signal: Any,
        value: Any,
        pe: Any,
        *,
        how: int = SET,
        scope: str = "block",
    ) -> None:
        """put, and behind its data `value` to the rank's word at signal, which it sets or adds to (how)."""
        self.call(scoped("putmem_signal", scope), target, source, size_bytes, signal, value, how, pe)

    def signal_op(self, signal: Any, value: Any, pe: Any, *, how: int = SET) -> None:
        """Set a rank's word at signal to value, or add it (how). By one thread; ordered behind that thread's puts only
        by a `fence` between."""
        self.call("nvshmemx_signal_op", signal, value, how, pe)

    def signal_fetch(self, signal: Any) -> Any:
        """The own word at signal, Uint64. It orders nothing."""
        return self.call("nvshmem_signal_fetch", signal)

    def signal_wait_until(self, signal: Any, compare: int, value: Any) -> Any:
        """Wait until the own word at signal compares as EQUAL, AT_LEAST .. with value; Uint64, what it was. The calling
        thread then sees what was ordered before the signal: a block needs a barrier of its own after it."""
        return self.call("nvshmem_signal_wait_until", signal, compare, value)

    # Waits on words of 32 or 64 bits that puts or atomics write.

    def wait_until(self, address: Any, compare: int, value: Any, bits: int = 64) -> None:
        """The same for any own word."""
        self.call(f"nvshmem_uint{bits}_wait_until", address, compare, value)

    def wait_until_all(self, address: Any, count: Any, compare: int, value: Any, bits: int = 64) -> None:
        """The same for all of count own words that follow each other."""
        self.call(f"nvshmem_uint{bits}_wait_until_all", address, count, 0, compare, value)

    def wait_until_any(self, address: Any, count: Any, compare: int, value: Any, bits: int = 64) -> Any:
        """The same for any one of them; Uint64, its number."""
        return self.call(f"nvshmem_uint{bits}_wait_until_any", address, count, 0, compare, value)

    def test(self, address: Any, compare: int, value: Any, bits: int = 64) -> Any:
        """Whether the comparison holds now, Int32: 1 or 0; if it does, as after wait_until."""
        return self.call(f"nvshmem_uint{bits}_test", address, compare, value)

    # Atomics on a rank's word of 32 or 64 bits. They order nothing.

    def atomic_fetch(self, address: Any, pe: Any, bits: int = 64) -> Any:
        """The word."""
        return self.call(f"nvshmem_uint{bits}_atomic_fetch", address, pe)

    def atomic_set(self, address: Any, value: Any, pe: Any, bits: int = 64) -> None:
        """Store the word."""
        self.call(f"nvshmem_uint{bits}_atomic_set", address, value, pe)

    def atomic_swap(self, address: Any, value: Any, pe: Any, bits: int = 64) -> Any:
        """Store the word; what it was."""
        return self.call(f"nvshmem_uint{bits}_atomic_swap", address, value, pe)

    def atomic_compare_swap(self, address: Any, expected: Any, value: Any, pe: Any, bits: int = 64) -> Any:
        """Store the word if it is as expected; what it was."""
        return self.call(f"nvshmem_uint{bits}_atomic_compare_swap", address, expected, value, pe)

    def atomic(self, what: str, address: Any, value: Any, pe: Any, bits: int = 64) -> None:
        """what: "add", "and", "or" or "xor"."""
        self.call(f"nvshmem_uint{bits}_atomic_{what}", address, value, pe)

    def atomic_fetch_and(self, what: str, address: Any, value: Any, pe: Any, bits: int = 64) -> Any:
        """The same; what the word was."""
        return self.call(f"nvshmem_uint{bits}_atomic_fetch_{what}", address, value, pe)

    # Order and barriers.

    def fence(self) -> None:
        """Order the calling thread's puts, to each rank, before those that follow. It completes nothing."""
        self.call("nvshmem_fence")

    def quiet(self) -> None:
        """Wait until the calling thread's puts, gets and atomics are complete at their ranks."""
        self.call("nvshmem_quiet")

    def sync_all(self, *, scope: str = "block") -> None:
        """Wait until all ranks are here. It completes no put. One call at a time a rank: by one block of a launch."""
        self.call(scoped("sync_all", scope))

    def barrier_all(self, *, scope: str = "block") -> None:
        """`quiet`, then sync_all: all ranks' puts before it are complete."""
        self.call(scoped("barrier_all", scope))

    def team_sync(self, team: int = WORLD, *, scope: str = "block") -> None:
        """sync_all of a team."""
        self.call(scoped("team_sync", scope), team)


def _value(kind: str, value: Any) -> Any:
    """A value as an argument of a type of C."""
    if not kind.endswith("*"):
        return _NUMBERS[kind](value)
    element = _ELEMENTS[kind.removesuffix(" *")]
    return cute.make_ptr(element, cutlass.Int64(value), cute.AddressSpace.gmem, assumed_align=element.width // 8)
