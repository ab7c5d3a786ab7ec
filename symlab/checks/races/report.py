"""From pairs of accesses that nothing orders to findings: who, where, and what is missing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np

from cases.finding import Access, Finding
from simulator.happens_before.clocks import (
    BLOCK_SHIFT,
    CODE_MASK,
    COPY_CODE,
    HOST_CODE,
    LOW_MASK,
    RANK_SHIFT,
    STAMP_SHIFT,
    WARP_CODE,
    warps_of_codes,
)
from simulator.happens_before.extras import ALIAS, ASYNC
from simulator.happens_before.running import WARP, Running
from simulator.ptx.ir import Instruction

GENERIC_PROXY, ALIAS_PROXY, ASYNC_PROXY, HOST = range(4)
PROXY_NAMES = ("generic", "alias", "async", "generic")
ASSUMPTIONS = {
    "vector_8": "a vector store of 8 bytes arrives whole: who reads one part of it has the other part, too",
    "vector_16": "a vector store of 16 bytes arrives whole: who reads one part of it has the other parts, too",
    "warp_128": "128 bytes that a warp stores in one instruction arrive whole",
    "gpu_atomics": "an atomic operation of .gpu scope is carried out where the memory is, on whatever GPU",
    "kernel_end": "all that a kernel did is complete, for all GPUs, before the next kernel of its stream",
}
"""What a spec may declare about hardware beyond PTX."""

GPU_SCOPE = 2
"""Info.scope of .gpu."""

SHARED_MEMORY = "shared memory"
_COMPLETIONS = {"wgmma": "wgmma.wait_group", "tcgen05": "a wait for the mbarrier of tcgen05.commit"}
"""What findings name as the tensor of accesses to shared memory."""
NEW_VALUE = "a new value of the flag (an earlier store of the same value ends the wait, too)"
WAIT_WRITTEN = "cp.async.bulk.wait_group without .read"
TENSOR_MAP = ASYNC + 1
"""Of Pair.part: of a tensor map, which copies read by a proxy of its own. No clock has it: see Accesses.fence_maps."""
PROXY_FENCES = {
    ALIAS: "fence.proxy.alias",
    ASYNC: "fence.proxy.async",
    TENSOR_MAP: "fence.proxy.tensormap::generic.acquire",
}
_ONE_SIZE = "one size of both accesses"


@dataclass(frozen=True, slots=True, eq=False)
class Info:
    """The facts about an instruction of a launch that accesses memory. scope: 0 cta to 3 sys. element: bytes of an
    element of a vector, which is an access of its own; 0 of copies."""

    number: int
    launched: Running | None
    instruction: Instruction | None
    is_write: bool
    is_atomic: bool
    is_strong: bool
    releases: bool
    acquires: bool
    scope: int
    proxy: int
    width: int
    text: str
    bypasses_l1: bool = False
    element: int = 0
    is_seen: bool = True
    """Of a load, whether something that it loads decides where a thread goes on: a poll looks at a flag."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions that the kernel declares."""
        return () if self.launched is None else self.launched.launched.assumptions

    @property
    def is_paired(self) -> bool:
        """Whether pairs of blocks carry it out, which use each other's shared memory as their own."""
        return self.instruction is not None and "cta_group::2" in self.instruction.qualifiers

    @property
    def is_by_wgmma(self) -> bool:
        return self.instruction is not None and self.instruction.opcode == "wgmma"

    @property
    def completion(self) -> str:
        """What waits for the results of a product by tensor cores, "" of anything else."""
        return _COMPLETIONS.get(self.instruction.opcode, "") if self.instruction is not None else ""

    @property
    def may_take(self) -> bool:
        """Whether it is a read that may poll: what it takes on the strength of an assumption is kept apart."""
        return self.is_strong and not self.is_write and bool(self.assumptions)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two accesses: epoch and info of the earlier one, actor and info of the later one, and the byte of a tensor."""

    epoch: int
    first: Info
    actor: int
    second: Info
    tensor: str
    byte: int
    part: int
    is_proxy_only: bool
    is_read_first: bool
    is_size_only: bool = False
    """Whether strong accesses overlap in part alone: they would not race if they were of one size."""
    takes: bool = False
    """Whether the read that comes first took data: see Kept."""
    is_late_copy: bool = False
    """Whether the later access is by a copy that was issued before the earlier one."""
    is_coherent: bool = False
    """Whether the later access is a store by the thread that read the value of the earlier one, by a strong load."""
    is_fenced_here: bool = False
    """Whether who makes the later access, a wgmma, fenced the async proxy behind a barrier that the earlier one came
    before, where the thread of the earlier one did not."""
    is_behind: bool = False
    """Whether the earlier launch was over before the later access, if a kernel's end completes what it did."""

    @property
    def is_of_one_rank(self) -> bool:
        return (self.epoch & LOW_MASK) >> RANK_SHIFT == self.actor >> RANK_SHIFT

    @property
    def is_of_one_launch(self) -> bool:
        """Whether both are by launches of one number, each of its rank: else a read that comes first is of a reader
        whose memory a later launch takes too early."""
        runs = (self.first.launched, self.second.launched)
        ranks = ((self.epoch & LOW_MASK) >> RANK_SHIFT, self.actor >> RANK_SHIFT)
        pairs = zip(runs, ranks, strict=True)
        first, second = (-1 if run is None else run.launched.number_on(rank) for run, rank in pairs)
        return first == second

    @property
    def is_poll(self) -> bool:
        """Whether the read that comes first is a poll that saw nothing yet of what the other one stores: strong, of the
        same launch, and no read that took data."""
        return self.is_read_first and self.reaches(self.first) and not self.takes and self.is_of_one_launch

    def reaches(self, one: Info) -> bool:
        """Whether one of the two is strong in a scope that has both: an assumption about how whole an access is says
        nothing of one that need not be seen at all."""
        blocks = {(self.epoch & LOW_MASK) >> BLOCK_SHIFT, self.actor >> BLOCK_SHIFT}
        return one.is_strong and one.scope >= (0 if len(blocks) == 1 else 2 if self.is_of_one_rank else 3)

    @property
    def is_wide_atomic(self) -> bool:
        """Whether both are strong, for a GPU at least, and one is an atomic operation for no more: were it for all
        GPUs, the two would not race."""
        sides = (self.first, self.second)
        strong = all(one.is_strong and one.scope >= GPU_SCOPE and one.proxy != ASYNC_PROXY for one in sides)
        return strong and not self.is_size_only and any(one.is_atomic and one.scope == GPU_SCOPE for one in sides)

    @property
    def is_of_product(self) -> bool:
        """Whether one of the two is by tensor cores: with a copy by another block of the cluster it has the proxy in
        common, and not the block, which PTX asks for as well."""
        return bool(self.first.completion or self.second.completion)

    @property
    def is_of_one_stream(self) -> bool:
        """Whether both are by launches on streams of one name; of a host's accesses, too."""
        runs = (self.first.launched, self.second.launched)
        return len({one.launched.stream for one in runs if one is not None}) < 2


@dataclass(slots=True)
class Watched:
    """What strong reads of an instruction by some lanes saw: epochs of the writes, one an actor, what these released
    (0: nothing), in which scope and when, and when they were read."""

    info: Info
    actors: np.ndarray
    epochs: np.ndarray
    links: np.ndarray
    scopes: np.ndarray
    released: np.ndarray
    stamp: int
    run: Running
    lanes: np.ndarray


@dataclass(slots=True)
class Findings:
    """The findings so far, folded by the two instructions and how their ranks and blocks relate."""

    found: dict[tuple[object, ...], Finding] = field(default_factory=dict)
    watched: dict[tuple[int, int, int], Watched] = field(default_factory=dict)
    of_parts: set[int] = field(default_factory=set)
    """Numbers of infos of which a warp accessed a part of 128 aligned bytes, kept for the assumption warp_128."""
    alike: dict[int, np.ndarray] = field(default_factory=dict)
    """By stamp of strong stores, the actors of those that stored the value that was there: they release nothing."""
    read_alone: set[int] = field(default_factory=set)
    """Numbers of infos of writes by bulk copies of which some thread waited for the reads alone."""

    def add(self, pair: Pair, count: int) -> None:
        """Note `count` pairs alike."""
        places = (_place(pair.first), _place(pair.second), pair.is_of_one_rank, pair.is_of_one_stream)
        assumption = "" if pair.is_proxy_only else self._assumption(pair)
        key = (*places, pair.part, pair.is_proxy_only, pair.tensor, assumption)
        known = self.found.get(key)
        if known is not None:
            self.found[key] = replace(known, count=known.count + count)
            return
        severity, missing = self._judged(pair, assumption)
        first = _access(pair.first, pair.epoch & LOW_MASK, pair)
        second = _access(pair.second, pair.actor, pair)
        granting = self._explaining(pair, ASSUMPTIONS) if severity == "race" else ""
        self.found[key] = Finding(severity, missing, first, second, count, assumption, granting=granting or None)

    def add_unfenced(
        self, first: Info, second: Info, actor: int, place: str, missing: str, severity: str = "formal"
    ) -> None:
        """Note two accesses of tensor cores' registers or memory, which what is missing has to stand between."""
        key = (_place(first), _place(second), missing)
        known = self.found.get(key)
        if known is not None:
            self.found[key] = replace(known, count=known.count + 1)
            return
        pair = Pair(actor, first, actor, second, place, 0, 0, False, False)
        self.found[key] = Finding(severity, missing, _access(first, actor, pair), _access(second, actor, pair))

    def forget(self, settled: int) -> None:
        """Forget what was watched of writes up to a stamp, which everybody knows: they race no more."""
        self.watched = {key: one for key, one in self.watched.items() if one.stamp > settled}
        self.alike = {stamp: actors for stamp, actors in self.alike.items() if stamp > settled}

    def _judged(self, pair: Pair, assumption: str) -> tuple[str, str]:
        """Severity and what is missing. assumption: the one that explains it, or ""."""
        if pair.is_proxy_only:
            missing = PROXY_FENCES[pair.part]
            is_formal = pair.part == ASYNC and pair.is_read_first and pair.tensor != SHARED_MEMORY
            is_formal |= pair.is_fenced_here or (pair.is_of_product and pair.first.proxy == pair.second.proxy)
            return "formal" if is_formal else "proxy", missing
        proxies = (pair.first.proxy, pair.second.proxy)
        if pair.is_size_only:
            missing = _ONE_SIZE
        elif pair.first.is_strong and pair.second.is_strong and ASYNC_PROXY not in proxies:
            missing = "a wider scope"
        else:
            missing = self._missing(pair)
        if assumption:
            return "advisory", missing
        if pair.is_coherent or (missing == "an acquire" and pair.second.bypasses_l1 and not pair.is_read_first):
            return "formal", missing
        return "race", missing

    def _assumption(self, pair: Pair) -> str:
        return self._explaining(pair, set(pair.first.assumptions).intersection(pair.second.assumptions))

    def _explaining(self, pair: Pair, declared: Collection[str]) -> str:
        """Which of some assumptions explains a pair; "" if none does."""
        if "kernel_end" in declared and pair.is_behind:
            return "kernel_end"
        if "gpu_atomics" in declared and pair.is_wide_atomic:
            return "gpu_atomics"
        if not declared or (pair.is_read_first and not pair.is_poll):
            return ""
        read = pair.first if pair.is_read_first else pair.second
        if not read.is_write and not read.is_seen:  # its flag is ignored
            return ""
        both = min(pair.first.width, pair.second.width)
        if "vector_8" in declared and both == 8 and (pair.is_poll or pair.reaches(pair.second)):
            return "vector_8"
        if "vector_16" in declared and both >= 16 and (pair.is_poll or pair.reaches(pair.second)):
            return "vector_16"
        is_whole = self.of_parts.isdisjoint((pair.first.number, pair.second.number))
        if "warp_128" in declared and is_whole and (pair.reaches(pair.second) or pair.reaches(pair.first)):
            return "warp_128"
        return ""

    def _missing(self, pair: Pair) -> str:
        """What the reads of flags on the way lacked; "a barrier" if there is no flag."""
        old = pair.epoch & LOW_MASK
        code = old & CODE_MASK
        if code == COPY_CODE and pair.first.completion:
            return pair.first.completion
        if pair.is_late_copy or code == COPY_CODE:
            copy = pair.second if pair.is_late_copy else pair.first
            return copy.completion or (WAIT_WRITTEN if copy.number in self.read_alone else "a wait for the copy")
        mine = pair.actor
        if old >> BLOCK_SHIFT == mine >> BLOCK_SHIFT:
            return "a barrier"
        found: set[str] = set()
        for is_own in (True, False):  # the reads of the later access's block, then those of all others
            for one in self.watched.values():
                found |= self._lacking(one, pair.epoch, mine, is_own)
            if found:
                break
        order = (NEW_VALUE, "a wider scope", "an acquire", "a release")
        known = next((what for what in order if what in found), "")
        if not known and pair.is_of_one_rank and not pair.is_of_one_stream:
            return "an event between the streams"
        if not known and pair.first.is_strong != pair.second.is_strong:
            return "a release" if pair.second.is_strong else "an acquire"
        return known or "a barrier"

    def _lacking(self, one: Watched, epoch: int, mine: int, is_own: bool) -> set[str]:
        """What reads lacked of writes by the earlier access's block after it, if they are of the later one's block."""
        readers, writers = one.actors >> BLOCK_SHIFT, (one.epochs & LOW_MASK) >> BLOCK_SHIFT
        at = one.epochs >> STAMP_SHIFT >= epoch >> STAMP_SHIFT
        at &= (readers == mine >> BLOCK_SHIFT) == is_own
        direct = at & (writers == (epoch & LOW_MASK) >> BLOCK_SHIFT)
        at = direct if direct.any() or not is_own else at & (writers != readers)
        if not at.any():
            return set()
        if any(epoch & LOW_MASK in self.alike.get(epoch >> STAMP_SHIFT, ()) for epoch in set(one.epochs[at].tolist())):
            return {NEW_VALUE}
        if not (one.links[at] > 0).any():
            return {"a release"}
        acquired, acquired_scopes = one.run.acquires_of(one.lanes[at])
        fenced = acquired > one.stamp
        if not one.info.acquires and not fenced.any():
            return {"an acquire"}
        needed = 3 if (one.epochs[at][0] & LOW_MASK) >> RANK_SHIFT != int(one.actors[at][0]) >> RANK_SHIFT else 2
        scopes = [one.info.scope, *one.scopes[at].tolist()]
        if not one.info.acquires:
            scopes += acquired_scopes.tolist()
        if min(scopes) < needed:
            return {"a wider scope"}
        is_late = (one.released[at] < epoch >> STAMP_SHIFT).any()
        return {"a release"} if is_late else set()


def _place(info: Info) -> object:
    """What accesses that are folded have in common."""
    if info.instruction is None or info.launched is None:
        return info.text
    return info.launched.launched.kernel, info.instruction.line, info.text


def _access(info: Info, actor: int, pair: Pair) -> Access:
    code = actor & CODE_MASK
    thread = code if code < WARP_CODE else max(int(warps_of_codes(np.array([code]))[0][0]), 0) * WARP
    rank, instruction = actor >> RANK_SHIFT, info.instruction
    if instruction is None or info.launched is None or code == HOST_CODE:
        return Access(rank, 0, 0, 0, "", info.text, pair.tensor, pair.byte, "generic", -1)
    source = instruction.source.nearest if instruction.source is not None else ""
    launched = info.launched.launched
    launch = max(launched.number_on(rank), 0)
    block = max(int(info.launched.grid_blocks(np.array([actor]))[0]), 0)
    where = (instruction.line, source, info.text, pair.tensor, pair.byte, PROXY_NAMES[info.proxy])
    return Access(rank, block, thread, *where, launch, launched.stream)
