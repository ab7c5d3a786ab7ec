"""All families of vectors, each in one bench, and the keys that their kernels prove."""

from functools import lru_cache

import tests.simulator.isa.products as products
import tests.simulator.isa.tensor_memory_programs as tensor_memory
import tests.simulator.isa.vectors_approximations as approximations
import tests.simulator.isa.vectors_atomic as atomic
import tests.simulator.isa.vectors_bits as bits
import tests.simulator.isa.vectors_bulk as bulk
import tests.simulator.isa.vectors_cluster as cluster
import tests.simulator.isa.vectors_cluster_launch_control as cluster_launch_control
import tests.simulator.isa.vectors_control as control
import tests.simulator.isa.vectors_convert as convert
import tests.simulator.isa.vectors_float as floats
import tests.simulator.isa.vectors_float8 as float8
import tests.simulator.isa.vectors_integer as integer
import tests.simulator.isa.vectors_lane_copies as lane_copies
import tests.simulator.isa.vectors_mbarriers as mbarriers
import tests.simulator.isa.vectors_memory as memory
import tests.simulator.isa.vectors_move as move
import tests.simulator.isa.vectors_order as order
import tests.simulator.isa.vectors_sets as sets
import tests.simulator.isa.vectors_space as space
import tests.simulator.isa.vectors_tensor as tensor
import tests.simulator.isa.vectors_warp as warp
import tests.simulator.multimem_bench as multimem
from tests.simulator.bench import Bench
from tests.simulator.harness import ARCH

FAMILIES = {
    "integer": integer.family,
    "float": floats.family,
    "order": order.family,
    "float8": float8.family,
    "convert": convert.family,
    "move": move.family,
    "load": memory.family_loads,
    "device": memory.family_devices,
    "store": memory.family_stores,
    "shared": memory.family_shared,
    "atomic": atomic.family,
    "space": space.family,
    "warp": warp.family,
    "bits": bits.family,
    "comparison": lambda: list(sets.comparisons()),
    "sets": sets.family,
    "convert_numbers": convert.family_of_numbers,
    "approximations": approximations.family,
    "control": control.family,
    "bulk": bulk.family,
    "byte_masks": bulk.family_masks,
    "within_shared": bulk.family_within,
    "lane_copies": lane_copies.family,
    "mbarriers": mbarriers.family,
    "cluster": cluster.family,
    "ret": lambda: control.endings()["ret"],
    "exit": lambda: control.endings()["exit"],
    "parameter": control.parameters,
}
SHARED = {"move": move.SHARED, "shared": memory.SHARED, "control": control.SHARED, "bulk": bulk.SHARED}
SHARED |= {
    "within_shared": bulk.SHARED,
    "byte_masks": bulk.SHARED,
    "lane_copies": lane_copies.SHARED,
    "mbarriers": mbarriers.SHARED,
}
SHARED |= {"atomic": atomic.SHARED, "space": space.SHARED, "warp": warp.SHARED}
TARGETS = dict.fromkeys(
    ("byte_masks", "load", "store", "space", "float", "convert", "convert_numbers", "warp"), "sm_100a"
)
"""Families with forms that sm_90a does not have."""
SHARED |= {"cluster": cluster.SHARED}
CLUSTERS = {"cluster": cluster.CLUSTER, "within_shared": 2}
"""Blocks of a cluster, of the families that have any."""
BEFORE = {"space": space.BEFORE, "control": control.BEFORE}


@lru_cache(maxsize=32)
def bench_of(family):
    parameters = control.PARAMETERS if family in ("parameter", "space") else ()
    before, target, cluster = BEFORE.get(family, ""), TARGETS.get(family, ARCH), CLUSTERS.get(family, 1)
    return Bench(FAMILIES[family](), SHARED.get(family, ""), parameters, before, target, cluster)


@lru_cache(maxsize=1)
def proven():
    """Keys of the table that some vector runs, those of multimem, tensor copies and matrices among them."""
    others = frozenset(multimem.bench_of(2).keys()) | tensor.keys() | products.keys() | tensor_memory.keys()
    others |= cluster_launch_control.keys()
    return others.union(*(bench_of(family).keys() for family in FAMILIES))
