"""Which records a table may be made of: timed and right, on GPUs of one type, in one way; and what the table says of
them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cases.gathered import gathered
from cases.record.nccl_settings import TOLD
from cases.record.record import Record
from reports.export.choice import Regret, Times
from reports.record.bundle import digest
from reports.table.compare import device_text, is_simulated, setup_text
from reports.table.text import counted, size_text


@dataclass(frozen=True, slots=True)
class Sources:
    """Records of one op's table: all timed, right, of one GPU type, one number of ranks, one dtype and one setup, each
    contestant's of one version and one placement."""

    records: tuple[Record, ...]
    gpu: str
    ranks: int
    dtype: str
    setup: str

    @property
    def arch(self) -> str:
        """The GPUs' architecture, such as sm_90a."""
        fabric = self.records[0].fabric
        assert fabric is not None
        return fabric.arch

    @property
    def has_multicast(self) -> bool:
        """Whether the GPUs of all records gave multicast addresses."""
        return all(record.fabric is not None and record.fabric.multicast for record in self.records)

    def lines(self) -> list[str]:
        """Return what a file says of its records, in lines of at most 120 characters."""
        commands = sorted({record.request.command for record in self.records})
        named = ", ".join(commands[:2]) + (f" and {len(commands) - 2} more" if len(commands) > 2 else "")
        libraries = sorted({record.library.partition(" (")[0] for record in self.records if record.library})
        return [
            f"{self.ranks} x {self.gpu} ({self.arch}), {self.dtype}, {self.setup}",
            f"of {counted(len(self.records), 'record')}, {', '.join(libraries)}",
            f"records {digest(self.records)}",
            f"commands {named}"[:118],
        ]


def sources(found: Iterable[Record], what: str, wanted: Callable[[Record], bool], how: str) -> Sources:
    """Return the records that are wanted, of one kind.

    Left out are records that did not pass, that were not checked, and that have no time. Raises ValueError, in one line
    with `how` (what to run), if none is left, and where they are of several kinds.
    """
    mine = [record for record in found if wanted(record)]
    kept = [record for record in mine if record.verified and record.timing is not None and not is_simulated(record)]
    if not kept:
        raise ValueError(f"{_why_none(mine, what)} (RECORDS), {how}")
    check_one_kind(
        what,
        ("GPU types", {device_text(record) for record in kept}),
        ("architectures", {record.fabric.arch for record in kept if record.fabric is not None}),
        ("world sizes", {f"{record.case.world_size} ranks" for record in kept}),
        ("dtypes", {record.case.dtype for record in kept}),
        ("setups", {setup_text(record) for record in kept}),
        ("reductions", {record.case.reduction for record in kept}),
        ("offsets", {f"offset {record.case.offset}" for record in kept}),
        ("inputs", {record.case.inputs for record in kept}),
        ("roots", {f"root {record.case.root}" for record in kept}),
        ("counts per peer", {record.case.counts for record in kept}),
        ("kinds of stress", {record.case.stress for record in kept}),
    )
    for name, own in gathered((record.case.algorithm, record) for record in kept).items():
        check_one_kind(
            what,
            (f"versions of {name}", {record.library.partition(" (")[0] for record in own}),
            (f"placements of {name}", {record.case.placement for record in own}),
        )
    first = kept[0]
    return Sources(tuple(kept), device_text(first), first.case.world_size, first.case.dtype, setup_text(first))


def check_one_kind(what: str, *kinds: tuple[str, set[str]]) -> None:
    """ValueError, in one line, for the first of these kinds, by name, of which there are several."""
    for name, found in kinds:
        if len(found) > 1:
            raise ValueError(f"{what}: records of several {name}: {' | '.join(sorted(found))} (RECORDS), give one")


def _why_none(mine: Sequence[Record], what: str) -> str:
    if not mine:
        return f"no record of {what}"
    if all(is_simulated(record) for record in mine):
        return f"all {counted(len(mine), 'record')} of {what} are simulated, and have no times"
    return f"none of {counted(len(mine), 'record')} of {what} passed its check and was timed"


def is_undisturbed(record: Record) -> bool:
    """Whether the environment took no choice of NCCL's away, beyond what the record's command asked for."""
    allowed = (record.environment.variables or {}).get("allowed")
    return not (isinstance(allowed, dict) and set(TOLD) & set(allowed))


def times_of(records: Iterable[Record]) -> Times:
    """Return the median time over worlds in microseconds, by bytes, of timed records of one contestant."""
    found = gathered((one.case.size_bytes, one.timing.median_us) for one in records if one.timing is not None)
    return {size: statistics.median(times) for size, times in sorted(found.items())}


def regret_text(regret: Regret) -> str:
    """Return a regret in words: "0.4 % on average, at most 1.9 % (64 KiB)"."""
    return f"{regret.mean:.1%} on average, at most {regret.worst:.1%} ({size_text(regret.worst_bytes)})"


def left_out_text(regret: Regret) -> str:
    """Return what a file says of its regret on sizes left out, and whether that is within the target of 2 %."""
    beyond = "" if regret.is_within_target else "; MORE than the target of 2 %: measure more sizes"
    return f"regret on sizes left out: {regret_text(regret)}{beyond}"
