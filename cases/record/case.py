"""The case of a record, and the id that a case gives: one rule for each schema of records.

The id is op, algorithm, dtype, accumulator, reduction, n<world_size>, <size_bytes>B, placement, inputs and s<seed>, in
this order, joined by dashes; then, for every axis of OFF_DEFAULT whose value is not its default, in their order, its
letters and its value. So a new axis changes no id that was given before: add it at the end of OFF_DEFAULT, with the
schema that brings it, and a field to RecordedCase whose default is what older records mean. kernels.spec.Case.id must
give the same; a test compares both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from cases.documents import AT_LEAST, Open

UNIFORM = "uniform"
"""The counts per peer of ops that have no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCase(Open):
    """One point of an experiment as a record holds it; the fields mean what those of kernels.spec.Case mean.

    root, offset, stress and counts came later: older records without them mean 0, 0, "none" and "uniform". counts is
    written only where it is not uniform: most ops have no others. other is empty but in records of schema 1 to 3.
    """

    PLACE: ClassVar[str] = "case"

    op: str
    algorithm: str
    dtype: str
    accumulator: str
    reduction: str
    size_bytes: int = field(metadata={AT_LEAST: 0})
    world_size: int = field(metadata={AT_LEAST: 1})
    placement: str
    inputs: str
    seed: int = field(metadata={AT_LEAST: 0})
    root: int = field(default=0, metadata={AT_LEAST: 0})
    offset: int = field(default=0, metadata={AT_LEAST: 0})
    stress: str = "none"
    counts: str = UNIFORM

    def document(self) -> dict[str, Any]:
        """Return the case as a JSON object; see Open.document."""
        found = Open.document(self)
        if self.counts == UNIFORM and "counts" not in (self.order or ()):
            found.pop("counts", None)
        return found

    @property
    def name(self) -> str:
        """The op and the algorithm: "all_reduce/one_shot"."""
        return f"{self.op}/{self.algorithm}"


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis that enters an id only off its default: its field, its letters in the id, the first schema with it."""

    field: str
    letter: str
    since: int
    default: int | str = 0


OFF_DEFAULT = (
    Axis("root", "r", since=2),
    Axis("offset", "o", since=2),
    Axis("stress", "stress_", since=5, default="none"),
    Axis("counts", "counts_", since=8, default=UNIFORM),
)


def case_id(case: RecordedCase, schema: int) -> str:
    """Return the id that a case gives by the rule of a schema."""
    parts = _parts(case)
    for axis in OFF_DEFAULT:
        if schema >= axis.since and (value := getattr(case, axis.field)) != axis.default:
            parts.append(f"{axis.letter}{value}")
    return "-".join(parts)


def wrong_id(given: str, case: RecordedCase, schema: int) -> str:
    """Return what is wrong with the id that a record of this schema gives its case; "" if nothing is."""
    wanted = case_id(case, schema)
    return "" if given == wanted else f"id is '{given}', the case gives '{wanted}'"


def _parts(case: RecordedCase) -> list[str]:
    return [
        case.op,
        case.algorithm,
        case.dtype,
        case.accumulator,
        case.reduction,
        f"n{case.world_size}",
        f"{case.size_bytes}B",
        case.placement,
        case.inputs,
        f"s{case.seed}",
    ]
