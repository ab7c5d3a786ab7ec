"""What the tests of kernels share: one compile cache a session, PTX as opcodes, the sabotaged kernels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest

from kernels.compile import executable
from kernels.spec import Case, KernelSpec
from memory.fabric import Executable


def make_case(algorithm: str = "one_shot", **changes: object) -> Case:
    """A case of all_reduce: 8 ranks, bfloat16, accumulator float32, 1 MiB, unless changed."""
    values: dict[str, object] = {
        "op": "all_reduce",
        "algorithm": algorithm,
        "dtype": "bfloat16",
        "accumulator": "float32",
        "reduction": "sum",
        "size_bytes": 1 << 20,
        "world_size": 8,
    }
    return Case(**{**values, **changes})  # type: ignore[arg-type]


def count_opcodes(ptx: str) -> Counter[str]:
    """How often each opcode with all its qualifiers stands in a PTX text; comments and directives are left out."""
    opcodes: Counter[str] = Counter()
    for line in ptx.splitlines():
        text = line.split("//")[0].strip()
        found = re.match(r"(?:@!?%\w+\s+)?([a-z][\w.:]*)[\s;]", text)
        if found is not None and not text.endswith(":"):
            opcodes[found.group(1)] += 1
    return opcodes


@pytest.fixture(scope="session")
def case_of() -> Callable[..., Case]:
    return make_case


@pytest.fixture(scope="session")
def opcodes() -> Callable[[str], Counter[str]]:
    return count_opcodes


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[KernelSpec, Case, str], Executable]:
    """compiled(spec, case, arch): through one cache for the whole session."""
    cache_dir = tmp_path_factory.mktemp("compiled")
    return lambda spec, case, arch: executable(spec, case, arch, cache_dir)
