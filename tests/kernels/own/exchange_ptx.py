"""PTX of an all_to_all_v of one thread: each rank sends its counts, waits for all, and stores its messages."""

_BARRIER = """
	mov.u32 %r6, 0;
SEND{number}:
	setp.ge.u32 %p1, %r6, %r2; @%p1 bra SENT{number};
	mul.wide.u32 %rd12, %r6, 8; add.s64 %rd13, %rd4, %rd12; ld.global.u64 %rd19, [%rd13];
	mul.wide.u32 %rd20, %r1, 4; add.s64 %rd19, %rd19, %rd20; st.release.sys.global.u32 [%rd19], {epoch};
	add.u32 %r6, %r6, 1; bra SEND{number};
SENT{number}:
	mov.u32 %r6, 0;
WAIT{number}:
	setp.ge.u32 %p1, %r6, %r2; @%p1 bra CAME{number};
	mul.wide.u32 %rd12, %r6, 4; add.s64 %rd13, %rd5, %rd12;
AGAIN{number}:
	ld.acquire.sys.global.u32 %r8, [%rd13]; setp.lt.u32 %p1, %r8, {epoch}; @%p1 bra AGAIN{number};
	add.u32 %r6, %r6, 1; bra WAIT{number};
CAME{number}:
"""

EXCHANGE = f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry exchange(.param .u64 counts, .param .u64 rows, .param .u64 own_rows, .param .u64 flags,
	.param .u64 own_flags, .param .u64 epochs, .param .u64 input, .param .u64 outputs,
	.param .u32 rank, .param .u32 ranks)
{{
	.reg .pred %p<2>; .reg .b32 %r<10>; .reg .b64 %rd<30>;
	ld.param.u64 %rd1, [counts]; ld.param.u64 %rd2, [rows]; ld.param.u64 %rd3, [own_rows]; ld.param.u64 %rd4, [flags];
	ld.param.u64 %rd5, [own_flags]; ld.param.u64 %rd6, [epochs]; ld.param.u64 %rd7, [input];
	ld.param.u64 %rd8, [outputs]; ld.param.u32 %r1, [rank]; ld.param.u32 %r2, [ranks];
	ld.global.u32 %r3, [%rd6]; add.u32 %r4, %r3, 1; add.u32 %r5, %r3, 2;
	mul.lo.u32 %r7, %r1, %r2; mul.wide.u32 %rd11, %r7, 8; mul.wide.u32 %rd25, %r2, 8;
	mov.u32 %r6, 0;
PEER:
	setp.ge.u32 %p1, %r6, %r2; @%p1 bra TOLD;
	mul.wide.u32 %rd12, %r6, 8; add.s64 %rd13, %rd2, %rd12; ld.global.u64 %rd14, [%rd13]; add.s64 %rd14, %rd14, %rd11;
	mov.u32 %r7, 0;
COUNT:
	setp.ge.u32 %p1, %r7, %r2; @%p1 bra NEXT;
	mul.wide.u32 %rd15, %r7, 8; add.s64 %rd16, %rd1, %rd15; ld.global.u64 %rd17, [%rd16];
	add.s64 %rd18, %rd14, %rd15; st.relaxed.sys.global.u64 [%rd18], %rd17;
	add.u32 %r7, %r7, 1; bra COUNT;
NEXT:
	add.u32 %r6, %r6, 1; bra PEER;
TOLD:
{_BARRIER.format(number=1, epoch="%r4")}
	mov.u32 %r6, 0;
MESSAGE:
	setp.ge.u32 %p1, %r6, %r2; @%p1 bra DONE;
	mul.wide.u32 %rd12, %r6, 8; add.s64 %rd13, %rd8, %rd12; ld.global.u64 %rd22, [%rd13];
	mov.u32 %r7, 0; add.s64 %rd23, %rd3, %rd12;
PLACE:
	setp.ge.u32 %p1, %r7, %r1; @%p1 bra PLACED;
	ld.relaxed.sys.global.u64 %rd24, [%rd23]; shl.b64 %rd24, %rd24, 2; add.s64 %rd22, %rd22, %rd24;
	add.s64 %rd23, %rd23, %rd25; add.u32 %r7, %r7, 1; bra PLACE;
PLACED:
	add.s64 %rd26, %rd1, %rd12; ld.global.u64 %rd27, [%rd26];
ELEMENT:
	setp.eq.u64 %p1, %rd27, 0; @%p1 bra SENT;
	ld.global.u32 %r9, [%rd7]; st.relaxed.sys.global.u32 [%rd22], %r9;
	add.s64 %rd7, %rd7, 4; add.s64 %rd22, %rd22, 4; sub.u64 %rd27, %rd27, 1; bra ELEMENT;
SENT:
	add.u32 %r6, %r6, 1; bra MESSAGE;
DONE:
{_BARRIER.format(number=2, epoch="%r5")}
	st.global.u32 [%rd6], %r5;
	ret;
}}
"""

EXCHANGED = {
    "op": "all_to_all_v",
    "kernel": "exchange.ptx:exchange",
    "launch": {"grid": 1, "block": 1},
    "arguments": [
        *("counts", {"peers": "rows"}, "rows", {"peers": "flags"}, "flags", "epochs"),
        *("input", {"peers": "output"}, "rank", "world_size"),
    ],
    "workspaces": {
        "rows": {"numel": "world_size * world_size", "dtype": "uint64"},
        **{"flags": {"numel": "world_size"}, "epochs": {"numel": 1}},
    },
    "dtypes": ["float32"],
}
"""The entry that describes it."""
