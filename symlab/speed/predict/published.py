"""What the model is scored by, beside the published records: their kernels, the profile of each case, and how to make
both again.

Of each machine: kernels.json.xz (recorded_kernels.py) and profiles.json.xz, a case's work by the record's id and the
digest of its PTX. Scoring reads these and the bundles, and simulates nothing. Tests simulate a sample again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from cases.record.record import Record
from memory.fabric import Launch
from reports.record.bundle import KERNELS_NAME, SUFFIX, digest, published_sets, read
from reports.record.bundle import PUBLISHED as PLACE
from reports.record.writing import write_file
from reports.table.text import counted
from simulator.clock.costs import H200_TRIAL
from symlab.speed.predict import recorded_kernels
from symlab.speed.predict.case_work import CaseWork
from symlab.speed.predict.evidence import Measured, is_evidence, measured, profile_key
from symlab.speed.predict.profiling import Runnable, least_steps, profiled
from symlab.speed.predict.rates import known_rates
from symlab.speed.predict.recorded_kernels import (
    PROFILES,
    RecordedKernels,
    RecordedLaunch,
    read_profiles,
    write_profiles,
)
from symlab.speed.predict.score import Score, scored
from symlab.speed.predict.splits import FITTED_TO
from symlab.speed.predict.stored_score import write

SAID_EVERY = 50
"""Number of simulated cases after which progress is said: some half a minute."""


def machines(root: Path) -> dict[str, list[Record]]:
    """Return the records of each published set that the model is scored by, by the name of its folder."""
    return scored_of({name: read(sorted((root / PLACE / name).glob(f"*{SUFFIX}"))) for name in published_sets(root)})


def scored_of(published: Mapping[str, Iterable[Record]]) -> dict[str, list[Record]]:
    """Return the records of each set that the model is scored by; nothing of a set without any."""
    found = {name: [one for one in records if is_evidence(one)] for name, records in published.items()}
    return {name: records for name, records in found.items() if records}


def evidence(root: Path, sets: Mapping[str, Sequence[Record]] | None = None) -> tuple[Measured, ...]:
    """Return all published cases that the model is scored by. sets: what machines returned, None to read it.

    ValueError if a profile is missing, or if a set of FITTED_TO has other records than the constants were fitted to.
    """
    found: list[Measured] = []
    for name, records in (machines(root) if sets is None else sets).items():
        if name in FITTED_TO and digest(records) != FITTED_TO[name]:
            raise ValueError(
                f"{PLACE.as_posix()}/{name} has other records than the model's constants are fitted to (FITTED_TO): "
                f"give what was measured later a folder of its own, such as {name}-{records[0].started[:10]}"
            )
        found += measured(name, records, read_profiles(root / PLACE / name / PROFILES), known_rates())
    return tuple(found)


def derive_set(place: Path, records: Sequence[Record], say: Callable[[str], None]) -> None:
    """Make the kernels and profiles of a published set, where they are missing and the model is scored by it."""
    if mine := scored_of({place.name: records}).get(place.name):
        make_set(place, mine, say)


def derive_score(root: Path, sets: Mapping[str, Sequence[Record]], keep: Callable[[Score], None] = write) -> str:
    """Score the model by the published sets and keep that; return what to say of it. ValueError as of evidence."""
    if not set(FITTED_TO) <= set(sets):
        return f"no score: it is fitted to {' and '.join(FITTED_TO)}, and not all are here"
    keep(scored(evidence(root, scored_of(sets))))
    return "the model's score: written"


def missing(place: Path, records: Iterable[Record]) -> list[str]:
    """Return the names of the files of evidence that a set's folder lacks, or that are of other records. ValueError for
    one that can't be read."""
    wanted = {profile_key(one) for one in records if is_evidence(one)}
    kernels = place / KERNELS_NAME
    compiled_keys = set(recorded_kernels.read(kernels).launches) if kernels.is_file() else set()
    there = {KERNELS_NAME: compiled_keys, PROFILES: set(read_profiles(place / PROFILES))}
    return [name for name, keys in there.items() if wanted and keys != wanted]


def write_kernels(place: Path, records: Sequence[Record], say: Callable[[str], None]) -> None:
    """Compile the kernels that timed records name, unless they are there. What is missing is said, and is no failure:
    a checkout of the commit makes them with the same call."""
    wanted = list({profile_key(one): one for one in records if is_evidence(one)}.values())
    path = place / KERNELS_NAME
    if not wanted or path.is_file():
        return
    say(f"compiling the kernels of {counted(len(wanted), 'case')}")
    try:
        _compile(wanted, path)
    except (OSError, RuntimeError, ValueError) as error:
        say(f"{path.name} is not written: {' '.join(str(error).split())}")


def _compile(records: Sequence[Record], path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="symlab-predict-") as cache:
        recorded_kernels.write(recorded_kernels.compiled(records, Path(cache)), path)


def make_set(place: Path, records: Sequence[Record], say: Callable[[str], None]) -> None:
    """Compile and simulate what is missing in a set's folder, unless a set beside it has it of the same code. What was
    simulated until an interrupt is kept.

    records: those of the set that the model is scored by. RequestError if they ran other code than is compiled here.
    """
    if not missing(place, records):
        return
    kernels = _kernels(place / KERNELS_NAME, records, say)
    known = {
        key: work for path in sorted(place.parent.glob(f"*/{PROFILES}")) for key, work in read_profiles(path).items()
    }
    wanted = sorted({profile_key(record) for record in records})
    known = {key: known[key] for key in wanted if key in known}
    left = [key for key in wanted if key not in known]
    try:
        for number, (key, work) in enumerate(works(kernels, left), start=1):
            known[key] = work
            if number % SAID_EVERY == 0 or number == len(left):
                say(f"{place.name}: {number} of {len(left)} cases simulated")
    finally:
        write_profiles(known, place / PROFILES)


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


def _kernels(path: Path, records: Sequence[Record], say: Callable[[str], None]) -> RecordedKernels:
    """Return the kernels of a machine's records, compiled if the file lacks any."""
    wanted = {profile_key(record): record for record in records}
    commits = {str((record.environment.git or {}).get("commit")) for record in records}
    for there in (path, *sorted(path.parent.parent.glob(f"*/{KERNELS_NAME}"))):
        found = recorded_kernels.read(there) if there.is_file() else None
        if found is not None and set(wanted) == set(found.launches) and commits == {found.commit}:
            if there != path:
                write_file(path, there.read_bytes())
            return found
    say(f"{path.parent.name}: compiling the kernels of {len(wanted)} cases")
    _compile(list(wanted.values()), path)
    return recorded_kernels.read(path)


def _series(one: RecordedLaunch) -> tuple[str, str, int]:
    return one.case.name, one.case.dtype, one.case.world_size
