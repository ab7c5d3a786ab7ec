"""Named assumptions about hardware that PTX does not make: a kernel that relies on one declares it in its spec.

The race checker shows what such an assumption alone explains as an advisory, and a case with advisories still passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Assumption:
    """What a kernel relies on beyond PTX. sentence says it, source where it comes from."""

    name: str
    sentence: str
    source: str


ASSUMPTIONS = MappingProxyType(
    {
        one.name: one
        for one in (
            Assumption(
                "vector_8",
                "an aligned access of 8 bytes by one thread is a single one: a reader sees all of a store or nothing",
                "PTX makes a .v2 of 32 bits two accesses in any order; NCCL's LL and mscclpp's packets rely on it",
            ),
            Assumption(
                "vector_16",
                "an aligned access of 16 bytes by one thread is a single one: a reader sees all of a store or nothing",
                "PTX makes it accesses of its elements in any order; NCCL's LL protocol relies on it over NVLink",
            ),
            Assumption(
                "warp_128",
                "a warp's store of 128 aligned bytes is a single one: a reader sees all of it or nothing",
                "PTX orders no threads of a warp; NCCL's LL128 protocol relies on it over NVLink",
            ),
            Assumption(
                "gpu_atomics",
                "an atomic operation of .gpu scope on memory of another GPU is one for the threads of all GPUs",
                "PTX asks for .sys, and atom without a scope has .gpu; SGLang's all_reduce relies on it over NVLink",
            ),
            Assumption(
                "kernel_end",
                "what a kernel did is complete, for all GPUs, before the next kernel of its stream begins",
                "PTX orders it for who acquires it alone; SGLang's push and vLLM's two stages rely on it between calls",
            ),
        )
    }
)
"""All there are, by name. A new one needs its sentence and its source here."""


def checked_assumptions(given: object) -> tuple[str, ...]:
    """Return the names of assumptions that a user gave, as a list. ValueError for anything else."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ValueError(f"the assumptions are {given!r} (assumptions), give a list of {', '.join(ASSUMPTIONS)}")
    for name in given:
        if name not in ASSUMPTIONS:
            raise ValueError(f"there is no assumption {name!r} (assumptions), give some of {', '.join(ASSUMPTIONS)}")
    return tuple(dict.fromkeys(given))


def sentence_of(name: str) -> str:
    """Return an assumption as a sentence that begins with its name. ValueError for an unknown one."""
    if name not in ASSUMPTIONS:
        raise ValueError(f"there is no assumption {name!r}, known: {', '.join(ASSUMPTIONS)}")
    one = ASSUMPTIONS[name]
    return f"{one.name}: {one.sentence} ({one.source})"
