"""CuTe DSL functions of users, compiled and not cached."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from kernels.compile import COMPILER, compiling
from kernels.compile_error import reason_of
from memory.fabric import Executable
from memory.held_interrupts import uninterrupted

if TYPE_CHECKING:
    from kernels.hosting import HostCode

ELEMENTS = {
    "float64": "Float64",
    "float32": "Float32",
    "float16": "Float16",
    "bfloat16": "BFloat16",
    "float8_e4m3fn": "Float8E4M3FN",
    "float8_e5m2": "Float8E5M2",
    "int32": "Int32",
    "int64": "Int64",
    "uint32": "Uint32",
    "uint64": "Uint64",
    "uint8": "Uint8",
}
"""CuTe DSL's names of dtypes."""


@dataclass(frozen=True, slots=True)
class CallArgument:
    """What the compiler has to know of an argument of a CuTe DSL function.

    kind: "address" and "tensor" (of dtype), "tensors" (members of them), a number ("u32", "s32", "u64", "s64", "f32",
    "f64"), or "constexpr" (value, a constant of the code). shape is a tensor's, the last dimension contiguous;
    is_dynamic: its extents and strides are read at run time, and not constants of the code.
    """

    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    is_dynamic: bool = False
    value: Any = None
    members: tuple[CallArgument, ...] = ()


@dataclass(frozen=True, slots=True)
class CompiledFunction:
    """A CuTe DSL function that was compiled: its kernel, and the host code that launches it."""

    executable: Executable
    host: HostCode


def compiled_callable(function: Any, name: str, arguments: Sequence[CallArgument], arch: str) -> CompiledFunction:
    """Compile a CuTe DSL function that launches one kernel, for arguments of the given types. It is not cached.

    Pointers and tensors are in global memory and aligned to 16 bytes. A wrong call of the compiler's functions can end
    the process, and so can running the host code: compiled_apart holds both apart from the user's.

    Raises RuntimeError if there is no compiler, ValueError if it refuses the function, and for none or several kernels.
    """
    with tempfile.TemporaryDirectory(prefix="symlab-compile-") as folder, compiling, uninterrupted():
        try:
            import cutlass.cute as cute
            from cutlass._mlir.execution_engine import ExecutionEngine
            from cutlass.base_dsl.compiler import DumpDir
        except ImportError as error:
            raise RuntimeError(f"compiling {name} needs {COMPILER}, which can't be imported: {error}") from error
        options = (cute.KeepPTX, cute.KeepCUBIN, cute.GenerateLineInfo(True), DumpDir(folder), cute.GPUArch(arch))
        try:
            made = cute.compile[options](function, *map(_example, arguments))
        except Exception as error:  # the compiler's errors have no common kind
            raise ValueError(f"compiling {name} for {arch} failed (kernel): {reason_of(error)}") from error
        ptx, cubin = made.artifacts.PTX, made.artifacts.CUBIN
    text = (ptx.decode() if isinstance(ptx, bytes) else ptx).rstrip("\0")
    entries = re.findall(r"\.entry\s+([\w$]+)", text)
    if len(entries) != 1:
        raise ValueError(
            f"{name} launches {len(entries)} kernels (kernel), give a function that launches one, or the PTX of one"
        )
    compiled = Executable(name, entries[0], arch, text, f"sha256:{sha256(text.encode()).hexdigest()}", bytes(cubin))
    from kernels.hosting import HostCode

    sizes, maps = _parameters(text)
    return CompiledFunction(compiled, HostCode(made.ir_module, made.function_name, sizes, maps, ExecutionEngine))


def _parameters(ptx: str) -> tuple[tuple[int, ...], frozenset[int]]:
    """The sizes of the parameters of the one kernel of PTX that CuTe DSL made, and which of them are tensor maps."""
    after = ptx[ptx.index(".entry") :]
    listed = after[after.index("(") : after.index(")")].split(",")
    types = [re.search(r"\.[busf](8|16|32|64)\b.*?(?:\[\s*(\d+)\s*\])?\s*$", one, re.S) for one in listed]
    sizes = tuple(int(one[1]) // 8 * int(one[2] or 1) for one in types if one is not None)
    return sizes, frozenset(number for number, one in enumerate(listed) if ".align 64 " in one and sizes[number] == 128)


def _example(argument: CallArgument) -> Any:
    """A value that has the type of an argument, for the compiler; of all but constants it is never read."""
    import cutlass
    import cutlass.cute as cute

    numbers = {
        "u32": cutlass.Uint32,
        "s32": cutlass.Int32,
        "u64": cutlass.Uint64,
        "s64": cutlass.Int64,
        "f32": cutlass.Float32,
        "f64": cutlass.Float64,
    }
    if argument.kind == "constexpr":
        return argument.value
    if argument.kind == "tensors":
        return [_example(one) for one in argument.members]
    if argument.kind in numbers:
        return numbers[argument.kind](1)
    element = getattr(cutlass, ELEMENTS[argument.dtype])
    if argument.kind == "address":
        return cute.runtime.make_ptr(element, 0, cute.AddressSpace.gmem, assumed_align=16)
    shape = tuple(cute.sym_int() for _ in argument.shape) if argument.is_dynamic else argument.shape
    order = tuple(reversed(range(len(shape))))
    return cute.runtime.make_fake_compact_tensor(element, shape, stride_order=order, assumed_align=16)
