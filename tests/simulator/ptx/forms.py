"""Forms of instructions, legal and illegal, for ptxas and the simulator to judge (test_ptxas): templates and what they mean.

<a|b|c> stands for each of the words. $1 is register 1 of a bank that holds the last type in the instruction's name, @1 of
one that holds the first.
"""

import re
from itertools import product

COUNTED = "mbarrier::complete_tx::bytes"
HINT = ".L2::cache_hint"
INTEGERS = "u8|s8|u16|s16|u32|s32|u64|s64"
FLOATS = "f16|bf16|f32|f64"
BITS = "b8|b16|b32|b64"
PACKED = "f16x2|bf16x2|f32x2|u16x2|s16x2"
WORDS = "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan"
CHANGES = "add|min|max|inc|dec|and|or|xor"
_TYPE = re.compile(r"\.(pred|b?[busf]\d+(?:x2)?)\b")
_BANKS = {"pred": "%p", "f32x2": "%d", "8": "%h", "16": "%h", "32": "%r", "64": "%d"}
VECTORS = {
    count: "$1" if count == 1 else "{" + ", ".join(f"${n + 1}" for n in range(count)) + "}" for count in (1, 2, 4, 8)
}
"""A register, or a vector of several."""


def bank_of(kind):
    """The name of a bank of registers that hold a type."""
    return _BANKS.get(kind) or ("%r" if kind.endswith("x2") else _BANKS[kind.lstrip("busf")])


def forms_of(templates):
    """What templates stand for, each once."""
    found = {}
    for template in templates:
        parts = re.split(r"<([^<>]*)>", template)
        for chosen in product(*(part.split("|") if at % 2 else (part,) for at, part in enumerate(parts))):
            text = "".join(chosen)
            kinds = _TYPE.findall(text.removeprefix("@%p1 ").split()[0])
            for sign, kind in (("@", kinds[:1]), ("$", kinds[-1:])) if "$" in text or "@" in text else ():
                text = re.sub(rf"\{sign}(?=\d)", bank_of(kind[0]) if kind else sign, text)
            found[text] = True
    return iter(found)


def lane_copies():
    yield (
        "cp.async.<ca|cg>.<shared|shared::cta|shared::cluster>.global [%r1], [%d1], <4|8|16|12|%r3><|, 4|, %r2|, %p1>"
    )
    hints = f"|.L2::64B|.L2::128B|.L2::256B|{HINT}|{HINT}.L2::128B|.L2::64B{HINT}|.L2::64B.L2::128B"
    more = "|, %d2|, 8|, 8, %d2|, %p1|, %p1, %d2"
    yield f"cp.async.<ca|cg>.shared.global<{hints}> [%r1], [%d1], 16<{more}>"
    yield "cp.async.mbarrier.arrive<|.noinc>.<shared|shared::cta|shared::cluster|global>.b64 [%r1]"
    yield "cp.async.mbarrier.arrive<|.noinc>.b64 [%d1]"
    waits = "commit_group|wait_group 0|wait_group 7|wait_group.read 1|wait_all|wait_group %r1"
    yield from (f"<|@%p1 >cp.async<|.bulk>.<{waits}>", "cp.async.bulk.wait_group")


def bulk_copies():
    places = {"shared::cta": "%r", "shared::cluster": "%r", "shared": "%r", "global": "%d"}
    words = {"<|.L2::128B>": "", HINT: ", %d3", ".cp_mask": ", %h1", f"{HINT}.cp_mask": ", %d3, %h1"}
    for (to, target), (origin, source), (word, more) in product(places.items(), places.items(), words.items()):
        start, operands = f"cp.async.bulk.{to}.{origin}", f"[{target}1], [{source}2], 16"
        yield f"{start}.{COUNTED}{word} {operands}, [%r3]{more}"
        yield f"{start}.bulk_group{word} {operands}{more}"
    store = "cp.async.bulk.global.shared::cta.bulk_group"
    yield f"{store} [%d1], [%r2], <24|4096|%r4|%d4|16, %d3>"
    yield from (f"{store}.cp_mask [%d1], [%r2], 16, <5|%r4|%h2>", f"{store}<{HINT}|.noftz> [%d1], [%r2], 16")
    yield from ("cp.async.bulk.prefetch<.L2.global|.L2|.L1.global> [%d1], %r1",)
    yield from (f"cp.async.bulk.prefetch.L2.global{HINT} [%d1], %r1, %d2", "cp.async.bulk.prefetch.L2.global [%d1], 40")


def tensor_copies():
    corners = {"1d": "{%r4}", "2d": "{%r4, 1}", "3d": "{%r4, %r5, -6}", "5d": "{%r4, %r5, %r6, %r7, %r8}"}
    for dim, corner in corners.items():
        place = f"[%d1, {corner}]"
        for hint, more in (("", ""), (HINT, ", %d2"), (".L2::128B", "")):
            load = f"cp.async.bulk.tensor.{dim}.<shared::cta|shared::cluster|shared|global>.global<|.tile>.{COUNTED}"
            yield f"{load}{hint} [%r1], {place}, [%r2]{more}"
            yield f"{load}.multicast::cluster{hint} [%r1], {place}, [%r2], <%h1|3|%r3>{more}"
            yield f"cp.async.bulk.tensor.{dim}.global.shared::<cta|cluster><|.tile>.bulk_group{hint} {place}, [%r1]{more}"
            yield f"cp.async.bulk.prefetch.tensor.{dim}.L2.global<|.tile>{hint} {place}{more}"
        change = (
            f"cp.reduce.async.bulk.tensor.{dim}.global.shared::cta.<{CHANGES}|exch><|.noftz|.u32><|.tile>.bulk_group"
        )
        yield f"{change} {place}, [%r1]"
    yield "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d1, {%r4<|, %r5, %r6|, %d2>}], [%r1]"
    yield "cp.async.bulk<|.tile>.global.shared::cta.bulk_group [%d1], [%r1], 16"
    yield "prefetch<|.param|.const|.global|.local>.tensormap [%d1]"


KINDS = "b16|u16|b32|u32|s32|b64|u64|s64|f16|bf16|f16x2|bf16x2|f32|f64|f32x2"


def bulk_reductions():
    start, change = "cp.reduce.async.bulk", f"<{CHANGES}><|.noftz>.<{KINDS}>"
    yield f"{start}.<shared::cluster|shared::cta>.shared::cta.{COUNTED}.{change} [%r1], [%r2], 16, [%r3]"
    yield f"{start}.global.shared::cta.bulk_group.{change} [%d1], [%r2], 16"
    yield f"{start}.global.shared::cta.bulk_group{HINT}.add<.u32|.noftz.f16> [%d1], [%r1], 16, %d2"
    yield f"{start}.shared::cluster.shared::cta.{COUNTED}{HINT}.add.u32 [%r1], [%r2], 16, [%r3], %d2"


def multicast_copies():
    where = "bulk.global.shared::cta.bulk_group"
    yield f"multimem.cp.reduce.async.{where}.<{CHANGES}><|.noftz>.<{KINDS}> [%d1], [%r1], 16"
    yield from (
        f"multimem.cp.async.{where} [%d1], [%r1], <16|%r2>",
        f"multimem.cp.async.{where}.cp_mask [%d1], [%r1], 16, %h1",
    )
    yield from (
        f"multimem.cp.async.{where}{HINT} [%d1], [%r1], 16, %d2",
        "multimem.cp.async.bulk.shared::cta.bulk_group [%d1], [%r1], 16",
    )
    yield f"multimem.cp.async.bulk.global.shared::cta.{COUNTED} [%d1], [%r1], 16, [%r2]"


def multimem():
    """The switch's instructions; .x4 types and those of 8 bits have no bank of their own here."""
    kinds = ("b32|u32|s32|f32|f16x2|bf16x2|e4m3x4|e5m2x4", "b64|u64|s64|f64", "f16|bf16|e4m3x2|e5m2x2", "e4m3|e5m2")
    banks = ("%r", "%d", "%h", "%x")
    for (some, bank), (count, given) in product(zip(kinds, banks, strict=True), VECTORS.items()):
        dot, registers = f".v{count}" if count > 1 else "", given.replace("$", bank)
        change = f"<add|min|max|and|or|xor><|.acc::f32|.acc::f16>{dot}.<{some}>"
        yield f"multimem.ld_reduce.relaxed.sys.global.{change} {registers}, [%d20]"
        yield f"multimem.red.relaxed.sys.global.{change.replace('<|.acc::f32|.acc::f16>', '')} [%d20], {registers}"
        yield f"multimem.st.relaxed.sys.global{dot}.<{some}> [%d20], {registers}"


def mbarriers():
    orders = (
        "|.release.cta|.release.cluster|.relaxed.cta|.relaxed.cluster|.acquire.cta|.acquire.cluster|.release|.cta"
        "|.release.gpu|.acq_rel.cta"
    )
    for space, place in (("", "[%d1]"), (".<shared|shared::cta|shared::cluster|global>", "[%r1]")):
        end = f"<{orders}>{space}.b64"
        yield from (f"mbarrier.init{end} {place}, 3", f"mbarrier.inval{end} {place}")
        yield f"mbarrier.<expect_tx|complete_tx>{end} {place}, 16"
        yield f"mbarrier.<arrive|arrive_drop><|.noComplete|.expect_tx>{end} <%d2|_>, {place}<|, 2|, %r5>"
        yield f"mbarrier.<test_wait|try_wait>.parity{end} %p1, {place}, %r2<|, %r5>"
        yield f"mbarrier.<test_wait|try_wait>{end} %p1, {place}, %d2<|, %r5>"
    yield from ("mbarrier.pending_count.b64 <%r1|%d1>, %d2", "mbarrier.pending_count.shared.b64 %r1, %d2")


def clusters():
    for word, target in (
        ("mapa", "$1, <$2|kernel_shared|kernel_shared+8>, %r3"),
        ("getctarank", "%r1, <$2|kernel_shared|kernel_shared+8>"),
    ):
        yield f"{word}<|.shared|.shared::cta|.shared::cluster|.global>.<u32|u64|b32|s64|u16> {target}"
    yield "barrier.cluster.<arrive|wait|sync><|.release|.relaxed|.acquire|.acq_rel><|.aligned>"
    yield from ("bar.cluster.arrive", "barrier.cluster<|.arrive 0|.wait %r1>")
    yield "fence<|.acquire|.release|.acq_rel>.sync_restrict::shared::<cta|cluster><|.cta|.cluster|.gpu>"
    yield "fence.proxy.async.<global|shared::cta|shared::cluster|shared|local>"
    orders = {
        "ld": "|.weak|.relaxed.cta|.acquire.cluster|.release.cluster|.acquire|.volatile|.mmio.relaxed.sys",
        "st": "|.weak|.relaxed.gpu|.release.cluster|.acquire.cluster|.release|.volatile|.mmio.relaxed.sys",
    }
    for count, given in VECTORS.items():
        dot = f".v{count}" if count > 1 else ""
        for opcode, operands in (("ld", f"{given}, [%d20]"), ("st", f"[%d20], {given}")):
            yield f"{opcode}.shared::cluster{dot}.<{INTEGERS}|{BITS}|{FLOATS}> {operands}"
            yield f"{opcode}<{orders[opcode]}>.shared::cluster{dot}.<b32|f64> {operands}"
    kinds = "u16|s16|u32|s32|u64|s64|b16|b32|b64|f16|bf16|f32|f64|f16x2|bf16x2"
    for opcode, target in (("atom", "$1, "), ("red", "")):
        start = f"{opcode}.<acquire|relaxed>.cluster.shared::cluster"
        yield f"{start}.<{CHANGES}|exch><|.noftz>.<{kinds}> {target}[%d9], $2"
        yield f"{start}.cas<|.noftz>.<{kinds}> {target}[%d9], $2, $3"
    yield "mov.u32 %r1, %<clusterid|nclusterid|cluster_ctaid|cluster_nctaid>.<x|y|z>"
    yield "mov.u32 %r1, %<cluster_ctarank|cluster_nctarank|gridid|envreg1|envreg2|is_explicit_cluster>"
    yield from ("mov.pred %p1, %<is_explicit_cluster|cluster_ctarank>", "mov.u64 %d1, %gridid")


def cluster_copies():
    kinds = "b8|b16|u16|b32|b64|u32|u64|s32|s64|f32|f64|f16x2"
    spaces = "|.shared|.shared::cta|.shared::cluster|.global"
    for count, given in VECTORS.items():
        dot = f".v{count}" if count > 1 else ""
        yield f"st.async<|.weak|.relaxed.cluster><{spaces}>.{COUNTED}{dot}.<{kinds}> [%d20], {given}, [%d21]"
    orders = "|.relaxed|.relaxed.cluster|.release.cluster"
    yield f"red.async<{orders}><{spaces}>.{COUNTED}.<{CHANGES}|exch>.<{kinds}> [%d20], $1, [%d21]"
    yield f"red.async.relaxed.<cta|gpu|sys>.shared::cluster.{COUNTED}.add.u32 [%r1], %r2, [%r3]"
    yield f"st.async.shared::cluster.{COUNTED}.b32 [%r1], <%r2|5>, [%r3]"
    yield f"st.async.shared::cluster.{COUNTED}{HINT}.b32 [%r1], %r2, [%r3], %d4"
    for hint, more in (("", ""), (HINT, ", %d5")):
        start = f"cp.async.bulk.<shared::cta|shared::cluster>.global.{COUNTED}.multicast::cluster{hint}"
        yield f"{start} [%r1], [%d2], 16, [%r3]<, %h1|, 3|, %r4|>{more}"
    yield f"cp.async.bulk.shared::cluster.shared::cta.{COUNTED}.multicast::cluster [%r1], [%r2], 16, [%r3], %h1"


def arithmetic():
    modes = f"<|.rn|.rz|.rm|.rp|.approx|.full><|.ftz><|.sat|.relu|.NaN>.<{INTEGERS}|{FLOATS}|{PACKED}>"
    yield f"<rcp|sqrt|neg|abs|rsqrt|sin|cos|lg2|ex2|tanh>{modes} $1, $2"
    yield f"<add|sub|mul|min|max|div|rem|copysign>{modes} $1, $2, $3"
    yield f"<fma|sad>{modes} $1, $2, $3, $4"


def whole_numbers():
    kinds = f"{INTEGERS}|{BITS}|pred"
    yield f"<mul|mul24>.<lo|hi>.<{INTEGERS}> $1, $2, $3"
    yield f"<mad|mad24>.<lo|hi>.<{INTEGERS}> $1, $2, $3, $4"
    for some, bank in (("u8|s8|u16|s16", "%r"), ("u32|s32|u64|s64", "%d")):
        yield f"<mul|mul24>.wide.<{some}> {bank}1, $2, $3"
        yield f"<mad|mad24>.wide.<{some}> {bank}1, $2, $3, {bank}4"
    yield from (f"<and|or|xor>.<{kinds}> $1, $2, $3", f"<not|cnot|brev>.<{kinds}> $1, $2")
    yield from (f"<popc|clz|bfind|bfind.shiftamt>.<{kinds}> %r1, $2", f"<shl|shr>.<{kinds}> $1, $2, %r3")
    yield f"<add.cc|addc|addc.cc|sub.cc|subc|subc.cc|add.sat|sub.sat>.<{INTEGERS}> $1, $2, $3"
    yield f"<mad|madc>.<lo|hi>.cc.<{INTEGERS}> $1, $2, $3, $4"
    yield "prmt.b32<|.f4e|.b4e|.rc8|.ecl|.ecr|.rc16|.rc32> %r1, %r2, %r3, %r4"
    yield f"slct<|.ftz>.<{kinds}|{FLOATS}>.<s32|f32|u32|s16|f64> @1, @2, @3, $4"
    yield f"<dp4a|dp2a.lo>.<{INTEGERS}>.<{INTEGERS}> %r1, %r2, %r3, %r4"
    yield "<bmsk|szext><.clamp|.wrap|>.<b32|u32|s32|b64|u64> $1, $2, %r3"


def comparisons():
    kinds = f"{INTEGERS}|{BITS}|pred|{FLOATS}"
    yield f"setp.<{WORDS}><|.ftz>.<{kinds}> %p1, $2, $3"
    yield f"setp.<{WORDS}>.<and|or|xor><|.ftz>.<{kinds}> %p1, $2, $3, %p4"
    yield from (f"setp.eq.<{kinds}> %p1|%p2, $2, $3", f"selp.<{kinds}> $1, $2, $3, %p1")
    for target in ("%p1", "%p1|%p2"):
        yield f"setp.<{WORDS}><|.ftz>.<f16x2|bf16x2|u16x2> {target}, %r2, %r3"
        yield f"setp.<{WORDS}>.and<|.ftz>.<f16x2|bf16x2|u16x2> {target}, %r2, %r3, !%p4"


def numbers_of_comparisons():
    kinds = "<pred|b32|u16|s16|u32|s32|u64|f16|bf16|f32|f64|f16x2|bf16x2>"
    kinds += f".<{INTEGERS}|{BITS}|pred|{FLOATS}|f16x2|bf16x2|u16x2>"
    for place, word in enumerate(WORDS.split("|")):
        join = ("", ".and", ".or", ".xor")[place % 4]
        yield f"set.{word}{join}<|.ftz>.{kinds} @1, $2, $3" + (", %p4" if join else "")
    yield "set.lt<.and.u32.u32 %r1, %r2, %r3, !%p1|.and.u32.u32 %r1, %r2, %r3|.u32.u32 %r1, %r2>"


def conversions():
    kinds, modes = f"<{INTEGERS}|{FLOATS}>", "<|.rn|.rz|.rm|.rp|.rni|.rzi|.rmi|.rpi><|.ftz><|.sat|.relu>"
    yield f"cvt{modes}.{kinds}.{kinds} @1, $2"


def warps():
    yield "shfl.sync.<up|down|bfly|idx|all>.<b32|u32|b64|f32> $1, $2, 1, 31, -1"
    yield from (
        "vote.sync.<all|any|uni|ballot>.<pred|b32|u32> $1, %p2, -1",
        "match.<any|all>.sync.<b16|b32|b64|u32> %r1, $2, -1",
    )
    yield "redux.sync.<add|min|max|and|or|xor>.<u32|s32|b32|u64|b64> $1, $2, -1"
    yield "redux.sync.<add|min|max><|.abs|.NaN|.abs.NaN>.<f32|s32|f16> $1, $2, -1"
    yield from ("barrier.red.<popc|and|or>.<u32|pred|s32> $1, 0, %p2", "bar.sync<| 0| 1, 64>", "bar.arrive 1<|, 64>")
    yield from ("bar.warp.sync<| %r1>", "barrier.sync.aligned 2, 32", "activemask.b32 %r1", "elect.sync %r1|%p1, -1")
    yield "<trap|brkpt|exit|ret>"


def atomics():
    kinds = "b16|u16|b32|u32|s32|b64|u64|s64|f32|f64|f16|bf16|f16x2|bf16x2"
    for opcode, target in (("atom", "$1, "), ("red", "")):
        start = f"{opcode}<|.global|.shared|.shared::cta|.local>"
        yield f"{start}.<{CHANGES}|exch><|.noftz>.<{kinds}> {target}[%d9], $2"
        yield f"{start}.cas<|.noftz>.<{kinds}> {target}[%d9], $2, $3"
        for count in (2, 4, 8):
            got = "{" + ", ".join(f"${n + 9}" for n in range(count)) + "}, " if target else ""
            start = f"{opcode}<|.global|.shared>.<add|min|max><|.noftz>.v{count}"
            yield f"{start}.<f16|bf16|f16x2|bf16x2|f32|u32> {got}[%d20], {VECTORS[count]}"


def accesses():
    kinds, spaces = f"<{INTEGERS}|{BITS}|{FLOATS}>", "<|.global|.shared|.shared::cta|.local|.const>"
    for count, given in VECTORS.items():
        dot = f".v{count}" if count > 1 else ""
        yield from (f"ld{spaces}{dot}.{kinds} {given}, [%d20]", f"st{spaces}{dot}.{kinds} [%d20], {given}")
        yield f"ld.param{dot}.{kinds} {given}, [kernel_s]"
    spaces = "<|.global|.shared|.local>"
    for opcode, one, two in (("ld", "%r1, [%d20]", "{%r1, %r2}, [%d20]"), ("st", "[%d20], %r1", "[%d20], {%r1, %r2}")):
        orders, loud = "<.relaxed|.weak|><.sys|.gpu|>", "<.volatile|.relaxed.volatile><.sys|.gpu|>"
        yield f"{opcode}.mmio<.relaxed|.weak|.volatile|.relaxed.volatile|><.sys|.gpu|>{spaces}.b32 {one}"
        for way in (f"{orders}{spaces}", f"{loud}<|.global|.shared>"):  # loud: of .local from PTX ISA 9.1 on
            yield from (f"{opcode}.mmio{way}.v2.b32 {two}", f"{opcode}{way}.b32 {one}")
    spaces = "<global|shared|local|const|param|shared::cta|shared::cluster>"
    yield from (f"cvta<|.to>.{spaces}.u64 %d1, %d2", f"isspacep.{spaces} %p1, %d2")


def wide():
    """Registers of 128 bits, and others in their places."""
    where = "<|.relaxed.gpu|.acq_rel><|.global|.shared|.shared::cta>"
    yield f"atom{where}.<exch|add|or>.b128 <%q1|%d1|{{%d1, %d2}}>, [%d9], <%q2|%d2>"
    yield f"atom{where}.cas.b128 <%q1|%d1|{{%d1, %d2}}>, [%d9], <%q2|%d2>, %q3"
    yield f"red{where}.<exch|cas|add|or>.b128 [%d9], %q1"
    yield from ("atom.global.exch.b128 _, [%d9], %q1", f"atom.global.exch{HINT}.b128 %q1, [%d9], %q2, %d3")
    spaces, values = "<|.global|.shared|.shared::cta>", "<%q1|%d1|{%d1, %d2}|{%q1, %q2}>"
    yield from (
        f"ld<|.relaxed.gpu|.v2>{spaces}.b128 {values}, [%d9]",
        f"st<|.relaxed.gpu|.v2>{spaces}.b128 [%d9], {values}",
    )
    yield from (f"ld{spaces}.v2.b64 <%q1|{{%d1, %d2}}|{{%q1, %q2}}>, [%d9]", f"ld{spaces}.b64 %d1, [%d9]")
    values = "%q2|%q1|{%d1, %d2}|{%d1, _}|{%r1, %r2, %r3, %r4}|%d1|{%r1, %r2}"
    yield f"mov.b128 <{values.partition('|')[2]}>, <{values}>"
    yield from ("mov.b64 <%q1, %q2|%d1, %q2|%q1, {%d1, %d2}>", "add.u64 %q1, %q2, %q3")


TEMPLATES = {
    one.__name__: one
    for one in (
        wide,
        arithmetic,
        whole_numbers,
        comparisons,
        numbers_of_comparisons,
        conversions,
        warps,
        atomics,
        accesses,
        clusters,
        cluster_copies,
        lane_copies,
        bulk_copies,
        bulk_reductions,
        multicast_copies,
        multimem,
        mbarriers,
        tensor_copies,
    )
}
