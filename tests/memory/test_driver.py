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

from memory.driver import packed

HERE = Path(__file__).parent

PRELUDE = """
import time
from types import SimpleNamespace
import torch
import memory.driver
from memory.driver import CudaDriver
from memory.fabric import DeadlineExceeded, DeviceFault, Executable

zeros = torch.zeros
stream = [7]
torch.zeros = lambda *shape, device: zeros(*shape)
torch.cuda.set_device = lambda index: print("device", index)
torch.cuda.init = lambda: None
H200 = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, multi_processor_count=132)
torch.cuda.get_device_properties = lambda index: H200
torch.cuda.current_stream = lambda device: SimpleNamespace(cuda_stream=stream[0])
driver = CudaDriver(3, 1)
kernel = Executable("all_reduce/one_shot", "entry", "sm_90a", "", "sha256:1", b"\\x7fELF\\0")

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
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_kernel_is_loaded_once_and_launched_with_its_parameters_sizes(fake_driver: Path) -> None:
    code = """
driver.launch(kernel, 3, 128, (0x7F0012345678, 5, -1))
stream[0] = 8
driver.launch(kernel, 1, 32, (2**64 - 1, -5, 2))
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


def test_what_it_knows_of_the_gpu(fake_driver: Path) -> None:
    code = "print(driver.arch, driver.l2_bytes, driver.name, driver.device, driver.free_bytes(), driver.stream())"
    assert lines(fake_driver, code) == ["device 3", f"sm_90a {60 << 20} NVIDIA H200 cuda:3 5 7"]


def test_wrong_launches_are_clear_lines(fake_driver: Path) -> None:
    code = """
import dataclasses
said(ValueError, lambda: driver.launch(dataclasses.replace(kernel, cubin=b""), 1, 32, (1, 2, 3)))
said(ValueError, lambda: driver.launch(dataclasses.replace(kernel, arch="sm_100a"), 1, 32, (1, 2, 3)))
driver.load(kernel)
said(ValueError, lambda: driver.launch(kernel, 1, 32, (1, 2)))
said(ValueError, lambda: driver.launch(kernel, 1, 32, (1, 2**32, 3)))
"""
    out = [line for line in lines(fake_driver, code) if line.startswith(("ValueError", "nothing", "launch"))]
    assert out == [
        "ValueError: all_reduce/one_shot has no cubin: it was compiled for the simulator only",
        "ValueError: all_reduce/one_shot was compiled for sm_100a, this GPU is sm_90a",
        "ValueError: all_reduce/one_shot has 3 parameters, and was given 2",
        "ValueError: all_reduce/one_shot, parameter 1: 4294967296 does not fit in its 4 bytes",
    ]


def test_a_failed_device_and_a_kernel_that_never_ends_are_named(fake_driver: Path) -> None:
    code = """
driver.launch(kernel, 1, 32, (1, 2, 3))
driver.wait(None)
stream[0] = 0x99
said(DeviceFault, lambda: driver.wait(None))
stream[0] = 0x77
began = time.monotonic()
said(DeadlineExceeded, lambda: driver.wait(began + 0.2))
print(0.2 <= time.monotonic() - began < 10)
"""
    last = "all_reduce/one_shot"
    assert lines(fake_driver, code)[-3:] == [
        "DeviceFault: rank 1: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered "
        f"(last launched: {last})",
        f"DeadlineExceeded: work launched on rank 1 is still running at the deadline: {last} was launched last",
        "True",
    ]


@pytest.mark.parametrize(
    ("value", "size_bytes", "content"),
    [(0, 4, "00000000"), (-1, 4, "ffffffff"), (2**32 - 1, 4, "ffffffff"), (1, 8, "0100000000000000"), (-2, 1, "fe")],
)
def test_integers_are_packed_little_endian(value: int, size_bytes: int, content: str) -> None:
    assert packed(value, size_bytes, "it").hex() == content


@pytest.mark.parametrize(("value", "size_bytes"), [(2**32, 4), (-(2**31) - 1, 4), (2**64, 8), (256, 1)])
def test_what_does_not_fit_is_refused(value: int, size_bytes: int) -> None:
    with pytest.raises(ValueError, match=f"it: {value} does not fit in its {size_bytes} bytes"):
        packed(value, size_bytes, "it")
