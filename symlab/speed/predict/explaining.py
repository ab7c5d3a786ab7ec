"""symlab predict --explain: the critical path of each predicted case, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path as File

from cases.case import Case
from kernels.spec import KernelSpec
from runner.request.sizes import format_bytes
from simulator.clock.costs import Costs
from simulator.clock.profile import LaunchProfile, Path, Segment
from symlab.speed.predict.profile_cache import runnable_of
from symlab.speed.predict.profiling import DEADLINE_S, clocked, most_whole_bytes, shrunk
from symlab.speed.predict.rates import Known


@dataclass(frozen=True, slots=True)
class Explanation:
    """A case's path by the floors of a type of GPU.

    size_bytes and blocks: what was simulated for it; whole_blocks: of the case itself. gpu: whose floors weigh the
    path. is_timed: whether they are its own; without, the steps have an order and no times. profile: of the launch.
    terms: what the predicted time is the sum of; None without
    a time. The path has steps alone: what links and memory take for all bytes is in the terms.
    """

    case: Case
    size_bytes: int
    blocks: int
    whole_blocks: int
    gpu: str
    is_timed: bool
    profile: LaunchProfile
    terms: dict[str, float] | None = None

    @property
    def path(self) -> Path:
        """The critical path of the launch."""
        return self.profile.path

    @property
    def title(self) -> str:
        """The case, and what was simulated in its place if it is too large."""
        is_whole = (self.size_bytes, self.blocks) == (self.case.size_bytes, self.whole_blocks)
        shown = f"{format_bytes(self.size_bytes)} on {self.blocks} of {self.whole_blocks} blocks"
        case = f"{self.case.name} {format_bytes(self.case.size_bytes)} {self.case.placement}"
        return case if is_whole else f"{case}, shown by {shown}"

    def lines(self) -> Iterator[str]:
        """Yield lines that tell who does what, from when to when, and what it waited for."""
        by = f"by the floors of {self.gpu}" if self.is_timed else f"in order, for {self.gpu} has no floors"
        yield f"\npath of {self.title}, {by}:"
        if not self.is_timed:
            yield f"  steps: {', '.join(f'{count} {kind}' for kind, count in self.path.counts.items())}"
        for number, one in enumerate(self.path.segments, start=1):
            when = f"{one.from_us:8.2f} to {one.to_us:8.2f} us" if self.is_timed else f"{number:4d}."
            yield f"  {when}  {_told(one)}".rstrip()
        if self.terms is not None:
            yield f"  {_sum(self.terms)}"

    def document(self) -> dict[str, object]:
        """Return the same as plain values; from_us and to_us are None for a type without floors."""
        return {
            "size_bytes": self.size_bytes,
            "blocks": self.blocks,
            "whole_blocks": self.whole_blocks,
            "floors_of": self.gpu if self.is_timed else None,
            "terms": self.terms,
            "counts": self.path.counts,
            "steps": [self._step(one) for one in self.path.segments],
        }

    def _step(self, one: Segment) -> dict[str, object]:
        times = (one.from_us, one.to_us) if self.is_timed else (None, None)
        names = ("rank", "block", "warp", "line")
        return {
            "kind": one.kind,
            "from_us": times[0],
            "to_us": times[1],
            **{name: getattr(one, name) for name in names},
            "source": one.source,
            "awaited": None if one.awaited is None else dict(zip(names, one.awaited, strict=True)),
        }


def explained(
    case: Case, spec: KernelSpec, known: Known, cache_dir: File, arch: str, limit_s: float = DEADLINE_S
) -> Explanation:
    """Return a case's path; limit_s: seconds that simulating may take.

    Of a message larger than most_whole_bytes the path is that of the same code with as much for each block on fewer
    blocks, or of a smaller message.
    """
    runnable = runnable_of(case, spec, arch, cache_dir)
    most_bytes = most_whole_bytes(case.world_size)
    size_bytes, blocks = shrunk(case.size_bytes, runnable.blocks, runnable.least_blocks, most_bytes)
    while size_bytes > most_bytes:
        size_bytes //= 2
    is_whole = (size_bytes, blocks) == (case.size_bytes, runnable.blocks)
    costs = Costs.of(dict(known.rates.costs_us))
    simulated = runnable if is_whole else runnable.resized(size_bytes, blocks)
    found = clocked(simulated, costs, limit_s)
    return Explanation(case, size_bytes, blocks, runnable.blocks, known.name, known.is_calibrated, found)


def _told(one: Segment) -> str:
    who = f"rank {one.rank} block {one.block} warp {one.warp}"
    waited = ""
    if one.awaited is not None:
        waited = f"; {_waited(one, one.awaited)}"
    where = f"PTX line {one.line}{f', {one.source}' if one.source else ''}" if one.line else ""
    return f"{one.kind:<18} {who}  {where}{waited}"


def _waited(one: Segment, awaited: tuple[int, int, int, int]) -> str:
    """Whom a step waited for: at a barrier who came last, after its last step; else who stored."""
    rank, block, warp, line = awaited
    if "barrier" not in one.kind:
        return f"rank {rank} block {block} warp {warp} stored at PTX line {line}"
    if (rank, block, warp) == (one.rank, one.block, one.warp):
        return "came last"
    last = f"warp {warp}" if block == one.block else f"block {block} warp {warp}"
    return f"waited for {last}, last at PTX line {line}"


def _sum(terms: dict[str, float]) -> str:
    """The predicted time as a sum of the model's terms (model.py): of traffic and more only the longer counts."""
    of = {name: f"{name.removesuffix('_us')} {value:.2f}" for name, value in terms.items()}
    traffic, more = f"{of['link_us']} + {of['memory_us']}", of["more_us"]
    is_traffic = terms["link_us"] + terms["memory_us"] >= terms["more_us"]
    longer, other = (traffic, more) if is_traffic else (more, traffic)
    return (
        f"predicted: {terms['time_us']:.2f} us = {of['launch_us']} + {of['begin_us']} + {of['least_us']} + {longer} "
        f"(longer than {other}) + {of['cold_us']}"
    )
