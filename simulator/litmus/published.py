"""Compare the judge with the verdicts of two published suites: python -m simulator.litmus.published FOLDER...

A folder is a checkout of Dat3M (hernanponcedeleon/Dat3M: litmus/PTX, and verdicts in dartagnan/src/test/resources) or
of mixedproxy (NVlabs/mixedproxy: tests). Their files are read where they lie; nothing of them is part of this project.
Programs with surfaces, textures or constants are left out: the ISA's model excludes these (8.1).
"""

from __future__ import annotations

import csv
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from simulator.litmus.outcomes import judged
from simulator.litmus.parse import expression_of
from simulator.litmus.program import (
    USERS,
    Access,
    Address,
    Barrier,
    Branch,
    Combined,
    Compare,
    Compute,
    Condition,
    Expression,
    Fence,
    Instruction,
    Label,
    Memory,
    Operand,
    Place,
    Program,
    ProxyFence,
    Seen,
    Thread,
)

_OTHER_PROXIES = re.compile(r"\b(?:sust|suld|tld|cold|ldc|suatom|sured)\b|proxy\.(?:surface|texture|constant)")
_WORDS = 1

KNOWN_ERRORS = {
    "Release_acquire_pattern.test": "wrong as published: fences form no pattern in its model, which its author calls "
    "unintended (mixedproxy#4); Dat3M has the same program with the other verdict (Dat3M#594)",
}
"""Published verdicts that their authors, and section 8.8 of the ISA, contradict."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A published program, and what its authors say of its condition."""

    suite: str
    program: Program
    expected: bool


@dataclass(frozen=True, slots=True)
class Agreement:
    """How the judge compares: programs, those it says the same of, those it does not, and those beyond its limit.

    known are differences where the published verdict is one of KNOWN_ERRORS.
    """

    total: int
    same: int
    different: tuple[str, ...]
    known: tuple[str, ...]
    too_large: tuple[str, ...]


def compared_with(verdicts: Sequence[Verdict]) -> Agreement:
    """Judge all programs and compare."""
    same = 0
    different: list[str] = []
    known: list[str] = []
    too_large: list[str] = []
    for one in verdicts:
        try:
            found = judged(one.program, is_explained=False)
        except ValueError as error:
            too_large.append(f"{one.program.name}: {error}")
            continue
        names = known if one.program.name in KNOWN_ERRORS else different
        if found.holds(one.program.conditions[0]) == one.expected:
            same += 1
        else:
            names.append(f"{one.program.name}: {one.program.conditions[0].text}, published {one.expected}")
    return Agreement(len(verdicts), same, tuple(different), tuple(known), tuple(too_large))


def verdicts_of(folder: Path) -> tuple[Verdict, ...]:
    """Return the published programs of a checkout. Raises ValueError if it is neither of the two."""
    if (folder / "litmus" / "PTX").is_dir():
        return tuple(dat3m(folder))
    if (folder / "tests").is_dir():
        return tuple(mixedproxy(folder))
    raise ValueError(f"{folder}: neither Dat3M (litmus/PTX) nor mixedproxy (tests), give a checkout of one of these")


# Dat3M: herd's format


def dat3m(folder: Path) -> Iterator[Verdict]:
    """Yield the programs that PTXv7_5-expected.csv has a verdict of, without other proxies."""
    table = folder / "dartagnan" / "src" / "test" / "resources" / "PTXv7_5-expected.csv"
    with table.open(encoding="utf-8") as file:
        rows = [row for row in csv.reader(file) if row]
    for path, expected, *_ in rows:
        text = re.sub(r'"[^"]*"', "", (folder / path).read_text(encoding="utf-8"))
        if not _OTHER_PROXIES.search(text):
            suite = "Dat3M, aliases" if "alias" in text else "Dat3M, generic"
            yield Verdict(suite, _herd(text, path), expected.strip() == "1")


def _herd(text: str, name: str) -> Program:
    """A program in herd's format: names and values in braces, a column for each thread, a condition."""
    found = re.fullmatch(r"[^{]*\{(.*?)\}(.*?);(.*);\s*(~?exists|forall)(.*)", text.strip(), re.DOTALL)
    if found is None:
        raise ValueError(f"{name}: not herd's format")
    initial, aliases, registers = _herd_memory(found[1])
    heads = [re.sub(r"\s", "", head) for head in found[2].split("|")]
    codes: list[list[Instruction]] = [[] for _ in heads]
    for row in found[3].split(";"):
        for code, cell in zip(codes, row.split("|"), strict=False):
            if cell.strip():
                code.append(_herd_instruction(" ".join(cell.split())))
    names = {one.address.name for code in codes for one in code if isinstance(one, Access)}
    for one in names - set(initial) - set(aliases):
        initial[one] = (0,) * _WORDS
    threads = []
    for number, (head, code) in enumerate(zip(heads, codes, strict=True)):
        place = re.fullmatch(r"P\d+@cta(\d+),gpu(\d+)", head)
        assert place is not None, head
        start = tuple((register, value) for thread, register, value in registers if thread == f"P{number}")
        threads.append(Thread(f"P{number}", Place(int(place[2]), int(place[1])), tuple(code), start))
    quantifier = {"exists": "exists", "~exists": "never", "forall": "always"}[found[4]]
    condition = _herd_condition(quantifier, found[5])
    return Program(name, "", Memory(initial, aliases), tuple(threads), (condition,))


def _herd_memory(
    text: str,
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[str, ...]], list[tuple[str, str, int]]]:
    initial: dict[str, tuple[int, ...]] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    registers: list[tuple[str, str, int]] = []
    for part in text.split(";"):
        words = re.sub(r"\s*([=:])\s*", r"\1", part.strip())
        if found := re.fullmatch(r"(\w+) ?@ ?generic aliases (\w+)", words):
            aliases[found[1]] = aliases.get(found[2], (found[2],))
        elif found := re.fullmatch(r"(P\d+):(\w+)=(-?\w+)", words):
            registers.append((found[1], found[2], int(found[3], 0)))
        elif found := re.fullmatch(r"(\w+)=(-?\w+)", words):
            initial[found[1]] = (int(found[2], 0),)
        elif words and "aliases" not in words:
            raise ValueError(f"'{words}' is not understood")
    return initial, aliases, registers


def _herd_condition(quantifier: str, text: str) -> Condition:
    shown = " ".join(text.split())
    plain = shown.replace("/\\", " and ").replace("\\/", " or ")
    plain = re.sub(r"\bP?(\d+)\s*:\s*(r\d+)", r"P\1.\2", plain)
    plain = re.sub(r"(?<![=!<>])=(?!=)", "==", plain)
    kind = cast(Literal["exists", "never", "always"], quantifier)
    return Condition(kind, expression_of(plain), f"{quantifier} {shown}")


def _herd_instruction(text: str) -> Instruction:
    if text.endswith(":"):
        return Label(text[:-1], text)
    head, _, rest = text.partition(" ")
    operands = [part.strip() for part in rest.split(",")]
    words = head.split(".")
    if words[0] in ("beq", "bne", "blt", "bgt", "ble", "bge"):
        relation = {"beq": "==", "bne": "!=", "blt": "<", "bgt": ">", "ble": "<=", "bge": ">="}[words[0]]
        return Branch(operands[2], relation, _operand(operands[0]), _operand(operands[1]), text)
    if words[0] == "goto":
        return Branch(operands[0], text=text)
    if words[0] == "bar":
        return _herd_barrier(words[2], operands, text)
    if words[0] == "fence":
        return ProxyFence("alias", text) if words[1] == "proxy" else Fence(words[1], words[2], text)
    if head == "ld":
        return Compute("mov", operands[0], (_operand(operands[1]),), text)
    if words[0] in ("add", "sub", "mul"):
        return Compute(words[0], operands[0], tuple(map(_operand, operands[1:])), text)
    return _published_access(words, operands, text)


def _published_access(words: list[str], operands: list[str], text: str) -> Access:
    """ld, st, atom or red, with semantics, scope and operation in any order."""
    opcode = cast(Literal["ld", "st", "atom", "red"], words[0])
    order = next((word for word in words if word in ("relaxed", "acquire", "release", "acq_rel", "weak")), "weak")
    scope = next((word for word in words if word in ("cta", "gpu", "sys")), "")
    if "volatile" in words:
        order, scope = "relaxed", "sys"
    operation = next((word for word in words if word in ("add", "sub", "exch", "cas", "and", "or", "xor")), "")
    has_result = opcode in ("ld", "atom")
    destinations = (operands[0],) if has_result else ()
    address, *values = operands[1:] if has_result else operands
    expected = _operand(values.pop(0)) if operation == "cas" else 0
    sources = tuple(map(_operand, values))
    at = Address(address.strip("[]"))
    return Access(opcode, order, scope, at, 32, destinations, sources, operation, expected, False, text)


def _herd_barrier(kind: str, operands: list[str], text: str) -> Barrier:
    """bar.cta.sync INSTANCE, ID, THREADS: without a number of threads it waits for all that use it."""
    name: Operand = int(operands[0]) + 16 if len(operands) == 1 else _operand(operands[1])
    count = int(operands[2]) if len(operands) == 3 else USERS
    return Barrier(cast(Literal["sync", "arrive"], kind), name, count, text)


def _operand(text: str) -> Operand:
    return text if re.fullmatch(r"r\d+", text) else int(text, 0)


# mixedproxy


def mixedproxy(folder: Path) -> Iterator[Verdict]:
    """Yield the cases of tests/*.test without other proxies; a file may have a row of words for each case."""
    for path in sorted((folder / "tests").glob("*.test")):
        text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        body, _, table = text.partition("$$")
        rows = [[cell.strip() for cell in row.split("|")] for row in table.splitlines() if row.strip()] or [[]]
        for number, row in enumerate(rows, start=1):
            whole = re.sub(r"\$(\d+)", lambda found, row=row: row[int(found[1])], body)  # type: ignore[misc]
            if not _OTHER_PROXIES.search(whole):
                yield _case(whole, f"{path.name}" + (f", row {number}" if row else ""))


def _case(text: str, name: str) -> Verdict:
    """A case: declarations, blocks of threads, and a command of which `assert` holds always and `permit` at times."""
    initial: dict[str, tuple[int, ...]] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    for location, target in re.findall(r"\.global (\w+)(?: physically aliases (\w+))?;", text):
        if target:
            aliases[location] = (target,)
        else:
            initial[location] = (0,) * _WORDS
    threads: list[Thread] = []
    owner: dict[str, str] = {}
    assumed: list[Expression] = []
    for device, block, number, code in re.findall(r"d(\d+)\.b(\d+)\.t(\d+)\s*\{(.*?)\}", text, re.DOTALL):
        thread = f"d{device}b{block}t{number}"
        instructions: list[Instruction] = []
        for statement in filter(None, (" ".join(part.split()) for part in code.split(";"))):
            plain, _, value = statement.partition(" == ")
            instructions.append(_statement(plain))
            for register in getattr(instructions[-1], "destinations", ()):
                owner[register] = thread
                if value:
                    assumed.append(Compare("==", Seen(thread, register), int(value)))
        threads.append(Thread(thread, Place(int(device), int(block)), tuple(instructions)))
    command = re.search(r"(assert|permit)\s*\((.*)\) as", text)
    assert command is not None, name
    plain = command[2].replace("&&", " and ").replace("||", " or ")
    claim = expression_of(re.sub(r"\br\d+\b", lambda found: f"{owner[found[0]]}.{found[0]}", plain))
    if command[1] == "permit":
        condition = Condition("exists", Combined("and", (*assumed, claim)), command[0])
    else:
        excluded = [Combined("not", (one,)) for one in assumed]
        condition = Condition("always", Combined("or", (*excluded, claim)), command[0])
    return Verdict("mixedproxy", Program(name, "", Memory(initial, aliases), tuple(threads), (condition,)), True)


def _statement(text: str) -> Instruction:
    head, _, rest = text.partition(" ")
    words = head.split(".")
    if words[0] == "fence":
        return ProxyFence("alias", text) if words[-1] == "alias" else Fence(words[1], words[2], text)
    return _published_access(words, [part.strip() for part in rest.split(",")], text)


def main(arguments: Sequence[str]) -> int:
    """Compare with the suites of the folders. Returns 0 if the judge agrees with all but KNOWN_ERRORS."""
    if not arguments:
        raise ValueError("no folder, give checkouts of Dat3M and mixedproxy")
    verdicts = [one for folder in arguments for one in verdicts_of(Path(folder))]
    is_good = True
    for suite in dict.fromkeys(one.suite for one in verdicts):
        start = time.perf_counter()
        found = compared_with([one for one in verdicts if one.suite == suite])
        print(f"{suite}: agrees with {found.same} of {found.total}, {time.perf_counter() - start:.1f} s")
        for name in found.known:
            print(f"  differs: {name} ({KNOWN_ERRORS[name.split(':')[0]]})")
        for title, names in (("differs", found.different), ("beyond the limit", found.too_large)):
            for name in names:
                print(f"  {title}: {name}")
        is_good &= not found.different and not found.too_large
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
