"""Compare the judge with Dat3M's verdicts: python -m tests.symlab.checks.litmus.published FOLDER

The folder is a checkout of hernanponcedeleon/Dat3M: litmus/PTX, in herd's format, and verdicts in
dartagnan/src/test/resources. Its files are read where they lie; nothing of them is part of this project. Programs with
surfaces, textures or constants are left out: the ISA's model excludes these (8.1).
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from symlab.checks.litmus.outcomes import judged
from symlab.checks.litmus.parse import expression_of
from symlab.checks.litmus.program import (
    USERS,
    Access,
    Address,
    Barrier,
    Branch,
    Compute,
    Condition,
    Fence,
    Instruction,
    Label,
    Memory,
    Operand,
    Place,
    Program,
    ProxyFence,
    Thread,
)

_OTHER_PROXIES = re.compile(r"\b(?:sust|suld|tld|cold|ldc|suatom|sured)\b|proxy\.(?:surface|texture|constant)")
_WORDS = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """A published program, and what its authors say of its condition."""

    program: Program
    expected: bool


def dat3m(folder: Path) -> Iterator[Verdict]:
    """Yield the programs that PTXv7_5-expected.csv has a verdict of, without other proxies."""
    table = folder / "dartagnan" / "src" / "test" / "resources" / "PTXv7_5-expected.csv"
    with table.open(encoding="utf-8") as file:
        rows = [row for row in csv.reader(file) if row]
    for path, expected, *_ in rows:
        text = re.sub(r'"[^"]*"', "", (folder / path).read_text(encoding="utf-8"))
        if not _OTHER_PROXIES.search(text):
            yield Verdict(_herd(text, path), expected.strip() == "1")


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


def main(arguments: Sequence[str]) -> int:
    """Return the exit code: 0 if the judge agrees with all verdicts, 1 if not, 2 without a checkout."""
    if len(arguments) != 1 or not (Path(arguments[0]) / "litmus" / "PTX").is_dir():
        print("tests.symlab.checks.litmus.published: error: give a checkout of Dat3M", file=sys.stderr)
        return 2
    verdicts, same = list(dat3m(Path(arguments[0]))), 0
    for one in verdicts:
        try:
            is_same = judged(one.program, is_explained=False).holds(one.program.conditions[0]) == one.expected
        except ValueError as error:
            print(f"beyond the limit: {one.program.name}: {error}")
            continue
        same += is_same
        if not is_same:
            print(f"differs: {one.program.name}: {one.program.conditions[0].text}, published {one.expected}")
    print(f"agrees with {same} of {len(verdicts)}")
    return int(same != len(verdicts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
