"""Litmus programs of message-passing shape, drawn from a seed: data, flags, fences and read-modify-writes."""

from __future__ import annotations

import random

from simulator.litmus.program import (
    Access,
    Address,
    Branch,
    Fence,
    Instruction,
    Label,
    Memory,
    Place,
    Program,
    Thread,
)

SCOPES = ("cta", "cluster", "gpu", "sys", "sys", "sys")


def program(seed: int) -> Program:
    """A writer of data and a flag, up to two threads that pass it on, and a reader of the flag and then the data."""
    drawn = random.Random(seed)
    count = drawn.choice((2, 2, 3, 3, 4))
    places = [Place(drawn.randrange(2), drawn.randrange(3), drawn.choice((None, 0))) for _ in range(count)]
    places = _consistent(places)
    last, expected = "flag", 1
    code: list[list[Instruction]] = [[Access("st", "weak", "", Address("data"), sources=(1,))]]
    code[0] += _told(drawn, "flag", "a")
    for number in range(1, count - 1):
        same = drawn.random() < 0.5
        if same:  # a link of a chain of read-modify-writes
            code.append(_added(drawn, last, f"b{number}"))
            expected += 1
        else:
            heard = _heard(drawn, last, f"b{number}", expected)
            last, expected = f"flag{number}", 1
            code.append(heard + _told(drawn, last, f"c{number}"))
    final = Access("ld", "weak", "", Address("data"), destinations=("r",))
    if drawn.random() < 0.2:
        final = Access("st", "weak", "", Address("data"), sources=(2,))
    code.append([*_heard(drawn, last, "f", expected), final])
    memory = {name: (0,) for name in ("data", "flag", *(f"flag{number}" for number in range(1, count - 1)))}
    threads = tuple(
        Thread(f"T{i}", place, (*one, Label("end"))) for i, (place, one) in enumerate(zip(places, code, strict=True))
    )
    return Program(f"passing{seed}", "", Memory(memory), threads, ())


def _consistent(places: list[Place]) -> list[Place]:
    """Blocks have one cluster each."""
    known: dict[tuple[int, int], int | None] = {}
    return [Place(one.rank, one.block, known.setdefault((one.rank, one.block), one.cluster)) for one in places]


def _fence(drawn: random.Random, chance: float) -> list[Instruction]:
    if drawn.random() > chance:
        return []
    return [Fence(drawn.choice(("acq_rel", "acq_rel", "sc", "acquire", "release")), drawn.choice(SCOPES))]


def _strong(drawn: random.Random, orders: tuple[str, ...]) -> tuple[str, str]:
    return drawn.choice(orders), drawn.choice(SCOPES)


def _told(drawn: random.Random, flag: str, name: str) -> list[Instruction]:
    before = _fence(drawn, 0.4)
    kind = drawn.choice(("st", "st", "red", "atom"))
    at = Address(flag)
    if kind == "st":
        return [*before, Access("st", *_strong(drawn, ("relaxed", "release", "release")), at, sources=(1,))]
    if kind == "red":
        order = _strong(drawn, ("relaxed", "release", "release"))
        return [*before, Access("red", *order, at, sources=(1,), operation="add")]
    order = _strong(drawn, ("relaxed", "release", "acq_rel"))
    return [*before, Access("atom", *order, at, destinations=(name,), sources=(1,), operation="add")]


def _added(drawn: random.Random, flag: str, name: str) -> list[Instruction]:
    order = _strong(drawn, ("relaxed", "relaxed", "acquire", "release", "acq_rel"))
    made = Access("atom", *order, Address(flag), destinations=(name,), sources=(1,), operation="add")
    return [*_fence(drawn, 0.2), made, *_fence(drawn, 0.2)]


def _heard(drawn: random.Random, flag: str, name: str, expected: int) -> list[Instruction]:
    """A read of a flag; the thread goes on only where it has the expected value."""
    if drawn.random() < 0.7:
        read = Access("ld", *_strong(drawn, ("relaxed", "acquire", "acquire")), Address(flag), destinations=(name,))
    else:
        order = _strong(drawn, ("relaxed", "acquire", "acq_rel"))
        read = Access("atom", *order, Address(flag), destinations=(name,), sources=(0,), operation="add")
    return [read, Branch("end", "!=", name, expected), *_fence(drawn, 0.4)]
