"""Events: what the simulator reports while kernels run, and who listens to it.

Lanes that run an instruction together (at most CHUNK_LANES of simulator/run/decode.py) are one event, with NumPy arrays
of one element a lane in the order of its lanes. A listener derives from Listener and overrides the methods of the
events that it wants; for the others the simulator tests an empty list and makes no event. A listener reads an event
during the call: addresses may be a register that changes later, so copy what you keep.

Order. Events of kernels come in the order in which their effects take place. Events of hosts come between them: hosts
run only while no kernel does; those of one rank come in their order, those of several ranks in any order between two
barriers of the hosts. What a deadlock's report runs again to find out what lanes wait for is not reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.observe.lanes import Group, Ids, Launched, ids_of
from simulator.ptx.ir import Instruction

Addresses = npt.NDArray[np.uint64] | Ids
MULTICAST_TARGET = -1
"""An access's target in place of a rank: all ranks' replicas, through the switch."""

_ORDERS = frozenset({"weak", "relaxed", "acquire", "release", "acq_rel", "volatile", "sc"})
_SCOPES = frozenset({"cta", "cluster", "gpu", "gl", "sys"})
_REDUCTIONS = frozenset(["add", "min", "max", "inc", "dec", "and", "or", "xor"])
_KINDS = {"reduce": "multimem_reduce", "broadcast": "multimem_store", "red": "multimem_red"}


@dataclass(slots=True, eq=False)
class LaneEvent:
    """What lanes did. step: the number of the world's step that was the latest to begin, from 0."""

    launched: Launched
    lanes: Group
    step: int

    @property
    def count(self) -> int:
        """Number of lanes."""
        return len(self.lanes)

    @property
    def ranks(self) -> Ids:
        """Each lane's rank."""
        return self.launched.ranks_of(self.lanes)

    @property
    def launches(self) -> Ids:
        """The number of each lane's launch on its rank."""
        return self.launched.numbers_of(self.lanes)

    @property
    def blocks(self) -> Ids:
        """Each lane's block, as its rank numbers them."""
        return self.launched.blocks_of(self.lanes)

    @property
    def threads(self) -> Ids:
        """Each lane's thread, as its block numbers them."""
        return self.launched.threads_of(self.lanes)


@dataclass(slots=True, eq=False)
class Access(LaneEvent):
    """An instruction is about to access memory; its addresses have been checked, what it reads may still be poison.

    action: "load", "store", "atomic"; of multimem instructions "reduce", "broadcast", "red". space: "global" (a rank's
    heap, through the own or a peer's window), "multicast" or "shared". width_bytes: of each lane's access, all elements
    of a vector. viewer: the rank that accesses, target: the rank whose memory it is (MULTICAST_TARGET: all replicas);
    one number for all lanes, or one a lane. addresses: as viewer sees them; of shared memory bytes within the block's.
    target_blocks: of shared memory, the block whose memory it is, one a lane; None: the lane's own block. index: of
    global memory, bytes of Space.memory, of multicast those of rank 0's replica; is_affine: they follow each other.
    """

    instruction: Instruction
    action: str
    space: str
    width_bytes: int
    viewer: int | Ids
    target: int | Ids
    addresses: Addresses
    target_blocks: Ids | None = None
    index: Ids | None = None
    is_affine: bool = False

    @property
    def kind(self) -> str:
        """ "load", "store", "atomic" (atom), "red", "multimem_reduce", "multimem_store" or "multimem_red"."""
        if self.action == "atomic" and self.instruction.opcode == "red":
            return "red"
        return _KINDS.get(self.action, self.action)

    @property
    def order(self) -> str:
        """The memory order that the instruction names, or else has: "weak"; of atomics "relaxed"."""
        return order_of(self.instruction, "relaxed" if self.kind in ("atomic", "red", "multimem_red") else "weak")

    @property
    def scope(self) -> str:
        """ "cta", "cluster", "gpu" or "sys"; "" of a weak access, which has none."""
        if self.order == "weak":
            return ""
        return scope_of(self.instruction, "sys" if self.order == "volatile" else "gpu")


@dataclass(slots=True, eq=False)
class Fence(LaneEvent):
    """Lanes ran a fence (or membar). addresses: where tensor maps begin that it is about, as each lane sees them."""

    instruction: Instruction
    addresses: Addresses | None = None

    @property
    def kind(self) -> str:
        """ "thread" (orders memory accesses in a scope), "proxy", or "mbarrier_init"."""
        words = self.instruction.qualifiers
        return "proxy" if "proxy" in words else "mbarrier_init" if "mbarrier_init" in words else "thread"

    @property
    def order(self) -> str:
        """Of a thread fence "sc", "acq_rel", "acquire" or "release"; "release" of mbarrier_init; else ""."""
        if self.kind == "proxy":
            return ""
        if self.instruction.opcode == "membar":
            return "sc"
        return order_of(self.instruction, "release" if self.kind == "mbarrier_init" else "acq_rel")

    @property
    def scope(self) -> str:
        """ "cta", "cluster", "gpu" or "sys"; "" of a proxy fence, which has none."""
        if self.kind == "proxy":
            return ""
        return scope_of(self.instruction, "cluster" if self.kind == "mbarrier_init" else "gpu")

    @property
    def proxy(self) -> str:
        """Of a proxy fence "alias", "async", or "async." and a space ("async.shared::cta"); else ""."""
        return ".".join(self.instruction.qualifiers[1:]) if self.kind == "proxy" else ""


@dataclass(slots=True, eq=False)
class BarrierArrived(LaneEvent):
    """Lanes came to a barrier. unit: who meets there, "warp", "block" or "cluster".

    At the barrier of a cluster lanes arrive (barrier.cluster.arrive, the instruction) and go on; they wait later.
    numbers: of barriers of a block that are not all barrier 0 of all threads, each lane's barrier; of the barrier of a
    cluster each lane's phase, from 0.
    """

    instruction: Instruction
    unit: str
    numbers: Ids | None = None


@dataclass(slots=True, eq=False)
class BarrierCompleted(LaneEvent):
    """Barriers of one or more units are complete: all lanes of these units that had arrived go on.

    unit and numbers as in BarrierArrived. Threads that have returned count as arrived and are not among the lanes. At
    the barrier of a cluster the lanes are those that go on from barrier.cluster.wait; lanes that come there after all
    have arrived are an event of their own. All lanes of a cluster arrive once in each phase, and wait before they
    arrive again.
    """

    unit: str
    numbers: Ids | None = None


def meetings_of(event: BarrierArrived | BarrierCompleted) -> list[tuple[tuple[str, int, int], Ids]]:
    """Return barriers that have a number (of a block) or a phase (of a cluster), each with the lanes there: unit, which
    one within the launches of all ranks, and number."""
    if event.numbers is None:
        return []
    lanes, launched = ids_of(event.lanes), event.launched
    units = launched.clusters_of(lanes) if event.unit == "cluster" else lanes // launched.block
    pairs = np.unique(np.stack([units, event.numbers]), axis=1).T.tolist()
    return [((event.unit, *pair), lanes[(units == pair[0]) & (event.numbers == pair[1])]) for pair in pairs]


@dataclass(slots=True, eq=False)
class MbarrierOperation(LaneEvent):
    """An operation on mbarriers took place.

    operation: "init", "inval", "expect_tx", "arrive" (arrive.expect_tx is both, in this order; of
    cp.async.mbarrier.arrive when it takes place), "arrive_drop", "complete_tx" (bytes are copied: of a bulk copy, the
    lane is the one that issued it), "try_wait" or "test_wait". One element a lane: addresses, bytes within the block's
    shared memory; phases, the number of the phase that the operation counted in, or that was the current one when a
    wait asked; counts, the arrivals (init: that each phase expects) or bytes, 0 for others; passed, of waits only:
    whether the phase asked for is over, which is the one before the current one; target_blocks, the block whose shared
    memory it is, None: the lane's own block.
    """

    instruction: Instruction
    operation: str
    addresses: Ids
    phases: Ids
    counts: Ids
    passed: npt.NDArray[np.bool_] | None = None
    target_blocks: Ids | None = None


@dataclass(slots=True, eq=False)
class CopyMoment(LaneEvent):
    """A bulk copy of one lane got on. moment: "issued", "read" (all its source) or "written" (all its destination).

    st.async and red.async are copies of registers, which are read when they are issued. A copy to several blocks of the
    cluster (multicast) is written once in each of them.

    number: of the copy, in its launched kernels. is_load: into shared memory. global_address: as the lane's rank sees
    it; target: the rank whose memory it is (MULTICAST_TARGET: all replicas). shared_address: bytes within the block's
    shared memory. mbarrier: where in shared memory lies the one that counts the bytes, -1 of a copy that belongs to a
    group. group: the number, from 0, of that bulk group of the lane (the groups are numbered as the lane commits them),
    -1 if an mbarrier counts the bytes. within: where in shared memory the destination is, of a copy from shared to
    shared memory, whose global_address is -1; else -1. target_blocks: those whose shared memory it writes, where
    mbarrier lies as well; none if it writes global memory. Of a copy of registers shared_address is -1.

    Of a tensor copy size_bytes is the box's, which its mbarrier counts, and stretches are (address, size) of what it
    touches in global memory; shared_stretches the same in shared memory, None if it is all of the box.
    """

    instruction: Instruction
    moment: str
    number: int
    is_load: bool
    global_address: int
    target: int
    shared_address: int
    size_bytes: int
    mbarrier: int
    group: int
    within: int = -1
    target_blocks: tuple[int, ...] = ()
    stretches: list[tuple[int, int]] | None = None
    shared_stretches: list[tuple[int, int]] | None = None

    @property
    def global_bytes(self) -> int:
        """How many bytes of global memory it touches, of one whose source or destination is there."""
        return self.size_bytes if self.stretches is None else sum(size for _, size in self.stretches)

    def touched(self, is_read: bool) -> list[tuple[int, int]]:
        """Return (address, size) of all that it reads, or writes, in the space of source or destination."""
        space, address = self.source if is_read else self.destination
        found = self.stretches if space == "global" else self.shared_stretches
        return [(address, self.size_bytes)] if found is None else found

    @property
    def source(self) -> tuple[str, int]:
        """State space and address that the copy reads; "register" and -1 of registers."""
        if self.shared_address < 0:
            return ("register", -1)
        if self.is_load and self.within < 0:
            return ("global", self.global_address)
        return ("shared", self.shared_address)

    @property
    def destination(self) -> tuple[str, int]:
        """State space and address that the copy writes, or combines with what it read (reduction)."""
        if self.within >= 0:
            return ("shared", self.within)
        return ("shared", self.shared_address) if self.is_load else ("global", self.global_address)

    @property
    def reduction(self) -> str:
        """The operation of a reduction ("add", ..), "" of a plain copy."""
        words = self.instruction.qualifiers
        is_reduction = "reduce" in words or self.instruction.opcode == "red"
        return next((word for word in words if word in _REDUCTIONS), "") if is_reduction else ""


@dataclass(slots=True, eq=False)
class LaneCopyMoment(LaneEvent):
    """Copies by single lanes (cp.async) got on. moment: "issued", "read" or "written".

    number: of the instruction's step, in its launched kernels; from its issue on, some of its lanes may go on before
    others. size_bytes: how many each lane writes to shared memory. One element a lane: taken, how many of them are read
    (the others become zeros); global_addresses, as the lane's rank sees them, and targets, the ranks whose memory it
    is, which mean nothing where nothing is taken; shared_addresses, bytes within the block's shared memory; groups, the
    number, from 0, of the group that the lane commits next.
    """

    instruction: Instruction
    moment: str
    number: int
    global_addresses: Addresses
    targets: Ids
    shared_addresses: Ids
    size_bytes: int
    taken: Ids
    groups: Ids


@dataclass(slots=True, eq=False)
class CopiesAwaited(LaneEvent):
    """Lanes go on after a wait for groups, of bulk copies or of their own: those below a number, one a lane, are over.

    reads_only (.read): over means that the sources were read; else that the destinations were written.
    """

    instruction: Instruction
    groups: Ids
    reads_only: bool


@dataclass(slots=True, eq=False)
class ProductMoment(LaneEvent):
    """A wgmma of one warpgroup, whose lanes these are, got on. moment: "issued", "awaited" or "unfenced".

    A wgmma that is issued reads shared memory until it is awaited: matrices has the addresses of rows of 16 bytes
    within the block's, a row for each row of A (none if it is in registers; warp w takes rows 16 w to 16 w + 15), and
    for each of B. group: the number, from 0, of the group that it will be in; awaited: how many groups are over.
    unfenced: the instruction `earlier` accessed a register that the wgmma takes or gives, with no wgmma.fence between.
    """

    instruction: Instruction
    moment: str
    group: int = 0
    matrices: tuple[Ids, Ids] | None = None
    earlier: Instruction | None = None
    register: str = ""


TENSOR_LANES, TENSOR_COLUMNS = 128, 512
"""Of a block's tensor memory."""


@dataclass(slots=True, eq=False)
class TensorMoment(LaneEvent):
    """What tcgen05 does to tensor memory and mbarriers.

    moment: "loaded" or "stored" by a warp; "awaited" (stores) or "fenced" (behind a barrier) by lanes; "issued" by a
    thread, later "multiplied" or "committed". number: of what the thread issued, in its launch. block: whose memories
    are accessed, as the batch numbers it. cells, columns: lanes and columns of tensor memory, of a product those of D.
    rows: where in the block's shared memory rows of 16 bytes were read; taken: cells and columns that it reads.
    mbarriers: block, address there and phase of each.
    """

    instruction: Instruction
    moment: str
    number: int = -1
    block: int = -1
    cells: Ids | None = None
    columns: Ids | None = None
    rows: Ids | None = None
    taken: tuple[Ids, Ids] | None = None
    mbarriers: tuple[tuple[int, int, int], ...] = ()


@dataclass(slots=True, eq=False)
class Printed(LaneEvent):
    """Lanes called printf. texts: what each of them printed."""

    instruction: Instruction
    texts: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Stepped(LaneEvent):
    """Lanes begin a step: they run a basic block of the given number of instructions, to its end."""

    basic_block: int
    instructions: int


@dataclass(slots=True, eq=False)
class LaunchBegan:
    """The ranks of a launched kernel begin it; what each of them launched before is over."""

    launched: Launched
    step: int


@dataclass(slots=True, eq=False)
class LaunchEnded:
    """The launch is over on one rank: all its threads returned and all its bulk copies are written."""

    launched: Launched
    rank: int
    step: int

    @property
    def number(self) -> int:
        """The number of the launch on this rank."""
        return self.launched.number_on(self.rank)


@dataclass(slots=True, eq=False)
class HostEvent:
    """Hosts did what orders kernels.

    action: "enqueued" (the host of a rank put launch number `launch` in its queue), "synchronized" (the host of a rank
    has seen the end of all its launches before number `launch`), "ordered" (a stream of a rank waits for the end of
    launch number `launch`, the last one of another stream), or "barrier" (the hosts of all ranks met; launch is -1).
    after: the launches of other streams for whose end an enqueued one waits.
    """

    action: str
    ranks: tuple[int, ...]
    launch: int
    after: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class HostAccess:
    """A rank's host is about to write (action "write") or read ("read") size_bytes of its memory, at an index of
    Space.memory, through its fabric. What it does through an array that it was lent is not reported."""

    rank: int
    action: str
    index: int
    size_bytes: int


@dataclass(slots=True, eq=False)
class Stored:
    """The values of the store whose Access came before. places: where, one a lane; rows: what, a row a lane. memory:
    the bytes that places are indices of, before the store; None if unknown."""

    places: Ids
    rows: npt.NDArray[Any]
    memory: npt.NDArray[np.uint8] | None = None


@dataclass(slots=True, eq=False)
class LateAccess(LaneEvent):
    """A lane's access to weak memory was late: a read that returned what a later store has overwritten, or a store that
    another one, made before, has overwritten. Its Access came before; of a bulk copy, the CopyMoment comes after.

    index: in Space.memory. seen: the bytes that it read or stored; newest: those that are there when all is visible, of
    an atomic operation before it. copy: the number of the bulk copy, -1 of a lane's own access.
    """

    index: int
    seen: npt.NDArray[np.uint8]
    newest: npt.NDArray[np.uint8]
    copy: int = -1


def order_of(instruction: Instruction, otherwise: str) -> str:
    """Return the memory order among an instruction's qualifiers."""
    return next((word for word in instruction.qualifiers if word in _ORDERS), otherwise)


def scope_of(instruction: Instruction, otherwise: str) -> str:
    """Return the scope among an instruction's qualifiers, membar's gl as gpu."""
    found = next((word for word in instruction.qualifiers if word in _SCOPES), otherwise)
    return "gpu" if found == "gl" else found


class Listener:
    """Listens to events: override the methods of those that you want, and pass the listener to Events.add."""

    def access(self, event: Access) -> None:
        """Global and multicast memory."""

    def shared_access(self, event: Access) -> None:
        """Shared memory."""

    def fence(self, event: Fence) -> None: ...

    def barrier_arrived(self, event: BarrierArrived) -> None: ...

    def barrier_completed(self, event: BarrierCompleted) -> None: ...

    def mbarrier(self, event: MbarrierOperation) -> None: ...

    def copy(self, event: CopyMoment) -> None: ...

    def lane_copy(self, event: LaneCopyMoment) -> None: ...

    def copies_awaited(self, event: CopiesAwaited) -> None: ...

    def product(self, event: ProductMoment) -> None: ...

    def tensor(self, event: TensorMoment) -> None: ...

    def printed(self, event: Printed) -> None: ...

    def stepped(self, event: Stepped) -> None: ...

    def launch_began(self, event: LaunchBegan) -> None: ...

    def launch_ended(self, event: LaunchEnded) -> None: ...

    def host(self, event: HostEvent) -> None: ...

    def host_access(self, event: HostAccess) -> None: ...

    def stored(self, event: Stored) -> None: ...

    def late(self, event: LateAccess) -> None: ...


Told = list[Callable[[Any], None]]
KINDS = tuple(name for name in vars(Listener) if not name.startswith("_"))
"""The names of Listener's methods, and of the lists in Events."""


class Events:
    """Who listens to what: for each kind of event the methods to call, in the order in which listeners were added.

    step: the number of the world's step that was the latest to begin.
    """

    def __init__(self) -> None:
        self.step = 0
        self._listeners: list[Listener] = []
        self._sort()

    def __getattr__(self, kind: str) -> Told:
        """For type checkers: each of KINDS is an attribute."""
        raise AttributeError(kind)

    def add(self, listener: Listener) -> None:
        """Tell the listener the events whose methods it overrides, from now on."""
        self._listeners.append(listener)
        self._sort()

    def remove(self, listener: Listener) -> None:
        """Tell the listener nothing more. Raises ValueError if it was not added."""
        found = [number for number, one in enumerate(self._listeners) if one is listener]
        if not found:
            raise ValueError(f"{type(listener).__name__} is not among the listeners")
        del self._listeners[found[0]]
        self._sort()

    @contextmanager
    def only(self, listener: Listener) -> Iterator[None]:
        """Tell this listener alone, for a while."""
        others, self._listeners = self._listeners, [listener]
        self._sort()
        try:
            yield
        finally:
            self._listeners = others
            self._sort()

    def _sort(self) -> None:
        for kind in KINDS:
            deaf = getattr(Listener, kind)
            heard = [one for one in self._listeners if getattr(type(one), kind) is not deaf]
            setattr(self, kind, [getattr(one, kind) for one in heard])


def tell(listeners: Told, event: object) -> None:
    """Pass an event to each of the listeners."""
    for listener in listeners:
        listener(event)
