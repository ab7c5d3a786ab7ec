"""PTX instructions on lanes: one table, filled by one file a family.

The families of RARE are imported when an instruction is in none of the others, or when the whole table is asked for.
"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from simulator.isa import registry
from simulator.isa.registry import LaneFrame, Operation, UnknownInstruction
from simulator.ptx.ir import Instruction

__all__ = ["TABLE", "LaneFrame", "Operation", "UnknownInstruction", "find", "key_of"]

USUAL = (
    *("arithmetic", "atomic", "bits", "compare", "control", "convert", "floats", "memory", "multimem"),
    *("spaces", "switch"),
)
RARE = (
    *("async_stores", "bulk", "cluster_launch_control", "clusters", "convert_modes", "hints"),
    *("lane_copies", "matrices", "mbarriers", "modes", "sets", "system", "tcgen05", "tcgen05_products"),
    *("tensor_copies", "tensor_maps", "warp", "wgmma"),
)

if TYPE_CHECKING:
    TABLE: dict[str, Operation]


for _name in USUAL:
    import_module(f"{__name__}.{_name}")


@cache
def _import_rare() -> None:
    for name in RARE:
        import_module(f"{__name__}.{name}")


def __getattr__(name: str) -> dict[str, Operation]:
    """TABLE: the whole table."""
    if name != "TABLE":
        raise AttributeError(name)
    _import_rare()
    return registry.TABLE


def key_of(instruction: Instruction) -> str:
    """Return the table's key of an instruction; the order of qualifiers in the text does not matter."""
    key = registry.key_of(instruction)
    if key in registry.TABLE:
        return key
    _import_rare()
    return registry.key_of(instruction)


def find(instruction: Instruction) -> Operation:
    """Return an instruction's operation. Raises UnknownInstruction naming the PTX line."""
    try:
        return registry.find(instruction)
    except UnknownInstruction:
        _import_rare()
        return registry.find(instruction)
