"""Where NVSHMEM's bitcode is looked for, and what specs may say of it: with files that stand for the wheel's."""

import dataclasses
import os
import sys

import pytest

from cases.case import Case
from cases.ops import collective
from kernels import compile as compiling
from kernels import nvshmem_bitcode, shares
from kernels.catalogue import ALL_SPECS, MATMUL_SPECS, NAMES, NVSHMEM_FILES, NVSHMEM_SPECS, SPECS, find
from kernels.dsl import put_shares
from kernels.nvshmem_bitcode import FUNCTIONS, bitcode, places, refuses_function, scoped
from kernels.spec import Workspace, refuses
from memory.fabric import Traits
from tests.golden import refused, same_text

SPEC = find("send_recv/nvshmem_put_signal")
CASE = Case("send_recv", "nvshmem_put_signal", "uint8", "none", "none", 64, 2)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """An environment whose site-packages have the wheel, with a few bytes for its bitcode."""
    packages = tmp_path / "lib" / "site-packages"
    library = packages / "nvidia" / "nvshmem" / "lib"
    library.mkdir(parents=True)
    for number in (90, 100):
        (library / f"libnvshmem_device_sm_{number}.bc").write_bytes(b"BC%d" % number)
    (packages / "nvidia_nvshmem_cu13-3.8.0.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(packages)])
    monkeypatch.setattr(nvshmem_bitcode, "_ROOT", tmp_path / "elsewhere")
    return library


@pytest.fixture
def absent(tmp_path, monkeypatch):
    monkeypatch.setattr(nvshmem_bitcode, "places", lambda: [tmp_path])


def test_the_bitcode_of_an_architecture_is_found_in_the_wheel(installed):
    for arch, number in (("sm_90", 90), ("sm_90a", 90), ("sm_100a", 100), ("sm_103a", 100), ("sm_120a", 100)):
        found = bitcode(arch)
        assert found.path == installed / f"libnvshmem_device_sm_{number}.bc"
        assert found.version == "3.8.0"
    with refused():
        bitcode("sm_70")


def test_the_environment_of_make_foreign_comes_after_the_one_that_runs(tmp_path, monkeypatch):
    foreign = tmp_path / ".venv-foreign" / "lib" / "python3.11" / "site-packages"
    foreign.mkdir(parents=True)
    monkeypatch.setattr(nvshmem_bitcode, "_ROOT", tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages"), str(tmp_path / "src")])
    assert places() == [tmp_path / "site-packages", tmp_path / "src", foreign]


def test_the_bitcode_is_found_in_any_folder_that_python_imports_from(installed, tmp_path, monkeypatch):
    packages = tmp_path / "brought"
    (installed.parents[2]).rename(packages)
    monkeypatch.setattr(sys, "path", ["", str(packages)])
    found = bitcode("sm_90a")
    assert found.path.is_relative_to(packages)


def test_another_bitcode_is_another_cache_entry(installed):
    first = compiling.cache_key(SPEC, CASE, "sm_90a")
    assert compiling.cache_key(SPEC, CASE, "sm_90a") == first
    path = installed / "libnvshmem_device_sm_90.bc"
    path.write_bytes(b"BCxx")
    os.utime(path, ns=(1, 1))
    assert compiling.cache_key(SPEC, CASE, "sm_90a") != first


@pytest.mark.usefixtures("absent")
def test_without_the_wheel_kernels_are_refused_and_the_wheel_is_named():
    traits = Traits("simulator", "sm_90a", 2, 1 << 30, True)
    refusal = refuses(SPEC, collective("send_recv"), CASE, traits)
    same_text(str(refusal))
    push = dataclasses.replace(CASE, algorithm="push")
    assert refuses(find("send_recv/push"), collective("send_recv"), push, traits) is None


@pytest.mark.usefixtures("absent")
def test_without_the_wheel_nothing_is_compiled(tmp_path):
    with refused(RuntimeError):
        compiling.executable(SPEC, CASE, "sm_90a", tmp_path / "cache")


def test_functions_have_cs_names():
    assert [scoped("putmem", one) for one in ("thread", "warp", "block")] == [
        "nvshmem_putmem",
        "nvshmemx_putmem_warp",
        "nvshmemx_putmem_block",
    ]
    with refused():
        scoped("putmem", "grid")
    assert FUNCTIONS["nvshmemx_signal_op"].arguments == ("u64 *", "u64", "s32", "s32")


@pytest.mark.parametrize(
    "name",
    [
        *(f"nvshmemx_{one}_block" for one in ("float_sum_reduce", "broadcastmem", "fcollectmem", "alltoallmem")),
        "nvshmemx_float_sum_reducescatter_block",
        "nvshmem_putmen",
    ],
)
def test_a_spec_names_functions_that_there_are(name):
    same_text(refuses_function(name))
    with refused():
        dataclasses.replace(SPEC, nvshmem=(name,))
    with refused():
        dataclasses.replace(SPEC, nvshmem=name)


def test_the_catalogue_has_them_apart():
    assert [spec.name for spec in NVSHMEM_SPECS] == list(NVSHMEM_FILES)
    assert all(spec.nvshmem for spec in NVSHMEM_SPECS)
    assert not any(spec.nvshmem for spec in SPECS)
    assert ALL_SPECS == SPECS + NVSHMEM_SPECS + MATMUL_SPECS
    assert {spec.op for spec in SPECS} == {name.partition("/")[0] for name in NVSHMEM_FILES}
    assert len(set(NAMES) | set(NVSHMEM_FILES)) == len(SPECS + NVSHMEM_SPECS)


def test_slices_of_a_reduction_cover_the_buffer():
    for numel in (0, 1, 7, 8, 100, 1000):
        case = Case("all_reduce", "nvshmem_put", "float16", "native", "sum", 2 * numel, 3)
        owners = put_shares.owner(case, 0).tolist()
        assert len(owners) == numel
        assert owners == sorted(owners)
        assert all(owners.count(rank) * 2 <= put_shares.slice_bytes(case) for rank in range(3))
        assert set(owners) <= {0, 1, 2}
    assert shares.row_bytes(1) == 32
    assert shares.rows(CASE, 20) == Workspace("scratch", 48 // 4, zeroed=False)
    assert put_shares.words(CASE, 4, rounds=2).numel == 4 * 3 * 2


def test_the_linkers_warning_is_left_out_and_all_else_comes_out(capfd):
    with compiling._without_link_warnings():
        os.write(2, compiling.LINK_WARNING + b": 'a' is 'b' whereas 'c' is 'd'\n\nsomething else\n\n")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "something else\n\nafter\n"
