"""Whether kernels of records are what they are today: by their sources and, where those moved, by their code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.gathered import gathered
from cases.record.record import Record
from runner.request.validate import CUSTOM
from runner.request_error import first_line

if TYPE_CHECKING:
    from kernels.spec import KernelSpec
    from runner.case.allowed_code import AllowedCode

MALFORMED = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, ZeroDivisionError)
"""What a record that holds something strange may raise: it is named, and the others are looked at."""


def sources(
    records: Iterable[Record],
    cache_dir: Path,
    say: Callable[[str], None],
    folder: Path | None = None,
    code: AllowedCode | None = None,
) -> dict[str, list[Any]]:
    """Return the recorded kernels' names by how their sources and their code compare with today's.

    "same": the sources are today's. Where they are not, what the recorded cases compile to here decides: "same_code",
    or "changed". "older": the records have no code digests to compare. "gone": not in the catalogue any more.
    "not_comparable": [[name, reason], ..], for what can't be compiled here, and for a brought kernel whose file is not
    here, or may not run. folder is where relative paths of brought kernels begin; None: the working folder. code says
    what may run; None: what may by default. Brought files other than the recorded are "changed", and are not run unless
    code allows that.
    """
    from kernels.catalogue import is_known
    from runner.case.allowed_code import allowed_code
    from runner.case.bringing import recorded_place

    code = code or allowed_code(folder=folder)
    found: dict[str, list[Any]] = {
        "same": [], "same_code": [], "changed": [], "older": [], "gone": [], "not_comparable": [],
    }  # fmt: skip
    recorded = gathered((record.kernel.name, record) for record in records if record.kernel is not None)
    for name, members in sorted(recorded.items()):
        if not is_known(name) and not recorded_place(members[0]):
            found["gone"].append(name)
            continue
        outcome, what = _compared(name, members, cache_dir, say, folder, code)
        found[outcome].append([name, what] if what else name)
    return found


def _compared(
    name: str,
    records: Sequence[Record],
    cache_dir: Path,
    say: Callable[[str], None],
    folder: Path | None,
    code: AllowedCode,
) -> tuple[str, str]:
    """How a kernel, or the files of a custom job, compare with today's, and the reason where they can't be."""
    from kernels.compile import source_digest
    from runner.case.bringing import is_other_code, recorded_digest_here, recorded_place, recorded_spec, refuse_recorded

    first = records[0]
    kernels = [one.kernel for one in records if one.kernel is not None]
    try:
        refuse_recorded(first, folder, code)
        if first.case.op == CUSTOM:
            is_same = {one.source_digest for one in kernels} == {recorded_digest_here(first, folder)}
            return ("same" if is_same else "changed"), ""
        if recorded_place(first) and not code.changed and is_other_code(first, first.case.algorithm, folder):
            return "changed", ""
        spec = recorded_spec(first, folder)
    except MALFORMED as error:
        return "not_comparable", first_line(error)
    if {one.source_digest for one in kernels} == {f"sha256:{source_digest(spec)}"}:
        return "same", ""
    if any(one.code_digest is None for one in kernels):
        return "older", ""
    say(f"compiling {name}, to compare its code")
    try:
        is_same = _have_todays_code(spec, records, cache_dir)
    except (RuntimeError, *MALFORMED) as error:
        return "not_comparable", first_line(error)
    return ("same_code" if is_same else "changed"), ""


def _have_todays_code(spec: KernelSpec, records: Iterable[Record], cache_dir: Path) -> bool:
    """Return whether one kernel's cases compile here to what they ran. Raises RuntimeError if one can't be compiled."""
    from cases.code_digest import code_digest
    from kernels.compile import executable

    here: dict[tuple[str, str], str] = {}
    for record in records:
        assert record.kernel is not None
        case, arch = record.case, record.kernel.arch
        variant = spec.variant(case), arch
        if variant not in here:
            here[variant] = code_digest(executable(spec, case, arch, cache_dir).ptx)
        if here[variant] != record.kernel.code_digest:
            return False
    return True
