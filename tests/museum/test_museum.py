"""Each bug of the museum is found by the ways that its exhibit names, and each mended kernel is clean by all."""

import inspect
import re
import sys

import pytest

from simulator.ptx.assembler import assembled, find_ptxas
from tests.museum.__main__ import TABLE, main, outcome, page
from tests.museum.all_exhibits import EXHIBITS, MODULES
from tests.museum.exhibit import Exhibit
from tests.museum.ways import WAYS, search
from tests.rooms import needs

OF_THE_FIELD = 29
MUTANTS = 12
SEEDS_OF_MENDED = 8

NAMED = [(one, way) for one in EXHIBITS for way in one.ways]
BRIEF = [one for one in EXHIBITS if isinstance(one, Exhibit)]


def test_all_are_there():
    assert sum(bool(one.thread) for one in EXHIBITS) == OF_THE_FIELD
    assert len(EXHIBITS) == OF_THE_FIELD + MUTANTS == len(MODULES)
    assert len({one.name for one in EXHIBITS}) == len(EXHIBITS)


@pytest.mark.parametrize("shown", EXHIBITS, ids=lambda one: one.name)
def test_an_exhibit_names_a_way_and_tells_its_bug(shown):
    assert shown.ways
    assert set(shown.ways) <= set(WAYS)
    assert re.fullmatch(r"|[\w.-]+/[\w.-]+[#@]\w+", shown.thread)
    module = inspect.getdoc(sys.modules[f"tests.museum.exhibits.{MODULES[_position(shown)]}"])
    assert module
    assert not shown.thread or shown.name.split("/")[-1] in module.replace(" commit ", "@")


def _position(shown):
    return next(at for at, name in enumerate(MODULES) if sys.modules[f"tests.museum.exhibits.{name}"].EXHIBIT is shown)


@needs("checks")
@pytest.mark.parametrize(("shown", "way"), NAMED, ids=[f"{one.name}: {way}" for one, way in NAMED])
def test_the_bug_is_found(shown, way):
    found = search(shown, way)
    assert found.is_found, f"not in {found.tried} seeds: {found.seen}"


@needs("checks")
@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("shown", EXHIBITS, ids=lambda one: one.name)
def test_the_mended_kernel_is_clean(shown, way):
    found = search(shown, way, is_mended=True, seeds=SEEDS_OF_MENDED)
    assert found.seen.outcome == "clean", f"seed {found.tried - 1}: {found.seen}"


@pytest.mark.parametrize("is_mended", [False, True], ids=["bug", "mended"])
@pytest.mark.parametrize("shown", BRIEF, ids=lambda one: one.name)
def test_the_assembler_takes_the_kernel(shown, is_mended):
    ptxas = find_ptxas()
    if ptxas is None:
        pytest.skip("ptxas is not installed")
    assert assembled(ptxas, shown.ptx(is_mended), "sm_90a").problems == ()


@pytest.mark.parametrize("shown", BRIEF, ids=lambda one: one.name)
def test_the_two_kernels_differ(shown):
    """In the text, or, where the host is wrong, in what the host does."""
    assert shown.ptx(False) != shown.ptx(True) or "(host)" in shown.defect


@pytest.mark.slow
def test_the_table_is_as_it_would_be_written():
    assert page(map(outcome, EXHIBITS)) == TABLE.read_text(encoding="utf-8")


def test_the_table_has_all_exhibits():
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    names = [line.split(" | ")[0].removeprefix("| ") for line in lines if line.startswith("|")]
    assert names[2:] == [one.name for one in EXHIBITS]


def test_a_wrong_request_is_refused():
    assert main(["--only", "unknown"]) == 2
    assert main(["--only", "lost", "--write"]) == 2
    assert main(["--only", "lost update"]) == 0
