"""CudaDriver: how arguments reach the driver, through the real cuda.bindings, and what its errors become.

The driver underneath is a small library that prints its calls (fake_libcuda.c): it needs a C compiler, and no GPU.
"""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.golden import same_text
from tests.processes import ran

HERE = Path(__file__).parent

PRELUDE = """
import dataclasses
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
def fake_driver(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to make the fake driver with")
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        pytest.skip("cuda.bindings is not installed")
    folder = tmp_path_factory.mktemp("driver")
    command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(folder / "libcuda.so.1")]
    subprocess.run([*command, str(HERE / "fake_libcuda.c"), "-ldl"], check=True)
    return folder


def lines(fake_driver, code):
    """What a Python process on the fake driver prints, its own lines and the driver's, in order."""
    done = ran("-u", "-c", PRELUDE + code, env={"LD_LIBRARY_PATH": str(fake_driver)})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


PROGRAMS = {
    "a kernel is loaded once, and launched with its parameters' sizes": """
driver.launch(kernel, Launch(3, 128), of(0x7F0012345678, 5, -1))
stream[0] = 8
driver.launch(kernel, ONE, of(2**64 - 1, -5, 2))
driver.copy(0xABC, 0xDEF, 16)
driver.wait(None)
""",
    "a stream waits for an event of another, which is given back after a failure, too": """
driver.wait_stream(5, None)
stream[0] = 8
driver.wait_stream(None, 6)
said(DeviceFault, lambda: driver.wait_stream(5, 0x99))
""",
    "what it knows of the GPU": """
print(driver.arch, driver.l2_bytes, driver.name, driver.device, driver.free_bytes(), driver.stream())
""",
    "wrong launches are clear lines": """
said(ValueError, lambda: driver.launch(dataclasses.replace(kernel, cubin=b""), ONE, GIVEN))
said(ValueError, lambda: driver.launch(dataclasses.replace(kernel, arch="sm_100a"), ONE, GIVEN))
driver.load(kernel)
said(ValueError, lambda: driver.launch(kernel, ONE, GIVEN[:2]))
said(ValueError, lambda: driver.launch(kernel, ONE, of(1, 2**32, 3)))
said(ValueError, lambda: driver.launch(kernel, Launch(1, 32, shared_bytes=232_448), GIVEN))
driver.arch = "sm_80"
said(ValueError, lambda: driver.launch(dataclasses.replace(kernel, arch="sm_80"), Launch(4, 32, cluster=2), GIVEN))
""",
    "a kernel without a cubin is loaded as PTX": """
driver.load(dataclasses.replace(kernel, cubin=b"", ptx=".version 9.0", digest="sha256:2"))
""",
    "a module's variable is written at once": """
driver.set_variable(kernel, "table", 8, bytes([1, 2, 255]))
said(ValueError, lambda: driver.set_variable(kernel, "tabel", 0, b"1"))
said(ValueError, lambda: driver.set_variable(kernel, "table", 8, bytes(17)))
""",
    "NVSHMEM's device code is loaded as a library, whose handle NVSHMEM takes": """
linked = dataclasses.replace(kernel, ptx=".const .b8 nvshmemi_device_state_d[848];", digest="sha256:2")
print("handle", driver.library_handle(linked))
driver.load(linked)
driver.load(kernel)
""",
    "what others queue is named, too: a library's collective that hung passed for a kernel of ours": """
driver.launch(kernel, ONE, GIVEN)
driver.note("all_to_all/nvshmem")
stream[0] = 0x77
said(DeadlineExceeded, lambda: driver.wait(time.monotonic()))
stream[0] = 0x99
said(DeviceFault, lambda: driver.wait(None))
""",
    "a failed device and a kernel that never ends are named": """
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
""",
    "every kind of argument reaches the driver whole and aligned, and kernels of one module are told apart": """
every = dataclasses.replace(kernel, entry="every_kind")
values = [("f32", 1.5), ("f64", -2.0), ("u32", -1), ("u64", 2**63), ("address", 0xABC), ("bytes", bytes(range(20)))]
driver.launch(every, ONE, tuple(Argument(*one) for one in values))
driver.launch(kernel, ONE, GIVEN)
""",
    "the limit of shared memory is raised only where it is too low; the stream of a launch is waited for": """
driver.launch(kernel, Launch((4, 3, 2), (8, 4, 2), shared_bytes=100, stream=9), GIVEN)
driver.launch(kernel, Launch((4, 3, 2), (8, 4, 2), shared_bytes=200_000, cluster=(2, 1, 2)), GIVEN)
driver.launch(kernel, Launch(1, 1, shared_bytes=150_000), GIVEN)
driver.launch(kernel, Launch(2, 1, cooperative=True), GIVEN)
driver.launch(kernel, Launch(4, 1, cluster=2, cooperative=True), GIVEN)
waiting = dataclasses.replace(kernel, ptx="griddepcontrol.wait;")
driver.launch(waiting, Launch(3, 1, dependent=True), GIVEN)
said(ValueError, lambda: driver.launch(kernel, Launch(3, 1, dependent=True), GIVEN))
driver.wait(None)
""",
    "of 1,024 threads 2 blocks fit on each of 132 multiprocessors": """
driver.launch(kernel, Launch(264, 1024, cooperative=True), GIVEN)
said(ValueError, lambda: driver.launch(kernel, Launch(265, 1024, cooperative=True), GIVEN))
driver.launch(kernel, Launch(265, 1024), GIVEN)
""",
    "a launch that is repeated is packed once, and a changed one again": """
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
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", PROGRAMS)
def test_what_the_driver_is_asked(fake_driver, what):
    """The calls, in order, are kept whole; in which order streams are looked at is the driver's own business."""
    out = lines(fake_driver, PROGRAMS[what])
    looks = {line for line in out if line.startswith("look")}
    same_text("\n".join([*(line for line in out if line not in looks), *sorted(looks)]))
