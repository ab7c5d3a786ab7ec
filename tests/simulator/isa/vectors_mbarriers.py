"""Vectors of mbarrier: drawn programs of arrivals, bytes and waits, against a model of the PTX ISA's text in Python.

Each thread makes an object of its own, runs the program on it and takes it away again. What waits and pending_count
answer is folded into one number. A drawn program does nothing that the PTX ISA leaves undefined.
"""

import random
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from tests.simulator.bench import SAMPLES, Vector

SHARED = "  .shared .align 8 .b8 mbarriers[1024];\n"
REGISTERS = ".reg .b32 t, m; .reg .b64 mg, s0, s1, s2; .reg .pred p;"
PLACE = (
    "mov.u32 t, %tid.x; mov.u32 m, mbarriers; mad.lo.u32 m, t, 8, m; cvt.u64.u32 mg, m; cvta.shared.u64 mg, mg; "
    "mov.u32 d, 0; "
)
HERE = ("", "shared", "shared::cta")
ANYWHERE = (*HERE, "shared::cluster")
ARRIVES = ("arrive", "arrive_drop")
STEPS = 7


def dotted(*words):
    return ".".join(word for word in words if word)


def keys():
    """Every form, as the table spells it before it sorts."""
    for space in HERE:
        yield from (dotted("mbarrier", word, space, "b64") for word in ("init", "inval"))
        yield from (dotted("mbarrier", word, "noComplete", space, "b64") for word in ARRIVES)
        for word, parity in product(("test_wait", "try_wait"), ("", "parity")):
            yield dotted("mbarrier", word, parity, space, "b64")
    for space in ANYWHERE:
        yield from (dotted("mbarrier", word, space, "b64") for word in ("expect_tx", "complete_tx"))
        yield from (dotted("mbarrier", word, more, space, "b64") for word in ARRIVES for more in ("", "expect_tx"))
    yield "mbarrier.pending_count.b64"


@dataclass(slots=True)
class Model:
    """An mbarrier by the PTX ISA: expected and pending arrivals, transaction count, number of the phase."""

    expected: int
    pending: int = 0
    bytes_due: int = 0
    phase: int = 0

    def __post_init__(self):
        self.pending = self.expected

    def counted(self, arrivals, size):
        """Arrivals and bytes (announced: positive) count; the phase ends when nothing more is to come."""
        self.pending -= arrivals
        self.bytes_due += size
        ends = self.pending == 0 and self.bytes_due == 0
        if ends and (arrivals or size < 0):
            self.phase, self.pending = self.phase + 1, self.expected


@dataclass(slots=True)
class Program:
    """A drawn program: its text so far, and the answer that it has to give."""

    rng: random.Random
    key: str
    model: Model
    lines: list[str] = field(default_factory=list)
    answer: int = 0
    states: dict[str, int] = field(default_factory=dict)  # register: the phase that it names

    def place(self, space):
        return "[m]" if space else "[mg]"

    def answered(self, value, register):
        self.answer = (self.answer * 5 + value) & 0xFFFFFFFF
        self.lines.append(f"mad.lo.u32 d, d, 5, {register};")

    def order(self, *words):
        scopes = ("cta",) if words == ("release",) else ("cta", "cluster")
        return self.rng.choice(["", *(f"{word}.{scope}" for word in words for scope in scopes)])

    def space(self, among):
        return self.rng.choice(among)

    def state(self, space):
        """A register for an arrival's state, or the sink."""
        chosen = "_" if space == "shared::cluster" else self.rng.choice(["_", "s0", "s1", "s2"])
        if chosen != "_":
            self.states[chosen] = self.model.phase
        return chosen

    def arrive(self, word, more, space):
        model = self.model
        room = model.pending - (more == "noComplete" and model.bytes_due == 0)
        if room < 1 or (word == "arrive_drop" and model.expected < 3):
            return
        count = 1 if more == "expect_tx" else self.rng.randint(1, min(room, 3, model.expected - 1))
        before, state = model.pending, self.state(space)
        order = self.order("release") if more == "noComplete" else self.order("release", "relaxed")
        size = self.rng.choice([16, 48]) if more == "expect_tx" else 0
        given = f", {size}" if size else f", {count}" if count > 1 or more or self.rng.random() < 0.5 else ""
        name = dotted("mbarrier", word, more, order, space, "b64")
        self.lines.append(f"{name} {state}, {self.place(space)}{given};")
        model.expected -= count if word == "arrive_drop" else 0
        model.counted(0, size)
        model.counted(count, 0)
        if more == "noComplete" and state != "_":
            self.lines.append(f"mbarrier.pending_count.b64 t, {state};")
            self.answered(before, "t")

    def bytes(self, word, space):
        size = self.rng.choice([16, 32, 64])
        name = dotted("mbarrier", word, self.order("relaxed"), space, "b64")
        self.lines.append(f"{name} {self.place(space)}, {size};")
        self.model.counted(0, size if word == "expect_tx" else -size)

    def wait(self, word, parity, space):
        known = [name for name, phase in self.states.items() if phase >= self.model.phase - 1]
        if not parity and not known:
            return
        limit = ", 100" if word == "try_wait" and self.rng.random() < 0.5 else ""
        if parity:
            asked = self.rng.randint(0, 1)
            passed = self.model.phase % 2 != asked
        else:
            asked = self.rng.choice(known)
            passed = self.states[asked] < self.model.phase
        name = dotted("mbarrier", word, parity, self.order("acquire", "relaxed"), space, "b64")
        self.lines.append(f"{name} p, {self.place(space)}, {asked}{limit}; selp.b32 t, 1, 0, p;")
        self.answered(int(passed), "t")

    def draw(self, name):
        """One step of a form, where it is defined now."""
        _, word, *rest = name.split(".")
        space = next((one for one in rest if one.startswith("shared")), "")
        more = next((one for one in rest if one in ("noComplete", "expect_tx", "parity")), "")
        if word in ARRIVES:
            self.arrive(word, more, space)
        elif word in ("expect_tx", "complete_tx"):
            self.bytes(word, space)
        elif word in ("test_wait", "try_wait"):
            self.wait(word, more, space)
        elif word == "pending_count":
            self.arrive("arrive", "noComplete", space)
        elif word in ("init", "inval"):
            self.again(space)

    def again(self, space):
        """Take the object away, and make another one in its place."""
        self.lines.append(f"{dotted('mbarrier.inval', space, 'b64')} {self.place(space)};")
        self.model, self.states = Model(self.rng.randint(2, 5)), {}
        self.lines.append(f"{dotted('mbarrier.init', space, 'b64')} {self.place(space)}, {self.model.expected};")


def drawn(key, forms, seed):
    """A program with the form somewhere in the middle, and waits by parity at the end."""
    rng = random.Random(f"{key} {seed}")
    program = Program(rng, key, Model(rng.randint(2, 6)))
    program.lines.append(f"mbarrier.init.shared::cta.b64 [m], {program.model.expected};")
    for step in range(40):
        program.draw(rng.choice(forms) if rng.random() < 0.6 else key)
        if step >= STEPS and any(written(line) == key for line in program.lines):
            break
    program.wait("test_wait", "parity", "shared")
    program.wait("try_wait", "parity", "")
    program.lines.append("mbarrier.inval.shared::cta.b64 [m];")
    expected = np.full(SAMPLES, program.answer, np.uint32)
    text = PLACE + " ".join(program.lines)
    return Vector(key, f"drawn_{seed}", text, (), (("d", "b32", expected),), {}, {}, REGISTERS)


def written(line):
    """The form of a line, without order and scope."""
    words = line.split()[0].split(".")
    return ".".join(word for word in words if word not in ("release", "relaxed", "acquire", "cta", "cluster"))


def family():
    forms = list(keys())
    return [drawn(key, forms, seed) for key in forms for seed in range(2)]
