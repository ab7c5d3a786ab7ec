"""The part of the page on what ran where: fabrics and devices."""

from __future__ import annotations

from collections.abc import Sequence

from cases.record.record import FabricInfo, Record
from reports.html.blocks import Block, Facts, Heading, Notes, Part
from reports.html.commands import yaml_line
from reports.table.compare import device_text
from reports.table.text import counted, size_text


def part(records: Sequence[Record]) -> Part:
    """Return the part: what each fabric is, and how many cases it ran."""
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
    return Part("ran", "What ran where", tuple(blocks))
