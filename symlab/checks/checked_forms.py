"""What `symlab check` says of the forms of a file."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symlab.checks.forms import Missing

ARCH = re.compile(r"sm_\d+[af]?")
SHOWN_LINES = 12
"""Maximum number of lines to name for each form and each message of ptxas."""


def checked(file: Path, arch: str | None) -> tuple[str, int]:
    """Print which forms of a PTX file the simulator does not have, and what ptxas says of it; return its text and the
    exit code: 0, or 1 if something is missing or refused. ValueError for what is no such file."""
    from simulator.ptx.parse import PtxSyntaxError, check_start, entries_of
    from symlab.checks.forms import missing_forms

    if arch is not None and not ARCH.fullmatch(arch):
        raise ValueError(f"'{arch}' is no architecture (--arch), give one such as sm_90a or sm_100a")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path with a null character
        raise ValueError(f"{file}: {getattr(error, 'strerror', None) or 'not text'}, give a PTX file") from None
    check_start(str(file), text)
    target = re.search(r"^\s*\.target\s+(\w+)", text, re.MULTILINE)
    if target is None:
        raise ValueError(f"{file}: no .target, give a PTX module")
    try:
        entries = entries_of(text)
        missing = missing_forms(text)
    except PtxSyntaxError as error:
        print(f"{file}: the simulator can't read it: {error}")
        is_whole = False
    else:
        if not entries:
            raise ValueError(f"{file}: no kernel (.entry), give PTX with one: a function alone cannot be launched")
        kernels = f"{len(entries)} kernel{'s' * (len(entries) != 1)}: {', '.join(entries)}"
        print(textwrap.fill(f"{file}: {target.group(1)}, {kernels}", 120, break_on_hyphens=False))
        is_whole = not missing
        _say_missing(missing)
    is_legal = _say_assembled(text, arch or target.group(1))
    return text, 0 if is_whole and is_legal else 1


def _say_missing(missing: Sequence[Missing]) -> None:
    """Print what the simulator does not have."""
    if not missing:
        print("simulator: has all forms")
        return
    places = sum(len(one.lines) for one in missing)
    print(
        f"simulator: {len(missing)} unsupported form{'s' * (len(missing) != 1)}, in {places} line{'s' * (places != 1)}"
    )
    for one in missing:
        print(f"  {len(one.lines)} x {one.form}: {_lines(one.lines)}")
        if "the simulator has no " not in one.reason or " yet" not in one.reason:
            print(f"      {one.reason}")


def _lines(numbers: tuple[int, ...]) -> str:
    more = len(numbers) - SHOWN_LINES
    shown = ", ".join(map(str, numbers[:SHOWN_LINES])) + (f" and {more} more" if more > 0 else "")
    return f"line{'s' * (len(numbers) != 1)} {shown}"


def _say_assembled(text: str, arch: str) -> bool:
    """Print what ptxas says; returns False if it refuses the module."""
    from simulator.ptx.assembler import PACKAGE, assembled, find_ptxas

    ptxas = find_ptxas()
    if ptxas is None:
        print(f"ptxas: not installed, so what hardware refuses is unknown (pip install {PACKAGE} brings it)")
        return True
    verdict = assembled(ptxas, text, arch)
    name = f"ptxas {verdict.version}".rstrip()
    if not verdict.problems:
        print(f"{name}: assembles it for {arch}")
        return True
    old = next((one.text for one in verdict.problems if one.text.startswith("Unsupported .version")), "")
    if old:
        print(f"{name}: too old for this file, so what hardware refuses is unknown: {old}")
        return True
    print(f"{name}: refuses it for {arch}")
    for one in verdict.problems:
        print(f"  line {one.line}: {one.text}" if one.line else f"  {one.text}")
    return False
