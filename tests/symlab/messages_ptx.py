"""PTX with a mistake of order each, and its right twin: for tests of explorations."""

import torch

HEAD = """.version 8.0
.target sm_90
.address_size 64
"""

SMALL = {"ranks": 2, "grid": 1, "block": 1}
_PARTS = {"flag": "st.relaxed.sys.global.u32 [%rd2+4], %r2;", "data": "st.relaxed.sys.global.u32 [%rd2], %r3;"}


def handed_over(*order):
    """Rank 0 stores 42 and a flag to rank 1, in an order of "data" and "flag"; rank 1 waits and copies it to out."""
    stores = "\n  ".join(_PARTS[one] for one in order)
    return f"""{HEAD}
.visible .entry hand_over(.param .u64 mine, .param .u64 other, .param .u64 out, .param .u32 rank) {{
  .reg .pred %p<3>; .reg .b32 %r<6>; .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [mine]; ld.param.u64 %rd2, [other]; ld.param.u64 %rd3, [out]; ld.param.u32 %r1, [rank];
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra CONSUME;
  mov.u32 %r2, 1; mov.u32 %r3, 42;
  {stores}
  bra END;
CONSUME:
  ld.acquire.sys.global.u32 %r4, [%rd1+4];
  setp.eq.u32 %p2, %r4, 0;
  @%p2 bra CONSUME;
  ld.relaxed.sys.global.u32 %r5, [%rd1];
  st.global.u32 [%rd3], %r5;
END:
  ret;
}}
"""


HAND_OVER = {
    **SMALL,
    "buffers": {"mail": (2, "int32", 0), "out": (1, "int32", 0)},
    "arguments": lambda rank: ["mail", ("peer", "mail", 1 - rank), "out", ("u32", "rank")],
    "expected": {"out": [[0], [42]]},
}


def produced(*order):
    """Two kernels on their own streams: 64 threads of produce store 7 and a flag to the other rank, in an order of
    "data" and "flag", and 32 of consume wait and copy what is there to out."""
    parts = {
        "flag": "@%p1 bra OTHERS; mov.u32 %r3, 1; st.release.sys.global.u32 [%rd1], %r3; OTHERS:",
        "data": "st.relaxed.sys.global.u32 [%rd3], %r2;",
    }
    stores = "\n  ".join(parts[one] for one in order)
    return f"""{HEAD}
.visible .entry produce(.param .u64 flag, .param .u64 data) {{
  .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [flag]; ld.param.u64 %rd2, [data];
  mov.u32 %r1, %tid.x; mov.u32 %r2, 7; setp.ne.u32 %p1, %r1, 0;
  mad.wide.u32 %rd3, %r1, 4, %rd2;
  {stores}
  ret;
}}
.visible .entry consume(.param .u64 flag, .param .u64 data, .param .u64 out) {{
  .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [flag]; ld.param.u64 %rd2, [data]; ld.param.u64 %rd3, [out];
  mov.u32 %r1, %tid.x;
AGAIN:
  ld.acquire.sys.global.u32 %r2, [%rd1]; setp.eq.u32 %p1, %r2, 0;
  @%p1 bra AGAIN;
  mad.wide.u32 %rd4, %r1, 4, %rd2; mad.wide.u32 %rd5, %r1, 4, %rd3;
  ld.relaxed.sys.global.u32 %r3, [%rd4]; st.global.u32 [%rd5], %r3;
  ret;
}}
"""


def counted(is_atomic):
    """Each thread adds 1 to a counter of rank 0, by one instruction or by three."""
    add = (
        "red.relaxed.sys.global.add.u32 [%rd1], 1;"
        if is_atomic
        else "ld.global.u32 %r1, [%rd1]; add.u32 %r1, %r1, 1; st.global.u32 [%rd1], %r1;"
    )
    return f"""{HEAD}
.visible .entry count(.param .u64 counter) {{
  .reg .b32 %r<2>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [counter];
  {add}
  ret;
}}
"""


COUNT = {
    **SMALL,
    "buffers": {"counter": (1, "int32", 0)},
    "arguments": [("peer", "counter", 0)],
    "expected": {"counter": [[2], [0]]},
}

TURNS = f"""{HEAD}
// Each rank takes a lock of both, its own first; without a common order both may wait for ever.
.visible .entry lock(.param .u64 first, .param .u64 second) {{
  .reg .pred %p<3>; .reg .b32 %r<3>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [first]; ld.param.u64 %rd2, [second];
ONE:
  atom.acquire.sys.global.cas.b32 %r1, [%rd1], 0, 1;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra ONE;
TWO:
  atom.acquire.sys.global.cas.b32 %r2, [%rd2], 0, 1;
  setp.ne.u32 %p2, %r2, 0;
  @%p2 bra TWO;
  st.release.sys.global.u32 [%rd2], 0;
  st.release.sys.global.u32 [%rd1], 0;
  ret;
}}
"""

LOCKS = {
    **SMALL,
    "buffers": {"lock": (1, "int32", 0)},
    "arguments": lambda rank: ["lock", ("peer", "lock", 1 - rank)],
    "expected": {"lock": [[0], [0]]},
}

INDEXED = f"""{HEAD}
// Rank 0 stores a flag, then an index, to rank 1, which waits for the flag and loads from where the index says.
.visible .entry index(.param .u64 mine, .param .u64 other, .param .u64 out, .param .u32 rank) {{
  .reg .pred %p<3>; .reg .b32 %r<6>; .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [mine]; ld.param.u64 %rd2, [other]; ld.param.u64 %rd3, [out]; ld.param.u32 %r1, [rank];
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra CONSUME;
  st.relaxed.sys.global.u32 [%rd2+4], 1;
  st.relaxed.sys.global.u32 [%rd2], 0;
  bra END;
CONSUME:
  ld.acquire.sys.global.u32 %r4, [%rd1+4];
  setp.eq.u32 %p2, %r4, 0;
  @%p2 bra CONSUME;
  ld.relaxed.sys.global.u32 %r5, [%rd1];
  mul.wide.u32 %rd4, %r5, 4;
  add.s64 %rd4, %rd3, %rd4;
  st.global.u32 [%rd4], 7;
END:
  ret;
}}
"""

INDEX = {
    **SMALL,
    "buffers": {"mail": torch.tensor([1 << 20, 0], dtype=torch.int32), "out": (1, "int32", 0)},
    "arguments": lambda rank: ["mail", ("peer", "mail", 1 - rank), "out", ("u32", "rank")],
    "expected": {"out": [[0], [7]]},
}
