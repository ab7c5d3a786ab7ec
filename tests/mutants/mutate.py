"""Every single weakening of a kernel's PTX: what orders accesses there, made weaker or left out, one place at a time.

A mutant differs from its kernel in one line, which stays a line, so that line numbers and source places are the same.
"""

import linecache
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import kernels

ROOT = Path(kernels.__file__).resolve().parent.parent

FLAGS = re.compile(r"^(?:@!?%\w+\s+)?((?:st|ld|red|atom|multimem|fence)\.[\w.:]+)")
"""An instruction that may have an order and a scope, after its predicate."""

BARRIER = re.compile(r"^(?:@!?%\w+\s+)?((?:bar|barrier)(?:\.cta)?\.(?:sync|arrive|red)[\w.]*)\b")
WAIT = re.compile(r"^(?:@!?%\w+\s+)?(cp\.async\.(?:bulk\.)?wait_(?:group|all)[\w.]*|fence\.proxy[\w.:]*)")
"""Waits for copies, and proxy fences."""

TENSOR_CORES = re.compile(r"^(wgmma\.(?:fence|wait_group)[\w.:]*|mbarrier\.arrive\.shared\.b64)")
"""What orders tensor cores' accesses, and arrivals at mbarriers that CuTe DSL makes."""

OVER = re.compile(r"^(?:\{ \.reg \.pred over; )?(mbarrier\.try_wait[\w.:]*)\s+(\w+), [^;]*;")
"""A wait for an mbarrier: it says by a predicate whether it is over."""

WEAKER = {"acq_rel": ("acquire", "release", "relaxed"), "release": ("relaxed",), "acquire": ("relaxed",)}
"""The orders that are weaker than one."""
NARROWER = {"sys": "gpu", "gpu": "cta"}
DROPPED = "dropped"

_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One weakening.

    line counts from 1. place: the file and the text of the source line that the instruction comes from; it stays while
    lines before it come and go. nth: which of the instructions with this opcode and place it is, in the order of the
    PTX, from 1. change: "release to relaxed", "sys to gpu" or "dropped".
    """

    line: int
    opcode: str
    place: str
    nth: int
    change: str
    text: str

    @property
    def name(self):
        """A name that stays while the instructions before it change."""
        return f"{self.opcode} in {self.place} #{self.nth}: {self.change}"

    def applied(self, ptx):
        """Return the kernel's PTX with this line instead of its own."""
        lines = ptx.split("\n")
        lines[self.line - 1] = self.text
        return "\n".join(lines)


def mutants_of(ptx):
    """Return all mutants of a module, in the order of its lines."""
    files = dict(_FILE.findall(ptx))
    place = ""
    seen = Counter()
    found = []
    for number, line in enumerate(ptx.split("\n"), start=1):
        if loc := _LOC.match(line):
            place = _place(files[loc[1]], int(loc[2]))
        text = line.strip()
        matched = next(filter(None, (one.match(text) for one in (WAIT, FLAGS, BARRIER, TENSOR_CORES, OVER))), None)
        changes = tuple(_changes(text, matched[1])) if matched else ()
        if matched and changes:
            opcode = matched[1]
            seen[opcode, place] += 1
            nth = seen[opcode, place]
            found += [Mutant(number, opcode, place, nth, change, changed) for change, changed in changes]
    return tuple(found)


def _place(file, line):
    return f"{Path(file).name} `{linecache.getline(str(ROOT / file), line).strip()}`"


def _changes(text, opcode):
    """Yield the changes of an instruction with their texts."""
    if BARRIER.match(text) or WAIT.match(text) or TENSOR_CORES.match(text):
        yield DROPPED, f"// {text}"
        return
    if wait := OVER.match(text):
        yield DROPPED, text.replace(wait[0][wait.start(1) :], f"setp.eq.u32 {wait[2]}, 0, 0;")
        return
    words = opcode.split(".")
    if words[0] == "fence":
        yield DROPPED, f"// {text}"
    for word in words:
        for weaker in WEAKER.get(word, ()):
            if not (words[0] == "fence" and weaker == "relaxed"):
                yield f"{word} to {weaker}", _with(text, opcode, word, weaker)
        if word in NARROWER:
            yield f"{word} to {NARROWER[word]}", _with(text, opcode, word, NARROWER[word])


def _with(text, opcode, word, other):
    """The instruction with another word in its opcode."""
    changed = ".".join(other if one == word else one for one in opcode.split("."))
    return text.replace(opcode, changed, 1)
