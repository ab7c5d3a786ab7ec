"""Device arithmetic of reductions: contributions as raw 32-bit words in, sums in a stated precision, words out.

Additions are inline PTX with their rounding written out (`add.rn`), so that nothing is contracted, reassociated or
flushed, and the result is a function of the order of the contributions alone: kernels/numerics.py folds the same way
and finds the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cutlass import Int32
from cutlass._mlir import ir
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T, dsl_user_op

from kernels.device import PACKED_TYPES, assemble


@dsl_user_op
def add(left: Any, right: Any, packed_type: str, *, loc: Any = None, ip: Any = None) -> Any:
    """left + right of words of type f32, f16x2 or bf16x2, each element rounded to nearest even; subnormals kept."""
    text = f"add.rn.{packed_type} $0, $1, $2;"
    return Int32(assemble(text, "=r,r,r", [Int32(left), Int32(right)], T.i32(), memory=False, loc=loc, ip=ip))


@dsl_user_op
def widen(word: Any, dtype: str, *, loc: Any = None, ip: Any = None) -> tuple[Any, Any]:
    """The two 16-bit elements of a word as float32 words (lower, upper). Exact."""
    if dtype == "bfloat16":
        # bfloat16 is the upper half of a float32, so no conversion is needed, and NaN payloads live on.
        return Int32(word) << 16, Int32(word) & Int32(-65536)
    pair = ir.Type.parse("!llvm.struct<(i16,i16)>")
    halves = assemble("mov.b32 {$0, $1}, $2;", "=h,=h,r", [Int32(word)], pair, memory=False, loc=loc, ip=ip)
    lower, upper = (
        llvm.inline_asm(
            T.i32(),
            [llvm.extractvalue(T.i16(), halves, [i], loc=loc, ip=ip)],
            "cvt.f32.f16 $0, $1;",
            "=r,h",
            has_side_effects=False,
            asm_dialect=0,
            loc=loc,
            ip=ip,
        )
        for i in range(2)
    )
    return Int32(lower), Int32(upper)


@dsl_user_op
def narrow(lower: Any, upper: Any, dtype: str, *, loc: Any = None, ip: Any = None) -> Any:
    """Two float32 words rounded to nearest even to a word of two 16-bit elements; NaN becomes the canonical one."""
    text = f"cvt.rn.{PACKED_TYPES[dtype]}.f32 $0, $1, $2;"
    return Int32(assemble(text, "=r,r,r", [Int32(upper), Int32(lower)], T.i32(), memory=False, loc=loc, ip=ip))


@dataclass(frozen=True)
class Sum:
    """A running sum of words of dtype in the accumulator's precision: start with one, add others, finish.

    The start is the first contribution itself, not zero plus it: so -0.0 survives, and one contribution alone comes
    out with its own bits (a caller with a single contribution needs neither start nor finish). float32 sums in
    float32 under both names.
    """

    dtype: str
    accumulator: str

    @property
    def wide(self) -> bool:
        """Whether 16-bit elements are summed in float32."""
        return self.accumulator == "float32" and self.dtype != "float32"

    def start(self, words: Sequence[Any]) -> list[Any]:
        if not self.wide:
            return list(words)
        return [element for word in words for element in widen(word, self.dtype)]

    def add(self, state: Sequence[Any], words: Sequence[Any]) -> list[Any]:
        packed_type = "f32" if self.wide else PACKED_TYPES[self.dtype]
        return [add(left, right, packed_type) for left, right in zip(state, self.start(words), strict=True)]

    def finish(self, state: Sequence[Any]) -> list[Any]:
        if not self.wide:
            return list(state)
        return [narrow(state[i], state[i + 1], self.dtype) for i in range(0, len(state), 2)]
