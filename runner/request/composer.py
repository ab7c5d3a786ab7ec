"""Job configurations by Hydra: one full compose per combination of groups, plain values set on a copy of it.

A full compose takes 50 ms, nearly all of it for files, the defaults list and Hydra's own section, which are the same
for all jobs of a sweep that differ in plain values only.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hydra import compose
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from runner.gpu.names import KEY
from runner.request.gpu_types import NO_GPU, GpuAsked, gpu_asked, with_limits
from runner.request.launching import LaunchRequest
from runner.request.overrides import config_folders, written_out
from runner.request.schema import KEYS
from runner.request_error import RequestError

_GROUP = re.compile(r"\+?(exp|fabric|track)=[\w/-]+")
"""A line that chooses a file of conf/."""


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
    except RecursionError:
        raise RequestError("defaults lead back to themselves (defaults), remove one of them") from None
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        from runner.request.explain import explain

        raise RequestError(explain(error)) from error
    except (AssertionError, AttributeError) as error:  # OmegaConf does not look what a dotted key leads through
        raise RequestError(
            f"a key leads through a section that is null ({' '.join(lines)}), set the section"
        ) from error


class Composer:
    """Composes the jobs of one command. Valid as long as the Hydra that it was created under (compose.hydra_over)."""

    def __init__(self) -> None:
        self._parser = OverridesParser.create()
        self._bases: dict[tuple[str, ...], Composition] = {}
        self.launcher: LaunchRequest | None = None
        """What spreads the command's jobs, once they are planned; None: they run in this process."""

    def composition(self, lines: Sequence[str]) -> Composition:
        """Return the configuration of one job, the same that Hydra composes, with the limits of the GPU that it names.
        RequestError like composed."""
        lines = [written_out(line) for line in lines]
        found = self._quickly(lines) or _without_hydra(composed(lines))
        folders = config_folders()
        gpu = gpu_asked(OmegaConf.select(found.config, KEY), folders)
        with_limits(found.config, any(line.lstrip("+").startswith("fabric.arch=") for line in lines), folders)
        return replace(found, gpu=gpu)

    def _quickly(self, lines: Sequence[str]) -> Composition | None:
        """Return the configuration of lines that choose files and set keys of the table; None if others are among
        them, or one can't be set: then Hydra says why."""
        values = [line for line in lines if line.partition("=")[0] in KEYS]
        groups = tuple(line for line in lines if _GROUP.fullmatch(line))
        if len(values) + len(groups) < len(lines):
            return None
        if groups not in self._bases:
            self._bases[groups] = _without_hydra(composed(groups))
        base = self._bases[groups]
        config = copy.deepcopy(base.config)
        try:
            ConfigLoaderImpl._apply_overrides_to_config(self._parser.parse_overrides(values), config)
        except (HydraException, OmegaConfBaseException):
            return None
        return Composition(base.experiment, config)


def _adding(line: str) -> str:
    """custom.key=value means ++custom.key=value: the schema does not know the keys of that section, its reader does."""
    line = written_out(line)
    return f"++{line}" if line.startswith("custom.") else line


def _without_hydra(config: DictConfig) -> Composition:
    experiment = str(config.hydra.runtime.choices.get("exp") or "")
    with open_dict(config):
        del config["hydra"]
    return Composition(experiment, config)
