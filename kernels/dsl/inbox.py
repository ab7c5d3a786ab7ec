"""Inboxes: memory that peers store into and its owner polls, so that data needs no barrier to be seen.

A message is cut into units of 16 bytes of payload, the last one filled up with zeros. An inbox has a row for each
sender, and banks that launches take in turn. A unit lies in one or two slots of 16 bytes, and every aligned 8 bytes of
a slot, its halves, say by themselves whether they have arrived. Forms:

- Sentinel: one slot; a half that has not arrived is -0.0 in all its elements, and no payload has a -0.0, because it is
  made +0.0 before it is stored (positive_zero in the spec). Who has read a bank sets it back one launch later, while it
  waits for that launch's data.
- Flagged: two slots; each half is 4 bytes of payload and the launch's epoch. Nothing is set back.
- Lines: 15 units lie in two lines of 128 bytes, each of which ends with a half that is the launch's epoch. A lane has a
  slot of both. Nothing is set back, and a line is worth 120 of its bytes.

Why the first two are sound in the PTX model. A slot is stored and loaded by relaxed accesses at system scope of two
64-bit elements, each of which is single-copy atomic: a half holds what it held before or what it is to hold, and is
looked at on its own. The two halves may come apart, and so may the slots; nothing else is read on the strength of
having seen one, so no order between accesses is needed.

Why Lines are sound on GPUs, though not in the PTX model. Seven lanes take their payload because the eighth saw the
flag. PTX lets them see older bytes; the assumption warp_128 (cases/assumptions.py) says that a warp's store of 128
aligned bytes is a single one, so a warp that loads the line by one instruction sees all of it or nothing. Hence every
store and every load is by whole warps that have just met (meet), of whole lines, and the warp agrees by a vote that all
flags of what it loaded have come. Stores are weak: so the race checker sees what the assumption has to explain, and
says it as an advisory. By relaxed ones nothing would race, and it would have nothing to say of lanes that trust
another's flag.

That a bank is free again is another matter, and needs order: what this rank read there and set back in an earlier
launch comes before what peers store there next. kernels/dsl/rounds.py says what sees to it. (The data alone would bring
about the same order in any hardware that ends a kernel with its stores done; PTX promises it only for releases that are
acquired. And launches without elements have no data.)

A unit's place depends on neither the message's size nor the grid, and what a block knows of the last launch is kept for
all blocks that there may be: so launches of different sizes can follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from kernels.dsl import device
from kernels.dsl.arithmetic import join, split
from kernels.dsl.messages import Message, each_unit
from kernels.dsl.peers import Peers, accumulate, reduced
from kernels.dsl.rank_barriers import LOOK_EVERY, report
from kernels.dsl.slots import LINE_LANES, LINE_TILE_BYTES, TILE_BYTES, UNIT_BYTES, sentinel
from kernels.dsl.traverse import when
from kernels.shares import BATCH

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame


class OfUnits:
    """What the forms have in common whose units are looked at one by one, each by one lane."""

    store = staticmethod(device.store_halves)

    def absent(self, half: Any) -> Any:
        """Whether it is still to come."""
        raise NotImplementedError

    def any_absent(self, halves: Sequence[Any]) -> Any:
        """Whether any of them is still to come."""
        missing = self.absent(halves[0])
        for half in halves[1:]:
            missing = missing | self.absent(half)
        return missing

    def meet(self) -> None:
        """Before lanes access what they share: here they share nothing."""

    def agreed(self, waited: Any, patience: Any) -> Any:
        """How long those have waited who wait together, at most patience: here each one alone."""
        return waited

    def byte(self, at: Any) -> Any:
        """Where in the message begins what is missing at an offset."""
        return at


class Sentinel(OfUnits):
    """A unit as it is, but with +0.0 for each -0.0."""

    slots = 1

    def __init__(self, itemsize: int, safe: bool = True) -> None:
        self.bits = int.from_bytes(sentinel(itemsize), "little", signed=True)
        self.safe = safe

    @classmethod
    def of(cls, frame: Frame) -> Sentinel:
        """That of a launch."""
        return cls(frame.itemsize, frame.choice("safe_zeros", True))

    def without(self, half: Any) -> Any:
        """A half with +0.0 for each -0.0 in it: a sign bit goes where adding all ones below it carries nothing in."""
        sign = Int64(self.bits)
        return half ^ (sign & half & ~((half & ~sign) + ~sign)) if self.safe else half

    def sealed(self, words: Sequence[Any]) -> list[Any]:
        """The unit's halves, from its four words."""
        return [self.without(join(words[i], words[i + 1])) for i in (0, 2)]

    def opened(self, halves: Sequence[Any]) -> list[Any]:
        """The unit's four words."""
        return [word for half in halves for word in split(half)]

    def safe_words(self, words: Sequence[Any]) -> list[Any]:
        """The words as they come out of an inbox, for a unit that does not go through one."""
        return self.opened(self.sealed(words))

    def absent(self, half: Any) -> Any:
        """Whether it is still to come."""
        return half == Int64(self.bits)


class Flagged(OfUnits):
    """Each word of a unit beside a flag, a word that no other of the last 2^31 launches has, and never zero."""

    slots = 2

    def __init__(self, epoch: Any) -> None:
        self.flag = epoch * 2 + 1

    @classmethod
    def of(cls, frame: Frame) -> Flagged:
        """That of a launch."""
        return cls(frame.epoch)

    def sealed(self, words: Sequence[Any]) -> list[Any]:
        return [join(word, self.flag) for word in words]

    def opened(self, halves: Sequence[Any]) -> list[Any]:
        return [split(half)[0] for half in halves]

    def absent(self, half: Any) -> Any:
        return split(half)[1] != self.flag


class Lines:
    """A lane's two units, eight words, in a slot of each of two lines that it shares with seven other lanes.

    The last lane of eight has one unit, whose halves lie beside the flags; its second four words are worthless. All
    methods are called by whole warps.
    """

    slots = 2
    store = staticmethod(device.store_halves_weak)

    def __init__(self, epoch: Any, thread: Any) -> None:
        word = epoch * 2 + 1
        self.flag = join(word, word)
        self.is_last = (thread & (LINE_LANES - 1)) == LINE_LANES - 1

    @classmethod
    def of(cls, frame: Frame) -> Lines:
        """That of a launch."""
        return cls(frame.epoch, frame.thread)

    def sealed(self, words: Sequence[Any]) -> list[Any]:
        """The halves of both slots, from a lane's eight words."""
        lower, upper, next_lower, next_upper = (join(words[i], words[i + 1]) for i in range(0, 8, 2))
        return [
            lower,
            cutlass.select_(self.is_last, self.flag, upper),
            cutlass.select_(self.is_last, upper, next_lower),
            cutlass.select_(self.is_last, self.flag, next_upper),
        ]

    def opened(self, halves: Sequence[Any]) -> list[Any]:
        """A lane's eight words."""
        lower, upper, next_lower, next_upper = halves
        unit = (lower, cutlass.select_(self.is_last, next_lower, upper), next_lower, next_upper)
        return [word for half in unit for word in split(half)]

    def any_absent(self, halves: Sequence[Any]) -> Any:
        """Whether the flag of any line is still to come that the warp has loaded halves of."""
        missing = halves[1] != self.flag
        for flag in halves[3::2]:
            missing = missing | (flag != self.flag)
        return cute.arch.vote_any_sync(missing & self.is_last)

    def meet(self) -> None:
        """Bring the warp's lanes together: what follows is one access of all."""
        cute.arch.sync_warp()

    def agreed(self, waited: Any, patience: Any) -> Any:
        """How long the warp has waited: it gives up as one."""
        return cutlass.select_(cute.arch.vote_any_sync(waited >= patience), patience, waited)

    def byte(self, at: Any) -> Any:
        """Where in the message the tile begins."""
        return (at >> 9) * LINE_TILE_BYTES


class Banks(Protocol):
    """Which bank a launch takes, and which the one before took: kernels.dsl.rounds.Round."""

    banks: int
    bank: Any
    last_bank: Any


class Inbox:
    """An inbox by its workspace's name, with a number of rows, in a launch's turn. Made while a kernel is traced.

    sender(row) is the rank whose row it is; phase says in a report what did not come.
    """

    def __init__(
        self,
        frame: Frame,
        of: str,
        rows: int,
        turn: Banks,
        form: Sentinel | Flagged | Lines,
        phase: int,
        sender: Callable[[Any], Any] = lambda row: row,
    ) -> None:
        self.frame, self.of, self.rows, self.turn = frame, of, rows, turn
        self.form, self.phase, self.sender = form, phase, sender
        self.row_bytes = TILE_BYTES * form.slots
        self.bank_bytes = self.row_bytes * rows
        self.tile_bytes = self.bank_bytes * turn.banks
        self.own = frame.address(of) + Int64(turn.bank) * self.bank_bytes

    def place(self, at: Any, row: Any) -> Any:
        """Where byte at, a multiple of 16, of the message in a row begins, after the beginning of the bank."""
        return Int64((at >> 9) * self.tile_bytes + (at & (TILE_BYTES - 1))) + Int64(row) * self.row_bytes

    def at_peers(self, peers: Peers, words: Sequence[Any], at: Any, row: Any) -> None:
        """Store a unit into a row of peers' inboxes; their table is of this workspace."""
        offset = Int64(self.turn.bank) * self.bank_bytes + self.place(at, row)
        self.form.meet()
        peers.store(offset, self.form.sealed(words), self.store)

    def at_peer(self, address: Any, words: Sequence[Any], at: Any, row: Any) -> None:
        """Store a unit into a row of the inbox that begins at an address."""
        self.form.meet()
        self.store(address + Int64(self.turn.bank) * self.bank_bytes + self.place(at, row), self.form.sealed(words))

    def store(self, address: Any, halves: Sequence[Any]) -> None:
        for slot in range(self.form.slots):
            self.form.store(address + TILE_BYTES * slot, halves[2 * slot : 2 * slot + 2])

    def take(
        self, offsets: Sequence[Any], first: Any, rows: int, sender: Callable[[Any], Any] | None = None
    ) -> list[list[list[Any]]]:
        """Wait for the units at byte offsets of count rows from the first on; return words by [offset][row]."""
        bases = [self.own + self.place(at, first + row) for at in offsets for row in range(rows)]
        addresses = [base + TILE_BYTES * slot for base in bases for slot in range(self.form.slots)]
        notice = partial(self.give_up, offsets, first, rows, sender or self.sender)
        self.form.meet()
        halves = received(partial(look, addresses), self.form.any_absent, self.frame.watch, notice, self.form.agreed)
        per_unit = 2 * self.form.slots
        units = [self.form.opened(halves[i : i + per_unit]) for i in range(0, len(halves), per_unit)]
        return [units[i : i + rows] for i in range(0, len(units), rows)]

    def give_up(
        self,
        offsets: Sequence[Any],
        first: Any,
        rows: int,
        sender: Callable[[Any], Any],
        halves: Sequence[Any],
        waited: Any,
    ) -> None:
        """Report the first unit that did not come."""
        per_unit = 2 * self.form.slots
        rank, byte = Int32(0), Int32(0)
        for number in reversed(range(len(offsets) * rows)):
            missing = self.form.any_absent(halves[number * per_unit : (number + 1) * per_unit])
            rank = cutlass.select_(missing, Int32(sender(first + number % rows)), rank)
            byte = cutlass.select_(missing, Int32(self.form.byte(offsets[number // rows])), byte)
        watch, epoch = self.frame.watch, self.frame.epoch
        report(watch.status, watch.rank, watch.block, self.phase, rank, epoch, byte, waited)

    def fold(self, offsets: Sequence[Any], last: Sequence[list[Any]] = ()) -> list[list[Any]]:
        """For each byte offset the reduction of all rows in their order; last, where given, comes after them."""
        total = self.frame.reduction
        after = [[words] for words in last] or [[] for _ in offsets]
        if self.rows > BATCH:
            pairs = zip(offsets, after, strict=True)
            return [fold_in_batches(self.rows, total, partial(self.batch, at), words) for at, words in pairs]
        taken = self.take(offsets, 0, self.rows)
        return [reduced(total, [*rows, *words]) for rows, words in zip(taken, after, strict=True)]

    def batch(self, at: Any, first: Any, rows: int) -> list[list[Any]]:
        return self.take([at], first, rows)[0]

    def clear(self, units: Any) -> None:
        """Set back what the launch before this one used of its bank: the first units of each row."""
        frame = self.frame
        if not isinstance(self.form, Sentinel) or not frame.choice("clears", True):
            return
        bank, empty = frame.address(self.of) + Int64(self.turn.last_bank) * self.bank_bytes, [self.form.bits] * 2

        def each(offsets: Sequence[Any]) -> None:
            def rows_from(first: Any, rows: int) -> None:
                for row in range(rows):
                    device.store_halves(bank + self.place(offsets[0], first + row), empty)

            in_batches(self.rows, rows_from)

        index, lanes = Int32(frame.index) * UNIT_BYTES, Int32(frame.lanes) * UNIT_BYTES
        each_unit(index, Int32(units) * UNIT_BYTES, lanes, 1, each)


def push(
    message: Message,
    part: tuple[Any, Any],
    place: tuple[Any, Any],
    look_up: Callable[[], Any],
    store: Callable[[Any, Sequence[Any], Any], None],
) -> None:
    """Call store(where, words, byte offset) for each unit in the bytes [begin, end) of a message, by lane index of
    lanes (place); where is what look_up loads.

    A lane's first unit is loaded before anything that its store needs is used: so the loads of the epoch, of peers'
    addresses and of the data are under way together. A branch around them would end that.
    """
    (begin, end), (index, lanes) = ((Int32(one) for one in pair) for pair in (part, place))
    is_whole, first = message.first(begin, end, index)
    where = look_up()

    def each(offsets: Sequence[Any], whole: bool) -> None:
        for at, words in zip(offsets, [message.load(at, whole) for at in offsets], strict=True):
            store(where, words, at)

    when(is_whole, lambda: store(where, first, begin + index * UNIT_BYTES))
    message.units(begin, end, index, lanes, each, after_first=True)


def look(addresses: Sequence[Any]) -> list[Any]:
    """All halves of the slots at addresses."""
    return [half for address in addresses for half in device.load_halves(address)]


PLAIN_LOOKS = 16
"""Looks at data before a wait begins to look at the clock, too: some 5 us, where data among GPUs that are all there
takes 1. Before the clock and the status there was a wait without them, which with patience took 0.07 to 0.12 us less
(2 and 4 H100, 27 November 2026, in CUDA)."""


@cute.jit
def received(
    look: cutlass.Constexpr,
    absent: cutlass.Constexpr,
    watch: cutlass.Constexpr,
    give_up: cutlass.Constexpr,
    agreed: cutlass.Constexpr,
) -> list[cutlass.Int64]:
    """Look until nothing is absent, or patience is over. The first looks do nothing else; without patience, those that
    follow have no state but what is looked at, as in kernels/dsl/rank_barriers.py."""
    halves = look()
    looks = cutlass.Int32(1)
    while absent(halves) & (looks < PLAIN_LOOKS):
        halves = look()
        looks += 1
    if absent(halves):
        halves = wait_long(look, absent, watch, give_up, agreed, halves)
    return halves


@cute.jit
def wait_long(
    look: cutlass.Constexpr,
    absent: cutlass.Constexpr,
    watch: cutlass.Constexpr,
    give_up: cutlass.Constexpr,
    agreed: cutlass.Constexpr,
    seen: list[cutlass.Int64],
) -> list[cutlass.Int64]:
    """Look on, where something of what was seen is absent."""
    patience, status = watch.patience, watch.status
    halves = seen
    waiting = patience == 0
    while waiting:
        halves = look()
        waiting = absent(halves)
    looks = cutlass.Int32(0)
    since = cutlass.Int64(0)
    waited = cutlass.Int64(0)
    while absent(halves) & (waited < patience):
        halves = look()
        looks += 1
        if looks & (LOOK_EVERY - 1) == 0:
            now = device.clock_ns()
            if since == 0:
                since = now
            waited = now - since
            if device.observe(status) != 0:
                waited = patience
            waited = agreed(waited, patience)
    if absent(halves):
        give_up(halves, waited)
    return halves


@cute.jit
def in_batches(count: cutlass.Constexpr, body: cutlass.Constexpr) -> None:
    """Call body(first, number) for 0 to count - 1, up to BATCH numbers at a time: in a loop where they are more."""
    if cutlass.const_expr(count <= BATCH):
        body(0, count)
    else:
        batches = count // BATCH
        for batch in cutlass.range(0, batches, unroll=1):
            body(batch * BATCH, BATCH)
        body(batches * BATCH, count - batches * BATCH)


@cute.jit
def fold_in_batches(
    count: cutlass.Constexpr, total: cutlass.Constexpr, batch: cutlass.Constexpr, last: cutlass.Constexpr
) -> list[cutlass.Int32]:
    """Inbox.fold of one offset over more rows than a batch: a loop over full batches, then the rest."""
    first = batch(0, BATCH)
    state = accumulate(total, total.start(first[0]), first[1:])
    batches = count // BATCH
    for number in cutlass.range(1, batches, unroll=1):
        state = accumulate(total, state, batch(number * BATCH, BATCH))
    rest = batch(batches * BATCH, count - batches * BATCH) if count % BATCH else []
    return total.finish(accumulate(total, state, [*rest, *last]))
