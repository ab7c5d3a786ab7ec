"""Names of kernels with a tuning on trial: "two_shot@t512b64l8p" is two_shot with one step for all sizes.

t: threads, b: blocks at most, l: loads in flight, p: push, d: dependent launches; see kernels.tuning.Step. "two_shot@d"
is two_shot with the catalogue's tuning and dependent launches. Matmuls have other ones (kernels/matmul/tuning.py). Such
a name says all that the catalogue's does not, so a request, a record and another process need nothing else to make the
same kernel.
"""

from __future__ import annotations

import re
from typing import Any

from kernels.tuning import Step

AT = "@"
DEPENDENT = "d"
OF_MATMULS = "c"
"""How the tuning of a matmul begins."""

FORM = (
    "t<threads>b<blocks>l<loads in flight>, then p to push and d for dependent launches, such as two_shot@t512b64l8p, "
    "or d alone"
)

_STEP = re.compile(r"t([1-9]\d{0,4})b([1-9]\d{0,4})l([1-9]\d{0,4})(p?)(d?)", re.ASCII)


def has_tuning(name: str) -> bool:
    """Return whether a name, with or without its op, is one with a tuning."""
    return AT in name


def base_of(name: str) -> str:
    """Return the catalogue's name of the algorithm: "all_reduce/two_shot" of "all_reduce/two_shot@t512b64l8p"."""
    return name.partition(AT)[0]


def is_dependent_alone(name: str) -> bool:
    """Return whether a name is the catalogue's tuning with dependent launches."""
    return name.partition(AT)[2] == DEPENDENT


def with_dependent(name: str) -> str:
    """Return the name of the same kernel with dependent launches."""
    if not has_tuning(name):
        return f"{name}{AT}{DEPENDENT}"
    return name if name.endswith(DEPENDENT) else name + DEPENDENT


def step_of(name: str) -> Step:
    """Return the step that a name with a tuning stands for. ValueError, in one line, for another form."""
    match = _STEP.fullmatch(name.partition(AT)[2])
    if match is None:
        raise ValueError(f"{name!r} names no tuning: give {FORM}")
    threads, blocks, loads = (int(match[number]) for number in (1, 2, 3))
    try:
        return Step(threads, blocks, loads, reason="on trial", push=bool(match[4]), dependent=bool(match[5]))
    except ValueError as error:
        raise ValueError(f"{name!r} names no tuning: {error}") from None


def with_step(base: str, step: Step) -> str:
    """Return the name of an algorithm with a step for all sizes; base may have its op before it."""
    marks = ("p" if step.push else "") + (DEPENDENT if step.dependent else "")
    return f"{base}{AT}t{step.threads}b{step.blocks}l{step.loads_in_flight}{marks}"


def values_of(name: str) -> dict[str, Any]:
    """Return the tuning in a name as plain values, for records."""
    if is_dependent_alone(name):
        return {"dependent": True}
    if name.partition(AT)[2].startswith(OF_MATMULS):
        from kernels.matmul.tuning import tuning_named

        return tuning_named(name).values()
    step = step_of(name)
    return {
        "threads": step.threads,
        "blocks": step.blocks,
        "loads_in_flight": step.loads_in_flight,
        "push": step.push,
        **({"dependent": True} if step.dependent else {}),
    }
