"""Job configurations by Hydra: one full compose per combination of groups, plain values set on a copy of it.

A full compose takes 50 ms, nearly all of it for files, the defaults list and Hydra's own section, which are the same
for all jobs of a sweep that differ in plain values only. Composer keeps the result for each combination of the lines
that do more than set a value, and sets the values of `key=value` lines on a copy, with Hydra's own function and the
schema's checks. A job that meets an error there is composed by Hydra in full, so that errors are Hydra's own.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from hydra import compose
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException

from runner.request.explain import explain, explain_choice
from runner.request.gpu_types import NO_GPU, GpuAsked, asked_in, with_limits
from runner.request.launching import LaunchRequest
from runner.request.overrides import GROUPS, config_folders, written_out
from runner.request_error import RequestError, first_line

_PLAIN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*=")
"""How a line begins that only sets a value: no +, ~ or @, no element of a list."""


class _Kind(Enum):
    """What an override line is that does not just set a value: the choice of a group, or something else."""

    group = "group"
    other = "other"


_GROUP, _OTHER = _Kind.group, _Kind.other


@dataclass(frozen=True, slots=True)
class Composition:
    """One job's configuration without its hydra section, and the name of its experiment ("" without one). gpu: the GPU
    as it was asked for, where config has its limits."""

    experiment: str
    config: DictConfig
    gpu: GpuAsked = NO_GPU


def composed(lines: Sequence[str]) -> DictConfig:
    """Return a job's configuration, with its hydra section, as Hydra composes it from override lines.

    RequestError, in one line, for what Hydra refuses. Needs an initialized Hydra (compose.hydra_over).
    """
    try:
        return compose("config", overrides=[_adding(line) for line in lines], return_hydra_config=True)
    except RequestError:
        raise
    except (HydraException, OmegaConfBaseException) as error:
        raise RequestError(explain(error)) from error
    except RecursionError:
        files = ", ".join(line.lstrip("+") for line in lines if _key(line) in GROUPS) or "config"
        raise RequestError(f"the defaults of {files} lead back to themselves (defaults), remove one of them") from None
    except (ValueError, AssertionError, AttributeError) as error:
        # OmegaConf asserts that what a dotted key leads through is there, and does not look where it sets a section.
        null = "" if isinstance(error, ValueError) else "a key leads through a section that is null"
        said = explain_choice(str(error)) or f"{null or first_line(error)} ({' '.join(lines)}), write it as key=value"
        raise RequestError(said) from error


class Composer:
    """Composes the jobs of one command. Valid as long as the Hydra that it was created under (compose.hydra_over)."""

    def __init__(self) -> None:
        self._repository = GlobalHydra.instance().config_loader().repository  # type: ignore[attr-defined]
        self._parser = OverridesParser.create()
        self._kinds: dict[str, Override | _Kind] = {}
        self._bases: dict[tuple[str, ...], Composition | None] = {}
        self._whole: dict[tuple[str, ...], Composition] = {}
        self.launcher: LaunchRequest | None = None
        """What spreads the command's jobs, once they are planned; None: they run in this process."""

    def remember(self, lines: Sequence[str], config: DictConfig) -> None:
        """Keep what Hydra composed of a job's lines for composition(lines), which gives it away. Empties its hydra
        section."""
        self._whole[tuple(lines)] = _without_hydra(config)

    def composition(self, lines: Sequence[str]) -> Composition:
        """Return the configuration of one job, the same that Hydra composes, with the limits of the GPU that it names.
        RequestError like composed."""
        found = self._whole.pop(tuple(lines), None) or self._composition([written_out(line) for line in lines])
        folders = config_folders()
        gpu = asked_in(found.config, folders)
        with_limits(found.config, any(_key(line) == "fabric.arch" for line in lines), folders)
        return replace(found, gpu=gpu)

    def _composition(self, lines: Sequence[str]) -> Composition:
        """Return the configuration as Hydra composes it."""
        values = self._values(lines)
        base_lines = tuple(line for line in lines if line not in values)
        if base_lines not in self._bases:
            self._bases[base_lines] = self._base(base_lines)
        base = self._bases[base_lines]
        if base is not None:
            config = copy.deepcopy(base.config)
            try:
                ConfigLoaderImpl._apply_overrides_to_config([values[line] for line in lines if line in values], config)
            except (HydraException, OmegaConfBaseException):
                pass  # composed in full below: then the message says what Hydra says, of the line that it meets first
            else:
                return Composition(base.experiment, config)
        return _without_hydra(composed(lines))

    def _base(self, lines: tuple[str, ...]) -> Composition | None:
        """Return what values are set on; None if Hydra refuses its lines without the values."""
        try:
            return _without_hydra(composed(lines))
        except RequestError:
            return None

    def _values(self, lines: Sequence[str]) -> dict[str, Override]:
        """Return the lines that only set a value, if the order in which Hydra applies the others makes no difference.

        Hydra applies groups before all else, wherever they stand.
        """
        kinds = {line: self._kind(line) for line in lines}
        others = [_key(line) for line, kind in kinds.items() if kind is _OTHER]
        if "hydra.searchpath" in others:
            return {}  # it may add groups, so that a key is one
        return {
            line: kind
            for line, kind in kinds.items()
            if isinstance(kind, Override) and not any(_are_related(str(kind.key_or_group), other) for other in others)
        }

    def _kind(self, line: str) -> Override | _Kind:
        """Return a line's override if it only sets a value of the configuration; else what the line is."""
        if line not in self._kinds:
            self._kinds[line] = self._parsed(line)
        return self._kinds[line]

    def _parsed(self, line: str) -> Override | _Kind:
        try:
            override = self._parser.parse_override(line)
        except HydraException:
            return _OTHER
        if override.is_sweep_override():
            return _OTHER
        if self._repository.group_exists(override.key_or_group) and not isinstance(override.value(), dict):
            return _GROUP
        return override if _PLAIN.match(line) and not override.is_hydra_override() else _OTHER


def _adding(line: str) -> str:
    """custom.key=value means ++custom.key=value: the schema does not know the keys of that section, its reader does."""
    line = written_out(line)
    return f"++{line}" if line.startswith("custom.") else line


def _key(line: str) -> str:
    return re.split("[=@]", line.lstrip("+~"), maxsplit=1)[0]


def _are_related(key: str, other: str) -> bool:
    """Whether one of two dotted keys is the other, or lies in the other."""
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


def _without_hydra(config: DictConfig) -> Composition:
    experiment = str(config.hydra.runtime.choices.get("exp") or "")
    with open_dict(config):
        del config["hydra"]
    return Composition(experiment, config)
