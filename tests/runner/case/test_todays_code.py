"""Kernels of records are compared with today's: by sources, and by code where those moved."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from cases.code_digest import code_digest
from cases.record.record import Record
from kernels.catalogue import find
from kernels.compile import executable
from reports.record.bundle import read
from runner.case.todays_code import sources
from tests.reports.synthetic import with_case
from tests.runner.conftest import Symlab


def silent(text: str) -> None:
    """No progress is shown."""


def with_kernel(record: Record, **changes: Any) -> Record:
    return dataclasses.replace(record, kernel=dataclasses.replace(record.kernel, **changes))


def named(**names: list[Any]) -> dict[str, list[Any]]:
    parts = ("same", "same_code", "changed", "older", "gone", "not_comparable")
    return {part: names.get(part, []) for part in parts}


@pytest.mark.slow
def test_kernels_whose_sources_moved_are_compared_by_code(symlab: Symlab, tmp_path: Path) -> None:
    one, two = read([symlab("sizes=[8]").folder / "records"])
    name, other = "all_reduce/one_shot", "all_reduce/two_shot"
    case = one.case
    cache = tmp_path / "cache"
    code = code_digest(executable(find(name), case, "sm_90a", cache).ptx)

    def found(*records: Record) -> dict[str, list[Any]]:
        return sources(records, cache, silent)

    assert found(one, two) == named(same=[name, other]), "equal sources: nothing is compiled"
    assert len(list(cache.iterdir())) == 1
    moved = with_kernel(one, source_digest="sha256:0", code_digest=code)
    assert found(moved, two) == named(same=[other], same_code=[name])
    assert found(with_kernel(moved, code_digest="sha256:1"), two) == named(same=[other], changed=[name])
    assert found(moved, with_kernel(moved, code_digest="sha256:1")) == named(changed=[name])
    assert found(moved, with_kernel(moved, code_digest=None)) == named(older=[name])
    kernel, fabric = (dataclasses.replace(one, arch="sm_80") for one in (moved.kernel, moved.fabric))
    ((strange, reason),) = found(dataclasses.replace(moved, kernel=kernel, fabric=fabric))["not_comparable"]
    assert strange == name
    assert "not built for 'sm_80'" in reason


def test_kernels_that_are_gone_are_named(symlab: Symlab, tmp_path: Path) -> None:
    one, two = read([symlab("sizes=[8]").folder / "records"])
    gone = with_case(dataclasses.replace(two, kernel=None), algorithm="three_shot")
    gone = dataclasses.replace(gone, kernel=dataclasses.replace(one.kernel, name="all_reduce/three_shot"))
    assert sources([gone], tmp_path, silent) == named(gone=["all_reduce/three_shot"])
