"""Short forms in the bodies of exhibits, for what most kernels of several ranks do.

A line of a body is PTX or one of FORMS. %r31, %d31 and %p15 belong to these forms, %r24 to %r27 and %d30 to those of
wgmma. `name[lane]` is the lane's word of a buffer, `name[%r1]` the word with that number, `name[%d1]` the word at that
offset in bytes.
"""

import re

_AT, _WORD = r"(?P<name>\w+)\[(?P<index>lane|%\w+)\]", r"(?P<word>%r\d+)"
_ADDRESSES = {
    "la": "mad.lo.u64 %d31, %lane64, 4, %{name}",
    "%d": "add.u64 %d31, %{name}, {index}",
    "%r": "mad.wide.u32 %d31, {index}, 4, %{name}",
}
"""The address of a word, by how its index begins."""

FORMS = {
    rf"{_WORD} = {_AT}": "{at}; ld.global.u32 {word}, [%d31]",
    rf"{_AT} = {_WORD}": "{at}; st.global.u32 [%d31], {word}",
    r"bra (\w+) if (%\S+) (\w\w) (\S+)": "setp.{2}.u32 %p15, {1}, {3}; @%p15 bra {0}",
    r"bra (\w+) if \+\+(%\S+) (\w\w) (\S+)": "add.u32 {1}, {1}, 1; setp.{2}.u32 %p15, {1}, {3}; @%p15 bra {0}",
    # Until the word is not zero.
    r"spin (\S+) (\[%\w+\])": "SPIN{line}: ld.{0}.global.u32 %r31, {1}; "
    "setp.eq.u32 %p15, %r31, 0; @%p15 bra SPIN{line}",
    # The first thread tells the peer and waits to be told; then the block goes on.
    r"meet (\S+) (\S+)": "setp.ne.u32 %p15, %lane, 0; @%p15 bra MET{line}; st.{0}.global.u32 [%peer_flag], 1; "
    "SPIN{line}: ld.{1}.global.u32 %r31, [%flag]; setp.eq.u32 %p15, %r31, 0; @%p15 bra SPIN{line}; "
    "MET{line}: bar.sync 0",
    # The address of an array of shared memory, and of the lane's word there.
    r"shared words (%r\d+), (%r\d+) = (\w+)": "mov.u32 {0}, {2}; mad.lo.u32 {1}, %lane, 4, {0}",
    r"map (%d\d+) = (\w+)": "mov.b64 {0}, kernel_map_{1}; cvta.param.u64 {0}, {0}",
    r"bulk store (.+)": "cp.async.bulk.global.shared::cta.bulk_group {0}; cp.async.bulk.commit_group; "
    "cp.async.bulk.wait_group 0",
    # 128 bytes, which are counted on an mbarrier; and the wait for the end of one of its phases.
    r"bulk load (%r\d+) = (\w+)\[(%r\d+)\], (%r\d+)": "mbarrier.arrive.expect_tx.shared.b64 _, [{3}], 128; "
    "mad.wide.u32 %d31, {2}, 128, %{1}; "
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{0}], [%d31], 128, [{3}]",
    r"zero accumulators": "".join(f"mov.b32 %r{at}, 0; " for at in range(24, 28)) + "wgmma.fence.sync.aligned",
    # 64 x 16 numbers of f16, and behind them 16 x 8, add their product to four registers of each thread; as one group.
    r"wgmma (%r\d+)": "shr.u32 %r31, {0}, 4; cvt.u64.u32 %d31, %r31; "
    f"add.u64 %d31, %d31, {128 // 16 << 16 | 256 // 16 << 32}; add.u64 %d30, %d31, 128; setp.eq.u32 %p15, %r31, %r31; "
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%r24, %r25, %r26, %r27}}, %d31, %d30, %p15, 1, 1, 0, 0; "
    "wgmma.commit_group.sync.aligned",
    r"phase (%r\d+), (%r\d+)": "SPIN{line}: mbarrier.try_wait.parity.shared.b64 %p15, [{0}], {1}; "
    "@!%p15 bra SPIN{line}",
}
"""What a line may be, without its semicolon, and its PTX. {line} is the line's number, {at} computes an address."""


def ptx_of(body, is_mended):
    """Return the PTX of one of the two kernels: without marks, the other's lines and short forms."""
    other = "-" if is_mended else "+"
    lines = [one[1:] if one[:1] in ("-", "+") else one for one in body.splitlines() if not one.startswith(other)]
    return "\n".join(_long(line, number) for number, line in enumerate(lines))


def _long(line, number):
    for form, ptx in FORMS.items():
        if match := re.fullmatch(rf"\s*{form};", line):
            parts = match.groupdict()
            at = _ADDRESSES.get(parts.get("index", "")[:2], _ADDRESSES["%r"]) if parts else ""
            return f"    {ptx.format(*match.groups(), **parts, line=number, at=at.format(**parts))};"
    return line
