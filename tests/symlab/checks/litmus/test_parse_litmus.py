"""The format of litmus programs: what is read, and the message for each line that is wrong."""

import dataclasses

import pytest

from symlab.checks.litmus import program
from symlab.checks.litmus.outcomes import judged
from symlab.checks.litmus.parse import LitmusError, expression_of, parsed, read
from tests.golden import refused

HEAD = "# A title\n# in two lines.\nmemory x = 5, y\nalias z of x\nmulticast m of x, y\n"
FIRST = "thread T0 on rank 0 block 0\n"
END = "exists x == 0"


def instruction(line):
    return parsed(f"{HEAD}{FIRST}{line}\n{END}", "test").threads[0].instructions[0]


def test_a_program():
    one = parsed(f"{HEAD}{FIRST}thread T1 on rank 1 cluster 2 block 3\nld.weak r0, [x]; // comment\n{END}", "name")
    assert (one.name, one.title) == ("name", "A title in two lines.")
    assert one.memory.initial["x"][:2] == (5, 0)
    assert one.memory.aliases == {"z": ("x",), "m": ("x", "y")}
    assert [thread.place for thread in one.threads] == [program.Place(0, 0), program.Place(1, 3, 2)]
    assert one.conditions[0].text == END


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ld.acquire.sys r0, [x+4]", program.Access("ld", "acquire", "sys", program.Address("x", 1), 32, ("r0",))),
        ("ld r0, [x]", program.Access("ld", "weak", "", program.Address("x"), 32, ("r0",))),
        ("ld.volatile.u64 r0, [x]", program.Access("ld", "relaxed", "sys", program.Address("x"), 64, ("r0",))),
        ("st.mmio.relaxed.sys [x], 3", program.Access("st", "relaxed", "sys", program.Address("x"), 32, (), (3,))),
        ("st.weak.v2.b64 [x], {r1, 2}", program.Access("st", "weak", "", program.Address("x"), 64, (), ("r1", 2))),
        (
            "atom.add r0, [x], 1",
            program.Access("atom", "relaxed", "gpu", program.Address("x"), 32, ("r0",), (1,), "add"),
        ),
        (
            "atom.acq_rel.cta.cas r0, [x], 1, 2",
            program.Access("atom", "acq_rel", "cta", program.Address("x"), 32, ("r0",), (2,), "cas", 1),
        ),
        (
            "red.release.cluster.max [x], 4",
            program.Access("red", "release", "cluster", program.Address("x"), 32, (), (4,), "max"),
        ),
        (
            "multimem.ld_reduce.acquire.sys.add r0, [m]",
            program.Access("ld", "acquire", "sys", program.Address("m"), 32, ("r0",), (), "add", 0, True),
        ),
        ("fence.sys", program.Fence("acq_rel", "sys")),
        ("membar.gl", program.Fence("sc", "gpu")),
        ("fence.proxy.async", program.ProxyFence("async")),
        ("bar.sync r1, 2", program.Barrier("sync", "r1", 2)),
        ("bar.sync 0", program.Barrier("sync", 0, None)),
        ("cp.async.bulk [x], [y], 8", program.BulkCopy(program.Address("x"), program.Address("y"), 2)),
        ("cp.async.bulk.wait_group.read 1", program.WaitGroup(1, True)),
        ("sub r1, r0, 0x10", program.Compute("sub", "r1", ("r0", 16))),
        ("bra end if r0 != 1", program.Branch("end", "!=", "r0", 1)),
    ],
)
def test_an_instruction(line, expected):
    found = instruction(line)
    assert dataclasses.replace(found, text="") == expected


WRONG_LINES = {
    "orders": "st.acquire.sys [x], 1 | ld.release.sys r0, [x] | red.acquire.sys.add [x], 1 | ld.mmio.sys r0, [x]"
    " | atom.volatile.add r0, [x], 1 | multimem.red.weak.sys.add [m], 1 | fence.sc",
    "scopes": "ld.relaxed r0, [x] | ld.weak.sys r0, [x] | multimem.red.sys.add [m], 1",
    "words": "atom.relaxed.gpu r0, [x], 1 | st.add [x], 1 | ld.f32 r0, [x] | multimem.red.relaxed.sys.max [m], 1"
    " | multimem.cp [m], 1 | fence.proxy.tensormap | mul r0, 1",
    "vectors": "ld.weak.v2 r0, [x] | ld.weak {r0, r1}, [x] | atom.add.v2 {r0, r1}, [x], {1, 2}"
    " | ld.mmio.relaxed.sys.v2 {r0, r1}, [x]",
    "operands": "ld.weak r0 | ld.weak r0, [w] | ld.weak r0, x | ld.weak r0, [x+2] | ld.weak.b64 r0, [x+4]"
    " | ld.weak r0, [x+32] | ld.weak r0, [m] | multimem.st.weak [x], 1 | st.weak [x], 1.5 | bra",
    "barriers": "bar.arrive 0 | bar.sync 16 | bar.arrive -1, 2",
    "copies": "cp.async.bulk [x], [y], 6 | cp.async.bulk.wait_group",
    "names": "memory x | memory 3 | alias q of w | alias q of x, y | alias q | thread T0 on rank 0 block 0"
    " | thread T1 on block 0",
    "conditions": "never T5.r0 == 1 | never T0.r9 == 1 | never w == 1 | never x+32 == 1 | never x = 1 | never x 1"
    " | never (x == 1 | never x == 1 y | never x+3 == 1 | never x == True",
}


@pytest.mark.parametrize("lines", WRONG_LINES.values(), ids=WRONG_LINES)
def test_a_wrong_line_is_named(lines):
    for line in lines.split(" | "):
        with refused(LitmusError) as caught:
            parsed(f"{HEAD}{FIRST}{line}\n{END}", "test")
        assert str(caught.value).startswith("line 7: ")


@pytest.mark.parametrize("text", ["memory x\nexists x == 0", f"memory x\n{FIRST}", "ld.weak r0, [x]"])
def test_a_program_that_lacks_something(text):
    with refused(LitmusError):
        parsed(text, "test")


def test_a_jump_needs_its_label():
    one = parsed(f"memory x\n{FIRST}bra end\n{END}", "test")
    with refused():
        judged(one)


def test_a_condition_binds_not_before_and_before_or():
    x = program.Compare("==", program.Seen("", "x"), 1)
    assert expression_of("not x == 1 and x == 1 or x == 1") == program.Combined(
        "or", (program.Combined("and", (program.Combined("not", (x,)), x)), x)
    )
    assert expression_of("not (x == 1 or x == 1)") == program.Combined("not", (program.Combined("or", (x, x)),))
    assert expression_of("T0.r1 <= 0x10") == program.Compare("<=", program.Seen("T0", "r1"), 16)


def test_a_file_is_named(tmp_path):
    path = tmp_path / "mine.litmus"
    with refused():
        read(path)
    for content in (b"\xff\xfe", b"memory x\nfrobnicate\n"):
        path.write_bytes(content)
        with refused():
            read(path)
