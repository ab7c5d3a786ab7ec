"""What our format takes as an instruction is what ptxas takes, form by form."""

import itertools

import pytest

from simulator.ptx.assembler import assembled, find_ptxas
from symlab.checks.litmus.parse import LitmusError, parsed

PTXAS = find_ptxas()
ORDERS = ("", ".weak", ".relaxed", ".acquire", ".release", ".acq_rel", ".volatile", ".mmio.relaxed")
SCOPES = ("", ".cta", ".cluster", ".gpu", ".sys")
HEAD = (
    ".version 8.5\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n.reg .u64 x, m, d0, d1, d2, d3;\n"
    ".reg .u32 r0, r1, r2, r3;\nld.param.u64 x, [p];\nmov.u64 m, x;\n"
)


def forms():
    """Instructions of our format, each with what PTX calls it."""
    found = {}
    registers = {".u32": "r", ".u64": "d"}
    for order, scope, vector, kind in itertools.product(ORDERS, SCOPES, ("", ".v2", ".v4"), (".u32", ".u64")):
        names = [f"{registers[kind]}{number}" for number in range(int(vector[2:] or 1))]
        if len(names) * int(kind[2:]) > 128:
            continue
        value = "{" + ", ".join(names) + "}" if vector else names[0]
        found[f"ld{order}{scope}{vector}{kind} {value}, [x]"] = f"ld{order}{scope}.global{vector}{kind} {value}, [x];"
        found[f"st{order}{scope}{vector}{kind} [x], {value}"] = f"st{order}{scope}.global{vector}{kind} [x], {value};"
    for order, scope, operation in itertools.product(ORDERS[:-1], SCOPES, (".add", ".and", ".exch", ".max", ".cas")):
        kind = ".b32" if operation in (".and", ".exch", ".cas") else ".u32"
        last = ", 1, 2" if operation == ".cas" else ", 1"
        text = f"atom{order}{scope}{operation}.b32 r0, [x]{last}"
        found[text] = f"atom{order}{scope}.global{operation}{kind} r0, [x]{last};"
        if operation in (".add", ".and", ".max"):
            found[f"red{order}{scope}{operation}.b32 [x], 1"] = f"red{order}{scope}.global{operation}{kind} [x], 1;"
    for order, scope in itertools.product(ORDERS[:-1], SCOPES):
        found[f"multimem.ld_reduce{order}{scope}.add r0, [m]"] = (
            f"multimem.ld_reduce{order}{scope}.global.add.u32 r0, [m];"
        )
        found[f"multimem.st{order}{scope} [m], r0"] = f"multimem.st{order}{scope}.global.u32 [m], r0;"
        found[f"multimem.red{order}{scope}.add [m], r0"] = f"multimem.red{order}{scope}.global.add.u32 [m], r0;"
    for order, scope in itertools.product(("", ".sc", ".acq_rel", ".relaxed"), SCOPES):
        found[f"fence{order}{scope}"] = f"fence{order}{scope};"
    for text in ("membar.cta", "membar.gl", "membar.sys", "fence.proxy.alias", "fence.proxy.async", "bar.sync 0"):
        found[text] = f"{text};"
    return found


def is_ours(line):
    try:
        parsed(f"memory x, y\nmulticast m of x, y\nthread T0 on rank 0 block 0\n{line}\nexists x == 0", "test")
    except LitmusError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(PTXAS is None, reason="ptxas is not installed")
def test_our_yes_and_no_are_those_of_ptxas():
    known = forms()
    verdict = assembled(PTXAS, HEAD + "\n".join(known.values()) + "\nret;\n}\n", "sm_90a")
    first = HEAD.count("\n") + 1
    refused = {problem.line - first for problem in verdict.problems}
    theirs = {text: number not in refused for number, text in enumerate(known)}
    ours = {text: is_ours(text) for text in known}
    assert {text: theirs[text] for text in known if theirs[text] != ours[text]} == {}
    assert 100 < sum(theirs.values()) < len(theirs) - 100
