"""What the race checker finds: two accesses, and what is missing between them."""

from dataclasses import dataclass

SEVERITIES = ("race", "proxy", "formal", "advisory")
"""From the gravest on: a data race; only a proxy fence is missing; formally missing, though the hardware known bypasses
its L1; a declared assumption alone explains it."""

FAILING = frozenset({"race", "proxy"})
"""The severities that fail a test."""


@dataclass(frozen=True, slots=True)
class Access:
    """One side of a finding: the access of the first lane concerned."""

    rank: int
    block: int
    thread: int
    line: int
    """Line of the PTX."""
    source: str
    """`file.py:12`, or "" if the PTX has no line information."""
    text: str
    """The instruction, as the PTX has it."""
    tensor: str
    """Name of the tensor, or "" if unknown."""
    element: int
    """Byte of the tensor: the simulator knows no dtype."""
    proxy: str
    """`generic`, `alias` or `async`."""
    launch: int = 0
    """Number of the launch on its rank; -1 for the host."""
    stream: int | None = None
    """The launch's stream; None for the default one, and for the host."""

    def where(self, names_stream: bool = False) -> str:
        """Return who accessed what, in one phrase. names_stream: name the launch and its stream, too."""
        place = f"byte {self.element} of {self.tensor or 'memory'}"
        line = self.source or f"PTX line {self.line}"
        if self.line <= 0:
            return f"`{self.text}` of {place} by the host of rank {self.rank}"
        stream = "the default stream" if self.stream is None else f"stream {self.stream}"
        launch = f", launch {self.launch} on {stream}" if names_stream else ""
        return (
            f"`{self.text}` ({line}) of {place} by rank {self.rank}{launch}, block {self.block}, thread {self.thread}"
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """Two accesses to the same bytes that nothing orders, at least one of them a write.

    Pairs of the same two instructions are folded.
    """

    severity: str
    missing: str
    """What would order them: "a release", "an acquire", "a wider scope", "fence.proxy.alias", "fence.proxy.async",
    "an event between the streams" or "a barrier"."""
    first: Access
    second: Access
    """In the order of the run."""
    count: int = 1
    """Number of pairs folded into this one."""
    assumption: str = ""
    """Name of the declared assumption that alone explains an advisory."""
    granting: str | None = None
    """Name of an assumption that would explain it, were it declared."""
    order: str | None = None
    """The keys of the order of threads that it was found in; None: that of the world."""

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"severity {self.severity!r} is unknown; severities: {', '.join(SEVERITIES)}")

    @property
    def fails(self) -> bool:
        """Return whether a test with this finding fails."""
        return self.severity in FAILING

    @property
    def pair(self) -> tuple[object, ...]:
        """What tells a finding from others in every order of the same code, whichever access came first."""
        sides = sorted((one.line, one.text, one.tensor, one.proxy) for one in (self.first, self.second))
        return (self.severity, *sides, self.first.rank == self.second.rank, self.first.stream == self.second.stream)

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
