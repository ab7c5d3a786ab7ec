"""The figure of a critical path: a row a block, a bar a step, an arrow a wait for another rank."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.patches import FancyArrowPatch, Rectangle

from reports.figures import critical_path


def step(kind: str, rank: int, from_us: float, to_us: float, awaited: list[int] | None = None) -> dict[str, Any]:
    """A segment as the JSON form has it."""
    return {"kind": kind, "rank": rank, "block": 0, "from_us": from_us, "to_us": to_us, "awaited": awaited}


LAUNCH = {
    "kernel": "all_reduce/one_shot",
    "number": 1,
    "clock_us": 1.27,
    "path": {
        "segments": [
            step("fence", 3, 0.0, 0.58),
            step("store", 3, 0.58, 0.58),
            step("hop", 0, 0.58, 1.27, [3, 0, 0, 107]),
        ]
    },
}


def test_who_waits_for_whom_is_drawn() -> None:
    (axes,) = critical_path.figure(LAUNCH).axes
    bars = [one for one in axes.patches if isinstance(one, Rectangle)]
    assert [(one.get_x(), round(one.get_width(), 2), round(one.get_y() + 0.32)) for one in bars] == [
        (0.0, 0.58, 1),
        (0.58, 0.69, 0),
    ]
    assert sum(isinstance(one, FancyArrowPatch) for one in axes.patches) == 1
    texts = [one.get_text() for one in axes.texts]
    assert {"rank 0, block 0", "rank 3, block 0"} <= set(texts)


def test_the_same_path_gives_the_same_picture() -> None:
    text = critical_path.inline(LAUNCH, "path1")
    assert text == critical_path.inline(LAUNCH, "path1")
    assert text.startswith('<svg role="img" aria-label="critical path of all_reduce/one_shot: who waits for whom')
    assert 'id="path1-' in text


def test_a_path_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no step that takes time"):
        critical_path.figure({**LAUNCH, "path": {"segments": []}})


def test_each_kind_of_step_has_a_colour() -> None:
    from simulator.clock.costs import KINDS

    kinds = {kind for _, some in critical_path.LOOKS.values() for kind in some}
    assert kinds == set(KINDS)
