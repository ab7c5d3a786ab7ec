"""What a wait that gave up says: the words of the workspace "status", and their meaning in a sentence.

The first thread of a rank whose wait for another rank lasts longer than `patience` fills them in
(kernels/dsl/rank_barriers.py); no later one overwrites them, and no kernel resets them. All are int32.
"""

from __future__ import annotations

from collections.abc import Sequence

STATUS_WORDS = 9
"""Words of the workspace: state, rank, block, phase, peer, expected, seen, nanoseconds waited (lower half, upper).

expected is an epoch; seen is what the flag held instead, or for DATA and RESULT the first byte that was not there.
"""

NOTHING, CLAIMED, COMPLETE = 0, 1, 2
"""The state: no thread gave up; one did and is writing; all other words are written."""

PHASES = ("entry barrier", "exit barrier", "middle barrier", "data of a peer", "result of a peer", "tiles of a peer")
ENTRY, EXIT, MIDDLE, DATA, RESULT, TILES = range(len(PHASES))
"""DATA and RESULT are waits without a flag, for what a peer stores into an inbox (kernels/dsl/inbox.py)."""

ALL_RANKS = -1
"""As the peer waited for: a barrier through the switch counts arrivals, and can't tell whose are missing."""


def describe(words: Sequence[int], of_rank: int) -> str:
    """Return a sentence about a wait that gave up, which names the rank; "" if none did.

    words: STATUS_WORDS integers as the kernel left them on rank of_rank. Raises ValueError if they are not a report.
    """
    if len(words) != STATUS_WORDS:
        raise ValueError(f"a status has {STATUS_WORDS} words, not {len(words)}")
    state, rank, block, phase, peer, expected, seen, lower, upper = words
    if state == NOTHING:
        return ""
    if state == CLAIMED:
        return f"rank {of_rank}: a wait for another rank gave up, and the kernel had not finished its report"
    if state != COMPLETE or not 0 <= phase < len(PHASES):
        raise ValueError(f"the status words are overwritten: {', '.join(map(str, words))}")
    waited_ms = (upper << 32 | lower & 0xFFFFFFFF) // 1_000_000
    where = f"rank {rank}, block {block}: {PHASES[phase]}: waited {_duration(waited_ms)} for"
    if peer == ALL_RANKS:
        return f"{where} all ranks: expected {expected} arrivals, saw {seen}"
    if phase in (DATA, RESULT):
        return f"{where} rank {peer}: epoch {expected}, nothing at byte {seen}"
    return f"{where} rank {peer}: expected epoch {expected}, saw {seen}"


def _duration(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f"{milliseconds} ms"
