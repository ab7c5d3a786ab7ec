"""The command audit: one place is checked against itself, two are compared; and what is published.

What takes longer than two seconds is said on standard error.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cases.record.record import Record
from reports.record import bundle
from reports.record.writing import can_be_written, write_file
from reports.table import sheet, table
from reports.table.text import counted
from reports.table.unfinished import unfinished
from symlab.evidence.audit.gate import Gate
from symlab.evidence.audit.result import Result, as_json
from symlab.evidence.audit.signatures import checked_signers
from symlab.evidence.audit.statistics import parse_band
from symlab.evidence.audit.worker import RERUN_S, Rerun, Wanted

QUIET_S = 2.0
"""Progress is shown from then on, and no more often than that where it is no terminal."""

MOST_DIGITS = 18
"""Maximum number of digits of a number of cases."""


class Progress:
    """Lines on standard error, once something lasts; one line that is written again where that is a terminal."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()
        self._shown = False

    def __call__(self, text: str) -> None:
        now_s = time.monotonic()
        is_terminal = sys.stderr.isatty()
        if now_s - self._last_s < (QUIET_S if not is_terminal or not self._shown else 0.1):
            return
        self._last_s, self._shown = now_s, True
        print(f"\r\033[K{text}" if is_terminal else text, end="" if is_terminal else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown and sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What to audit: one place of records, or two to compare; as click gives it.

    band: the share within which changes of times do not matter, such as "2%". gate: the findings of a comparison that
    decide the exit code; None, as for one place, is any. up_to: the maximum size of cases that
    are compared with the reference (1M). code: folders whose files may be run for records, too. rerun, seed: see
    rerun_of. signers: a list of signers, as ssh-keygen takes it. output: a file for the result, too.
    """

    records: tuple[str, ...]
    band: str = "2%"
    gate: str | None = None
    up_to: str | None = None
    code: tuple[Path, ...] = ()
    rerun: str | None = None
    seed: int | None = None
    signers: Path | None = None
    output: Path | None = None


def run(options: AuditOptions) -> int:
    """Audit what the options name. Returns the exit code. ValueError for a wrong request, or what can't be read."""
    if len(options.records) == 2 and (options.up_to, options.rerun, options.seed) != (None, None, None):
        names = "--up-to, --rerun, --seed"
        raise ValueError(f"{names}: two places are compared with each other, give one, or use symlab replay")
    band = parse_band(options.band)
    wanted = _wanted(options) if len(options.records) == 1 else Wanted()
    if options.output is not None and options.output.suffix not in (".html", ".md", ".json"):
        raise ValueError(f"{options.output}: an audit's name ends in .html, .md or .json")
    if options.output is not None:
        can_be_written(options.output)
    if len(options.records) > 2:
        raise ValueError(f"{len(options.records)} places: give one to be checked, or two, BEFORE and AFTER")
    if options.gate and len(options.records) < 2:
        raise ValueError(f"--gate {options.gate}: one place has nothing to compare, give two, BEFORE and AFTER")
    if options.signers and len(options.records) > 1:
        raise ValueError("--signers: two places are compared whatever their signatures; audit each of them alone")
    signers = checked_signers(options.signers) if options.signers else None
    progress = Progress()
    result: Result
    if len(options.records) == 1:
        records, result = _checked(options, wanted, signers, progress)
    else:
        sides = [_read(place, progress) for place in options.records]
        records = [record for side in sides for record in side]
        from symlab.evidence.audit.comparison import compare

        progress(f"comparing {counted(len(sides[0]), 'record')} with {len(sides[1])}")
        result = compare(sides[0], sides[1], band, gate=Gate(options.gate or Gate.ANY))
    progress.end()
    if options.output is not None:
        _write(result, records, options.output)
    for line in unfinished(options.records, records):
        print(f"symlab: {line}", file=sys.stderr)
    # The exit code is the result's, even if the reader left (| head).
    with contextlib.suppress(BrokenPipeError):
        print(_text(result), end="", flush=True)
    return result.exit_code


def _read(place: str, progress: Progress) -> list[Record]:
    progress(f"reading {place}")
    return bundle.read([place])


def _checked(
    options: AuditOptions, wanted: Wanted, signers: Path | None, progress: Progress
) -> tuple[list[Record], Result]:
    """Return the records of one place and how they are checked. The worker reads those of files itself, and they are
    read here after it has ended, so that their memory is not beside its own."""
    from symlab.evidence.audit.checklist import check, recomputed

    (place,) = options.records
    before = _stamps(place)
    if not bundle.record_files(Path(place)):
        bundle.read([place])  # says what is wrong
    answer = recomputed([Path(place)], None, wanted, progress)
    records = _read(place, progress)
    if _stamps(place) != before:
        raise ValueError(f"{place}: files changed while they were audited, audit them again")
    return records, check(records, [place], say=progress, signers=signers, answer=answer)


def _stamps(place: str) -> list[tuple[str, int, int]]:
    """Return the name, size and time of change of each file of records of a place."""
    states = [(path, path.stat()) for path in bundle.record_files(Path(place)) if path.exists()]
    return [(str(path), state.st_size, state.st_mtime_ns) for path, state in states]


def _text(result: Result, form: str = "") -> str:
    """The result as a file with this suffix has it, "" as text, ending in a newline."""
    if form == ".json":
        return _as_text(as_json(result))
    if form == ".md":
        return _as_text(f"{sheet.markdown(result.sheets, result.captions)}\n\n**{result.verdict}**\n")
    render = table.rendering()
    verdict = "\n".join(sheet.wrapped(result.verdict, sheet.room_here()))
    return _as_text(f"{render(result.sheets, result.captions)}\n\n{verdict}\n")


def _as_text(text: str) -> str:
    """Return text that UTF-8 can express: names of files may hold bytes that it can't, which become escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _write(result: Result, records: Sequence[Record], path: Path) -> None:
    """Write the result to a file whose name says the form, and say so on standard error."""
    if path.suffix == ".html":
        from reports.html import page

        text = _as_text(page(records, audit=result))
    else:
        text = _text(result, path.suffix)
    write_file(path, text.encode("utf-8"))
    print(f"{path}: written", file=sys.stderr)


def _wanted(options: AuditOptions) -> Wanted:
    from runner.request.sizes import parse_bytes

    asked = "1M" if options.up_to is None else options.up_to
    up_to_bytes = parse_bytes(asked, "--up-to", 0)
    return Wanted(up_to_bytes, options.code, rerun_of(options.rerun, options.seed))


def rerun_of(text: str | None, seed: int | None) -> Rerun:
    """Return how many cases to run again: a number, "all", or None for all that a minute allows, in an order of a seed,
    random if None. Where a number or "all" is given they run by the code of their commit, too. Raises ValueError for
    anything else."""
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    if text is None:
        return Rerun(seed=seed, patience_s=RERUN_S)
    if text == "all":
        return Rerun(seed=seed, patience_s=None, at_commit=True)
    if not text.isascii() or not text.isdigit() or len(text) > MOST_DIGITS:
        raise ValueError(f"'{text}' is not a number of cases (--rerun): give a number such as 20, 0 for none, or all")
    return Rerun(int(text), seed, None, at_commit=True)
