"""The format of litmus programs: what is read, and the message for each line that is wrong."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from simulator.litmus.outcomes import judged
from simulator.litmus.parse import LitmusError, expression_of, parsed, read
from simulator.litmus.program import (
    Access,
    Address,
    Barrier,
    Branch,
    BulkCopy,
    Combined,
    Compare,
    Compute,
    Fence,
    Place,
    ProxyFence,
    Seen,
    WaitGroup,
)

HEAD = "# A title\n# in two lines.\nmemory x = 5, y\nalias z of x\nmulticast m of x, y\n"
FIRST = "thread T0 on rank 0 block 0\n"
END = "exists x == 0"


def instruction(line: str) -> object:
    return parsed(f"{HEAD}{FIRST}{line}\n{END}", "test").threads[0].instructions[0]


def test_a_program() -> None:
    one = parsed(f"{HEAD}{FIRST}thread T1 on rank 1 cluster 2 block 3\nld.weak r0, [x]; // comment\n{END}", "name")
    assert (one.name, one.title) == ("name", "A title in two lines.")
    assert one.memory.initial["x"][:2] == (5, 0)
    assert one.memory.aliases == {"z": ("x",), "m": ("x", "y")}
    assert [thread.place for thread in one.threads] == [Place(0, 0), Place(1, 3, 2)]
    assert one.conditions[0].text == END


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ld.acquire.sys r0, [x+4]", Access("ld", "acquire", "sys", Address("x", 1), 32, ("r0",))),
        ("ld r0, [x]", Access("ld", "weak", "", Address("x"), 32, ("r0",))),
        ("ld.volatile.u64 r0, [x]", Access("ld", "relaxed", "sys", Address("x"), 64, ("r0",))),
        ("st.mmio.relaxed.sys [x], 3", Access("st", "relaxed", "sys", Address("x"), 32, (), (3,))),
        ("st.weak.v2.b64 [x], {r1, 2}", Access("st", "weak", "", Address("x"), 64, (), ("r1", 2))),
        ("atom.add r0, [x], 1", Access("atom", "relaxed", "gpu", Address("x"), 32, ("r0",), (1,), "add")),
        (
            "atom.acq_rel.cta.cas r0, [x], 1, 2",
            Access("atom", "acq_rel", "cta", Address("x"), 32, ("r0",), (2,), "cas", 1),
        ),
        ("red.release.cluster.max [x], 4", Access("red", "release", "cluster", Address("x"), 32, (), (4,), "max")),
        (
            "multimem.ld_reduce.acquire.sys.add r0, [m]",
            Access("ld", "acquire", "sys", Address("m"), 32, ("r0",), (), "add", 0, True),
        ),
        ("fence.sys", Fence("acq_rel", "sys")),
        ("membar.gl", Fence("sc", "gpu")),
        ("fence.proxy.async", ProxyFence("async")),
        ("bar.sync r1, 2", Barrier("sync", "r1", 2)),
        ("bar.sync 0", Barrier("sync", 0, None)),
        ("cp.async.bulk [x], [y], 8", BulkCopy(Address("x"), Address("y"), 2)),
        ("cp.async.bulk.wait_group.read 1", WaitGroup(1, True)),
        ("sub r1, r0, 0x10", Compute("sub", "r1", ("r0", 16))),
        ("bra end if r0 != 1", Branch("end", "!=", "r0", 1)),
    ],
)
def test_an_instruction(line: str, expected: object) -> None:
    found = instruction(line)
    assert dataclasses.replace(found, text="") == expected  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("st.acquire.sys [x], 1", "st has no .acquire, it has .weak, .relaxed, .release"),
        ("ld.release.sys r0, [x]", "ld has no .release"),
        ("red.acquire.sys.add [x], 1", "red has no .acquire, it has .relaxed, .release"),
        ("ld.relaxed r0, [x]", "a weak access has no scope, any other needs one of .cta, .cluster, .gpu, .sys"),
        ("ld.weak.sys r0, [x]", "a weak access has no scope"),
        ("ld.mmio.sys r0, [x]", "write .mmio.relaxed.sys, the only form"),
        ("atom.volatile.add r0, [x], 1", "only ld and st have .volatile"),
        ("atom.relaxed.gpu r0, [x], 1", "atom needs an operation such as .add"),
        ("st.add [x], 1", "st has no .add"),
        ("ld.f32 r0, [x]", "unknown qualifier .f32"),
        ("ld.weak r0", "ld takes 2 operands"),
        ("ld.weak.v2 r0, [x]", "write 2 elements in braces"),
        ("ld.weak {r0, r1}, [x]", "write 1 elements for one element"),
        ("atom.add.v2 {r0, r1}, [x], {1, 2}", "vectors are for ld and st"),
        ("ld.weak r0, [w]", "'w' is not declared, add: memory w"),
        ("ld.weak r0, x", "'x' is no address, write [x], or [x+4]"),
        ("ld.weak r0, [x+2]", "'[x+2]' is no address"),
        ("ld.weak.b64 r0, [x+4]", "the address is not aligned to the 8 bytes of the access"),
        ("ld.weak r0, [x+32]", "beyond the 32 bytes of a location"),
        ("ld.weak r0, [m]", "a multicast address takes multimem's instructions and no others"),
        ("multimem.st.weak [x], 1", "a multicast address takes multimem's instructions and no others"),
        ("multimem.red.weak.sys.add [m], 1", "red has no .weak, it has .relaxed, .release"),
        ("multimem.red.sys.add [m], 1", "multimem.red has both an order and a scope, or neither"),
        ("ld.mmio.relaxed.sys.v2 {r0, r1}, [x]", ".mmio has no vectors"),
        ("multimem.red.relaxed.sys.max [m], 1", "of multimem's operations, litmus programs have .add"),
        ("multimem.cp [m], 1", "multimem has .ld_reduce, .st and .red"),
        ("fence.sc", "write fence, one of .sc .acq_rel .acquire .release, and one of .cta"),
        ("fence.proxy.tensormap", "litmus programs have fence.proxy.alias and .async"),
        ("bar.arrive 0", "write bar.sync ID, bar.sync ID, COUNT or bar.arrive ID, COUNT"),
        ("bar.sync 16", "there is no barrier 16, a block has 0 to 15"),
        ("bar.arrive -1, 2", "there is no barrier -1, a block has 0 to 15"),
        ("cp.async.bulk [x], [y], 6", "copy a multiple of 4 bytes"),
        ("cp.async.bulk.wait_group", "write cp.async.bulk [TO], [FROM], BYTES"),
        ("bra", "write bra LABEL, or bra LABEL if r0 == 1"),
        ("mul r0, 1", "is no instruction of a litmus program"),
        ("st.weak [x], 1.5", "'1.5' is no number"),
        ("memory x", "'x' is declared twice"),
        ("memory 3", "'3' is no location, write it as 'memory x = 0, flag'"),
        ("alias q of w", "'w' is no location, declare it before: memory w"),
        ("alias q of x, y", "an alias is of one location, a multicast address of several"),
        ("alias q", "write it as 'alias y of x'"),
        ("thread T0 on rank 0 block 0", "there are two threads 'T0'"),
        ("thread T1 on block 0", "write it as 'thread T0 on rank 0 block 0'"),
        ("never T5.r0 == 1", "there is no thread T5, there are T0"),
        ("never T0.r9 == 1", "thread T0 does not write r9"),
        ("never w == 1", "'w' is no location, there are x, y"),
        ("never x+32 == 1", "'x+32' is beyond the 32 bytes of a location"),
        ("never x = 1", "'= 1' is not understood in a condition"),
        ("never x 1", "'1' is no comparison, write one of =="),
        ("never (x == 1", "a parenthesis of the condition is not closed"),
        ("never x == 1 y", "'y' is one word too many in a condition"),
        ("never x+3 == 1", "'x+3' is no register or location"),
    ],
)
def test_a_wrong_line_is_named(line: str, message: str) -> None:
    with pytest.raises(LitmusError) as caught:
        parsed(f"{HEAD}{FIRST}{line}\n{END}", "test")
    said = str(caught.value)
    assert said.startswith("line 7: ")
    assert message in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("memory x\nexists x == 0", "line 1: no thread, add one such as 'thread T0 on rank 0 block 0'"),
        (f"memory x\n{FIRST}", "line 1: no condition, end with one such as 'never T1.r0 == 1'"),
        ("ld.weak r0, [x]", "line 1: 'ld.weak r0, [x]' comes before the first thread"),
    ],
)
def test_a_program_that_lacks_something(text: str, message: str) -> None:
    with pytest.raises(LitmusError) as caught:
        parsed(text, "test")
    assert message in str(caught.value)


def test_a_jump_needs_its_label() -> None:
    one = parsed(f"memory x\n{FIRST}bra end\n{END}", "test")
    with pytest.raises(ValueError, match="thread T0: no label 'end' for 'bra end', add 'end:'"):
        judged(one)


def test_a_condition_binds_not_before_and_before_or() -> None:
    x = Compare("==", Seen("", "x"), 1)
    assert expression_of("not x == 1 and x == 1 or x == 1") == Combined(
        "or", (Combined("and", (Combined("not", (x,)), x)), x)
    )
    assert expression_of("not (x == 1 or x == 1)") == Combined("not", (Combined("or", (x, x)),))
    assert expression_of("T0.r1 <= 0x10") == Compare("<=", Seen("T0", "r1"), 16)


def test_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.litmus"
    with pytest.raises(ValueError, match="mine.litmus: No such file or directory, give a litmus program"):
        read(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="mine.litmus: not text"):
        read(path)
    path.write_text("memory x\nfrobnicate\n")
    with pytest.raises(ValueError, match="mine.litmus, line 2: 'frobnicate' comes before"):
        read(path)
