import importlib

from cases.ops import OPS, collective
from kernels.catalogue import FILES, NAMES, NVSHMEM_FILES, SPECS, find
from kernels.sources import ROOT
from tests.golden import refused


def test_a_name_is_the_key_and_the_op_and_the_algorithm():
    assert tuple(spec.name for spec in SPECS) == NAMES
    for spec in SPECS:
        assert find(spec.name) is spec
        assert spec.op in OPS


def test_an_unknown_kernel_is_told_the_near_ones():
    with refused():
        find("all_reduce/oneshot")
    with refused():
        find("x")


def test_every_kernel_of_a_file_of_ways_is_listed_and_begins_with_that_file():
    folder = ROOT / "kernels" / "ways"
    made = {
        spec.name: spec.files[0]
        for path in folder.glob("[a-z]*.py")
        for spec in importlib.import_module(f"kernels.ways.{path.stem}").KERNELS
    }
    assert made == {name: str(folder / f"{file}.py") for name, file in (FILES | NVSHMEM_FILES).items()}


def test_kernels_are_in_place_only_where_the_op_is():
    for spec in SPECS:
        assert "in_place" not in spec.placements or collective(spec.op).in_place is not None
