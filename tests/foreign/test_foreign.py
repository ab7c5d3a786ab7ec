"""Kernels of others do what they promise, and the table in simulator/README.md is as the command writes it now."""

from __future__ import annotations

from pathlib import Path

import pytest

import simulator
from tests.foreign.__main__ import rows
from tests.foreign.cases import Foreign, outcome
from tests.foreign.catalogue import KERNELS

pytestmark = pytest.mark.foreign
TABLE = rows((Path(simulator.__file__).parent / "README.md").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_kernel_keeps_its_promise_and_the_table_says_what_came_of_it(kernel: Foreign) -> None:
    if kernel.absent:
        pytest.skip(kernel.absent)
    found = outcome(kernel)
    assert found.verdict == kernel.promise
    assert found.row in TABLE, "python -m tests.foreign --readme writes the table"


def test_the_table_has_every_kernel_once() -> None:
    assert [row.split(" | ")[0].removeprefix("| ") for row in TABLE] == [kernel.name for kernel in KERNELS]
