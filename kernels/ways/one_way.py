"""ll, ll128 and lamport: data goes one way, from a rank's input into peers' inboxes, and each receiver polls its own.

A kernel here is an exchange (who sends what to whom) over a way (how a receiver knows that data has come):
all_reduce/ll is the exchange of all_reduce over LL. Each exchange and each way has its design record below, at its
definition.

When they win: small messages. Data takes one trip over the links, and that is all the time there is: nothing waits for
a barrier before or after. The algorithm named in an exchange's `larger` overtakes them.

Memory: an inbox in symmetric memory, of several banks that launches take in turn (kernels/dsl/inbox.py). A message is
units of 16 bytes, loaded and stored by elements where a buffer or a chunk begins at no 16-byte boundary.

Protocol: no barrier. kernels/dsl/inbox.py says why what is polled is sound; kernels/dsl/rounds.py what keeps a fast
rank from storing where a slow one still reads, or sets back. A thread's first data, the launch's number and the peers'
addresses are loaded together. While the data is under way a rank hands over to its next launch, so the last thing that
a thread does is to store its output. No rank touches another's input or output. On one rank alone the bits are copied.

Numerics: precision and rounding are in kernels/dsl/arithmetic.py; the order of additions is the exchange's.

Rejected: an all-clear to all peers in each launch, awaited in it, with two or three banks, as all_reduce had it. Its
release and acquire take longer than the data, and a launch ends with both: 2.9 us at 1 KiB on 2 H200 with lamport, 2.7
with ll, where reduce_scatter/ll with grants took 2.26 in the same kind of run, and the data alone takes 1.8
(2026-11-22). Storing straight into outputs: a peer's output may not be ready early, so a barrier has to come before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.dtypes import FLOAT_REDUCTIONS, FLOATS
from cases.ops import collective
from cases.stress import NOT_ONE_WAY, ONE_WAY, WITH_BARRIERS
from kernels import shares
from kernels.dsl import slots
from kernels.family import Work, address, peers, spec_with
from kernels.spec import KernelSpec
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame
    from kernels.dsl.one_way import OneWay

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Way:
    """How a receiver knows that data has come. beside and polled say it within a kernel's summary.

    loads: of a thread before it has a unit that is moved, reducing_loads: for each rank's part of one that is reduced.
    """

    name: str
    rounds: slots.Rounds
    beside: str = ""
    polled: str = ""
    loads: int = 1
    reducing_loads: int = 2
    spec: Mapping[str, Any] = field(default_factory=dict)

    def inbox(self, frame: Frame, rows: int, sender: Callable[[Any], Any] = lambda row: row) -> OneWay:
        """Return the launch's inbox, of a number of rows; sender(row) is the rank that stores into a row."""
        from kernels.dsl.inbox import Flagged, Lines, Sentinel
        from kernels.dsl.one_way import OneWay

        return OneWay(frame, rows, {"ll": Flagged, "ll128": Lines, "lamport": Sentinel}[self.name], sender)

    @property
    def message(self) -> Any:
        """What makes a message of a buffer, or of a part of it."""
        from kernels.dsl.lines import LineMessage
        from kernels.dsl.messages import Message

        return LineMessage if self is LL128 else Message

    def units(self, exchange: Exchange, case: Case) -> int:
        """Return the units of one message that an inbox has room for."""
        count = slots.chunk_units(case) if exchange.is_chunked else slots.units(case)
        return slots.in_lines(count) if self is LL128 else count


LL = Way("ll", slots.FLAGGED, beside=", each word beside a flag,")
"""Each 4 bytes of data travel beside the number of the launch.

When it wins: as lamport, but for any data type and with every bit of the inputs kept: no value is spare, and nothing is
set back. It moves twice the bytes.

Memory: 16 banks, two slots a unit, so 32 times a message for each row of the inbox (on more than 8 ranks, 8 times). The
16 bytes of a unit become two slots (word, flag, word, flag), stored as two 64-bit elements: each of them is single-copy
atomic in the PTX model, so a word whose flag is the launch's is the launch's. One 16-byte access for all four is not
(it is four scalar ones), though NCCL's protocol of this name relies on it in hardware.

Protocol: the flag is twice the launch's epoch plus 1: never zero, as the inboxes begin, and never what was written in
this bank before."""

LL128 = Way(
    "ll128", slots.IN_LINES, beside=", 120 bytes beside each flag of 8,", loads=2, spec={"assumptions": ("warp_128",)}
)
"""120 bytes of data travel beside 8 of the launch's number.

When it wins: never measured. It should win where ll does and its messages are no longer tiny, between ll and what
overtakes it, from some 64 KiB to 1 MiB: 1.07 times the bytes in place of twice, for any data type and with every bit of
the inputs kept.

Memory: 8 banks, in lines, so 8.53 times a message for each row, filled up to tiles of 1 KiB. kernels/dsl/lines.py says
which lane takes what.

Protocol: that a line is whole where its flag has come is no promise of PTX but the assumption warp_128, which the specs
declare: kernels/dsl/inbox.py says how the kernels earn it, and the race checker lists what it explains as advisories.

Rejected: eight groups' lanes that wait for their own lines alone, by votes of eight lanes: a warp's loads would come
apart, and its lines with them. Payload that lanes shuffle so that each line has 120 bytes in a row: two lines with 15
units leave every unit with the lane that loads it. Padding that is not sent: every access would have a predicate, to
save up to 960 bytes a message."""

LAMPORT = Way(
    "lamport",
    slots.SET_BACK,
    polled=" for what is not -0.0",
    reducing_loads=1,
    spec={"dtypes": FLOATS, "reductions": FLOAT_REDUCTIONS, "positive_zero": "inputs"},
)
"""Data is its own flag: -0.0 in an element of an inbox says that it has not come yet.

When it wins: the smallest messages of floats; half the bytes of ll.

Memory: 16 banks (8 on more than 8 ranks), so 16 times a message for each row.

Protocol: while the data is under way a rank sets back the bank of the launch before.

Numerics: a contribution of -0.0 counts as +0.0; sums that round to -0.0 stay so. One rank alone copies its bits, -0.0
included. Floats only: integers have no value to spare.

Rejected: fewer banks, which take more grants (kernels/dsl/slots.py has the numbers)."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What an op sends whom: body(frame, way) is the device half, for two or more ranks.

    rows(world_size): those of the inbox. is_chunked: a message is a rank's chunk of the buffer, else all of it.
    is_shared_out: blocks are shared out among the ranks that they store to, and later poll for, so that all links are
    busy at once. larger: the algorithm for larger messages.
    """

    body: Callable[[Frame, Way], None]
    summary: str
    larger: str
    rows: Callable[[int], int] = lambda world_size: max(world_size - 1, 1)
    is_chunked: bool = False
    is_shared_out: bool = False
    hears_all: bool = True
    spec: Mapping[str, Any] = field(default_factory=dict)


def to_all(frame: Frame, way: Way) -> None:
    """all_reduce: every rank stores its input into its row of all inboxes, and reduces the rows of its own.

    Every rank stores its whole input n times, so other algorithms overtake it soon. A rank stores into its own inbox,
    too, so that all ranks see the same; stores to peers begin with the next rank, so that no GPU is everyone's first
    target. In place is fine: a unit of the output is written by the thread that stored that unit of the input to all
    inboxes, and everything it reduces comes from there. Rank order 0, 1, .. n-1 on all ranks, so all get the same bits.
    """
    source, output = (way.message(frame, frame.address(of)) for of in ("input", "output"))
    inbox = way.inbox(frame, frame.world_size)
    inbox.send_to_all(source)
    inbox.between(source.count)
    inbox.reduce_rows(output)


def to_owners(frame: Frame, way: Way) -> None:
    """reduce_scatter: every rank stores its contributions into their owners' inboxes, and reduces what came to its own.

    Rows are in the order of the ring, from the next rank on: the owner begins with the next rank and ends with itself,
    as in pull, and gives the same bits. In place is fine: of a rank's input only its own chunk is overwritten, each
    unit by the thread that loaded it, and that chunk is sent to no other rank.
    """
    chunk, others = frame.size // frame.world_size, frame.world_size - 1
    source, output = frame.address("input"), frame.address("output")
    inbox = way.inbox(frame, others, sender=lambda row: frame.after(frame.rank, row + 1))
    own = way.message(frame, source + chunk * frame.rank, chunk)

    def send(number: Any, index: Any, lanes: Any) -> None:
        peer = frame.after(frame.rank, number + 1)
        inbox.send(way.message(frame, source + chunk * peer, chunk), peer, others - 1 - number, index, lanes)

    frame.each_peer(others, send)
    inbox.between(own.count)
    inbox.reduce(own, way.message(frame, output, chunk))


def to_root(frame: Frame, way: Way) -> None:
    """reduce: every rank stores its input into the root's inbox, which reduces what came.

    The root's links carry every rank's buffer, so two_shot overtakes it. All ranks have the inbox, of which only the
    root's is used; rows are in the order of the ring, from the root's next rank on, and the root ends with itself, as
    in pull: the same bits. The others hear nothing from the root but its grants, which stop them when they are some
    launches ahead. So launches in a row overlap, and a root that never launches is missed only later. Any rank may be
    the root of the next launch. In place is fine: only the root's input is overwritten, each unit by the thread that
    loaded it.
    """
    source, output = frame.address("input"), frame.address("output")
    is_root = frame.rank == frame.root
    row = frame.steps(frame.after(frame.root), frame.rank)
    inbox = way.inbox(frame, frame.world_size - 1, sender=lambda row: frame.after(frame.root, row + 1))
    own = way.message(frame, source)
    inbox.send(own, frame.root, row, frame.index, frame.lanes, frame.rank != frame.root)
    inbox.between(own.count)
    frame.when(is_root, lambda: inbox.reduce(own, way.message(frame, output)))


def chunks(frame: Frame, way: Way, each_its_own: bool) -> None:
    """all_gather, where a rank stores its chunk into all inboxes; all_to_all, where each peer gets a chunk of its own.

    Rows are in the order of the ring, from the next rank on. The own chunk is copied while the others' are under way.
    In place is fine for all_gather: a rank's own chunk lies where it belongs, and no other chunk of its buffer is read.
    For all_to_all it would do (who stores a unit of the output has loaded that unit of the input), but the op has no
    such form.
    """
    source, output = frame.address("input"), frame.address("output")
    chunk, others = frame.size // frame.world_size, frame.world_size - 1
    mine = chunk * frame.rank if each_its_own else output + chunk * frame.rank
    inbox = way.inbox(frame, others)

    def send(number: Any, index: Any, lanes: Any) -> None:
        peer = frame.after(frame.rank, number + 1)
        begin = source + chunk * peer if each_its_own else source
        inbox.send(way.message(frame, begin, chunk), peer, others - 1 - number, index, lanes)

    def receive(number: Any, index: Any, lanes: Any) -> None:
        sender = frame.after(frame.rank, number + 1)
        inbox.receive(way.message(frame, output + chunk * sender, chunk), number, sender, index, lanes)

    frame.each_peer(others, send)
    inbox.between()
    own, place = (source + mine, output + mine) if each_its_own else (source, mine)
    frame.copy(own, place, chunk, push=True)
    frame.each_peer(others, receive)


def from_root(frame: Frame, way: Way) -> None:
    """broadcast: the root stores its input into all inboxes, and leaves its own buffer alone in place.

    The root stores n - 1 times, so two_shot overtakes it. It hears nothing from the others but their grants, which stop
    it when it is three launches ahead of the slowest. So launches in a row overlap: the root ends before the others
    have the data, and a rank that never launches is missed only later. Any rank may be the root of the next launch.

    Rejected: an answer of each receiver in the same launch: one more trip, and a release, at the end of each launch. A
    credit word that the root alone reads: the next launch may have another root.
    """
    source, output = frame.address("input"), frame.address("output")
    others, is_root = frame.world_size - 1, frame.rank == frame.root
    inbox = way.inbox(frame, 1)

    def send(number: Any, index: Any, lanes: Any) -> None:
        inbox.send(way.message(frame, source), frame.after(frame.rank, number + 1), 0, index, lanes, is_root)

    def receive() -> None:
        inbox.receive(way.message(frame, output), 0, frame.root, frame.index, frame.lanes)

    frame.each_peer(others, send)
    inbox.between()
    frame.when(is_root, lambda: frame.copy(source, output, frame.size, push=True))
    frame.when(frame.rank != frame.root, receive)


def to_next(frame: Frame, way: Way) -> None:
    """send_recv: every rank stores its input into the next rank's inbox.

    A rank hears nothing from the one that it sends to but its grants, which stop it when it is three launches ahead. So
    a rank that never launches is missed by its next rank at once, and by the others only later. Grants go to all ranks,
    not to the one before alone: what a launch means for memory does not depend on who is whose neighbour. In place
    would do (who stores a unit of the output has loaded that unit of the input), but the op has no such form.
    """
    source, output = frame.address("input"), frame.address("output")
    before, after = frame.after(frame.rank, frame.world_size - 1), frame.after(frame.rank)
    inbox = way.inbox(frame, 1)
    inbox.send(way.message(frame, source), after, 0, frame.index, frame.lanes)
    inbox.between()
    inbox.receive(way.message(frame, output), 0, before, frame.index, frame.lanes)


NO_FORM = {"why_not": {"placement": "the op has no such form"}}
EXCHANGES = {
    "all_reduce": Exchange(
        to_all,
        "each rank stores its input{beside} to all, polls{polled}, and folds in rank order",
        larger="two_shot",
        rows=lambda world_size: world_size,
        spec={"fold": "rank_order"},
    ),
    "reduce_scatter": Exchange(
        to_owners,
        "each rank stores its contributions{beside} to their owners, who poll{polled}, and fold",
        larger="pull",
        is_chunked=True,
        is_shared_out=True,
        spec={"owner": shares.own},
    ),
    "reduce": Exchange(
        to_root,
        "each rank stores its input{beside} to the root, which polls{polled}, and folds",
        larger="pull",
        hears_all=False,
        spec={"owner": shares.roots},
    ),
    "all_gather": Exchange(
        lambda frame, way: chunks(frame, way, each_its_own=False),
        "each rank stores its chunk{beside} to all, and polls for theirs",
        larger="push",
        is_chunked=True,
        is_shared_out=True,
    ),
    "all_to_all": Exchange(
        lambda frame, way: chunks(frame, way, each_its_own=True),
        "each rank stores its chunks{beside} to their ranks, and polls for theirs",
        larger="push",
        is_chunked=True,
        is_shared_out=True,
        spec=NO_FORM,
    ),
    "broadcast": Exchange(
        from_root,
        "the root stores its input{beside} to all, who poll",
        larger="two_shot",
        rows=lambda world_size: 1,
        is_shared_out=True,
        hears_all=False,
    ),
    "send_recv": Exchange(
        to_next,
        "each rank stores its input{beside} to the next rank, which polls",
        larger="push",
        rows=lambda world_size: 1,
        hears_all=False,
        spec=NO_FORM,
    ),
}


def one_way(op: str, way: Way, tuning: Tuning, rounds: slots.Rounds | None = None) -> KernelSpec:
    """Return the kernel of an op's exchange over a way, with a tuning, and with other rounds than the way's if
    given."""
    exchange, banks = EXCHANGES[op], rounds or way.rounds
    name = f"{op}/{way.name}"
    groups = shares.groups_of_others if exchange.is_shared_out else lambda case: 1
    most_bytes, most_by_ranks = LIMITS[name]
    spare = {"dtype": f"an integer has no spare value that could mean 'not written yet'; take {op}/ll"}
    why_not = {"sizes": f"take {op}/{exchange.larger}", **(spare if banks.is_set_back else {})}
    why_not |= {} if exchange.hears_all else NOT_ONE_WAY

    def body(frame: Frame) -> None:
        if frame.world_size == 1:
            frame.copy(frame.address("input"), frame.address("output"), frame.size, push=True)
        else:
            exchange.body(frame, way)

    def loads(case: Case) -> int:
        return way.reducing_loads * exchange.rows(case.world_size) if collective(op).reduces else way.loads

    return spec_with(
        name,
        body,
        tuning,
        summary=exchange.summary.format(beside=way.beside, polled=way.polled),
        promises=WITH_BARRIERS if exchange.hears_all else ONE_WAY,
        buffers=(
            *(address("input"), address("output"), address("inbox"), peers("inbox")),
            *((address("turns"),) if banks.is_set_back else ()),
        ),
        work=Work(lambda case: slots.lanes(case, way.units(exchange, case), groups(case)), loads, groups),
        options=lambda case: banks.choices(case, tuning.max_blocks),
        workspaces=lambda case: banks.workspaces(
            case, way.units(exchange, case), exchange.rows(case.world_size), tuning.max_blocks
        ),
        retuned=lambda other: one_way(op, way, other, rounds),
        max_size_bytes=most_bytes,
        max_sizes=most_by_ranks,
        **{**exchange.spec, **way.spec, "why_not": {**exchange.spec.get("why_not", {}), **why_not}},
    )


LIMITS: dict[str, tuple[int, dict[int, int]]] = {
    **{f"{op}/{way.name}": (4 * MIB if way is LL128 else MIB, {}) for op in EXCHANGES for way in (LL, LL128, LAMPORT)},
    **{f"reduce/{name}": (256 * KIB, {}) for name in ("ll", "lamport")},
    "all_reduce/ll": (256 * KIB, {2: 512 * KIB}),
    "all_reduce/ll128": (512 * KIB, {2: 2 * MIB}),
    "all_reduce/lamport": (256 * KIB, {2: 2 * MIB, 3: 512 * KIB, 4: 512 * KIB}),
}
"""Most bytes of a message, in all worlds and in those of a number of ranks."""


def _usual(loads_in_flight: int) -> Tuning:
    """Never measured: the threads are those of a trial in plain CUDA on 2 H200 (2026-11-22), which took 1.8 us with 64
    threads a block and a unit a thread, 1.9 to 2.0 with 512; a warp more is left for the signals (slots.lanes)."""
    small = Step(96, 64, 1, "a unit a thread", up_to_bytes=64 * KIB)
    return Tuning((small, Step(256, 128, loads_in_flight, "several units a thread in flight")))


MOVING, REDUCING = _usual(4), _usual(8)

# Never measured: blocks as ll's, of which a warp takes a tile of 960 bytes, two loads a lane.
TILES = Tuning(
    (
        Step(96, 64, 2, "a tile a warp", up_to_bytes=64 * KIB),
        Step(256, 128, 8, "several tiles a warp in flight"),
    )
)

# The larger step was measured on 4 H200 on 21 November 2026 (bfloat16, CUDA graphs of 6 to 200 calls, medians of the
# slowest rank, 256 to 1024 threads, 16 to 128 blocks, 8 and 16 loads), when the kernel had an all-clear in each launch;
# no run since, and none on 8 GPUs.
ALL_REDUCE_LL = Tuning(
    (
        Step(96, 64, 4, "a unit a thread, as lamport's; 4 ranks were never measured so", 64 * KIB, up_to_ranks=4),
        Step(
            512, 32, 8, "4 KiB takes 3.9 us, 64 KiB 5.0 (16 blocks and 256 threads: the same; 1024 threads: 3.9, 6.6)"
        ),
    )
)

# The first four steps were measured as a cubin in one process on 2 and 4 H100 (NVLink 4, 27 November 2026, bfloat16,
# medians of the maximum over GPUs). The last two were measured on 4 H200 on 21 November 2026, when the kernel had an
# all-clear in each launch, and are for more ranks now: no run since, and none on 8 GPUs.
ALL_REDUCE_LAMPORT = Tuning(
    (
        Step(96, 64, 2, "16 KiB takes 2.66 us on 4, 2.48 on 2 (64 threads: 2.66, 2.47; 128: 2.64, 2.44)", 64 * KIB, 4),
        Step(128, 132, 2, "256 KiB takes 5.18 us on 4, 3.39 on 2; with 8 banks 32 x 256: 5.48, 3.71", 256 * KIB, 4),
        Step(256, 132, 2, "512 KiB: 7.56 us on 4, 4.31 on 2 (512 threads: 7.74, 4.28; 1024: 8.82, 4.57)", 512 * KIB, 4),
        Step(512, 132, 4, "1 MiB takes 5.82 us on 2 (66 blocks: 6.13; 256 threads: 5.95; 1024: 6.20)", up_to_ranks=4),
        Step(512, 32, 8, "4 KiB takes 3.6 us on 4 H200 (16 blocks: 3.7, 256 threads: 4.1)", 16 * KIB),
        Step(256, 32, 8, "64 KiB takes 4.2 us on 4 H200 (512 threads: 4.4, 1024: 6.0)"),
    )
)

KERNELS = (
    one_way("all_reduce", LAMPORT, ALL_REDUCE_LAMPORT),
    one_way("all_reduce", LL, ALL_REDUCE_LL),
    *(one_way(op, LAMPORT, REDUCING) for op in ("reduce_scatter", "reduce")),
    *(one_way(op, LL, REDUCING) for op in ("reduce_scatter", "reduce")),
    *(one_way(op, LL, MOVING) for op in ("all_gather", "all_to_all", "broadcast", "send_recv")),
    *(one_way(op, LL128, TILES) for op in EXCHANGES if op != "reduce"),
)
