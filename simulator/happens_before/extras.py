"""What rows of clocks know beyond their slots: of single lanes and warps, and of mbarriers.

Most rows that know something beyond are never asked for it: their slots catch up at the next bar.sync. So nothing is
merged when rows are joined. A row has a node of a graph; an edge leads to a node whose facts it knows as well, and a
question walks the graph. A node goes once the slots of its row say all that it could (trim), and a launch's end makes
one node of what is left (flatten).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
GENERIC, ALIAS, ASYNC, FAR = range(4)
"""Parts of knowledge: by the generic proxy; by other addresses; by the async proxy, of the own block's threads each of
its own fence, and of other blocks' accesses, which have no slots of their own here."""
SAME, NOT_ASYNC, ALL, FENCED = 0, 1, 2, 2
"""What an edge hands on: each part to itself; all but ASYNC and FAR; GENERIC to all parts; and FENCED + part: each part
to itself, GENERIC to this part as well, where a fence of the async proxy is FENCED + FAR."""
PART_SHIFT = 44
_KEY_MASK = (1 << PART_SHIFT) - 1
_FIRST = 256
_MOST_NODES = 1 << 16
_MOST_STEPS = 64
"""A walk that is longer ends with a dictionary of all that the node knows, which the next question finds."""
_MANY, _STEPS, _MOST_TOGETHER = 8, 16, 1 << 20
"""Limits of a common walk: questions of an event, steps, places at once."""


class Extras:
    """The graph. of_row: by row its node, 0: none; until: by node, the latest stamp of all its facts.

    Edges and facts of node n are those from starts[n] to starts[n + 1]; a fact is a key with its part, and a stamp.
    """

    def __init__(self, rows: int) -> None:
        self.of_row: Numbers = np.zeros(rows, np.int64)
        self.count = 1
        self.until: Numbers = np.zeros(_FIRST, np.int64)
        self.edges = Ragged()
        self.facts = Ragged()
        self.limit = _MOST_NODES
        self._dictionaries: dict[tuple[int, int], dict[int, int]] = {}

    # Making

    def derive(self, rows: Numbers, owners: Numbers, parents: Numbers, how: Numbers | int) -> None:
        """Let rows know what nodes know: rows[owners[i]] what parents[i] does, as how says; 0: nothing."""
        self.of_row[rows] = 0
        some = np.flatnonzero(parents)
        if not len(some):
            return
        keys = owners << 40 | parents << 4 | how
        keys = np.unique(keys[some])
        owners, parents, hows = keys >> 40, keys >> 4 & (1 << 36) - 1, keys & 15
        counts = np.bincount(owners, minlength=len(rows))
        is_alone = (counts[owners] == 1) & (hows == SAME)
        self.of_row[rows[owners[is_alone]]] = parents[is_alone]
        left = ~is_alone
        if left.any():
            owners, parents, hows = owners[left], parents[left], hows[left]
            starts = np.flatnonzero(np.concatenate([[True], owners[1:] != owners[:-1]]))
            until = np.maximum.reduceat(self.until[parents], starts)
            nodes = self._made(until)
            self.edges.add(nodes, np.diff(np.append(starts, len(owners))), parents, hows)
            self.facts.add(nodes, np.zeros(len(nodes), np.int64))
            self.of_row[rows[owners[starts]]] = nodes

    def add(self, rows: Numbers, part: int, keys: Numbers, stamps: Numbers) -> None:
        """Let rows that are being made know each an actor or an mbarrier up to a stamp."""
        if not len(rows):
            return
        order = np.argsort(rows, kind="stable")
        rows, keys, stamps = rows[order], keys[order], np.broadcast_to(stamps, rows.shape)[order]
        starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
        owners, counts = rows[starts], np.diff(np.append(starts, len(rows)))
        old = self.of_row[owners]
        nodes = self._made(np.maximum(self.until[old], np.maximum.reduceat(stamps, starts)))
        self.edges.add(nodes, (old > 0).astype(np.int64), old[old > 0], np.zeros(int((old > 0).sum()), np.int64))
        self.facts.add(nodes, counts, keys | part << PART_SHIFT, stamps)
        self.of_row[owners] = nodes

    def _made(self, until: Numbers) -> Numbers:
        end = self.count + len(until)
        if end > len(self.until):
            self.until = np.concatenate([self.until, np.zeros(max(end, len(self.until)), np.int64)])
        self.until[self.count : end] = until
        nodes = np.arange(self.count, end)
        self.count = end
        return nodes

    # Leaving out

    def trim(self, rows: Numbers, floors: Numbers) -> None:
        """Drop the nodes of rows that know everything up to their floors, where no fact is later."""
        nodes = self.of_row[rows]
        self.of_row[rows[self.until[nodes] <= floors]] = 0

    def facts_of(self, row: int) -> tuple[Numbers, Numbers]:
        """Return the keys of what a row knows in part GENERIC, and stamps; a key may come more than once."""
        nodes = self._reachable(self.of_row[row : row + 1])
        keys, stamps = self.facts.of(nodes)
        generic = keys >> PART_SHIFT == GENERIC
        return keys[generic], stamps[generic]

    def _reachable(self, front: Numbers) -> Numbers:
        is_live = np.zeros(self.count, np.bool_)
        front = np.unique(front[front > 0])
        while len(front):
            is_live[front] = True
            parents = np.unique(self.edges.of(front)[0])
            front = parents[~is_live[parents]]
        return np.flatnonzero(is_live)

    def collect(self, rows: Numbers) -> None:
        """Keep what these rows know, if there is much."""
        if self.count < self.limit:
            return
        live = self._reachable(self.of_row[rows])
        numbers = np.zeros(self.count, np.int64)
        numbers[live] = np.arange(1, len(live) + 1)
        edges, facts = Ragged(), Ragged()
        parents, hows = self.edges.of(live)
        edges.add(numbers[live], self.edges.counts(live), numbers[parents], hows)
        facts.add(numbers[live], self.facts.counts(live), *self.facts.of(live))
        until, self.count = self.until[live], 1
        self._made(until)
        self.edges, self.facts, self._dictionaries = edges, facts, {}
        kept = self.of_row[rows]
        self.of_row[:] = 0
        self.of_row[rows] = numbers[kept]
        self.limit = max(_MOST_NODES, 2 * self.count)

    # Questions

    def known(self, rows: Numbers, part: int, keys: Numbers, others: Numbers, least: Numbers) -> Mask:
        """Return for each row whether it knows a key, or the other one, up to a stamp."""
        found = np.zeros(len(rows), np.bool_)
        nodes = self.of_row[rows]
        left = np.flatnonzero(self.until[nodes] >= least)
        if len(left) >= _MANY:
            found[left], is_open = self._walk(nodes[left], part, keys[left], others[left], least[left])
            left = left[is_open]
        for one in left.tolist():
            asked = (int(keys[one]), int(others[one]))
            found[one] = self._search(int(nodes[one]), part, asked, int(least[one]))
        return found

    def _walk(self, nodes: Numbers, part: int, keys: Numbers, others: Numbers, least: Numbers) -> tuple[Mask, Mask]:
        """Walk some steps from nodes, all questions together. Return which know, and which are open."""
        found, is_open = np.zeros((2, len(nodes)), np.bool_)
        asked, at, parts = np.arange(len(nodes)), nodes, np.full(len(nodes), part)
        for _ in range(_STEPS):
            here = np.repeat(asked, self.facts.counts(at))
            facts, stamps = self.facts.of(at)
            key = facts - (np.repeat(parts, self.facts.counts(at)) << PART_SHIFT)
            found[here[((key == keys[here]) | (key == others[here])) & (stamps >= least[here])]] = True
            asked, parts = (np.repeat(one, self.edges.counts(at)) for one in (asked, parts))
            parents, hows = self.edges.of(at)
            all_on = (hows == ALL) | (hows == FENCED + parts)
            same_on = (hows != ALL) & ~((hows == NOT_ASYNC) & (parts >= ASYNC))
            asked = np.concatenate([asked[all_on], asked[same_on]])
            at = np.concatenate([parents[all_on], parents[same_on]])
            parts = np.concatenate([np.full(int(all_on.sum()), GENERIC), parts[same_on]])
            left = ~found[asked] & (self.until[at] >= least[asked])
            together = np.unique(asked[left] << 38 | at[left] << 2 | parts[left])
            asked, at, parts = together >> 38, together >> 2 & (1 << 36) - 1, together & 3
            if not len(at) or len(at) > _MOST_TOGETHER:
                break
        is_open[asked] = True
        return found, is_open

    def _search(self, node: int, part: int, keys: tuple[int, int], least: int) -> bool:
        stack, seen = [(node, part)], set[tuple[int, int]]()
        while stack:
            at = stack.pop()
            if at in seen or int(self.until[at[0]]) < least:
                continue
            seen.add(at)
            known = self._dictionaries.get(at)
            if known is None and len(seen) > _MOST_STEPS:
                known = self._dictionaries[node, part] = self._all(node, part)
                return max(known.get(key, -1) for key in keys) >= least
            if known is not None:
                if max(known.get(key, -1) for key in keys) >= least:
                    return True
                continue
            own, following = self._node(*at)
            if any(key in keys and stamp >= least for key, stamp in own):
                return True
            stack += following
        return False

    def _node(self, node: int, part: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """The facts of a node in a part, and the nodes and parts that hand more on."""
        one = np.array([node])
        keys, stamps = self.facts.of(one)
        own = [
            (key & _KEY_MASK, stamp)
            for key, stamp in zip(keys.tolist(), stamps.tolist(), strict=True)
            if key >> PART_SHIFT == part
        ]
        following: list[tuple[int, int]] = []
        parents, hows = self.edges.of(one)
        for parent, how in zip(parents.tolist(), hows.tolist(), strict=True):
            if how == ALL or how == FENCED + part:
                following.append((parent, GENERIC))
            if how != ALL and not (how == NOT_ASYNC and part >= ASYNC):
                following.append((parent, part))
        return own, following

    def _all(self, node: int, part: int) -> dict[int, int]:
        """All that a node knows in a part."""
        known: dict[int, int] = {}
        stack, seen = [(node, part)], set[tuple[int, int]]()
        while stack:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            own, following = self._node(*at)
            before = self._dictionaries.get(at)
            if before is not None:
                own, following = list(before.items()), []
            for key, stamp in own:
                if known.get(key, -1) < stamp:
                    known[key] = stamp
            stack += following
        return known


class Ragged:
    """Two columns of numbers, of which each node, in their order from 1 on, has some."""

    def __init__(self) -> None:
        self.starts: Numbers = np.zeros(_FIRST, np.int64)
        self.table: Numbers = np.zeros((2, _FIRST), np.int64)

    def add(self, nodes: Numbers, counts: Numbers, *columns: Numbers) -> None:
        """Add what the next nodes have."""
        if not len(nodes):
            return
        first, last = int(nodes[0]), int(nodes[-1])
        if last + 1 >= len(self.starts):
            self.starts = np.concatenate([self.starts, np.zeros(max(last, len(self.starts)), np.int64)])
        low = int(self.starts[first])
        ends = low + np.cumsum(counts)
        self.starts[first + 1 : last + 2] = ends
        high = int(ends[-1])
        if high > self.table.shape[1]:
            more = np.zeros((2, max(high, self.table.shape[1])), np.int64)
            self.table = np.concatenate([self.table, more], axis=1)
        for row, column in enumerate(columns):
            self.table[row, low:high] = column

    def counts(self, nodes: Numbers) -> Numbers:
        """Return how many each node has."""
        found: Numbers = self.starts[nodes + 1] - self.starts[nodes]
        return found

    def of(self, nodes: Numbers) -> tuple[Numbers, Numbers]:
        """Return all that nodes have, one after another."""
        counts = self.counts(nodes)
        ends = np.cumsum(counts)
        at = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(self.starts[nodes] - (ends - counts), counts)
        return self.table[0, at], self.table[1, at]
