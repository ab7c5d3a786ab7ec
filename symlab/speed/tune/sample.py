"""Random tunings, by which the model is scored: what a search might try, good or bad."""

from __future__ import annotations

import random
from collections.abc import Mapping

from cases.case import Case
from kernels.catalogue import takes_push
from symlab.speed.tune.candidates import MOST_LOADS, Candidates, tuned

THREADS = (64, 128, 256, 512, 1024)
BLOCKS = (1, 2, 4, 8, 16, 32, 64, 128)
LOADS = (4, 8, 16, 32)
"""All that the grid of a search has, and the steps beside it."""

SAMPLE_TIMING: Mapping[str, int] = {"timing.samples": 8, "timing.warmup": 1}
"""What a sample takes unless it is given: its median has to be right within some percent."""

TRIES = 50
"""Draws for each tuning that is wanted: many are refused, or are code and launch of another one."""


def drawn(candidates: Candidates, count: int, seed: int) -> list[Case]:
    """Return up to count random tunings of a case, each another code or launch: the same ones for the same seed."""
    chance = random.Random(f"{seed} {candidates.case('best').id}")
    algorithms = candidates.algorithms
    found: list[Case] = []
    for _ in range(TRIES * count):
        if len(found) == count:
            break
        algorithm = chance.choice(algorithms)
        if algorithm in candidates.of_entry:
            found += candidates.named([chance.choice(candidates.of_entry[algorithm])])
            continue
        threads, blocks, loads = chance.choice(THREADS), chance.choice(BLOCKS), chance.choice(LOADS)
        push = chance.random() < 0.5 and takes_push(f"{candidates.op}/{algorithm}")
        if threads * loads <= MOST_LOADS:
            found += candidates.named([tuned(algorithm, threads, blocks, loads, push)])
    return found


def shares(count: int, places: int) -> list[int]:
    """Return how many of count each of some places gets: as even as can be, the first ones more."""
    return [count // places + (number < count % places) for number in range(places)]
