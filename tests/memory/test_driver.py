"""CudaDriver: how arguments reach the driver, through the real cuda.bindings, and what its errors become.

The driver underneath is a small library that prints its calls (fake_libcuda.c): it needs a C compiler, and no GPU.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import NEVER_S

HERE = Path(__file__).parent

PRELUDE = """
import time
from types import SimpleNamespace
import torch
import memory.driver
from memory.driver import CudaDriver
from memory.fabric import Argument, DeadlineExceeded, DeviceFault, Executable, Launch

zeros = torch.zeros
stream = [7]
torch.zeros = lambda *shape, device: zeros(*shape)
torch.cuda.set_device = lambda index: print("device", index)
torch.cuda.init = lambda: None
H200 = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, uuid="aa-bb")
torch.cuda.get_device_properties = lambda index: H200
torch.cuda.current_stream = lambda device: SimpleNamespace(cuda_stream=stream[0])
driver = CudaDriver(3, 1)
kernel = Executable("all_reduce/one_shot", "entry", "sm_90a", "", "sha256:1", b"\\x7fELF\\0")
ONE = Launch(1, 32)

def of(address, small, large):
    return Argument("address", address), Argument("u32", small), Argument("u64", large)

GIVEN = of(1, 2, 3)

def said(kind, call):
    try:
        call()
    except kind as error:
        print(f"{kind.__name__}: {error}")
    else:
        print("nothing raised")
"""


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to make the fake driver with")
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        pytest.skip("cuda.bindings is not installed")
    folder = tmp_path_factory.mktemp("driver")
    command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(folder / "libcuda.so.1")]
    subprocess.run([*command, str(HERE / "fake_libcuda.c"), "-ldl"], check=True)
    return folder


def lines(fake_driver: Path, code: str) -> list[str]:
    """What a Python process on the fake driver prints, its own lines and the driver's, in order."""
    environment = os.environ | {"LD_LIBRARY_PATH": str(fake_driver), "PYTHONPATH": str(HERE.parent.parent)}
    command = [sys.executable, "-u", "-c", PRELUDE + code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=NEVER_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_kernel_is_loaded_once_and_launched_with_its_parameters_sizes(fake_driver: Path) -> None:
    code = """
driver.launch(kernel, Launch(3, 128), of(0x7F0012345678, 5, -1))
stream[0] = 8
driver.launch(kernel, ONE, of(2**64 - 1, -5, 2))
driver.copy(0xABC, 0xDEF, 16)
driver.wait(None)
"""
    out = lines(fake_driver, code)
    assert out[:6] == [
        "device 3",
        "load ELF",
        "get entry of 0x10",
        "ready 0x20",
        "launch 0x20 grid 3 1 1 block 128 1 1 shared 0 stream 7 extra 0 arguments 7f0012345678 5 ffffffffffffffff",
        "launch 0x20 grid 1 1 1 block 32 1 1 shared 0 stream 8 extra 0 arguments ffffffffffffffff fffffffb 2",
    ]
    assert out[6] == "copy to abc from def, 16 bytes, stream 8"
    assert sorted(out[7:]) == ["look 7", "look 7", "look 8", "look 8"], "every stream that had work is waited for"


@pytest.mark.slow
def test_a_stream_waits_for_an_event_of_another(fake_driver: Path) -> None:
    code = """
driver.wait_stream(5, None)
stream[0] = 8
driver.wait_stream(None, 6)
said(DeviceFault, lambda: driver.wait_stream(5, 0x99))
"""
    out = lines(fake_driver, code)[1:]
    assert out[:4] == ["event flags 2", "record 0x30 stream 7", "stream 5 waits for 0x30, flags 0", "destroy 0x30"]
    assert out[5:7] == ["record 0x30 stream 6", "stream 8 waits for 0x30, flags 0"]
    assert out[9:11] == ["record 0x30 stream 99", "destroy 0x30"], "an event is given back after a failure, too"
    assert out[11].startswith("DeviceFault: rank 1: cuEventRecord: CUDA_ERROR_ILLEGAL_ADDRESS")


@pytest.mark.slow
def test_what_it_knows_of_the_gpu(fake_driver: Path) -> None:
    code = "print(driver.arch, driver.l2_bytes, driver.name, driver.device, driver.free_bytes(), driver.stream())"
    assert lines(fake_driver, code) == ["device 3", f"sm_90a {60 << 20} NVIDIA H200 cuda:3 5 7"]


@pytest.mark.slow
def test_wrong_launches_are_clear_lines(fake_driver: Path) -> None:
    code = """
import dataclasses
said(ValueError, lambda: driver.launch(dataclasses.replace(kernel, cubin=b""), ONE, GIVEN))
said(ValueError, lambda: driver.launch(dataclasses.replace(kernel, arch="sm_100a"), ONE, GIVEN))
driver.load(kernel)
said(ValueError, lambda: driver.launch(kernel, ONE, GIVEN[:2]))
said(ValueError, lambda: driver.launch(kernel, ONE, of(1, 2**32, 3)))
said(ValueError, lambda: driver.launch(kernel, Launch(1, 32, shared_bytes=232_448), GIVEN))
driver._arch = "sm_80"
said(ValueError, lambda: driver.launch(dataclasses.replace(kernel, arch="sm_80"), Launch(4, 32, cluster=2), GIVEN))
"""
    out = [line for line in lines(fake_driver, code) if line.startswith(("ValueError", "nothing", "launch"))]
    assert out == [
        "ValueError: all_reduce/one_shot has no cubin: it was compiled for the simulator only",
        "ValueError: all_reduce/one_shot was compiled for sm_100a, this GPU is sm_90a",
        "ValueError: all_reduce/one_shot has 3 parameters, and was given 2 arguments",
        "ValueError: all_reduce/one_shot, parameter 1: 4294967296 is no u32: give -2^31 to 2^32 - 1",
        "ValueError: all_reduce/one_shot: shared_bytes is 232,448; beside the kernel's own 1,000 bytes "
        "a block can have 231,448 (shared_bytes), give at most 231448",
        "ValueError: all_reduce/one_shot: sm_80 has no clusters; they need sm_90 or later",
    ]


@pytest.mark.slow
def test_a_kernel_without_a_cubin_is_loaded_as_ptx(fake_driver: Path) -> None:
    code = """
import dataclasses
driver.load(dataclasses.replace(kernel, cubin=b"", ptx=".version 9.0", digest="sha256:2"))
"""
    assert "load version 9.0" in lines(fake_driver, code)


@pytest.mark.slow
def test_a_modules_variable_is_written_at_once(fake_driver: Path) -> None:
    code = """
driver.set_variable(kernel, "table", 8, bytes([1, 2, 255]))
said(ValueError, lambda: driver.set_variable(kernel, "tabel", 0, b"1"))
said(ValueError, lambda: driver.set_variable(kernel, "table", 8, bytes(17)))
"""
    assert lines(fake_driver, code)[-3:] == [
        "write to 5008 01 02 ff",
        "ValueError: all_reduce/one_shot has no variable tabel that can be set (variables), name one that is .visible",
        "ValueError: all_reduce/one_shot: bytes 8 to 25 of variable table, which has 24 (variables), "
        "give bytes within it",
    ]


@pytest.mark.slow
def test_nvshmems_device_code_is_loaded_as_a_library_whose_handle_nvshmem_takes(fake_driver: Path) -> None:
    code = """
import dataclasses
linked = dataclasses.replace(kernel, ptx=".const .b8 nvshmemi_device_state_d[848];", digest="sha256:2")
print("handle", driver.library_handle(linked))
driver.load(linked)
driver.load(kernel)
"""
    out = [line for line in lines(fake_driver, code) if line.startswith(("load", "module", "get", "handle"))]
    assert out == [
        "load library ELF",
        "module of library 0x40",
        "get entry of 0x11",
        "handle 64",
        "load ELF",
        "get entry of 0x10",
    ]


@pytest.mark.slow
def test_what_others_queue_is_named_too(fake_driver: Path) -> None:
    """A library's collective that hung passed for a kernel of ours that was launched before."""
    code = """
driver.launch(kernel, ONE, GIVEN)
driver.note("all_to_all/nvshmem")
stream[0] = 0x77
said(DeadlineExceeded, lambda: driver.wait(time.monotonic()))
stream[0] = 0x99
said(DeviceFault, lambda: driver.wait(None))
"""
    exceeded, fault = lines(fake_driver, code)[-2:]
    assert exceeded.endswith("is still running at the deadline: all_to_all/nvshmem was launched last")
    assert fault.endswith("(last launched: all_to_all/nvshmem)")


@pytest.mark.slow
def test_a_failed_device_and_a_kernel_that_never_ends_are_named(fake_driver: Path) -> None:
    code = """
driver.launch(kernel, ONE, GIVEN)
driver.wait(None)
stream[0] = 0x99
said(DeviceFault, lambda: driver.wait(None))
try:
    driver.wait(None)
except DeviceFault as error:
    print("of rank", error.rank)
stream[0] = 0x77
began = time.monotonic()
said(DeadlineExceeded, lambda: driver.wait(began + 0.2))
print(time.monotonic() - began >= 0.2)
"""
    last = "all_reduce/one_shot"
    assert lines(fake_driver, code)[-4:] == [
        "DeviceFault: rank 1: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered "
        f"(last launched: {last})",
        "of rank 1",
        f"DeadlineExceeded: work launched on rank 1 is still running at the deadline: {last} was launched last",
        "True",
    ]


def launches(out: list[str]) -> list[str]:
    """The lines of launches, and of what a kernel is allowed before them."""
    return [line for line in out if line.startswith(("launch", "set"))]


@pytest.mark.slow
def test_every_kind_of_argument_reaches_the_driver_whole_and_aligned(fake_driver: Path) -> None:
    code = """
import dataclasses
every = dataclasses.replace(kernel, entry="every_kind")
values = [("f32", 1.5), ("f64", -2.0), ("u32", -1), ("u64", 2**63), ("address", 0xABC), ("bytes", bytes(range(20)))]
driver.launch(every, ONE, tuple(Argument(*one) for one in values))
driver.launch(kernel, ONE, GIVEN)
"""
    given = "3fc00000 c000000000000000 ffffffff 8000000000000000 abc 000102030405060708090a0b0c0d0e0f10111213"
    shape = "grid 1 1 1 block 32 1 1 shared 0 stream 7 extra 0"
    assert launches(lines(fake_driver, code)) == [
        f"launch 0x21 {shape} arguments {given}",
        f"launch 0x20 {shape} arguments 1 2 3",
    ], "and kernels of one module are told apart"


@pytest.mark.slow
def test_a_launch_in_three_dimensions_with_shared_memory_a_cluster_and_a_stream(fake_driver: Path) -> None:
    code = """
driver.launch(kernel, Launch((4, 3, 2), (8, 4, 2), shared_bytes=100, stream=9), GIVEN)
driver.launch(kernel, Launch((4, 3, 2), (8, 4, 2), shared_bytes=200_000, cluster=(2, 1, 2)), GIVEN)
driver.launch(kernel, Launch(1, 1, shared_bytes=150_000), GIVEN)
driver.launch(kernel, Launch(2, 1, cooperative=True), GIVEN)
driver.launch(kernel, Launch(4, 1, cluster=2, cooperative=True), GIVEN)
import dataclasses
waiting = dataclasses.replace(kernel, ptx="griddepcontrol.wait;")
driver.launch(waiting, Launch(3, 1, dependent=True), GIVEN)
said(ValueError, lambda: driver.launch(kernel, Launch(3, 1, dependent=True), GIVEN))
driver.wait(None)
"""
    out = lines(fake_driver, code)
    shape = "launch 0x20 grid 4 3 2 block 8 4 2"
    assert launches(out) == [
        f"{shape} shared 100 stream 9 extra 0 arguments 1 2 3",
        "set 8 of 0x20 to 200000",
        f"{shape} shared 200000 stream 7 extra 0 attribute 4 is 2 1 2 arguments 1 2 3",
        "launch 0x20 grid 1 1 1 block 1 1 1 shared 150000 stream 7 extra 0 arguments 1 2 3",
        "launch 0x20 grid 2 1 1 block 1 1 1 shared 0 stream 7 extra 0 attribute 2 is 1 0 0 arguments 1 2 3",
        "launch 0x20 grid 4 1 1 block 1 1 1 shared 0 stream 7 extra 0 attribute 4 is 2 1 1 attribute 2 is 1 0 0 "
        "arguments 1 2 3",
        "launch 0x20 grid 3 1 1 block 1 1 1 shared 0 stream 7 extra 0 attribute 6 is 1 0 0 arguments 1 2 3",
    ], "the limit is raised only where it is too low, and never lowered"
    text = "a dependent launch needs a kernel that waits for the launches before it"
    assert any(f"ValueError: all_reduce/one_shot: {text}" in line for line in out)
    assert "look 9" in out, "the stream of a launch is waited for"


@pytest.mark.slow
def test_a_cooperative_launch_of_more_blocks_than_fit_is_refused(fake_driver: Path) -> None:
    """Of 1,024 threads 2 blocks fit on each of 132 multiprocessors."""
    code = """
driver.launch(kernel, Launch(264, 1024, cooperative=True), GIVEN)
said(ValueError, lambda: driver.launch(kernel, Launch(265, 1024, cooperative=True), GIVEN))
driver.launch(kernel, Launch(265, 1024), GIVEN)
"""
    out = lines(fake_driver, code)
    assert [line.partition(" grid ")[2].split()[0] for line in launches(out)] == ["264", "265"]
    text = "a cooperative launch of 265 blocks, and this GPU holds 264 of them at once: give at most that many"
    assert f"ValueError: all_reduce/one_shot: {text}" in out


@pytest.mark.slow
def test_a_launch_that_is_repeated_is_packed_once_and_a_changed_one_again(fake_driver: Path) -> None:
    code = """
packings = []
pack = memory.driver.packed
memory.driver.packed = lambda *all: packings.append(1) or pack(*all)
for _ in range(5):
    driver.launch(kernel, ONE, GIVEN)
print("packed", len(packings))
for _ in range(2):
    driver.launch(kernel, Launch(1, 32), of(4, 5, 6))
driver.launch(kernel, Launch(2, 32), GIVEN)
print("packed", len(packings))
memory.driver.KEPT_LAUNCHES = 2
for number in range(10):
    driver.launch(kernel, ONE, of(number, 0, 0))
print("kept", len(driver._prepared))
"""
    out = lines(fake_driver, code)
    assert [line for line in out if line.startswith(("packed", "kept"))] == ["packed 1", "packed 4", "kept 2"]
    assert [line.split(" arguments ")[1] for line in launches(out)] == [
        *["1 2 3"] * 5,
        *["4 5 6"] * 2,
        "1 2 3",
        *[f"{number:x} 0 0" for number in range(10)],
    ]
