"""How a simulated world is made: its options, and the parts that they choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from memory.fabric import Traits
from simulator.gpu import Gpu
from simulator.memory.heaps import MAX_HEAP_BYTES
from simulator.memory.space import Space
from simulator.options import Interleaving, Memory, MultimemModel, Schedule, traits_of
from simulator.run.streams import Streams
from symlab.rooms import part_of

if TYPE_CHECKING:
    from simulator.clock.clock import Clock
    from simulator.clock.costs import Costs
    from simulator.memory.order import Order as MemoryOrder
    from simulator.observe.race_checker import RaceChecker
    from simulator.run.orders import Order
    from simulator.run.replayed import Replayed


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorOptions(Interleaving):
    """How a simulated world is made.

    multimem is of MultimemModel, memory of Memory. step_budget: basic-block steps of all groups of lanes in one run.
    gpu: whose limits hold; None: all blocks of a launch are there at once. races: whether accesses that nothing orders
    are looked for (SimulatedWorld.findings). records_choices: keep what the schedule chose (World.choices). clock: what
    steps cost, of a world that measures its launches (SimulatedWorld.profiles).
    """

    arch: str = "sm_90a"
    heap_bytes: int = 256 << 20
    multicast: bool = True
    multimem: str = MultimemModel.exact
    step_budget: int = 2_000_000
    gpu: Gpu | None = None
    races: bool = False
    records_choices: bool = False
    memory: str = Memory.strong
    clock: Costs | None = None

    def __post_init__(self) -> None:
        Interleaving.__post_init__(self)
        for name, value, known in (("multimem", self.multimem, MultimemModel), ("memory", self.memory, Memory)):
            if value not in tuple(known):
                raise ValueError(f"{name} is {value!r}; it must be {' or '.join(known)}")
        if self.clock is not None and (self.schedule != Schedule.fair or self.memory != Memory.strong):
            raise ValueError(
                f"clock needs schedule=fair and memory=strong, not {self.schedule} and {self.memory}: "
                "in others polls may see what came later"
            )
        if not 4096 <= self.heap_bytes <= MAX_HEAP_BYTES:
            raise ValueError(f"heap_bytes is {self.heap_bytes:,}; it must be 4,096 to {MAX_HEAP_BYTES:,}")
        if self.gpu is not None and self.gpu.arch != self.arch.rstrip("af"):
            raise ValueError(f"arch is {self.arch}, and {self.gpu.name} is {self.gpu.arch}")


def made_space(world_size: int, options: SimulatorOptions) -> tuple[Space, MemoryOrder | None]:
    """Return the memory, and of a weak one what orders its accesses."""
    size = (world_size, options.heap_bytes, options.multicast)
    if options.memory == Memory.strong:
        return Space(*size), None
    from simulator.memory.chance import Chance, Late
    from simulator.memory.order import Order
    from simulator.memory.weak import WeakSpace

    follows = options.follows
    late = None if follows is None else [one for one in follows if isinstance(one, Late)]
    space = WeakSpace(*size, options.seed, chance=Chance(options.seed, options.records_choices, late))
    order = Order(space)
    space.events.add(order)
    return space, order


def made_races(space: Space, options: SimulatorOptions) -> RaceChecker | None:
    if not options.races:
        return None
    found: RaceChecker = part_of("check.races")(space)
    return found


def made_clock(space: Space, options: SimulatorOptions) -> Clock | None:
    if options.clock is None:
        return None
    from simulator.clock.clock import Clock

    return Clock(space, options.clock)


def made_streams(world_size: int, options: SimulatorOptions, order: Order) -> Streams:
    """Return streams without launches."""
    return Streams(
        world_size,
        options.seed,
        together=options.schedule in (Schedule.fair, Schedule.priority),
        alone=options.gpu is not None,
        follows=None if options.follows is None else cast("Replayed", order),
    )


def described(world_size: int, options: SimulatorOptions, registers: str) -> Traits:
    """Return what the fabrics of all ranks can do. registers: of a world with a GPU, who counts them."""
    description = f"PTX interpreter, multimem {options.multimem}, {options.schedule} order, seed {options.seed}"
    if options.memory != Memory.strong:
        description += f", {options.memory} memory"
    if options.gpu is not None:
        description += f", GPU {options.gpu.name}, registers {registers}"
    return traits_of(world_size, options.arch, options.heap_bytes, options.multicast, options.gpu, description)


def register_counts() -> str:
    """Return who counts registers."""
    from simulator.ptx.assembler import find_ptxas, version_of

    ptxas = find_ptxas()
    return "unknown (no ptxas): no limit" if ptxas is None else f"as ptxas {version_of(ptxas)} counts them"
