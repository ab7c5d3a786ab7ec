"""From the command line to composed jobs, by Hydra.

Hydra's own runner is not used: it makes folders, prints tracebacks, starts the first job of a sweep before it has
looked at the last, and drops the sweeps of experiments that are themselves swept over. Its grammar, defaults lists,
schema and the meaning of hydra.mode and hydra.sweeper.params are kept.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from runner.request.experiment_files import read_with_care
from runner.request.explain import explain
from runner.request.schema import Schema
from runner.request.validate import CONF, Request, validate
from runner.request_error import RequestError, first_line

MAX_JOBS = 10_000


@dataclass(frozen=True, slots=True)
class ComposedJob:
    """One job of a command: its number from 0, its overrides, the experiment's name ("" without), the configuration."""

    number: int
    overrides: tuple[str, ...]
    experiment: str
    configuration: dict[str, Any]
    request: Request


@contextmanager
def hydra_over(config_dir: Path | None = None) -> Iterator[Any]:
    """Hydra with conf/ (or config_dir instead) as its configuration; gives its internal object, for --info."""
    folder = config_dir or CONF
    if not (folder / "config.yaml").is_file():
        raise RequestError(f"no config.yaml in {folder} (--config-dir), the folder of configurations is not complete")
    ConfigStore.instance().store(name="schema", node=Schema)
    with initialize_config_dir(config_dir=str(folder.resolve()), version_base="1.3", job_name="symlab"):
        read_with_care()
        yield GlobalHydra.instance().hydra


def compose_jobs(arguments: Sequence[str], multirun: bool) -> tuple[ComposedJob, ...]:
    """All jobs that a command line asks for, each composed and checked before any of them runs. Inside hydra_over.

    multirun is -m; an experiment can ask for it too (hydra.mode). A sweep over experiments expands the sweep of each.
    """
    planned = plan_jobs(arguments, multirun)
    return tuple(_job(number, lines, len(planned)) for number, lines in enumerate(planned))


def plan_jobs(arguments: Sequence[str], multirun: bool) -> list[tuple[str, ...]]:
    """The overrides of each job that a command line asks for. RequestError like compose_jobs. Inside hydra_over."""
    try:
        overrides = _parsed(_with_plus(argument) for argument in arguments)
        planned = [lines for chosen in _by_experiment(overrides, multirun) for lines in _expanded(chosen, multirun)]
    except (HydraException, OmegaConfBaseException) as error:
        raise RequestError(explain(error)) from error
    if not planned:
        raise RequestError("the sweep has no jobs (-m), give each swept key at least one value")
    return [tuple(lines) for lines in planned]


def composed(lines: Sequence[str]) -> DictConfig:
    """One job's configuration with its hydra section. RequestError like compose_jobs. Inside hydra_over."""
    try:
        return _compose(list(lines))
    except (HydraException, OmegaConfBaseException) as error:
        raise RequestError(explain(error)) from error


def _with_plus(argument: str) -> str:
    """exp=name means +exp=name: there is no default experiment that could be replaced."""
    return f"+{argument}" if argument.startswith("exp=") else argument


def _parsed(arguments: Iterator[str]) -> list[Override]:
    loader = GlobalHydra.instance().config_loader()
    parser = OverridesParser.create(config_loader=loader)
    return list(parser.parse_overrides(list(arguments)))


def _text(override: Override) -> str:
    """The override as it was written; sizes=[1K,4K] and sizes=4K are short for sizes.list=..."""
    line = str(override.input_line)
    if override.key_or_group == "sizes" and not isinstance(override.value(), dict) and not override.is_delete():
        return "sizes.list" + line[line.index("=") :]
    return line


def _choices(override: Override) -> list[str]:
    """What one override becomes in the jobs of a sweep: itself, or one line for each of its values."""
    if not override.is_sweep_override():
        return [_text(override)]
    if not override.is_discrete_sweep():
        raise RequestError(
            f"'{override.input_line}' has no end of values (-m), list them: key=1,2,4 or 'key=range(1,5)'"
        )
    key = override.get_key_element()
    if override.key_or_group == "sizes":
        return [_text(one) for one in _parsed(f"{key}={value}" for value in override.sweep_string_iterator())]
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
        (chosen,) = _parsed(iter([choice]))
        yield [chosen if one is swept[0] else one for one in overrides]


def _expanded(overrides: list[Override], multirun: bool) -> Iterator[list[str]]:
    """Each job's override lines: the product of the experiment's sweep and the command line's, which
    wins."""
    swept = [one for one in overrides if one.is_sweep_override()]
    fixed = [_text(one) for one in overrides if not one.is_sweep_override()]
    config = _compose(fixed)
    settings = config.hydra
    mode = RunMode.MULTIRUN if multirun else settings.mode
    if mode != RunMode.MULTIRUN:
        if swept:
            line = swept[0].input_line
            raise RequestError(
                f"'{line}' gives several values ({swept[0].key_or_group}), add -m to run a sweep over them"
            )
        yield fixed
        return
    parameters = settings.sweeper.params or {}
    lines = {
        one.get_key_element().lstrip("+"): _choices(one)
        for one in [*_parsed(f"{key}={value}" for key, value in parameters.items()), *overrides]
    }
    if math.prod(len(choices) for choices in lines.values()) > MAX_JOBS:
        raise RequestError(f"more than {MAX_JOBS} jobs in one sweep (-m), split it into several commands")
    for combination in itertools.product(*lines.values()):
        yield list(combination)


def _compose(lines: list[str]) -> DictConfig:
    try:
        return compose("config", overrides=lines, return_hydra_config=True)
    except (HydraException, RequestError):
        raise
    except ValueError as error:
        raise RequestError(f"{first_line(error)} ({' '.join(lines)}), write overrides as key=value") from error


def _job(number: int, lines: Sequence[str], jobs: int) -> ComposedJob:
    """One job, composed and checked. RequestError, in a sweep naming the job."""
    try:
        return _checked(number, lines, composed(lines))
    except RequestError as error:
        if jobs == 1:
            raise
        raise RequestError(f"{error}; in job {number} of {jobs}: {' '.join(lines)}") from error


def _checked(number: int, lines: Sequence[str], config: DictConfig) -> ComposedJob:
    experiment = str(config.hydra.runtime.choices.get("exp") or "")
    with open_dict(config):
        del config["hydra"]
    _refuse_unused_sizes(config, lines)
    request = validate(config)
    configuration = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    assert isinstance(configuration, dict)
    plain = {str(key): value for key, value in configuration.items()}
    return ComposedJob(number, tuple(lines), experiment, plain, request)


def _refuse_unused_sizes(config: DictConfig, lines: Sequence[str]) -> None:
    """A range given on the command line beside an experiment's list would be ignored, so it is refused."""
    ranged = [line for line in lines if re.match(r"sizes\.(min|max|factor)=", line)]
    if ranged and config.get("sizes") and config.sizes.get("list") is not None:
        raise RequestError(
            f"'{ranged[0]}' has no effect beside a list of sizes (sizes.list), add sizes.list=null or give sizes=[..]"
        )


def group_options(group: str) -> list[str]:
    """The names of a configuration group (fabric, track, exp). Inside hydra_over."""
    loader = GlobalHydra.instance().config_loader()
    return sorted(loader.get_group_options(group, ObjectType.CONFIG))
