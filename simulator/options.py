"""What can be chosen of a simulated world, by the names that configurations and records have. It imports nothing heavy.

Members are named as they are written: OmegaConf reads an enum by its members' names.
"""

from __future__ import annotations

from enum import StrEnum


class MultimemModel(StrEnum):
    """How the switch adds floats."""

    exact = "exact"
    """It sums exactly and rounds once, as was measured on hardware."""
    stated = "stated"
    """It folds in the precision that the instruction states."""


class Schedule(StrEnum):
    """Which group of lanes runs next."""

    fair = "fair"
    random = "random"
    """By seed."""
