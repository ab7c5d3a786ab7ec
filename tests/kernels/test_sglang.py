"""What SGLang's all-reduces are refused for, how they are launched, and what an installation lacks for them."""

import importlib.metadata

import pytest

from cases.case import Case
from cases.sglang_sizes import PULL, PUSH
from kernels import sglang, toolkit
from kernels.baselines import find_baseline, library_of, refuses_baseline
from kernels.sglang import MODULES, Launch, pull_launch, push_launch
from memory.fabric import Traits
from tests.golden import same_text

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(autouse=True)
def package(monkeypatch, tmp_path):
    """SGLang is there with all that it needs, as far as a machine can tell. Gives the packages' folder."""
    for name in ("custom_all_reduce_push.cuh", "custom_all_reduce_pull.cuh"):
        place = tmp_path / "sglang" / "jit_kernel" / "csrc" / "distributed" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    (tmp_path / "tvm_ffi" / "include").mkdir(parents=True)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.5.14")
    monkeypatch.setattr(toolkit, "nvcc", lambda: "/bin/nvcc")
    monkeypatch.setattr(toolkit, "host_compiler", lambda: "/bin/c++")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def reason(name, size_bytes, world_size=2, arch="sm_90a", **changes):
    traits = Traits("nvshmem", arch, world_size, 8 << 30, False, "no switch")
    baseline = find_baseline(name)
    changes.setdefault("placement", baseline.placement("all_reduce", "out_of_place", world_size))
    case = Case(
        "all_reduce", name, changes.pop("dtype", "bfloat16"), "library", "sum", size_bytes, world_size, **changes
    )
    found = refuses_baseline(baseline, case, traits)
    return None if found is None else f"{found.key}: {found}"


@pytest.mark.parametrize(
    ("world_size", "arch", "size_bytes", "runs"),
    [
        *((2, "sm_90a", size, PUSH) for size in (KIB, 2 * MIB)),
        *((ranks, "sm_90a", size, PULL) for ranks, size in ((2, 2 * MIB + 16), (4, 384 * KIB + 16), (4, 16 * MIB))),
        (4, "sm_90a", 384 * KIB, PUSH),
        (8, "sm_90a", 160 * KIB + 16, PULL),
        (8, "sm_100a", 160 * KIB + 16, PUSH),
        (2, "sm_103a", 4 * MIB, PUSH),
    ],
)
def test_sglang_chooses_by_ranks_bytes_and_type_of_gpu(world_size, arch, size_bytes, runs):
    other = PULL if runs == PUSH else PUSH
    assert reason(runs, size_bytes, world_size, arch) is None
    assert reason(other, size_bytes, world_size, arch) == (
        f"sizes: {other} is not what SGLang runs for {size_bytes} bytes on {world_size} ranks: there it takes {runs}"
    )


def test_what_neither_takes():
    for name in (PUSH, PULL):
        for found in (
            reason(name, 16 * MIB + 16),
            reason(name, 24),
            reason(name, KIB, 3),
            reason(name, KIB, dtype="float64"),
        ):
            same_text(str(found))


def test_a_pull_is_out_of_place_in_one_shot_and_in_place_in_two():
    pull, push = find_baseline(PULL), find_baseline(PUSH)
    for wanted in ("in_place", "out_of_place"):
        assert [pull.placement("all_reduce", wanted, ranks) for ranks in (2, 4, 8)] == [
            "out_of_place",
            "in_place",
            "in_place",
        ]
        assert push.placement("all_reduce", wanted, 2) == "in_place"
    assert pull.ops == ("all_reduce",)
    assert reason(PULL, 4 * MIB, placement="in_place") is not None


def test_grids_are_sglangs():
    """On the 132 multiprocessors of an H100."""
    assert push_launch(KIB, 132) == Launch(132, 128)
    assert push_launch(132 * 128 * 16, 132) == Launch(132, 128)
    assert push_launch(132 * 128 * 16 + 16, 132) == Launch(132, 256)
    assert push_launch(2 * MIB, 132) == Launch(132, 1024)
    assert push_launch(4 * MIB, 132) == Launch(132, 1024)
    assert pull_launch(512 * 16, 132) == Launch(1, 512)
    assert pull_launch(512 * 16 + 16, 132) == Launch(2, 512)
    assert pull_launch(16 * MIB, 132) == Launch(132, 512)


def test_what_is_missing_is_named(monkeypatch, package):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    for module, name, instead in (
        (toolkit, "nvcc", lambda: None),
        (sglang, "tvm_ffi", lambda: None),
        (importlib.metadata, "version", lambda name: "0.6.0"),
        (importlib.metadata, "version", absent),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, instead)
            same_text(str(reason(PUSH, KIB)))
    (package / "sglang/jit_kernel/csrc/distributed/custom_all_reduce_pull.cuh").unlink()
    same_text(str(reason(PUSH, KIB)))


def test_the_packages_are_found_and_not_imported(package):
    (package / "sglang" / "__init__.py").write_text("raise ImportError('its server is not installed')")
    assert sglang.sources() == package / "sglang" / "jit_kernel"
    assert sglang.tvm_ffi() == package / "tvm_ffi"


def test_records_name_the_version_and_how_it_is_launched():
    traits = Traits("nvshmem", "sm_90a", 2, 1 << 30, False)
    assert library_of(PUSH, traits, "nvcc 13.0") == "SGLang 0.5.14 (nvcc 13.0, dependent launch)"
    assert set(MODULES) == {PUSH, PULL}
