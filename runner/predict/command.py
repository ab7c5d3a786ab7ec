"""symlab predict: times of cases on a type of GPU, on a machine without any; and the model's score.

What it prints is always marked as predicted, and never stands beside measured times: the table has a heading of its
own, and each line of CSV and JSON says so.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from omegaconf import OmegaConf

from kernels.catalogue import find
from kernels.compile_error import CompilationError
from kernels.spec import Case
from reports.table.sheet import room_here
from runner.case.best import TableChooser
from runner.case.cases import cases_of, check_against_catalogue, resolved
from runner.command.refusals import expected_refusal
from runner.gpu.gpu_type import GpuType
from runner.gpu.reading import KEY
from runner.predict import published
from runner.predict.explaining import Explanation, explained
from runner.predict.predictable import DEPENDENT, check_predictable, check_ranks, is_dependent
from runner.predict.predicting import Prediction, predicted
from runner.predict.rates import rates_of
from runner.predict.score import scored
from runner.predict.shown import Series, document
from runner.predict.stored_score import Stored, shown, stored, write
from runner.request.compose import ComposedJob, compose_jobs, composed, hydra_over
from runner.request.gpu_types import arch_of, type_asked
from runner.request.overrides import config_folders
from runner.request.validate import CONF, Request
from runner.request_error import RequestError, first_line
from runner.world.fabrics import FabricName
from runner.world.world import WorldFailure


@dataclass(frozen=True, slots=True)
class Options:
    """What `symlab predict` was asked."""

    overrides: tuple[str, ...] = ()
    multirun: bool = False
    config_dir: Path | None = None
    form: str = "text"
    explain: bool = False
    score: bool = False
    write: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A job's request, the type of GPU that it is of, and the architecture to compile for."""

    request: Request
    type: GpuType

    @property
    def arch(self) -> str:
        """The type's architecture with all its features."""
        return arch_of(self.type.limits)


def predict(options: Options) -> int:
    """Do what a command line asks for. Returns the exit code. RequestError for a wrong request."""
    if options.score:
        return _score(options)
    if options.explain and options.form == "csv":
        raise RequestError("a path is no line of CSV (--explain), give --format json or text")
    score = stored()
    with hydra_over(options.config_dir):
        asked = [_asked(job) for job in compose_jobs(options.overrides, options.multirun)]
    found = [_series(one, score, options.explain) for one in asked]
    if not any(one.predictions for one in found):
        raise RequestError(f"nothing can be predicted: {'; '.join(found[0].refusals) or 'no case'} (algorithms)")
    print(document(found, options.form), end="")
    return 0


def _score(options: Options) -> int:
    """Score the model by the published records; write the score if asked."""
    if options.form == "csv":
        raise RequestError("a score has no CSV (--score), give --format json or text")
    root = CONF.parent
    if options.write:
        published.make(root, lambda line: print(line, file=sys.stderr, flush=True))
    try:
        found = scored(published.evidence(root))
    except ValueError as error:
        raise RequestError(f"{error} (--score)") from error
    if options.write:
        write(found)
    print(json.dumps(found.document(), indent=1) if options.form == "json" else shown(found.document(), room_here()))
    return 0


def _asked(job: ComposedJob) -> Asked:
    """Return what a job asks for. RequestError for a job that the model is not of. Inside hydra_over."""
    check_predictable(job.request)
    limits = job.request.fabric.gpu
    assert limits is not None, "check_predictable wants a type of GPU"
    given = OmegaConf.select(composed(job.overrides), KEY)
    plain = OmegaConf.to_container(given, resolve=True) if OmegaConf.is_config(given) else given
    found = type_asked(plain, limits, config_folders())
    check_ranks(found, job.request.world_size)
    return Asked(job.request, found)


def _series(asked: Asked, score: Stored, explain: bool) -> Series:
    """Predict the cases of a job. RequestError for a job that has none."""
    known = rates_of(asked.type)
    request = resolved(asked.request, replace(asked.request.fabric, name=FabricName.simulator))
    check_against_catalogue(request)
    cases = cases_of(request)
    refused: dict[Case, str] = {}
    for case in cases:
        refusal = expected_refusal(case, request.fabric)
        if refusal is not None or is_dependent(case.algorithm):
            refused[case] = str(refusal or DEPENDENT)
    predictions: list[Prediction] = []
    paths: dict[Case, Explanation] = {}
    for case in cases:
        if case in refused:
            continue
        beside = sum(other.size_bytes == case.size_bytes and other not in refused for other in cases)
        print(f"simulating {case.id}", file=sys.stderr, flush=True)
        try:
            one = predicted(case, find(case.name), known, score, asked.arch, request.cache_dir, beside)
            if explain:
                paths[case] = explained(case, known, request.cache_dir, asked.arch)
        except (CompilationError, WorldFailure) as error:
            refused[case] = first_line(error)
            continue
        chosen = tuple(request.chooser.said([case])) if isinstance(request.chooser, TableChooser) else ()
        predictions.append(replace(one, remarks=(*one.remarks, *chosen)))
    return Series(known, tuple(predictions), refused, paths)
