"""What types of GPUs have, by the maker's word: architecture, NVLinks, highest clocks.

Sources: NVIDIA's data sheets; CUDA C++ Programming Guide, compute capabilities; the clocks that nvidia-smi lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Model:
    """arch: of the architecture that code is compiled for, without its letter. links: NVLinks, 0 for none; link_gbps:
    GB/s of one direction of one link. sm_mhz, memory_mhz: the highest clocks, None if unknown here."""

    arch: str
    links: int
    link_gbps: float
    sm_mhz: int | None = None
    memory_mhz: int | None = None


_HOPPER = Model("sm_90", 18, 25.0, 1980)
_H100_OF_12_LINKS = Model("sm_90", 12, 25.0, 1980, 2619)

MODELS = {
    "V100": Model("sm_70", 6, 25.0, 1597),
    "A100": Model("sm_80", 12, 25.0, 1410, 1593),
    "A800": Model("sm_80", 8, 25.0, 1410, 1593),
    **dict.fromkeys(("A10", "A40", "A6000"), Model("sm_86", 4, 14.0)),
    **dict.fromkeys(("L4", "L40", "L40S"), Model("sm_89", 0, 0.0)),
    **dict.fromkeys(("H100 PCIe", "H100 NVL"), _H100_OF_12_LINKS),
    "H100": Model("sm_90", 18, 25.0, 1980, 2619),
    "H800": Model("sm_90", 8, 25.0, 1980, 2619),
    "H200": Model("sm_90", 18, 25.0, 1980, 3201),
    **dict.fromkeys(("H20", "GH200"), _HOPPER),
    **dict.fromkeys(("B200", "GB200"), Model("sm_100", 18, 50.0)),
    **dict.fromkeys(("B300", "GB300"), Model("sm_103", 18, 50.0)),
    **dict.fromkeys(("RTX PRO 6000", "RTX 5090"), Model("sm_120", 0, 0.0)),
}
"""By words of the name that the driver gives, such as "NVIDIA H200"; the first that fits counts."""


@cache
def model_of(name: str) -> Model | None:
    """Return what is known of a model by its name; None if nothing is."""
    words = f" {' '.join(re.split('[^A-Za-z0-9]+', name))} "
    return next((model for text, model in MODELS.items() if f" {text} " in words), None)


def known_models(names: Iterable[str]) -> dict[str, Model]:
    """Return the models of names that are known here, by name."""
    return {name: model for name in sorted(set(names)) if (model := model_of(name)) is not None}
