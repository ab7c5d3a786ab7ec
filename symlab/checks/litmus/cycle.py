"""Why an execution is forbidden: the axiom, and the steps that contradict it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from symlab.checks.litmus.model import Fixed, Orders, Relation, violated


@dataclass(frozen=True, slots=True)
class Violation:
    """An axiom that an execution contradicts, and the steps of the contradiction: (event, relation to the next one).

    The last step leads back to the first event. axioms holds all that the execution contradicts.
    """

    axiom: str
    steps: tuple[tuple[str, str], ...]
    axioms: tuple[str, ...]

    def __str__(self) -> str:
        names = [name for name, _ in self.steps]
        parts = [f"{name} -{relation}-> " for name, relation in self.steps]
        return "".join(parts) + names[0] if names else ""


def violation(
    one: Fixed, found: Orders, from_reads: Relation, coherence: Relation, broken: list[str], names: list[str]
) -> Violation:
    """Return the shortest contradiction of one execution; broken lists its axioms, names its events."""
    batch = Orders(*(getattr(found, name)[None] for name in Orders.__dataclass_fields__))
    pairs = violated(one, batch, from_reads[None], coherence[None])
    graph = _Graph(one, found, from_reads, coherence)
    best: Violation | None = None
    for axiom in broken:
        for first, last in np.argwhere(pairs[axiom][0]):
            steps = graph.steps(axiom, int(first), int(last))
            if best is None or len(steps) < len(best.steps):
                best = Violation(axiom, tuple((names[number], label) for number, label in steps), tuple(broken))
    assert best is not None
    return best


Steps = list[tuple[int, str]]


class _Graph:
    """The relations of one execution, to find paths in."""

    def __init__(self, one: Fixed, found: Orders, from_reads: Relation, coherence: Relation) -> None:
        self.one, self.found = one, found
        self.from_reads, self.coherence = from_reads, coherence
        self.base = {
            "program order": one.program_order,
            "synchronizes": found.synchronizes & ~found.fence_sc,
            "Fence-SC order": found.fence_sc,
            "asynchronous": one.issued,
        }

    def steps(self, axiom: str, first: int, last: int) -> Steps:
        """Return the steps of a contradiction between two events."""
        if axiom == "Causality":
            kind = "read by" if self.found.reads_from[first, last] else "reads before"
            return [(first, kind), *self._causality(last, first)]
        if axiom == "Coherence":
            back = "coherence" if self.coherence[last, first] else "no coherence"
            return [*self._causality(first, last), *([] if first == last else [(last, back)])]
        if axiom == "Fence-SC":
            return [*self._path(self.base, first, last), *([] if first == last else [(last, "Fence-SC order")])]
        if axiom == "Atomicity":
            return self._atomicity(first, last)
        if axiom == "No-Thin-Air":
            return self._path({"read by": self.found.reads_from, "dependency": self.one.dependency}, first, first)
        strong = self.one.morally_strong
        return self._path(
            {
                "read by": self.found.reads_from & strong,
                "coherence": self.coherence & strong,
                "reads before": self.from_reads & strong,
                "program order": self.one.program_order & self.one.same_address,
            },
            first,
            first,
        )

    def _atomicity(self, first: int, last: int) -> Steps:
        if not self.one.update[first, last]:
            return [(first, "reads before"), (last, "read by")]
        strong = self.one.morally_strong
        between = self.from_reads[first] & strong[first] & self.coherence[:, last] & strong[:, last]
        middle = int(np.flatnonzero(between)[0])
        return [(first, "reads before"), (middle, "coherence"), (last, "the same atomic operation")]

    def _causality(self, first: int, last: int) -> Steps:
        """Steps of causality order: perhaps observation first, then base causality."""
        if self.one.is_initial[first]:
            return [(first, "before all threads")]
        if self.found.preserved[first, last]:
            return self._path(self.base, first, last)
        observed = self.found.observation[first] & self.found.preserved[:, last]
        middle = int(np.flatnonzero(observed)[0])
        return [(first, "observed by"), *self._path(self.base, middle, last)]

    def _path(self, relations: dict[str, Relation], first: int, last: int) -> Steps:
        """The shortest path from an event to another, or around to itself, through any of the relations."""
        before: dict[int, tuple[int, str]] = {}
        reached = [first]
        while reached and last not in before:
            following: list[int] = []
            for number in reached:
                for label, relation in relations.items():
                    for other in np.flatnonzero(relation[number]).tolist():
                        if other not in before:
                            before[other] = (number, label)
                            following.append(other)
            reached = following
        steps: Steps = [before[last]]
        while steps[0][0] != first:
            steps.insert(0, before[steps[0][0]])
        return steps
