"""Programs drawn from a seed, and what they can do if every access takes effect at once, in some order of all threads."""

import random
from dataclasses import replace

from symlab.checks.litmus.program import Access, Address, Fence, Memory, Place, Program, Thread

"""Registers in the order of the program, and the words of its locations."""


def program(seed, *, threads=2, length=3):
    """A program of loads, stores, additions and fences at two locations, with scopes and orders drawn from the seed."""
    drawn = random.Random(seed)
    code = [[] for _ in range(threads)]
    for number in range(threads * length):
        thread = number % threads
        scope = drawn.choice(("cta", "gpu", "sys"))
        at = Address(drawn.choice("xy"))
        kind = drawn.choice(("ld", "ld", "st", "st", "atom", "fence"))
        if kind == "fence":
            code[thread].append(Fence(drawn.choice(("sc", "acq_rel", "acquire", "release")), scope))
            continue
        order = drawn.choice(
            {"ld": ("weak", "relaxed", "acquire"), "st": ("weak", "relaxed", "release")}.get(
                kind, ("relaxed", "acq_rel")
            )
        )
        scope = "" if order == "weak" else scope
        targets = () if kind == "st" else (f"r{number}",)
        sources = () if kind == "ld" else (1 if kind == "atom" else number + 1,)
        operation = "add" if kind == "atom" else ""
        access = Access("ld", order, scope, at, 32, targets, sources, operation)
        code[thread].append(replace(access, opcode=kind))
    places = [Place(drawn.randrange(2), drawn.randrange(2)) for _ in range(threads)]
    made = tuple(Thread(f"T{i}", place, tuple(one)) for i, (place, one) in enumerate(zip(places, code, strict=True)))
    return Program(str(seed), "", Memory({"x": (0,), "y": (0,)}), made, ())


def interleaved(one):
    """All final states if every instruction takes effect at once: each thread in its order, threads in any."""
    found = set()
    names = [
        (i, register)
        for i, thread in enumerate(one.threads)
        for a in thread.instructions
        for register in getattr(a, "destinations", ())
    ]
    start = ((0,) * len(one.threads), (0, 0), ())
    waiting = [start]
    seen = {start}
    while waiting:
        at, memory, registers = waiting.pop()
        is_over = True
        for i, thread in enumerate(one.threads):
            if at[i] == len(thread.instructions):
                continue
            is_over = False
            words, values = list(memory), dict(registers)
            access = thread.instructions[at[i]]
            if isinstance(access, Access):
                word = "xy".index(access.address.name)
                for register in access.destinations:
                    values[i, register] = words[word]
                for source in access.sources:
                    assert isinstance(source, int)
                    words[word] = source + (words[word] if access.operation else 0)
            following = (tuple(n + (j == i) for j, n in enumerate(at)), tuple(words), tuple(sorted(values.items())))
            if following not in seen:
                seen.add(following)
                waiting.append(following)
        if is_over:
            found.add((tuple(dict(registers)[name] for name in names), memory))
    return found


def stronger(one):
    """The same program with every order and scope as strong as it gets."""

    def strong(instruction):
        if isinstance(instruction, Fence):
            return replace(instruction, order="sc", scope="sys")
        assert isinstance(instruction, Access)
        order = {"ld": "acquire", "st": "release"}.get(instruction.opcode, "acq_rel")
        return replace(instruction, order=order, scope="sys")

    threads = tuple(replace(thread, instructions=tuple(map(strong, thread.instructions))) for thread in one.threads)
    return replace(one, threads=threads)
