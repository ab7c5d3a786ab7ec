"""What the race checker finds: two accesses, and what is missing between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cases.documents import LATER

SEVERITIES = ("race", "proxy", "formal", "advisory")
"""From the gravest on: a data race; only a proxy fence is missing; formally missing, though the hardware known bypasses
its L1; a declared assumption alone explains it."""

FAILING = frozenset({"race", "proxy"})
"""The severities with which a case is WRONG."""


@dataclass(frozen=True, slots=True)
class Access:
    """One side of a finding: the access of the first lane concerned.

    line is the PTX line (0 or less: the host), source "file.py:12" ("" if the PTX has no line information), text the
    instruction as the PTX has it. tensor is "" if unknown; element is its byte, for the simulator knows no dtype.
    proxy is "generic", "alias" or "async". launch is the number of the launch on its rank (-1: the host), stream its
    stream (None: the default one, or the host).
    """

    rank: int
    block: int
    thread: int
    line: int
    source: str
    text: str
    tensor: str
    element: int
    proxy: str
    launch: int = 0
    stream: int | None = field(default=None, metadata=LATER)

    def where(self, names_stream: bool = False) -> str:
        """Return who accessed what, in one phrase. names_stream: name the launch and its stream, too."""
        place = f"byte {self.element} of {self.tensor or 'memory'}"
        if self.line <= 0:
            return f"`{self.text}` of {place} by the host of rank {self.rank}"
        line = self.source or f"PTX line {self.line}"
        stream = "the default stream" if self.stream is None else f"stream {self.stream}"
        launch = f", launch {self.launch} on {stream}" if names_stream else ""
        return (
            f"`{self.text}` ({line}) of {place} by rank {self.rank}{launch}, block {self.block}, thread {self.thread}"
        )

    @property
    def instruction(self) -> tuple[int, str, str, str]:
        """What is the same in every run of the same code: the instruction, the tensor and the proxy."""
        return (self.line, self.text, self.tensor, self.proxy)


@dataclass(frozen=True, slots=True)
class Finding:
    """Two accesses to the same bytes that nothing orders, at least one of them a write, in the order of the run.

    count pairs of the same two instructions are folded into one. missing is what would order them: "a release", "an
    acquire", "a wider scope", "fence.proxy.alias", "fence.proxy.async", "an event between the streams" or "a barrier".
    assumption is the named assumption about hardware that alone explains an advisory, granting one that would explain
    it, were it declared. order has the keys of the order of threads that it was found in; None: the case's own.
    """

    severity: str
    missing: str
    first: Access
    second: Access
    count: int = 1
    assumption: str = ""
    granting: str | None = field(default=None, metadata=LATER)
    order: str | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"findings: severity '{self.severity}' is none of {', '.join(SEVERITIES)}")
        if self.count < 1:
            raise ValueError(f"findings: a finding of {self.count} pairs; it has at least one")
        if (self.severity == "advisory") != bool(self.assumption):
            raise ValueError("findings: an advisory names the assumption that explains it, and no other finding does")

    @property
    def fails(self) -> bool:
        """Whether a case with this finding is WRONG."""
        return self.severity in FAILING

    @property
    def accesses(self) -> tuple[object, ...]:
        """What tells a finding from others in every order of the same code, whichever access came first: severity,
        both instructions, and whether one rank made both accesses, on one stream. What is missing depends on which
        came first."""
        sides = sorted((self.first.instruction, self.second.instruction))
        return (self.severity, *sides, self.first.rank == self.second.rank, self.first.stream == self.second.stream)

    @property
    def pair(self) -> tuple[object, ...]:
        """The same, and what is missing: what is equal in every run of the same code in the same order."""
        return (self.missing, *self.accesses)

    def between(self) -> str:
        """Return who makes the two accesses, with launches and streams if one is not on the default stream."""
        names_stream = self.first.stream is not None or self.second.stream is not None
        return f"between {self.first.where(names_stream)} and {self.second.where(names_stream)}"

    def sentence(self) -> str:
        """Return the finding as one sentence."""
        pairs = f" ({self.count} pairs)" if self.count > 1 else ""
        granted = f", which the assumption {self.assumption!r} supplies" if self.assumption else ""
        order = f", with {self.order}" if self.order else ""
        would = f"; the assumption {self.granting!r} would explain it" if self.granting else ""
        return f"{self.severity}: {self.missing} is missing{granted} {self.between()}{pairs}{order}{would}"


def first_failing(findings: Iterable[Finding]) -> Finding | None:
    """Return the first finding that makes a case WRONG, races before proxies; None if there is none."""
    failing = [one for one in findings if one.fails]
    return min(failing, key=lambda one: SEVERITIES.index(one.severity), default=None)


def gravest_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings as records hold them: the gravest first, otherwise in their order."""
    return tuple(sorted(findings, key=lambda one: SEVERITIES.index(one.severity)))


def counts_of(findings: Iterable[Finding]) -> dict[str, int]:
    """Return the number of findings of each severity, all of them, from the gravest on."""
    counts = Counter(one.severity for one in findings)
    return {severity: counts[severity] for severity in SEVERITIES}


def summary_of(findings: Iterable[Finding]) -> str:
    """Return the number of findings by severity in few words: "2 race, 1 formal", or "none"."""
    return ", ".join(f"{count} {severity}" for severity, count in counts_of(findings).items() if count) or "none"


def verdict_of(findings: Sequence[Finding]) -> list[str]:
    """Return what speaks against a case as one sentence, the first finding that fails; none if none does."""
    first = first_failing(findings)
    if first is None:
        return []
    more = sum(one.fails for one in findings) - 1
    return [f"{first.sentence()}{f', and {more} more such findings' if more > 1 else ', and 1 more' if more else ''}"]


def races_text(findings: Sequence[Finding] | None) -> str:
    """Return what a table says of a case: its findings by severity, "none", or "not checked"."""
    return "not checked" if findings is None else summary_of(findings)
