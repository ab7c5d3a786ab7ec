"""The part of the page on what ran where: fabrics and devices, and kernels with their digests."""

from __future__ import annotations

from collections.abc import Sequence

from cases.gathered import gathered
from cases.record.record import FabricInfo, Record
from reports.html.blocks import Block, Facts, Heading, Notes, Part, Table
from reports.html.commands import yaml_line
from reports.table.compare import device_text
from reports.table.sheet import Sheet, line_of
from reports.table.text import counted, size_text

SHORT = 12
"""Number of digits shown of a digest; records have all of them."""


def part(records: Sequence[Record]) -> Part:
    """Return the part: fabrics, kernels."""
    blocks: list[Block] = [*_fabrics(records), *_kernels(records)]
    return Part("ran", "What ran where", tuple(blocks))


def _fabrics(records: Sequence[Record]) -> list[Block]:
    found: dict[str, tuple[FabricInfo, str, list[Record]]] = {}
    for record in records:
        if record.fabric is not None:
            found.setdefault(repr(record.fabric), (record.fabric, device_text(record), []))[2].append(record)
    blocks: list[Block] = []
    for number, (fabric, device, own) in enumerate(found.values(), start=1):
        kind = "simulated: no clock of real hardware, so no times" if fabric.simulated else "hardware"
        rows = [
            ("fabric", f"{fabric.name}, {kind}"),
            ("device", f"{fabric.world_size} x {device}"),
            ("said of itself", fabric.description or "-"),
            ("architecture", fabric.arch),
            ("symmetric heap a rank", size_text(fabric.heap_bytes)),
            ("multicast", "yes" if fabric.multicast else f"no: {fabric.multicast_reason or 'reason unknown'}"),
        ]
        if fabric.settings:
            rows.append(("settings", yaml_line(fabric.settings)[1:-1]))
        rows.append(("cases", f"{len(own):,}"))
        if len(found) > 1:
            title = f"{fabric.name} of {counted(fabric.world_size, 'rank')}"
            blocks.append(Heading(f"fabric-{number}", title, listed=False))
        blocks.append(Facts(tuple(rows)))
    if without := sum(record.fabric is None for record in records):
        blocks.append(Notes((f"{counted(without, 'case')} ended before there was a fabric.",)))
    return blocks


def _kernels(records: Sequence[Record]) -> list[Block]:
    """A line for each kernel: how often it was compiled, from which sources."""
    kernels = gathered((record.kernel.name, record.kernel) for record in records if record.kernel is not None)
    if not kernels:
        return []
    lines = []
    for name, infos in sorted(kernels.items()):
        sources = dict.fromkeys(one.source_digest.removeprefix("sha256:")[:SHORT] or "-" for one in infos)
        cells = {
            "kernel": name,
            "cases": len(infos),
            "compiled": len({one.ptx_digest for one in infos}),
            "arch": ", ".join(sorted({one.arch for one in infos})),
            "grid": _range(sorted({one.grid for one in infos})),
            "block": _range(sorted({one.block for one in infos})),
            "sources": ", ".join(sources),
            "compiler": ", ".join(dict.fromkeys(one.compiler for one in infos)),
        }
        lines.append(line_of(cells, styles={"sources": "code"}))
    numeric = frozenset({"cases", "compiled", "grid", "block"})
    sheet = Sheet("kernels", tuple(lines[0].cells), (tuple(lines),), numeric)
    return [Heading("kernels", "Kernels", listed=False), Table(sheet, heading=False)]


def _range(values: Sequence[int]) -> str:
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"
