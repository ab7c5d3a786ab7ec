"""Programs of message passing, drawn from a seed: data, a flag or a chain of flags, and data accessed at the other end.

Every wait is a loop that ends at one value, so that an execution differs from another only in what racing reads
return: that two accesses race is a property of the program, which one run can show.

Each part (release, acquire, scopes, barrier, proxy fences) is as strong as it has to be most of the time, so that about
half of the programs are right, and most others lack one thing.
"""

import random
from dataclasses import dataclass, field

STRONG = 0.85
"""How often a part is as strong as it has to be."""

SCOPES = ("cta", "gpu", "sys")


@dataclass(slots=True)
class _Drawing:
    """A program that is being drawn: where threads run, and their lines."""

    random: random.Random
    places: list[tuple[int, int]]
    code: list[list[str]] = field(default_factory=list)
    memory: list[str] = field(default_factory=list)
    registers: int = 0

    def __post_init__(self):
        self.code = [[] for _ in self.places]

    def often(self, share=STRONG):
        return self.random.random() < share

    def register(self):
        self.registers += 1
        return f"r{self.registers - 1}"

    def scope(self, *threads):
        """The narrowest scope that holds the threads, or, more rarely, any."""
        if not self.often(0.9):
            return self.random.choice(SCOPES)
        places = {self.places[one] for one in threads}
        if len(places) == 1:
            return self.random.choice(SCOPES)
        return self.random.choice(("gpu", "sys")) if len({rank for rank, _ in places}) == 1 else "sys"

    @property
    def ranks(self):
        return max(rank for rank, _ in self.places) + 1

    def text(self, name, condition):
        """The program, in the format of symlab/checks/litmus/README.md."""
        lines = [f"# {name}", f"memory {', '.join(self.memory)}"]
        if "x1" in self.memory:
            lines.append(f"multicast all of {', '.join(one for one in self.memory if one.startswith('x'))}")
        for number, ((rank, block), code) in enumerate(zip(self.places, self.code, strict=True)):
            lines.append(f"thread T{number} on rank {rank} block {block}")
            lines += [one if one.endswith(":") else f"    {one}" for one in code]
        return "\n".join([*lines, condition, ""])


def message(seed):
    """Return the text of the program of a seed."""
    drawn = random.Random(seed)
    shape = drawn.choice(tuple(SHAPES))
    return SHAPES[shape](drawn).replace("# ", f"# {seed}: {shape}, ", 1)


def _places(drawn, threads, blocks=2):
    """Places on up to three ranks, numbered without gaps in the order of the threads, mostly on ranks of their own."""
    ranks = []
    places = []
    for _ in range(threads):
        fresh = len(ranks)
        rank = fresh if fresh < 3 and drawn.random() < 0.6 else drawn.choice(ranks or [0])
        ranks += [rank] * (rank == fresh)
        places.append((rank, drawn.randrange(blocks)))
    return places


def _send(one, thread, flag, value, others, added=0.0):
    """Tell others: a store of the value, or, in this share of the programs, an addition of 1, that releases."""
    is_added = one.often(added) if 0 < added < 1 else added
    scope = one.scope(thread, *others)
    code = one.code[thread]
    is_released = one.often()
    by_fence = one.often(0.3)
    if by_fence and is_released:
        code.append(f"fence.{one.random.choice(('acq_rel', 'sc', 'release'))}.{one.scope(thread, *others)}")
    elif by_fence:
        code.append(f"fence.acquire.{scope}")
    order = "release" if is_released and not by_fence else "relaxed"
    if is_added:
        if one.often(0.5):
            code.append(f"red.{order}.{scope}.add [{flag}], 1")
        else:
            order = "acq_rel" if order == "release" and one.often(0.5) else order
            code.append(f"atom.{order}.{scope}.add {one.register()}, [{flag}], 1")
        return
    if order == "relaxed" and one.often(0.2):
        code.append(f"st.volatile [{flag}], {value}")
    elif one.often(0.8):
        code.append(f"st.{order}.{scope} [{flag}], {value}")
    else:
        code.append(f"atom.{order}.{scope}.exch {one.register()}, [{flag}], {value}")


def _wait(one, thread, flag, value, others):
    """Wait for a value, and acquire."""
    scope = one.scope(thread, *others)
    code = one.code[thread]
    register = one.register()
    is_acquired = one.often()
    by_fence = one.often(0.3)
    order = "acquire" if is_acquired and not by_fence else "relaxed"
    code.append(f"again{len(code)}:")
    label = code[-1].rstrip(":")
    if order == "relaxed" and one.often(0.2):
        code.append(f"ld.volatile {register}, [{flag}]")
    elif one.often(0.85):
        code.append(f"ld.{order}.{scope} {register}, [{flag}]")
    else:
        code.append(f"atom.{order}.{scope}.cas {register}, [{flag}], {value}, {value}")
    code.append(f"bra {label} if {register} != {value}")
    if by_fence and is_acquired:
        code.append(f"fence.{one.random.choice(('acq_rel', 'sc', 'acquire'))}.{one.scope(thread, *others)}")
    elif by_fence:
        code.append(f"fence.release.{scope}")


@dataclass(slots=True)
class _Data:
    """The accesses of the data at the two ends, of which one at least is a store, and the condition on them.

    form: "weak", "relaxed" (with the scope), or which of the two accesses is at the multicast address; then there is an
    alias fence on one side, most of the time. kinds: of the two accesses, where both are ordinary ones.
    """

    one: _Drawing
    first: int
    last: int
    form: str = ""
    kinds: tuple[str, str] = ("st", "ld")
    fenced: str = ""
    condition: str = ""

    def __post_init__(self):
        one = self.one
        forms = ("weak",) * 6 + ("relaxed",) + (("multicast store", "multicast load") if one.ranks > 1 else ())
        self.form = one.random.choice(forms)
        if "multicast" in self.form:
            self.fenced = one.random.choice(("before", "after")) if one.often() else ""
            one.memory += [f"x{rank}" for rank in range(one.ranks)]
            return
        one.memory.append("x0")
        self.form = "weak" if self.form == "weak" else f"relaxed.{one.scope(self.first, self.last)}"
        self.kinds = one.random.choice((("st", "ld"), ("st", "ld"), ("st", "ld"), ("ld", "st"), ("st", "st")))
        self.condition = "always x0 == 2"

    def write(self):
        """The access before the flag."""
        self._access(self.first, self.kinds[0], 1, "multicast store")
        if self.fenced == "before":
            self.one.code[self.first].append("fence.proxy.alias")

    def read(self):
        """The access after the wait."""
        if self.fenced == "after":
            self.one.code[self.last].append("fence.proxy.alias")
        self._access(self.last, self.kinds[1], 2, "multicast load")

    def _access(self, thread, kind, value, at_all):
        code = self.one.code[thread]
        order, at = self.form, "x0"
        if "multicast" in self.form:
            order, at = "weak", f"x{self.one.places[thread][0]}"
        if kind == "st":
            code.append(f"multimem.st.weak [all], {value}" if self.form == at_all else f"st.{order} [{at}], {value}")
            return
        register = self.one.register()
        load = (
            f"multimem.ld_reduce.weak.add {register}, [all]"
            if self.form == at_all
            else f"ld.{order} {register}, [{at}]"
        )
        code.append(load)
        self.condition = f"always T{thread}.{register} == {int(thread == self.last)}"


def _told(title, *steps, threads=2, places=_places):
    """The shape in which the first thread writes the data, each step adds to the program, and the last one reads them."""

    def shape(drawn):
        one = _Drawing(drawn, places(drawn, threads))
        data = _Data(one, 0, threads - 1)
        one.memory += dict.fromkeys(given[1] for step, *given in steps if step is _send)
        data.write()
        for step, *given in steps:
            step(one, *given)
        data.read()
        return one.text(title, data.condition)

    return shape


def _changed(one):
    """The second thread changes the flag from 1 to 2 by an atomic operation."""
    order = one.random.choice(("relaxed", "relaxed", "release", "acquire", "acq_rel"))
    scope = one.scope(0, 1, 2)
    register = one.register()
    one.code[1] += ["again0:", f"atom.{order}.{scope}.cas {register}, [flag], 1, 2", f"bra again0 if {register} != 1"]


def _barrier(one, *threads):
    """A barrier of the threads, most of the time."""
    if one.often(0.9):
        for thread in threads:
            one.code[thread].append("bar.sync 0")


def _in_blocks(drawn, threads):
    """Places of two threads in a block, and of two in another."""
    first, last = (drawn.randrange(2), 0), (drawn.randrange(2), 1)
    ranks = sorted({first[0], last[0]})
    return [(ranks.index(rank), block) for rank, block in (first, first, last, last)][:threads]


def _bulk(drawn):
    """A tile is written, copied in bulk, and told to another thread once the copy is done."""
    one = _Drawing(drawn, _places(drawn, 2))
    one.memory += ["tile", "x0", "flag"]
    code = one.code[0]
    code.append("st.weak [tile], 1")
    if one.often():
        code.append("fence.proxy.async")
    code += ["cp.async.bulk [x0], [tile], 4", "cp.async.bulk.commit_group"]
    if one.often(0.7):
        code.append("cp.async.bulk.wait_group 0")
    elif one.often(0.5):
        code.append("cp.async.bulk.wait_group.read 0")
    _send(one, 0, "flag", 1, (1,))
    _wait(one, 1, "flag", 1, (0,))
    register = one.register()
    one.code[1].append(f"ld.weak {register}, [x0]")
    return one.text("a bulk copy", f"always T1.{register} == 1")


SHAPES = {
    "pair": _told("one tells another", (_send, 0, "flag", 1, (1,)), (_wait, 1, "flag", 1, (0,))),
    "relay": _told(
        "one tells a second, and that a third",
        *((_send, 0, "flag", 1, (1,)), (_wait, 1, "flag", 1, (0,))),
        *((_send, 1, "next", 1, (2,)), (_wait, 2, "next", 1, (1,))),
        threads=3,
    ),
    "chain": _told(
        "a flag that an atomic operation changes on the way",
        *((_send, 0, "flag", 1, (1, 2), 0.5), (_changed,), (_wait, 2, "flag", 2, (0, 1))),
        threads=3,
    ),
    "count": _told(
        "two add to a count",
        *((_send, 0, "flag", 1, (1, 2), 1), (_send, 1, "flag", 1, (0, 2), 1), (_wait, 2, "flag", 2, (0, 1))),
        threads=3,
    ),
    "block": _told(
        "threads that signal for their blocks",
        *((_barrier, 0, 1), (_send, 1, "flag", 1, (2,)), (_wait, 2, "flag", 1, (1,)), (_barrier, 2, 3)),
        threads=4,
        places=_in_blocks,
    ),
    "bulk": _bulk,
}
"""The shapes by name: how to draw a program of each. In "count", the data are of one of the two that add."""
