"""Kernels of records are compared with today's: by sources, and by code where those moved."""

import dataclasses

import pytest

from cases.code_digest import code_digest
from kernels.catalogue import find
from kernels.compile import executable
from reports.record.bundle import read
from runner.case.todays_code import sources
from tests.reports.synthetic import with_case


def silent(text):
    """No progress is shown."""


def with_kernel(record, **changes):
    return dataclasses.replace(record, kernel=dataclasses.replace(record.kernel, **changes))


def named(**names):
    parts = ("same", "same_code", "changed", "older", "gone", "not_comparable")
    return {part: names.get(part, []) for part in parts}


@pytest.mark.slow
def test_kernels_whose_sources_moved_are_compared_by_code(symlab, tmp_path):
    one, two = read([symlab("sizes=[8]").folder / "records"])
    name, other = "all_reduce/one_shot", "all_reduce/two_shot"
    case = one.case
    cache = tmp_path / "cache"
    code = code_digest(executable(find(name), case, "sm_90a", cache).ptx)

    def found(*records):
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


def test_kernels_that_are_gone_are_named(symlab, tmp_path):
    one, two = read([symlab("sizes=[8]").folder / "records"])
    gone = with_case(dataclasses.replace(two, kernel=None), algorithm="three_shot")
    gone = dataclasses.replace(gone, kernel=dataclasses.replace(one.kernel, name="all_reduce/three_shot"))
    assert sources([gone], tmp_path, silent) == named(gone=["all_reduce/three_shot"])
