"""The kernels of cases that are to run again, compiled before anything runs, in a copy of this process.

So the process that runs the cases has torch and the simulator, and never the compiler, which takes 200 MB.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from cases.record.record import Record
from memory.forked import forked
from runner.case.todays_code import MALFORMED

Kernel = tuple[str, str, str]
"""A kernel's name, variant and architecture."""


def compiled_first(
    records: Iterable[Record], cache_dir: Path, patience_s: float | None, say: Callable[[str], None]
) -> frozenset[Kernel]:
    """Compile into a cache what it lacks of records' kernels, in their order. None is begun after patience_s seconds
    (None: no limit): those are returned. What can't be compiled is left to who runs it."""
    ends_s = math.inf if patience_s is None else time.monotonic() + patience_s
    return forked(lambda: _compiled(records, cache_dir, ends_s, say))


def kernel_of(record: Record) -> Kernel | None:
    """Return the kernel of the catalogue that a record's case runs here; None for all others, and for a record that
    holds something strange."""
    from kernels.catalogue import find, is_known

    name = record.case.name
    if record.kernel is None or record.fabric is None or not is_known(name):
        return None
    with contextlib.suppress(*MALFORMED):
        return name, find(name).variant(record.case), record.fabric.arch
    return None


def _compiled(
    records: Iterable[Record], cache_dir: Path, ends_s: float, say: Callable[[str], None]
) -> frozenset[Kernel]:
    """Compile; return those that the time did not suffice for."""
    from kernels.catalogue import find
    from kernels.compile import cache_key, entry_path, executable

    seen: set[Kernel] = set()
    late: set[Kernel] = set()
    for record in records:
        kernel = kernel_of(record)
        if kernel is None or kernel in seen:
            continue
        seen.add(kernel)
        spec, case, arch = find(record.case.name), record.case, kernel[2]
        with contextlib.suppress(RuntimeError, *MALFORMED):  # who runs it says what is wrong
            if entry_path(spec, arch, cache_key(spec, case, arch), cache_dir).exists():
                continue
            if time.monotonic() > ends_s:
                late.add(kernel)
                continue
            say(f"compiling {spec.name}, to run it again")
            executable(spec, case, arch, cache_dir)
    return frozenset(late)
