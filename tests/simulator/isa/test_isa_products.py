"""wgmma, mma.sync and copies of matrices: against an oracle of single elements, and against what an H100 left."""

import numpy as np
import pytest

from tests.simulator.harness import executable, get, make_world, put, start, succeed
from tests.simulator.isa.products import forms, inputs_of, ptx_of
from tests.simulator.isa.products_oracle import Operands, result_in

CHECKED = 6
"""Elements of a tile that the oracle computes, of 64 and more."""


def simulated(form, images, words, **options):
    """The words (tiles, lanes, out) that a launch leaves."""
    tiles, size_bytes = len(words), len(words) * form.lanes * form.out * 4
    images = images if images.size else np.zeros(16, "u1")

    def program(fabric):
        given = [put(fabric, "image", images), put(fabric, "words", words)]
        out = fabric.allocate(size_bytes, 256, "out")
        start(fabric, executable(ptx_of(form)), tiles, form.lanes, [*(one.address for one in given), out.address])
        return get(fabric, out, "u4")

    found = succeed(make_world(1, **{"heap_bytes": 16 << 20, **options}), program).results[0]
    return found.reshape(tiles, form.lanes, form.out)


def precision_of(form):
    """Bits behind the largest exponent, and of a float32 result, and how many products one sum takes."""
    if form.kinds[1] not in ("e4m3", "e5m2"):
        return 25, 23, form.depth
    return (13, 13, form.depth) if form.lanes == 128 else (25, 23, form.depth)


def size_of(form):
    """Rows and columns of D."""
    shape = next(word for word in form.name.split()[0].split(".") if word[:2] in ("m6", "m1", "m8"))
    rows, _, rest = shape[1:].partition("n")
    return int(rows), int(rest.partition("k")[0])


PRODUCTS = [one for one in forms() if one.kinds and not one.setting]
OTHERS = [one for one in forms() if not one.kinds]
QUICK = {}
for _form in PRODUCTS:
    QUICK.setdefault((_form.lanes, _form.kinds), _form.name)


@pytest.mark.parametrize(
    "form",
    [pytest.param(one, marks=() if one.name in QUICK.values() else pytest.mark.slow, id=one.name) for one in PRODUCTS],
)
def test_elements_are_what_the_oracle_computes(form):
    made = np.random.default_rng(1)
    wrong = []
    for category in form.categories:
        images, words = inputs_of(form, category, 2)
        out = simulated(form, images, words)
        for tile in range(2):
            operands = Operands(form, images[tile], words[tile])
            for _ in range(CHECKED):
                at = tuple(int(made.integers(extent)) for extent in size_of(form))
                expected, found = operands.result(*at, precision_of(form)), result_in(out[tile], form, *at)
                if expected != found:
                    wrong.append(f"{category}, tile {tile}, {at}: {found:#x}, not {expected:#x}")
    assert wrong == []
