"""Which faults are made: drawn by a seed from the lines that tests run, so that each room has about its share.

A draw is by digests of the seed and of places: more faults of a seed are those that fewer were, and further ones.
"""

import hashlib
from collections import defaultdict

LOUD = {"arguments", "result"}
"""Kinds that mostly raise a TypeError at once, which any test finds."""


def drawn(faults, count, seed):
    """Return count faults of those given, or fewer if there are too few, each of another line, of whose kinds each is
    as likely as the others. LOUD ones are made only where a line has no other, and three of four such lines come last.
    """
    lines = defaultdict(list)
    for one in faults:
        lines[one.path, one.line].append(one)

    def order(place):
        drawn_at = _digest(seed, *place)
        return {one.kind for one in lines[place]} <= LOUD and drawn_at[-1] not in "048c", drawn_at

    found = []
    for path, line in sorted(lines, key=order)[:count]:
        kinds = {one.kind for one in lines[path, line]}
        kind = min(kinds - LOUD or kinds, key=lambda kind: _digest(seed, path, line, kind))
        like = [one for one in lines[path, line] if one.kind == kind]
        found.append(min(like, key=lambda one: _digest(seed, one.name, one.line)))
    return found


def _digest(*parts):
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()
