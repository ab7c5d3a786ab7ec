"""hydra/launcher=NAME and hydra.launcher.*: which launcher spreads the jobs of a sweep, and with what options.

These lines say where jobs run, not what they are. So they belong to the command and to no job: the records of a sweep
are the same under every launcher, and they can be composed again where the launcher is not installed.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig, OmegaConf

from runner.request_error import RequestError, near

BASIC = "basic"

PACKAGES = {
    "joblib": ("hydra_plugins.hydra_joblib_launcher", "JobLibLauncherConf", "joblib"),
    "submitit_slurm": ("hydra_plugins.hydra_submitit_launcher", "SlurmQueueConf", "slurm"),
}
"""By launcher: its package, the dataclass with its options in the module config of that, and the extra of this project
that installs it."""

_LEAST = {
    **dict.fromkeys(("array_parallelism", "cpus_per_task", "tasks_per_node", "nodes", "timeout_min"), 1),
    **dict.fromkeys(("gpus_per_node", "mem_gb"), 0),
}
"""The smallest value of options that are numbers; Slurm takes a memory of 0 for all of a node's."""

_LINE = re.compile(r"[+~]*hydra(/launcher\b|\.launcher[.=@])")


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """The launcher of a command: its name, the lines that chose it, and its options as Hydra composed them.

    Options that Hydra fills in while it launches, such as the folder of submitit's files, hold their interpolations.
    """

    name: str
    lines: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


def is_of_launcher(line: str) -> bool:
    """Return whether an override line chooses a launcher or sets one of its options."""
    return _LINE.match(line) is not None


def without_launcher(lines: Iterable[str]) -> list[str]:
    """Return the lines that are no launcher's."""
    return [line for line in lines if not is_of_launcher(line)]


def check_installed(lines: Iterable[str]) -> None:
    """RequestError for a launcher that is unknown, chosen twice or with a +, or whose package is missing."""
    chosen = [line for line in lines if line.partition("=")[0].endswith("hydra/launcher")]
    if len(chosen) > 1:
        raise RequestError(f"one command has one launcher ({' '.join(chosen)}; hydra/launcher), leave out the others")
    for line in chosen:
        key, _, value = line.partition("=")
        name = value.strip("'\"")
        if key.startswith("+"):
            raise RequestError(f"a launcher needs no + ({key}), leave it out: hydra/launcher={value}")
        if name == BASIC:
            continue
        if name not in PACKAGES:
            raise RequestError(f"unknown launcher '{value}' (hydra/launcher), known: {', '.join((BASIC, *PACKAGES))}")
        package, _, extra = PACKAGES[name]
        if not _installed(package):
            raise RequestError(
                f"the launcher {name} is not installed (hydra/launcher), pip install 'symlab[{extra}]', or leave it out"
            )


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def launch_request(hydra: DictConfig, lines: Sequence[str]) -> LaunchRequest | None:
    """Return the launcher that a composed hydra section has; None for Hydra's basic one, which runs jobs here.

    RequestError for one that this program does not know: its workers would not be watched.
    """
    name = str(hydra.runtime.choices.get("hydra/launcher") or BASIC)
    if name == BASIC:
        if wrong := [line for line in lines if re.match(r"[+~]*hydra\.launcher", line)]:
            raise without_effect(wrong[0])
        return None
    if name not in PACKAGES:
        raise RequestError(f"unknown launcher '{name}' (hydra/launcher), known: {', '.join((BASIC, *PACKAGES))}")
    options = OmegaConf.to_container(hydra.launcher, resolve=False)
    assert isinstance(options, dict)
    given = {str(key): value for key, value in options.items()}
    _check_options(name, given)
    return LaunchRequest(name, tuple(filter(is_of_launcher, lines)), given)


def without_effect(line: str) -> RequestError:
    """Return the error for a launcher's option in a command without a launcher."""
    return RequestError(f"'{line}' has no effect without a launcher (hydra/launcher), add hydra/launcher=joblib")


def options_of(name: str) -> list[str]:
    """Return the names of a launcher's options; none for one that is unknown or not installed."""
    if name not in PACKAGES or not _installed(PACKAGES[name][0]):
        return []
    found = {one.name for one in dataclasses.fields(_configuration(name))} - {"_target_"}
    if name == "submitit_slurm":
        from submitit.slurm.slurm import SlurmExecutor

        found |= SlurmExecutor._valid_parameters()
    return sorted(found)


def unknown_option(key: str, kind: str) -> str:
    """Return what is wrong with an option such as hydra.launcher.n_job; kind: the dataclass that does not have it."""
    launcher = next((name for name, (_, one, _) in PACKAGES.items() if one == kind), "")
    option = key.removeprefix("hydra.launcher.")
    return _no_option(launcher, option, key) if launcher else str(without_effect(key))


def _no_option(launcher: str, option: str, key: str) -> str:
    return f"{launcher} has no option '{option}' ({key}), {near(option, options_of(launcher))}"


def _check_options(name: str, options: Mapping[str, Any]) -> None:
    """RequestError for an option that the launcher does not know, and for a value that it can't obey."""
    known = options_of(name)
    for option, value in options.items():
        where = f"hydra.launcher.{option}"
        if option == "_target_":
            if value != (plugin := _configuration(name)._target_):
                raise RequestError(f"{name} is the plugin {plugin} ({where}={value}), leave it out")
            continue
        if option not in known:
            raise RequestError(_no_option(name, option, where))
        least = _LEAST.get(option)
        if least is not None and isinstance(value, int) and value < least:
            raise RequestError(f"{option} is {value} ({where}), give {least} or more")
        if option == "submitit_folder" and "${hydra.sweep.dir}" not in str(value):
            raise RequestError(f"submitit's files are in the folder of the records ({where}={value}), leave it out")
        if name == "joblib" and option != "n_jobs" and value != getattr(_configuration(name), option):
            raise RequestError(f"of joblib's options only n_jobs has an effect ({where}={value}), leave it out")
    if name != "joblib" and re.search(r"[\s,]", jobs := str(options.get("name") or "")):
        raise RequestError(
            f"'{jobs}': squeue takes it for several names (hydra.launcher.name), leave out spaces and commas"
        )


def _configuration(name: str) -> Any:
    """The dataclass of a launcher's options."""
    package, kind, _ = PACKAGES[name]
    return getattr(importlib.import_module(f"{package}.config"), kind)
