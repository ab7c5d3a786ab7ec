"""Successive halving on a bench with known times: what it finds, what failures cost, and going on after an end."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from cases.case import Case
from kernels.catalogue import find, tuning_of
from kernels.tuned_name import base_of, has_tuning, step_of
from memory.fabric import Traits
from symlab.speed.tune.candidates import MOST_LOADS, Candidates
from symlab.speed.tune.search import FINALISTS, SAMPLES, BenchFailure, Measured, NothingPassed, Search

BASE = Case("all_reduce", "best", "bfloat16", "float32", "sum", 1 << 20, 2)
TRAITS = Traits("invented", "sm_90a", 2, 1 << 40, multicast=False)
ALGORITHMS = ("one_shot", "two_shot", "lamport")


def true_us(name):
    """An invented time: two_shot, pushed, with 512 threads, 32 blocks and 4 loads is quickest at 10 us."""
    step = step_of(name) if "@" in name else tuning_of(f"all_reduce/{name}").step(BASE)
    off = [abs(step.threads - 512) / 61, abs(step.blocks - 32) / 8.3, abs(step.loads_in_flight - 4) / 2.7]
    return 10.0 + sum(off) + (0 if base_of(name) == "two_shot" else 20) + (0 if step.push else 5)


@dataclass
class Scripted:
    """A bench: times are true_us, times the drift of the round, that all candidates of a group share. hangs end their
    group; wrong ones are found wrong."""

    hangs: frozenset[str] = frozenset()
    wrong: frozenset[str] = frozenset()
    together: int = 8
    drift: Callable[[int], float] = lambda call: 1.0 + 0.5 * (call % 7)
    calls: list[tuple[tuple[str, ...], int]] = field(default_factory=list)
    worlds: int = 1
    stop_after: int | None = None

    def groups(self, cases, beside):
        room = self.together - (beside is not None)
        return [list(cases[at : at + room]) for at in range(0, len(cases), room)]

    def measured(self, cases, samples):
        if self.stop_after is not None and len(self.calls) >= self.stop_after:
            raise KeyboardInterrupt
        names = tuple(case.algorithm for case in cases)
        self.calls.append((names, samples))
        if self.hangs & set(names):
            self.worlds += 1
            raise BenchFailure(f"rank 0: a wait gave up, {', '.join(sorted(self.hangs & set(names)))}")
        level = self.drift(len(self.calls))
        return [
            Measured(problem="3 elements are wrong")
            if name in self.wrong
            else Measured(tuple(true_us(name) * level * (1 + 0.01 * number) for number in range(samples)))
            for name in names
        ]


def candidates(size_bytes=BASE.size_bytes, algorithms=ALGORITHMS):
    from dataclasses import replace

    return Candidates(replace(BASE, size_bytes=size_bytes), algorithms, TRAITS)


def search(bench, kept=None, **more):
    return Search(bench, candidates(), {} if kept is None else kept, **more)


def test_the_quickest_is_found_although_clocks_differ_between_groups():
    bench = Scripted()
    found = search(bench).run()
    every = {name for names, _ in bench.calls for name in names}
    assert found.best[0] == min(every, key=true_us)
    assert base_of(found.best[0]) == "two_shot"
    assert step_of(found.best[0]).push
    assert len(found.best) == FINALISTS
    assert (found.timed, found.failed, found.left_out) == (len(every), {}, 0)


def test_fewer_candidates_get_more_samples():
    bench = Scripted()
    search(bench).run()
    tried = {
        count: len({name for names, samples in bench.calls if samples == count for name in names}) for count in SAMPLES
    }
    assert tried[SAMPLES[0]] > tried[SAMPLES[1]] > tried[SAMPLES[2]] >= FINALISTS
    spent = sum(len(names) * samples for names, samples in bench.calls)
    assert spent < tried[SAMPLES[0]] * SAMPLES[-1] * 0.55, "about half of as many samples of all as the last rung has"


def test_tunings_beside_the_best_join():
    grid = {case.algorithm for case in candidates().first()}
    found = search(Scripted()).run()
    assert set(found.best) - grid, "a finalist that the first grid does not have"


@pytest.mark.parametrize("kind", ["hangs", "wrong"])
def test_a_bad_candidate_costs_only_itself(kind):
    best = search(Scripted()).run().best[0]
    first = candidates().first()[5].algorithm
    bench = Scripted(**{kind: frozenset({best, first})})
    said = []
    found = search(bench, say=said.append).run()
    assert set(found.failed) == {best, first}
    assert best not in found.best
    every = {name for names, _ in bench.calls for name in names} - {best, first}
    assert found.best[0] == min(every, key=true_us)
    assert found.timed == len(every)
    assert len(said) == 2
    if kind == "hangs":
        assert all("a wait gave up" in why for why in found.failed.values())
        alone = [names for names, _ in bench.calls if len(names) == 1]
        assert {(best,), (first,)} <= set(alone)
        assert bench.worlds <= 1 + 2 * 2, "once in its group and once alone"
    else:
        assert all(why == "3 elements are wrong" for why in found.failed.values())


def test_an_anchor_that_hangs_later_ends_nothing():
    """The anchor of the second group hangs from then on; the others keep what was measured."""

    class Late(Scripted):
        def measured(self, cases, samples):
            if len(self.calls) == 1:
                quickest = min(self.calls[0][0], key=true_us)
                self.hangs = frozenset({quickest})
            return super().measured(cases, samples)

    bench = Late()
    found = search(bench).run()
    (hanging,) = bench.hangs
    assert found.best
    assert hanging not in found.best


def test_all_fail():
    names = frozenset(case.algorithm for case in candidates().first())
    with pytest.raises(NothingPassed, match="no candidate passed: 3 elements are wrong"):
        search(Scripted(wrong=names)).run()


@pytest.mark.slow
def test_a_search_that_was_cut_short_measures_nothing_twice():
    whole = Scripted()
    wanted = search(whole).run()
    for stop_after in range(1, len(whole.calls)):
        kept = {}
        saved = []
        bench = Scripted(stop_after=stop_after)
        with pytest.raises(KeyboardInterrupt):
            search(bench, kept, save=lambda kept=kept, saved=saved: saved.append(json.dumps(kept))).run()
        again = Scripted(drift=lambda call: 1.0)
        kept = json.loads(saved[-1])
        before = {samples: set[str]() for samples in SAMPLES}
        for rung, scores in kept.items():
            before[SAMPLES[min(max(int(rung) - 1, 0), 2)]] |= set(scores)
        found = search(again, kept).run()
        assert (found.best, found.timed) == (wanted.best, wanted.timed), stop_after
        twice = {
            name for names, samples in again.calls for name in set(names[1:]) & before[samples] if samples < SAMPLES[-1]
        }
        assert twice == set(), "only the anchor, the first of a group, is measured again"


def test_time_ends_it_with_what_was_measured():
    bench = Scripted()
    found = search(bench, is_late=lambda: len(bench.calls) >= 2).run()
    assert len(bench.calls) == 2
    assert found.left_out > 0
    assert found.timed + found.left_out == len(candidates().first())
    measured = {name for names, _ in bench.calls for name in names}
    assert found.best[0] == min(measured, key=true_us)


def test_without_any_time_the_first_group_is_measured():
    bench = Scripted()
    assert search(bench, is_late=lambda: True).run().best
    assert len(bench.calls) == 1


# Candidates


def test_candidates_differ_in_code_or_launch():
    seen = set()
    for case in candidates().first():
        spec = find(case.name)
        choices = {name: value for name, value in spec.choices(case).items() if name != "max_blocks"}
        key = (base_of(spec.name), str(choices), spec.launch(case))
        assert key not in seen
        seen.add(key)
        if has_tuning(case.algorithm):
            step = step_of(case.algorithm)
            assert step.threads * step.loads_in_flight <= MOST_LOADS
    assert len(seen) > 50


def test_small_sizes_have_few_and_the_catalogues_own_come_first():
    small, large = candidates(1024).first(), candidates(1 << 20).first()
    assert len(small) < len(large) / 2
    assert [case.algorithm for case in small[:3]] == list(ALGORITHMS)
    near = {case.algorithm for case in candidates(1024).near(["lamport"])}
    assert "lamport@t192b64l2" in near, "beside the catalogue's 96 threads of this size"


def test_what_is_refused_is_no_candidate():
    large = candidates(16 << 20).first()
    assert {base_of(case.algorithm) for case in large} == {"one_shot", "two_shot"}, "lamport takes 2 MiB at most"


def test_nothing_is_offered_twice():
    both = candidates()
    first = both.first(["two_shot@t96b3l4", "two_shot@t96b3l4"])
    assert [case.algorithm for case in first].count("two_shot@t96b3l4") == 1
    near = both.near(["two_shot@t512b64l8p"])
    assert near
    assert not {case.algorithm for case in near} & {case.algorithm for case in first}
    assert both.first() == []
