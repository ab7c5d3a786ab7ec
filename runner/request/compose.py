"""From the command line to composed jobs, by Hydra.

Hydra's own runner is not used: it makes folders, prints tracebacks, starts the first job of a sweep before it has
looked at the last, and drops the sweeps of experiments that are themselves swept over. Its grammar, defaults lists,
schema and the meaning of hydra.mode and hydra.sweeper.params are kept.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from runner.request.composer import Composer, composed
from runner.request.configured import plain_configuration
from runner.request.experiment_files import read_with_care
from runner.request.experiments import CONF
from runner.request.gpu_types import NO_GPU, GpuAsked
from runner.request.launching import LaunchRequest, check_installed, is_of_launcher, launch_request, without_launcher
from runner.request.overrides import LISTS, SHORT, parsed, text_of
from runner.request.schema import Schema, TrackName
from runner.request.validate import Request, check_database_folder, validate
from runner.request_error import RequestError

MAX_JOBS = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class ComposedJob:
    """One job of a command: its number from 0, its overrides, the experiment's name ("" without), the configuration.
    gpu: the GPU as it was asked for; request and configuration have its limits."""

    number: int
    overrides: tuple[str, ...]
    experiment: str
    configuration: dict[str, Any]
    request: Request
    gpu: GpuAsked = NO_GPU


@contextmanager
def hydra_over(config_dir: Path | None = None, *, primary: Path | None = None) -> Iterator[None]:
    """Hydra with conf/ as its configuration.

    config_dir is a folder that is searched after conf/, as with Hydra's own --config-dir. primary is a folder in place
    of conf/. RequestError for a folder that is missing or incomplete.
    """
    conf = primary or CONF
    if not (conf / "config.yaml").is_file():
        raise RequestError(f"no config.yaml in {conf} (conf), the folder of configurations is incomplete")
    if config_dir is not None and not config_dir.is_dir():
        raise RequestError(f"no folder {config_dir} (--config-dir), give one that holds experiments in exp/")
    ConfigStore.instance().store(name="schema", node=Schema)
    with initialize_config_dir(config_dir=str(conf.resolve()), version_base="1.3", job_name="symlab"):
        read_with_care(config_dir)
        yield


def compose_jobs(arguments: Sequence[str], multirun: bool) -> tuple[ComposedJob, ...]:
    """All jobs that a command line asks for, each composed and checked before any of them runs. Inside hydra_over.

    multirun is -m; an experiment can ask for it too (hydra.mode). A sweep over experiments expands the sweep of each.
    RequestError, too, for a launcher: see compose_command.
    """
    jobs, launcher = compose_command(arguments, multirun)
    if launcher is not None:
        raise RequestError(f"only symlab run has launchers (hydra/launcher={launcher.name}), leave it out")
    return jobs


def compose_job(composer: Composer, lines: Sequence[str], number: int = 0) -> ComposedJob:
    """One job of override lines that were checked before and sweep nothing. RequestError like compose_jobs."""
    return dataclasses.replace(_job(composer, 0, lines, 1), number=number)


def compose_command(arguments: Sequence[str], multirun: bool) -> tuple[tuple[ComposedJob, ...], LaunchRequest | None]:
    """The jobs like compose_jobs, and the launcher that spreads them; None: they run here, one after another."""
    composer = Composer()
    planned = plan_jobs(arguments, multirun, composer)
    jobs = tuple(_job(composer, number, lines, len(planned)) for number, lines in enumerate(planned))
    return jobs, composer.launcher


def launcher_of(lines: Sequence[str]) -> LaunchRequest | None:
    """Return the launcher that lines such as hydra/launcher=joblib ask for; a line without "=" is its name. None: this
    process does the work. RequestError if it is unknown or not installed."""
    if not lines:
        return None
    with hydra_over():
        composer = Composer()
        plan_jobs([line if "=" in line else f"hydra/launcher={line}" for line in lines], True, composer)
        return composer.launcher


def plan_jobs(arguments: Sequence[str], multirun: bool, composer: Composer | None = None) -> list[tuple[str, ...]]:
    """The overrides of each job that a command line asks for. RequestError like compose_jobs. Inside hydra_over.

    composer is given what was composed on the way: the configuration of a command's only job, and the launcher. Without
    it the lines of a launcher are ignored: it may not be installed here.
    """
    try:
        if composer is None:
            arguments = without_launcher(arguments)
        check_installed(arguments)
        overrides = parsed(_with_plus(argument) for argument in arguments)
        chosen = _by_experiment(overrides, multirun)
        planned = [without_launcher(lines) for one in chosen for lines in _expanded(one, multirun, composer)]
    except (HydraException, OmegaConfBaseException) as error:
        from runner.request.explain import explain

        raise RequestError(explain(error)) from error
    if not planned:
        raise RequestError("the sweep has no jobs (-m), give each swept key at least one value")
    return [tuple(lines) for lines in planned]


def _with_plus(argument: str) -> str:
    """exp=name means +exp=name: there is no default experiment that could be replaced."""
    return f"+{argument}" if argument.startswith("exp=") else argument


def _choices(override: Override) -> list[str]:
    """What one override becomes in the jobs of a sweep: itself, or one line for each of its values."""
    if not override.is_sweep_override():
        return [text_of(override)]
    if not override.is_discrete_sweep():
        raise RequestError(
            f"'{override.input_line}' has no end of values (-m), list them: key=1,2,4 or 'key=range(1,5)'"
        )
    key = override.get_key_element()
    if override.key_or_group in SHORT:
        return [text_of(one) for one in parsed(f"{key}={value}" for value in override.sweep_string_iterator())]
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def _by_experiment(overrides: list[Override], multirun: bool) -> Iterator[list[Override]]:
    """The overrides, once for each experiment that is swept over."""
    swept = [one for one in overrides if one.key_or_group == "exp" and one.is_sweep_override()]
    if not swept:
        yield overrides
        return
    if not multirun:
        names = str(swept[0].input_line).partition("=")[2]
        raise RequestError(f"several experiments, {names} (exp), add -m to run one after another")
    for choice in _choices(swept[0]):
        (chosen,) = parsed([choice])
        yield [chosen if one is swept[0] else one for one in overrides]


def _expanded(overrides: list[Override], multirun: bool, composer: Composer | None) -> Iterator[list[str]]:
    """Each job's override lines: the product of the experiment's sweep and the command line's, which
    wins."""
    swept = [one for one in overrides if one.is_sweep_override()]
    fixed = [text_of(one) for one in overrides if not one.is_sweep_override()]
    config = composed(fixed)
    settings = config.hydra
    mode = RunMode.MULTIRUN if multirun else settings.mode
    if composer is not None:
        composer.launcher = _launcher(settings, overrides, mode == RunMode.MULTIRUN)
    if mode != RunMode.MULTIRUN:
        if swept:
            line, key = str(swept[0].input_line), str(swept[0].key_or_group)
            listed = f"; for a list write {key}=[{line.partition('=')[2]}]" if key in LISTS else ""
            raise RequestError(f"'{line}' gives several values ({key}), add -m to run a sweep over them{listed}")
        yield fixed
        return
    parameters = settings.sweeper.params or {}
    lines = {
        one.get_key_element().lstrip("+"): _choices(one)
        for one in [*parsed(f"{key}={value}" for key, value in parameters.items()), *overrides]
    }
    if math.prod(len(choices) for choices in lines.values()) > MAX_JOBS:
        raise RequestError(f"more than {MAX_JOBS} jobs in one sweep (-m), split it into several commands")
    for combination in itertools.product(*lines.values()):
        yield list(combination)


def _launcher(settings: DictConfig, overrides: list[Override], multirun: bool) -> LaunchRequest | None:
    """The launcher that a composed hydra section has. RequestError for one that is swept over or has no sweep."""
    lines = [str(one.input_line) for one in overrides if is_of_launcher(str(one.input_line))]
    swept = [one for one in overrides if one.is_sweep_override() and is_of_launcher(str(one.input_line))]
    if swept:
        raise RequestError(f"one command has one launcher ('{swept[0].input_line}'; hydra/launcher), give one value")
    launcher = launch_request(settings, lines)
    if launcher is not None and not multirun:
        raise RequestError(f"a launcher spreads the jobs of a sweep (hydra/launcher={launcher.name}), add -m")
    return launcher


def _job(composer: Composer, number: int, lines: Sequence[str], jobs: int) -> ComposedJob:
    """One job, composed and checked. RequestError, in a sweep naming the job."""
    with naming_job(number, jobs, lines):
        composition = composer.composition(lines)
        _refuse_unused_sizes(composition.config, lines)
        request = validate(composition.config)
        if request.track.name != TrackName.none:
            check_database_folder(request.track.uri, "track.uri")
        plain = plain_configuration(composition.config)
        return ComposedJob(number, tuple(lines), composition.experiment, plain, request, composition.gpu)


@contextmanager
def naming_job(number: int, jobs: int, lines: Sequence[str]) -> Iterator[None]:
    """Within a sweep, say which job's request is wrong. number counts from 0 as in records, the message from 1."""
    try:
        yield
    except RequestError as error:
        if jobs == 1:
            raise
        raise RequestError(f"{error}; in job {number + 1} of {jobs}: {' '.join(lines)}") from error


def _refuse_unused_sizes(config: DictConfig, lines: Sequence[str]) -> None:
    """A range given on the command line beside an experiment's list would be ignored, so it is refused."""
    ranged = [line for line in lines if re.match(r"sizes\.(min|max|factor)=", line)]
    if ranged and config.get("sizes") and config.sizes.get("list") is not None:
        raise RequestError(
            f"'{ranged[0]}' has no effect beside a list of sizes (sizes.list), add sizes.list=null or give sizes=[..]"
        )
