"""printf, assert and trap: what they say, and who said it. Expected texts are C's, written out by hand."""

import struct

import pytest

from simulator.observe.events import Listener
from tests.golden import same_text
from tests.simulator.harness import executable, failed, launching, make_world, module, run

DECLARED = (
    ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
    ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n"
)


class Log(Listener):
    def __init__(self):
        self.said = []

    def printed(self, event):
        places = zip(event.ranks, event.blocks, event.threads, event.texts, strict=True)
        self.said += [(int(rank), int(block), int(thread), text) for rank, block, thread, text in places]


def text_variable(name, text):
    raw = text.encode() + b"\0"
    return f".global .align 1 .b8 {name}[{len(raw)}] = {{{', '.join(map(str, raw))}}};\n"


def printed(text, values, guard=""):
    """Print with these values in local memory on 2 ranks of 2 blocks of 2 threads; the call's result is stored."""
    stores = "".join(f"st.local.b8 [depot+{at}], {byte};" for at, byte in enumerate(values))
    body = f"""
      .local .align 8 .b8 depot[{max(len(values), 8)}]; {stores} mov.u64 %d1, format; cvta.global.u64 %d1, %d1;
      mov.u64 %d2, depot; cvta.local.u64 %d2, %d2; setp.eq.u32 %p1, %lane, 2;
      {{ .param .b64 p; .param .b64 q; .param .b32 r; st.param.b64 [p], %d1; st.param.b64 [q], %d2; {guard} call (r), vprintf, (p, q); }}
    """
    code = executable(module(body, before=DECLARED + text_variable("format", text)))
    log, world = Log(), make_world(2)
    world.space.events.add(log)

    outcome = run(world, launching(code, 2, 2))
    assert outcome.errors == [None, None], outcome.errors
    assert [
        f"rank {rank}, block {block}, thread {thread}: {said}" for rank, block, thread, said in log.said
    ] == world.printed
    return log.said


def test_every_thread_is_named():
    said = printed("%d!\n", struct.pack("<i", -7))
    assert sorted(said) == [(rank, block, thread, "-7!\n") for rank in (0, 1) for block in (0, 1) for thread in (0, 1)]


def test_a_guard_holds_for_printing():
    assert sorted(printed("hi", b"", "@%p1")) == [(0, 1, 0, "hi"), (1, 1, 0, "hi")]


@pytest.mark.parametrize(
    ("text", "kinds", "values", "expected"),
    [
        ("%d %u %x %X %o", "<iIIII", (-5, 4000000000, 0xBEEF, 0xBEEF, 8), "-5 4000000000 beef BEEF 10"),
        ("%lld|%llu|%lx", "<qQQ", (-(1 << 40), 1 << 63, 1 << 36), "-1099511627776|9223372036854775808|1000000000"),
        ("%5d|%-5d|%05d|%+d|% d|%#x", "<6i", (1, 2, 3, 4, 5, 6), "    1|2    |00003|+4| 5|0x6"),
        ("%.3f|%8.2e|%g|%G", "<4d", (1 / 3, 12345.678, 1e-7, 1e20), "0.333|1.23e+04|1e-07|1E+20"),
        ("%*d|%.*f", "<iiixxxxd", (6, 42, 1, 2.25), "    42|2.2"),
        ("%c%c%% %p", "<iiQ", (72, 105, 0xABC), "Hi% 0xabc"),
        ("%hd %hhu", "<iI", (70000, 300), "4464 44"),
        ("%d %f %d", "<ixxxxdi", (1, 0.5, 2), "1 0.500000 2"),
        ("%a", "<d", (1.0,), "0x1p+0"),
        ("%.*d|%*d", "<4i", (-1, 7, -4, 5), "7|5   "),
        ("%8p|%-8p|", "<QQ", (16, 17), "    0x10|0x11    |"),
        ("%+#08o|%.0d|% .4d|%#X", "<4i", (8, 0, -5, 255), "00000010||-0005|0XFF"),
        ("%08.1f|%-+9.2E|%#.0f|%.3A", "<4d", (float("-inf"), 0.5, 2.0, 2.71828), "    -inf|+5.00E-01|2.|0X1.5BFP+1"),
        ("%-4c|%zu|%td|%jx", "<ixxxxQqQ", (72, 1 << 40, -1, 255), "H   |1099511627776|-1|ff"),
    ],
)
def test_conversions(text, kinds, values, expected):
    assert {said for *_, said in printed(text, struct.pack(kinds, *values))} == {expected}


@pytest.mark.parametrize("text", ["%*d", "%.*d", "%100000d", "%.100000f"])
def test_a_width_that_no_text_has_is_a_fault(text):
    before = DECLARED + text_variable("format", text)
    body = """.local .align 8 .b8 depot[16]; mov.u64 %d2, depot; st.local.u32 [depot], 2000000000; st.local.u32 [depot+4], 7;
      st.local.u64 [depot+8], 0; cvta.local.u64 %d2, %d2; mov.u64 %d1, format; cvta.global.u64 %d1, %d1;
      { .param .b64 p; .param .b64 q; .param .b32 r; st.param.b64 [p], %d1; st.param.b64 [q], %d2; call (r), vprintf, (p, q); }"""
    same_text(failed(body, 2, 4, before=before))


def test_a_failed_assertion_says_what_where_and_who():
    names = {"said": "x > 0", "file": "my/kernel.cu", "name": "void f(int)"}
    before = DECLARED + "".join(text_variable(name, text) for name, text in names.items())
    loads = "".join(f"mov.u64 %d{at}, {name}; cvta.global.u64 %d{at}, %d{at};" for at, name in enumerate(names, 1))
    body = f"""{loads} setp.eq.u32 %p1, %lane, 6; @!%p1 bra OVER;
      {{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e; st.param.b64 [a], %d1; st.param.b64 [b], %d2;
      st.param.b32 [c], 77; st.param.b64 [d], %d3; st.param.b64 [e], 1; call.uni __assertfail, (a, b, c, d, e); }} OVER:"""
    same_text(failed(body, 2, 4, before=before))


@pytest.mark.parametrize("word", ["trap", "brkpt"])
def test_a_kernel_that_stops_itself(word):
    same_text(failed(f"setp.eq.u32 %p1, %lane, 5; @%p1 {word};", 2, 4))


def test_a_format_that_no_gpu_has_is_a_fault():
    before = DECLARED + text_variable("format", "%n")
    body = "mov.u64 %d1, format; { .param .b64 p; .param .b64 q; .param .b32 r; st.param.b64 [p], %d1; st.param.b64 [q], %d1; call (r), vprintf, (p, q); }"
    same_text(failed(body, 2, 4, before=before))
