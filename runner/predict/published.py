"""What the model is scored by, beside the published records: their kernels, the profile of each case, and how to make
both again.

Of each machine: kernels.json.xz (recorded_kernels.py) and profiles.json.xz, a case's work by the record's id and the
digest of its PTX. Scoring reads these and the bundles, and simulates nothing. Tests simulate a sample again.
"""

from __future__ import annotations

import json
import lzma
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from memory.fabric import Launch
from reports.publish import PLACE
from reports.record.bundle import SUFFIX, read, write_file
from reports.record.record import Record
from runner.predict import recorded_kernels
from runner.predict.case_work import CaseWork
from runner.predict.evidence import Measured, is_evidence, measured, profile_key
from runner.predict.profiling import Runnable, least_steps, profiled
from runner.predict.rates import known_rates
from runner.predict.recorded_kernels import RecordedKernels, RecordedLaunch
from simulator.clock.costs import H200_TRIAL

PROFILES = "profiles.json.xz"
FORM = 1
MOST_BYTES = 1 << 26


def machines(root: Path) -> dict[str, list[Record]]:
    """Return the records of each published machine that the model is scored by, by the name of its folder."""
    folders = sorted({path.parent for path in (root / PLACE).glob(f"*/*{SUFFIX}")})
    found = {
        folder.name: [one for one in read(sorted(folder.glob(f"*{SUFFIX}"))) if is_evidence(one)] for folder in folders
    }
    return {name: records for name, records in found.items() if records}


def evidence(root: Path) -> tuple[Measured, ...]:
    """Return all published cases that the model is scored by. ValueError if a profile is missing."""
    found: list[Measured] = []
    for name, records in machines(root).items():
        found += measured(records, profiles(root / PLACE / name / PROFILES), known_rates())
    return tuple(found)


def profiles(path: Path) -> dict[str, CaseWork]:
    """Return the profiles in a file by profile_key; {} if there is no file. ValueError, naming it, for another one."""
    if not path.is_file():
        return {}
    try:
        unpacker = lzma.LZMADecompressor()
        document = json.loads(unpacker.decompress(path.read_bytes(), MOST_BYTES))
        if document["form"] != FORM:
            raise ValueError(f"its form is {document['form']}, this version reads {FORM}")
        return {key: CaseWork.of(one) for key, one in document["profiles"].items()}
    except (OSError, EOFError, lzma.LZMAError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not a file of profiles ({error})") from error


def write_profiles(found: Mapping[str, CaseWork], path: Path) -> None:
    """Write profiles, compressed: the same ones give the same bytes."""
    document: dict[str, Any] = {"form": FORM, "profiles": {key: one.document() for key, one in found.items()}}
    text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    write_file(path, lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))


def make(root: Path, say: Callable[[str], None]) -> None:
    """Compile and simulate what is missing beside the published records. RequestError if a commit can't be compiled.

    What was made until an interrupt is kept.
    """
    for name, records in machines(root).items():
        folder = root / PLACE / name
        kernels = _kernels(folder / recorded_kernels.NAME, records, root, say)
        known = profiles(folder / PROFILES)
        wanted = sorted({profile_key(record) for record in records})
        known = {key: known[key] for key in wanted if key in known}
        try:
            for number, (key, work) in enumerate(works(kernels, [key for key in wanted if key not in known])):
                known[key] = work
                say(f"{name}: {number + 1} simulated, {key.partition(' ')[0]}")
        finally:
            write_profiles(known, folder / PROFILES)


def works(kernels: RecordedKernels, keys: Iterable[str]) -> Iterable[tuple[str, CaseWork]]:
    """Simulate recorded cases one after another; yield each with its profile."""
    least: dict[str, dict[str, float]] = {}
    for key in keys:
        runnable = runnable_of(kernels, key)
        digest = runnable.executable.digest
        if digest not in least:
            least[digest] = least_steps(runnable, H200_TRIAL)
        yield key, profiled(runnable, H200_TRIAL, least[digest])


def runnable_of(kernels: RecordedKernels, key: str) -> Runnable:
    """Return a recorded case with the kernel that it ran."""
    one = kernels.launches[key]
    least_blocks = min(other.blocks for other in kernels.launches.values() if _series(other) == _series(one))
    launch = Launch(one.blocks, one.threads)
    return Runnable(one.case, one.spec(), kernels.executable(one), launch, least_blocks)


def _kernels(path: Path, records: Sequence[Record], root: Path, say: Callable[[str], None]) -> RecordedKernels:
    """Return the kernels of a machine's records, compiled if the file lacks any."""
    wanted = {profile_key(record): record for record in records}
    if path.is_file():
        found = recorded_kernels.read(path)
        if set(wanted) == set(found.launches):
            return found
    say(f"{path.parent.name}: compiling the kernels of {len(wanted)} cases from their commit")
    with tempfile.TemporaryDirectory(prefix="symlab-predict-") as cache:
        document = recorded_kernels.compiled(list(wanted.values()), root, Path(cache))
    recorded_kernels.write(document, path)
    return recorded_kernels.read(path)


def _series(one: RecordedLaunch) -> tuple[str, str, int]:
    return one.case.name, one.case.dtype, one.case.world_size
