"""NCCL's tuner CSV: the file that NCCL's example tuner plugin reads (plugins/tuner/example of NCCL's sources).

A line is collective,min_bytes,max_bytes,algorithm,protocol,channels,nodes,ranks,pipe_ops,registered; -1 matches any. As
the plugin's source has it (of June 2026), and a page of it does not:

- A line is read in pieces of 255 characters, and a piece that does not begin with # is a line of its own.
- The first line that matches is taken. A call that no line matches runs with one channel, and so does one whose line
  says -1 for channels. So lines here reach from 0 bytes to the largest number, and name the channels that NCCL took.
- Names that the plugin does not know mean allreduce, ring and simple.

The bytes are those of nccl-tests and of symlab: the whole output of an all_gather, the whole input of a reduce_scatter.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cases.gathered import gathered
from cases.record.nccl_settings import (
    NcclAlgorithm,
    NcclProtocol,
    NcclSettings,
    asked_settings,
    contradiction,
    said_choice,
)
from cases.record.record import Record
from reports.export.choice import FEWEST_SIZES, TARGET, Times, crossing, regret_of, winners
from reports.export.sources import Sources, check_one_kind, is_undisturbed, left_out_text, sources, times_of
from reports.table.text import size_text

COLLECTIVES = {
    "all_reduce": "allreduce",
    "reduce_scatter": "reducescatter",
    "all_gather": "allgather",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
"""The plugin's names of the ops that it can choose for."""

ALGORITHMS = {
    NcclAlgorithm.Ring: "ring",
    NcclAlgorithm.Tree: "tree",
    NcclAlgorithm.CollnetDirect: "collnet_direct",
    NcclAlgorithm.CollnetChain: "collnet_chain",
    NcclAlgorithm.NVLS: "nvls",
    NcclAlgorithm.NVLSTree: "nvls_tree",
    NcclAlgorithm.PAT: "pat",
}

PROTOCOLS = {NcclProtocol.LL: "ll", NcclProtocol.LL128: "ll128", NcclProtocol.Simple: "simple"}

LARGEST = (1 << 64) - 1
"""The largest number of bytes that the plugin reads."""

LONGEST_LINE = 254
"""Characters of a line that the plugin reads as one."""

HOW = (
    "run symlab run +exp=nccl_sweep, and symlab run -m +exp=nccl_sweep library.nccl_algo=Ring,Tree "
    "library.nccl_proto=LL,LL128,Simple library.nccl_channels=null,8,16"
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a line tells NCCL to take."""

    algorithm: NcclAlgorithm
    protocol: NcclProtocol
    channels: int


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the file: a choice for calls of from_bytes to up_to_bytes."""

    op: str
    from_bytes: int
    up_to_bytes: int
    choice: Choice
    ranks: int

    @property
    def text(self) -> str:
        chosen = self.choice
        names = f"{ALGORITHMS[chosen.algorithm]},{PROTOCOLS[chosen.protocol]},{chosen.channels}"
        return f"{COLLECTIVES[self.op]},{self.from_bytes},{self.up_to_bytes},{names},1,{self.ranks},-1,-1"


def nccl_csv(found: Sequence[Record]) -> str:
    """Return the CSV of the records' NCCL, of all ops that they swept. ValueError if they are not enough for one."""
    swept = {record.case.op for record in found if said_choice(record)}
    ops = [op for op in COLLECTIVES if op in swept]
    if not ops:
        raise ValueError(f"no record of NCCL under library.nccl_algo and library.nccl_proto (RECORDS), {HOW}")
    tables = [_op_table(found, op) for op in ops]
    says = [
        "NCCL's tuner plugin: NCCL_TUNER_PLUGIN=libnccl-tuner-example.so NCCL_TUNER_CONFIG_FILE=<this file>",
        "made by symlab export --to nccl; collectives without a line run with ONE channel under that plugin",
        *(line for _, some in tables for line in some),
        "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff",
    ]
    assert max(map(len, says)) < LONGEST_LINE
    lines = [*(f"# {line}" for line in says), *(line.text for some, _ in tables for line in some)]
    return "".join(f"{line}\n" for line in lines)


def _op_table(found: Sequence[Record], op: str) -> tuple[Sequence[Line], Sequence[str]]:
    """The lines of one op, and what is said of them."""
    what = f"nccl's {op}"
    mine = sources(found, what, lambda record: (record.case.op, record.case.algorithm) == (op, "nccl"), HOW)
    _check(mine, what)
    by_settings = gathered((asked_settings(record).choice, record) for record in mine.records)
    default = by_settings.pop(NcclSettings(), [])
    sizes = sorted({record.case.size_bytes for record in mine.records})
    times = {one: times_of(records) for one, records in by_settings.items()}
    whole = {one: own for one, own in times.items() if list(own) == sizes and one.algorithm and one.protocol}
    if not whole:
        raise ValueError(f"{what}: no algorithm and protocol was timed at all {len(sizes)} sizes (RECORDS), {HOW}")
    if not default or list(default_times := times_of(default)) != sizes:
        raise ValueError(f"{what}: NCCL's own choice was not timed at all {len(sizes)} sizes (RECORDS), {HOW}")
    if len(sizes) < FEWEST_SIZES:
        raise ValueError(f"{what}: {len(sizes)} sizes (RECORDS), give records of {FEWEST_SIZES} sizes or more")
    blocks = {one: _blocks(by_settings[one]) for one in whole}
    lines = tuple(_lines(op, mine.ranks, whole, sizes, blocks))
    against = _against_default(what, winners(whole, sizes), whole, default_times, _blocks(default))
    says = (
        f"{op}:",
        *(f"  {line}" for line in mine.lines()),
        f"  {len(whole)} settings at {len(sizes)} sizes; {left_out_text(regret_of(whole, sizes))}",
        f"  {against}",
    )
    return lines, says


def _check(mine: Sources, what: str) -> None:
    """ValueError for records whose NCCL was told more or less than they say."""
    for record in mine.records:
        if problem := contradiction(record):
            raise ValueError(f"{what}: {problem} (RECORDS), leave it out")
        if not is_undisturbed(record):
            reason = "the environment chose for NCCL"
            raise ValueError(f"{what}: {reason} in {record.request.command} (RECORDS), unset NCCL_* and run it again")
        if len(record.environment.gpus or ()) < mine.ranks:
            raise ValueError(f"{what}: {mine.ranks} ranks on several hosts (RECORDS), give records of one host")
    check_one_kind(what, ("mixings of graphs", {str(asked_settings(record).graph_mixing) for record in mine.records}))


def _blocks(records: Iterable[Record]) -> dict[int, int]:
    """The channels that NCCL took at each size, as the timed graph's kernels tell. ValueError where they don't."""
    found: dict[int, int] = {}
    for record in records:
        assert record.timing is not None
        blocks = record.timing.kernel_blocks
        if blocks is None or len(set(blocks)) != 1:
            reason = "does not say how many channels NCCL took"
            how = "run it with timing.mode=graph on a driver that names the kernels of a graph"
            raise ValueError(f"{record.id} {reason} (timing.kernel_blocks), {how}")
        if found.setdefault(record.case.size_bytes, blocks[0]) != blocks[0]:
            raise ValueError(f"{record.id} took {blocks[0]} channels here and {found[record.case.size_bytes]} there")
    return found


def _lines(
    op: str,
    ranks: int,
    times: Mapping[NcclSettings, Times],
    sizes: Sequence[int],
    blocks: Mapping[NcclSettings, Mapping[int, int]],
) -> Iterable[Line]:
    """The lines from 0 bytes on, without a gap: a new one where the settings change, or the channels that they take."""
    chosen = winners(times, sizes)
    at = {size: _choice(chosen[size], blocks[chosen[size]][size]) for size in sizes}
    begin = 0
    for low, high in itertools.pairwise(sizes):
        if at[low] != at[high]:
            end = crossing(times[chosen[low]], times[chosen[high]], low, high)
            yield Line(op, begin, end, at[low], ranks)
            begin = end + 1
    yield Line(op, begin, LARGEST, at[sizes[-1]], ranks)


def _choice(settings: NcclSettings, channels: int) -> Choice:
    assert settings.algorithm is not None
    assert settings.protocol is not None
    return Choice(settings.algorithm, settings.protocol, channels)


def _against_default(
    what: str,
    chosen: Mapping[int, NcclSettings],
    times: Mapping[NcclSettings, Times],
    default: Times,
    blocks: Mapping[int, int],
) -> str:
    """What the table gains over NCCL's own choice. ValueError where it would lose more than TARGET."""
    gains = {size: default[size] / times[one][size] - 1 for size, one in chosen.items()}
    worst, best = min(gains, key=lambda size: gains[size]), max(gains, key=lambda size: gains[size])
    if times[chosen[worst]][worst] > default[worst] * (1 + TARGET):
        took = f"{default[worst]:.2f} us with {blocks[worst]} channels"
        swept = f"the best setting swept {times[chosen[worst]][worst]:.2f}"
        lost = f"NCCL's own choice takes {took} at {size_text(worst)}, {swept}"
        more = f"sweep more: library.nccl_channels={blocks[worst]}, other algorithms"
        raise ValueError(f"{what}: {lost} (RECORDS), {more}")
    if gains[best] <= TARGET:
        return f"NOTHING TO GAIN: at no measured size is it more than {TARGET:.0%} faster than NCCL's own choice"
    worst_text = f"{abs(gains[worst]):.1%} {'slower' if gains[worst] < 0 else 'faster'} ({size_text(worst)})"
    best_text = f"{gains[best]:.1%} faster ({size_text(best)})"
    return f"against NCCL's own choice, at the measured sizes: at worst {worst_text}, at best {best_text}"
