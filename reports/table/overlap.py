"""How well a matmul that is fused with a collective hides it: beside the matmul alone, and one after the other.

Let t be a fused kernel's time; alone the best time of op=matmul on the same matrices, timed in the same way, in the
same report; sequence the time of nccl, which multiplies by cuBLAS and communicates in turn. The bound is what neither
tensor cores nor links go below: alone, or the bytes that a rank gets from others without multicast over the link's
limit, whichever is longer. The overlap efficiency is (sequence - t) / (sequence - bound): 0 as the sequence, 1 at the
bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cases.ops import MATMUL, collective
from cases.record.record import Record
from reports.table.compare import Row, Section, device_text, limit_gbps, rows, setup_text

SEQUENCE = "nccl"

Alone = Mapping[tuple[object, ...], float]


@dataclass(frozen=True, slots=True)
class Overlap:
    """of_matmul: the matmul's time alone over a fused one's. efficiency: see above; None without a sequence, a limit,
    or anything to gain."""

    of_matmul: float
    efficiency: float | None


def times_alone(sections: Iterable[Section]) -> Alone:
    """Return the best time (us) of op=matmul by what it multiplies, on how many ranks of what."""
    found: dict[tuple[object, ...], float] = {}
    for section in sections:
        for row in rows(section) if section.records[0].case.op == MATMUL.op else ():
            if (time := row.figure("median_us")) is not None:
                key = _key(row.records[0])
                found[key] = min(time, found.get(key, time))
    return found


def overlap_of(row: Row, judged: Sequence[Row], alone: Alone) -> Overlap | None:
    """Return how well a row of a fused matmul does among those of its section; None if it is none, or if it or the
    matmul alone was not timed."""
    case, time = row.records[0].case, row.figure("median_us")
    best = alone.get(_key(row.records[0]))
    product = collective(case.op).product if case.gemm else None
    if product is None or case.op == MATMUL.op or time is None or best is None:
        return None
    in_turn = [one.figure("median_us") for one in judged if one.records[0].case.algorithm == SEQUENCE]
    sequence = min((one for one in in_turn if one is not None), default=None)
    gbps = limit_gbps(row.records)
    if sequence is None or gbps is None:
        return Overlap(best / time, None)
    bound = max(best, product.received(case) * case.itemsize / gbps / 1e3)
    return Overlap(best / time, (sequence - time) / (sequence - bound) if sequence > bound else None)


def _key(record: Record) -> tuple[object, ...]:
    case = record.case
    return case.gemm, case.dtype, case.inputs, case.world_size, device_text(record), setup_text(record)
