"""What rows know beyond their slots: the graph against dictionaries that are merged at each step."""

import numpy as np
import pytest

from simulator.happens_before.clocks import changes_of, pairs_of
from simulator.happens_before.extras import ALL, ASYNC, FENCED, GENERIC, NOT_ASYNC, SAME, Extras
from simulator.happens_before.shadow import Shadow, Tiles

ROWS, KEYS = 24, 6
Known = dict[tuple[int, int], int]


def handed_on(known, how):
    """What an edge hands on."""
    if how == ALL:
        return {(part, key): stamp for (of, key), stamp in known.items() if of == GENERIC for part in range(3)}
    found = {one: stamp for one, stamp in known.items() if not (how == NOT_ASYNC and one[0] == ASYNC)}
    for (of, key), stamp in known.items():
        if of == GENERIC and how > ALL:
            part = how - FENCED
            found[part, key] = max(found.get((part, key), -1), stamp)
    return found


def one_step(extras, model, random, stamp):
    """Make some rows of others, in the graph and in the model."""
    rows = random.choice(ROWS, int(random.integers(1, 4)), replace=False)
    if random.random() < 0.4:
        rows = random.choice(ROWS, len(rows))  # a row may come more than once
        part, keys = int(random.integers(3)), random.integers(0, KEYS, len(rows))
        extras.add(rows, part, keys, np.full(len(rows), stamp))
        for row, key in zip(rows.tolist(), keys.tolist(), strict=True):
            model[row] = {**model[row], (part, key): stamp}
        return
    owners = np.sort(np.append(np.arange(len(rows)), random.integers(0, len(rows), 2)))
    sources = random.integers(0, ROWS, len(owners))
    hows = random.choice([SAME, SAME, NOT_ASYNC, ALL, FENCED + 1, FENCED + ASYNC], len(owners))
    found = [{} for _ in rows]
    for owner, source, how in zip(owners.tolist(), sources.tolist(), hows.tolist(), strict=True):
        for one, known in handed_on(model[source], how).items():
            found[owner][one] = max(found[owner].get(one, -1), known)
    extras.derive(rows, owners, extras.of_row[sources], hows)
    for row, known in zip(rows.tolist(), found, strict=True):
        model[row] = known


@pytest.mark.parametrize("steps", [2, 16])
@pytest.mark.parametrize("seed", range(4))
def test_the_graph_knows_what_merged_dictionaries_know(seed, steps, monkeypatch):
    """steps: that all questions take together; each that is open then walks alone."""
    monkeypatch.setattr("simulator.happens_before.extras._STEPS", steps)
    random, extras, model = np.random.default_rng(seed), Extras(ROWS), [Known() for _ in range(ROWS)]
    extras.limit = 40  # so that nodes are collected
    for stamp in range(1, 160):
        one_step(extras, model, random, stamp)
        if stamp % 20 == 0:
            extras.collect(np.arange(ROWS))
        if stamp % 8 == 0:
            rows = np.repeat(np.arange(ROWS), KEYS)
            keys, least = np.tile(np.arange(KEYS), ROWS), random.integers(1, stamp + 1, ROWS * KEYS)
            part = int(random.integers(3))
            expected = [
                model[row].get((part, key), -1) >= one
                for row, key, one in zip(rows.tolist(), keys.tolist(), least.tolist(), strict=True)
            ]
            assert extras.known(rows, part, keys, keys, least).tolist() == expected
    for row in range(ROWS):
        found = {}
        for key, stamp in zip(*(column.tolist() for column in extras.facts_of(row)), strict=True):
            found[key] = max(found.get(key, -1), stamp)
        assert found == {key: stamp for (part, key), stamp in model[row].items() if part == GENERIC}


def test_a_row_forgets_what_its_slots_say():
    extras = Extras(4)
    extras.add(np.array([1, 2]), GENERIC, np.array([7, 7]), np.array([5, 9]))
    extras.trim(np.array([1, 2]), np.array([5, 8]))
    assert extras.of_row[1] == 0
    assert extras.of_row[2] > 0


def test_pairs_are_told_apart():
    random = np.random.default_rng(5)
    columns = [np.repeat(random.integers(0, 5, 40), 3), random.integers(0, 1 << 40, 120) % 7 << 33]
    first, back = pairs_of(*columns)
    pairs = list(zip(*(one.tolist() for one in columns), strict=True))
    assert len(first) == len(set(pairs))
    assert [pairs[at] for at in first[back].tolist()] == pairs
    assert all(pairs.index(pairs[at]) == at for at in first.tolist())
    assert changes_of(np.array([3, 3, 1, 1, 3])).tolist() == [3, 1, 3]


@pytest.mark.parametrize(
    ("firsts", "each", "rows"),
    [
        ([3, 7, 15], 4, [3, 4, 5, 6]),
        ([8, 0], 4, [8, 9, 10, 11]),
        ([0, 3], 4, None),
        ([4, 4], 4, [4, 5, 6, 7]),
        ([4], 4, None),
    ],
)
def test_pieces_are_rows_of_a_matrix(firsts, each, rows):
    tiles = Tiles.of(np.array(firsts), each, 20)
    assert (tiles is None) == (rows is None)
    if tiles is not None:
        assert tiles.matrix(np.arange(20))[tiles.numbers[0]].tolist() == rows
        assert tiles.units(np.array([0, each])).tolist() == firsts[:2]
        assert tiles.are_apart == (len(set(firsts)) == len(firsts))


def test_a_byte_of_shared_memory_is_named_by_its_block():
    assert Shadow("shared memory", 0, 3 * 48, row_bytes=48).byte_of(4) == (1 << 18) + 16
    assert Shadow("data", 0, 48).byte_of(2) == 32
