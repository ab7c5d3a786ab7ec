"""Predictions that are kept before anything is measured: a JSON file for each job, with what they were made of.

Such a file says when it was made and at which commit, by which constants, floors, simulator and kernels, and what was
asked. Committed before the measurements, it proves by the history that it came first; they are compared with it later
(compared.py). A kept file is never replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cases.case import Case
from cases.documents import parsed
from kernels.catalogue import find
from kernels.compile import executable
from memory.atomic_file import creating
from reports.record.bundle import PREDICTED_SUFFIX
from runner.environment.repository import git
from runner.predict.asking import Asked
from runner.predict.beside import digest_of_constants, digest_of_rates
from runner.predict.model import REGIMES
from runner.predict.predicting import Prediction, simulator_digest
from runner.predict.shown import Series
from runner.predict.stored_score import Stored
from runner.records.scrub import scrubbed
from runner.request.validate import CONF
from runner.request_error import RequestError

FORM = 1
"""The number of the form of kept predictions."""

_MOST_BYTES = 1 << 26
_CASE = ("op", "algorithm", "dtype", "accumulator", "reduction", "size_bytes", "world_size", "placement", "root")
"""What a time depends on of a case: its inputs and their seed are not among it. Only uniform counts are predicted."""

_TEXTS = ("op", "algorithm", "dtype", "accumulator", "reduction", "placement")
_NUMBERS = ("size_bytes", "world_size", "root", "offset")
_SAID = 300
"""Characters of what is wrong with a file: a value may have millions."""

_HERE = ("cache_dir", "records")
"""Keys of a request that say where files are on this machine."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Kept:
    """A kept prediction. gpu: the type; case: without inputs; made: the time, UTC in ISO form. ptx: the digest of the
    code that was predicted. is_calibrated: whether the type had floors of its own."""

    gpu: str
    case: Case
    made: str
    ptx: str
    time_us: float
    low_us: float
    high_us: float
    regime: str
    is_calibrated: bool

    @property
    def key(self) -> tuple[object, ...]:
        """Return what a measured case has to share with it."""
        return key_of(self.gpu, self.case)


def key_of(gpu: str, case: Case) -> tuple[object, ...]:
    """Return what tells predictions apart: the type of GPU, and of a case all that its time depends on."""
    return gpu, case.offset, case.stress, case.counts, *(getattr(case, name) for name in _CASE)


def check_folder(folder: Path, asked: Sequence[Asked]) -> None:
    """RequestError if predictions of these jobs can't be kept in a folder, which need not exist yet."""
    names = [_name(one) for one in asked]
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"{folder} is no folder (--keep), give one")
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise RequestError(f"two jobs would both be kept as {double} (--keep), keep them in two folders")
    for name in names:
        if (folder / name).exists():
            raise _kept_already(folder / name)


def write_kept(folder: Path, asked: Asked, series: Series, score: Stored) -> Path:
    """Write the predictions of a job, and return the file. RequestError if it can't be written, and if it exists,
    which another call may have written since check_folder."""
    place = folder / _name(asked)
    text = json.dumps(document_of(asked, series, score), indent=1) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with creating(place) as beside:
            beside.write_bytes(text.encode())
    except FileExistsError:
        if folder.is_dir():
            raise _kept_already(place) from None
        raise RequestError(f"{folder} is no folder (--keep), give one") from None
    except OSError as error:
        raise RequestError(f"{folder}: can't be written ({error.strerror or error}; --keep)") from None
    return place


def _kept_already(place: Path) -> RequestError:
    return RequestError(f"{place} is kept already, and is not replaced (--keep), give another folder")


def document_of(asked: Asked, series: Series, score: Stored) -> dict[str, Any]:
    """Return what is kept of a job: its predictions, and what they were made of."""
    rates, model = series.known.rates, {"constants": asdict(score.constants), "intervals": dict(score.intervals)}
    source = git(CONF.parent, {}) or {}
    return {
        "symlab_predicted": FORM,
        "predicted": True,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": source.get("commit", ""),
        "dirty": source.get("dirty"),
        "request": [scrubbed(line) for line in asked.lines if _key_of_line(line) not in _HERE],
        "gpu": series.known.name,
        "is_calibrated": series.known.is_calibrated,
        "assumed": list(series.known.assumed),
        "floors": {"digest": digest_of_rates(rates), **asdict(rates)},
        "model": {"digest": digest_of_constants(score), "fitted_to": score.gpu, "cases": score.cases, **model},
        "simulator": simulator_digest(),
        "cases": [_case(asked, rank, one) for rank, one in series.ranked()],
        "refused": _reasons(series.refused),
        "unfinished": _reasons(series.unfinished),
        "failed": _reasons(series.failed),
    }


def _key_of_line(line: str) -> str:
    """The key of an override: of ++cache_dir=x and ~cache_dir it is cache_dir."""
    return line.lstrip("+~").partition("=")[0]


def _reasons(cases: Mapping[Case, str]) -> dict[str, str]:
    return {case.id: scrubbed(reason) for case, reason in cases.items()}


def kept_in(folder: Path) -> list[Kept]:
    """Return the predictions in a folder and below it, in the order of the files' names. ValueError, naming the place,
    if it holds none, if a file is no kept prediction, and if one case was predicted twice."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder")
    places = sorted(folder.rglob(f"*{PREDICTED_SUFFIX}"))
    if not places:
        raise ValueError(f"{folder}: no predictions here, symlab predict --keep writes them")
    found: dict[tuple[object, ...], Kept] = {}
    for place in places:
        for one in _read(place):
            if one.key in found:
                raise ValueError(f"{place}: {one.case.name} {one.case.size_bytes} B is kept in another file, too")
            found[one.key] = one
    return list(found.values())


def _name(asked: Asked) -> str:
    """The name of a job's file: the type, the number of ranks, and what is computed."""
    request = asked.request
    parts = [asked.type.name, f"x{request.world_size}", request.op, request.dtype]
    parts += [str(value) for value in (request.accumulator, request.reduction) if value not in ("auto", "none")]
    parts += [f"root{request.root}"] if request.root else []
    return f"{'-'.join(parts)}{PREDICTED_SUFFIX}"


def _case(asked: Asked, rank: int, one: Prediction) -> dict[str, Any]:
    case = one.case
    code = executable(find(case.name), case, asked.arch, asked.request.cache_dir)
    return {
        "id": case.id,
        **{name: getattr(case, name) for name in _CASE},
        "offset": case.offset,
        "ptx_digest": code.digest,
        "time_us": one.time_us,
        "low_us": one.low_us,
        "high_us": one.high_us,
        "busbw_gbps": one.busbw_gbps,
        "regime": one.regime,
        "rank": rank,
        "remark": scrubbed("; ".join(one.remarks)),
    }


def _read(place: Path) -> Iterator[Kept]:
    try:
        if place.stat().st_size > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES} bytes")
        document = parsed(place.read_text(encoding="utf-8"))
        if document["symlab_predicted"] != FORM:
            raise ValueError(f"its form is {document['symlab_predicted']!r}, this version reads {FORM}")
        made = datetime.fromisoformat(document["made"]).astimezone(UTC).isoformat(timespec="seconds")
        for values in document["cases"]:
            yield _kept(document, made, values)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        said = " ".join(str(error).split())[:_SAID]
        raise ValueError(f"{place}: not a kept prediction ({type(error).__name__}: {said})") from error


def _kept(document: Mapping[str, Any], made: str, values: Mapping[str, Any]) -> Kept:
    for name in _TEXTS:
        if not (isinstance(values[name], str) and values[name].isprintable()):
            raise ValueError(f"{name} is {values[name]!r}, and has to be a word")
    for name in _NUMBERS:
        if type(values[name]) is not int or values[name] < 0:
            raise ValueError(f"{name} is {values[name]!r}, and has to be a whole number from 0")
    case = Case(**{name: values[name] for name in _CASE}, offset=values["offset"])
    low_us, time_us, high_us = (float(values[name]) for name in ("low_us", "time_us", "high_us"))
    if not 0 < low_us <= time_us <= high_us < float("inf"):
        raise ValueError(f"{values['id']}: {time_us} us is no time within {low_us} to {high_us}")
    if values["regime"] not in REGIMES or not _DIGEST.fullmatch(values["ptx_digest"]):
        raise ValueError(f"{values['id']}: an unknown regime or no digest of its code")
    calibrated = bool(document["is_calibrated"])
    gpu, ptx = str(document["gpu"]), values["ptx_digest"]
    return Kept(gpu, case, made, ptx, time_us, low_us, high_us, values["regime"], calibrated)
