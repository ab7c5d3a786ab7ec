"""The all_reduce examples of CuTe DSL, from a checkout of NVIDIA/cutlass or FlashInfer's wheel: their kernels, as
they are.

A file's kernels are compiled from fake tensors and launched on a world's ranks. Its host code (torch.distributed,
NVSHMEM) is not run: while the file is imported, the libraries that only the host code uses are stand-ins.
"""

import hashlib
import importlib.util
import re
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from memory.fabric import Executable
from symlab.checks.forms import missing_forms
from tests.foreign.environment import ENVIRONMENT, absent

FOLDER = Path("examples/python/CuTeDSL/cute/blackwell/kernel/distributed")
ARCH = "sm_100a"


@contextmanager
def stand_ins():
    """Let the examples import what their host code uses: cuda.core, nvshmem4py and NVSHMEM's host library."""
    import cuda.pathfinder

    names = ("cuda.core", "cuda.core.experimental", "nvshmem", "nvshmem.core")
    core, experimental, nvshmem, nvshmem_core = made = [ModuleType(name) for name in names]
    core.Device = experimental.Device = nvshmem.core = nvshmem_core
    with pytest.MonkeyPatch.context() as patch:
        for module in made:
            patch.setitem(sys.modules, module.__name__, module)
        patch.setattr(cuda.pathfinder, "load_nvidia_dynamic_lib", lambda name: None)
        yield


def in_the_wheel():
    """The folder of FlashInfer's wheel that has an older state of the same files."""
    found = (ENVIRONMENT / "lib").glob("python*/site-packages/flashinfer/data/cutlass")
    return next(found, ENVIRONMENT) / "examples" / "python" / "CuTeDSL" / "distributed"


def folder_of(request, inside, kind):
    """A folder of the checkout that was given, else that of its kind in FlashInfer's wheel. Skips without both."""
    given = request.config.getoption("--cutlass-checkout")
    if given is not None:
        assert (Path(given) / inside).is_dir(), f"{given} has no {inside} (--cutlass-checkout), give a checkout of it"
        return Path(given) / inside
    if reason := absent():
        pytest.skip(f"{reason}; or --cutlass-checkout DIR, a checkout of NVIDIA/cutlass")
    return in_the_wheel().parent / kind


def example(folder, name):
    """Import a file of a folder."""
    path = folder / f"{name}.py"
    specification = importlib.util.spec_from_file_location(f"cutlass_example_{name}", path)
    module = importlib.util.module_from_spec(specification)
    with stand_ins():
        specification.loader.exec_module(module)
    return module


def rows(*shape, order=None, dtype="Float32"):
    """A tensor of known shape without memory, to compile from. order: of dimensions, 0 the innermost; None: by rows."""
    import cutlass
    from cutlass.cute.runtime import make_fake_compact_tensor

    strides = tuple(order) if order else tuple(reversed(range(len(shape))))
    return make_fake_compact_tensor(getattr(cutlass, dtype), shape, stride_order=strides, assumed_align=32)


def compiled(name, function, *arguments):
    """Compile the one kernel that a function launches."""
    import cutlass.cute as cute
    from cutlass.base_dsl.compiler import DumpDir

    with tempfile.TemporaryDirectory() as folder:
        options = (cute.KeepPTX, cute.GenerateLineInfo(True), DumpDir(folder), cute.GPUArch(ARCH))
        ptx = cute.compile[options](function, *arguments).artifacts.PTX
    text = (ptx.decode() if isinstance(ptx, bytes) else ptx).rstrip("\0")
    (entry,) = re.findall(r"\.entry ([\w$]+)", text)
    return taken(Executable(name, entry, ARCH, text, f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"))


def taken(executable):
    """The kernel, all forms of which the simulator has, also those that never run."""
    assert missing_forms(executable.ptx) == ()
    return executable


def tensor_argument(place):
    """What a tensor of known shape is as a kernel's parameter: a struct of its address. place: a tensor or a view."""
    return "bytes", int(place.address).to_bytes(8, "little")
