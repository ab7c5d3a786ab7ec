"""The picture of the flow in README.md, from YAML to report: `python -m tests.flow` writes it. No test.

Boxes lie in columns, and arrows join boxes of neighbouring columns. The file needs no font but the reader's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

PLACE = Path(__file__).resolve().parent.parent / "reports" / "screenshots" / "flow.svg"

WIDTH, HEIGHT = 118, 52
"""Size of a box, in pixels."""

GAP_X, GAP_Y, MARGIN = 34, 16, 12

COLOURS = {"asked": "#e8eef7", "made": "#fdf1dc", "ran": "#e3f3ea", "kept": "#f0e8f5"}
"""What is asked for, what is made from it, what runs, and what is kept."""


@dataclass(frozen=True, slots=True)
class Box:
    """A box: title, what it says below, column and row on the grid, and a colour by name."""

    title: str
    text: str
    column: int
    row: float
    colour: str

    @property
    def left(self) -> int:
        return MARGIN + self.column * (WIDTH + GAP_X)

    @property
    def top(self) -> int:
        return round(MARGIN + self.row * (HEIGHT + GAP_Y))


BOXES = {
    "yaml": Box("YAML", "op, dtype, sizes", 0, 1.5, "asked"),
    "cases": Box("cases", "one point each", 1, 1.5, "asked"),
    "kernel": Box("kernel", "CuTe DSL to PTX", 2, 1.5, "made"),
    "simulator": Box("simulator", "fabric on the CPU", 3, 0.75, "ran"),
    "gpus": Box("GPUs", "fabric: NVSHMEM", 3, 2.25, "ran"),
    "check": Box("check", "bits, or a bound", 4, 1.5, "ran"),
    "record": Box("record", "JSON, one a case", 5, 1.5, "kept"),
    "mlflow": Box("MLflow", "curves, history", 6, 0, "kept"),
    "report": Box("report", "tables, figures", 6, 1, "kept"),
    "audit": Box("audit", "what is proven", 6, 2, "kept"),
    "replay": Box("replay", "the cases again", 6, 3, "kept"),
}

ARROWS = (
    ("yaml", "cases"),
    ("cases", "kernel"),
    ("kernel", "simulator"),
    ("kernel", "gpus"),
    ("simulator", "check"),
    ("gpus", "check"),
    ("check", "record"),
    ("record", "mlflow"),
    ("record", "report"),
    ("record", "audit"),
    ("record", "replay"),
)


def drawing() -> str:
    """Return the picture as SVG text."""
    width = max(box.left for box in BOXES.values()) + WIDTH + MARGIN
    height = max(box.top for box in BOXES.values()) + HEIGHT + MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif" text-anchor="middle">',
        "<title>From YAML to report</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        *(_arrow(BOXES[start], BOXES[end]) for start, end in ARROWS),
        *(_box(box) for box in BOXES.values()),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _box(box: Box) -> str:
    middle = box.left + WIDTH // 2
    return (
        f'<rect x="{box.left}" y="{box.top}" width="{WIDTH}" height="{HEIGHT}" rx="7" fill="{COLOURS[box.colour]}" '
        f'stroke="#777"/><text x="{middle}" y="{box.top + 22}" font-size="15" font-weight="600" fill="#222">'
        f'{escape(box.title)}</text><text x="{middle}" y="{box.top + 40}" font-size="12.5" fill="#444">'
        f"{escape(box.text)}</text>"
    )


def _arrow(start: Box, end: Box) -> str:
    """Return a straight arrow from the right edge of a box to the left edge of one in the next column."""
    begin = f"M{start.left + WIDTH} {start.top + HEIGHT // 2}"
    return (
        f'<path d="{begin}L{end.left} {end.top + HEIGHT // 2}" stroke="#555" stroke-width="1.5" fill="none" '
        'marker-end="url(#head)"/>'
    )


if __name__ == "__main__":
    PLACE.write_text(drawing(), encoding="utf-8")
