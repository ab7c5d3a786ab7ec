"""Named assumptions about hardware that PTX does not make: a kernel that relies on one declares it in its spec.

The race checker shows what such an assumption alone explains as an advisory, and a case with advisories still passes.
"""

from __future__ import annotations

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
                "vector_16",
                "an aligned access of 16 bytes by one thread is a single one: a reader sees all of a store or nothing",
                "PTX makes it accesses of its elements in any order; NCCL's LL protocol relies on it over NVLink",
            ),
            Assumption(
                "warp_128",
                "a warp's store of 128 aligned bytes is a single one: a reader sees all of it or nothing",
                "PTX orders no threads of a warp; NCCL's LL128 protocol relies on it over NVLink",
            ),
        )
    }
)
"""All there are, by name. A new one needs its sentence and its source here."""


def sentence_of(name: str) -> str:
    """Return an assumption as a sentence that begins with its name. ValueError for an unknown one."""
    if name not in ASSUMPTIONS:
        raise ValueError(f"there is no assumption {name!r}, known: {', '.join(ASSUMPTIONS)}")
    one = ASSUMPTIONS[name]
    return f"{one.name}: {one.sentence} ({one.source})"
