"""fabric.gpu: the limits of a type of GPU, from a name, a file, or as they are written. runner/gpu reads the files."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from runner.gpu.names import CONF, KEY, gpu_names
from runner.request.schema import FabricSchema
from runner.request_error import RequestError, near
from simulator.gpu import Gpu

if TYPE_CHECKING:
    from runner.gpu.gpu_type import GpuType

LIKE = "like"
"""The key of a description that names the GPU whose limits hold for all that it does not say."""

_KINDS = typing.get_type_hints(Gpu)


@dataclass(frozen=True, slots=True)
class GpuAsked:
    """The type of GPU that a request names. given: fabric.gpu as it was asked, a name, a path or a description; None
    for none. folders: of configurations, in which names are looked up."""

    given: Any = None
    folders: tuple[Path, ...] = (CONF,)

    def type(self, limits: Gpu) -> GpuType:
        """Return the type with the request's limits. RequestError for a name that no folder has."""
        return type_asked(self.given, limits, self.folders)


NO_GPU = GpuAsked()
"""What a request asks for that names no type."""


def asked_in(config: DictConfig, folders: Sequence[Path]) -> GpuAsked:
    """Return the GPU that a configuration names, as it stands there. folders: of configurations."""
    given = OmegaConf.select(config, KEY)
    plain = OmegaConf.to_container(given, resolve=True) if OmegaConf.is_config(given) else given
    return GpuAsked(plain, tuple(folders))


def with_limits(config: DictConfig, is_arch_given: bool, folders: Sequence[Path] = (CONF,)) -> DictConfig:
    """Put the limits into a configuration that names a GPU, so that it says by itself what holds. Returns config.

    Where fabric.arch is left at its default (is_arch_given: it was asked for), it becomes the GPU's. folders: of
    configurations; the first that has the GPU is taken. RequestError for an unknown GPU.
    """
    asked = asked_in(config, folders)
    if asked.given is not None:
        found = described(asked.given, folders)
        OmegaConf.update(config, KEY, found, merge=False)
        gpu = gpu_of(found)
        usual = config.fabric.arch == FabricSchema.arch
        if gpu is not None and usual and not is_arch_given and gpu.arch != FabricSchema.arch.rstrip("af"):
            config.fabric.arch = arch_of(gpu)
    return config


def described(given: object, folders: Sequence[Path] = (CONF,)) -> dict[str, Any]:
    """Return the limits of a GPU that is given by its name or its file, or by some limits and what it is like."""
    if isinstance(given, str):
        from runner.gpu.reading import gpu_type

        return document_of(gpu_type(given, folders).limits)
    if not isinstance(given, Mapping):
        raise RequestError(f"{given!r} is no GPU ({KEY}), give {_choices(folders)}")
    found = {str(key): value for key, value in given.items()}
    if LIKE in found:
        like = found.pop(LIKE)
        if not isinstance(like, str):
            raise RequestError(f"{like!r} is no GPU to be like ({KEY}), give {_choices(folders)}")
        found = described(like, folders) | found
    return found


def type_asked(given: object, limits: Gpu, folders: Sequence[Path] = (CONF,)) -> GpuType:
    """Return the type of GPU that a request names, with the request's limits.

    given: fabric.gpu as it was asked: a name, a path of a file, or a description. limits: those that it became. Of a
    description all but the limits is from the type that it is `like`, else from the type of its name. RequestError for
    a name that no folder has.
    """
    from runner.gpu.reading import type_with_limits

    like = given.get(LIKE, "") if isinstance(given, Mapping) else given
    return type_with_limits(limits, folders, like if isinstance(like, str) else "")


def gpu_of(given: object) -> Gpu | None:
    """Return the checked limits that a description gives; None for no GPU. RequestError for a key or value that is
    wrong."""
    if given is None:
        return None
    values = described(given)
    for name in values:
        if name not in _KINDS:
            raise RequestError(f"unknown key '{name}' of a GPU ({KEY}), {near(name, set(_KINDS))}")
    for name, kind in _KINDS.items():
        if name not in values:
            raise RequestError(f"a GPU without {name} ({KEY}), give it, or {LIKE}: and the name of another GPU")
        value = values[name]
        least = 0 if name.startswith("reserved") else 1
        if kind is int and (type(value) is not int or value < least):
            raise RequestError(f"{value!r} is no number for {name} ({KEY}), give a whole number, {least} or more")
        if kind is str and (not isinstance(value, str) or not value):
            raise RequestError(f"{value!r} is no {name} ({KEY}), give text")
    if not re.fullmatch(r"sm_\d+", values["arch"]):
        raise RequestError(f"'{values['arch']}' is no architecture ({KEY}), give one such as sm_90")
    return Gpu(**values)


def check_arch(gpu: Gpu, arch: str) -> None:
    """RequestError if a GPU has another architecture."""
    if arch.rstrip("af") != gpu.arch:
        raise RequestError(
            f"{gpu.name} is {gpu.arch}, and {arch} is simulated (fabric.arch, {KEY}), give {arch_of(gpu)}"
        )


def arch_of(gpu: Gpu) -> str:
    """Return a GPU's architecture with all its features: "sm_90a"; before 9.0 there is no such suffix."""
    return f"{gpu.arch}a" if int(gpu.arch.removeprefix("sm_")) >= 90 else gpu.arch


def document_of(gpu: Gpu) -> dict[str, Any]:
    """Return the description of a GPU, as a configuration and a record have it."""
    return dataclasses.asdict(gpu)


def _choices(folders: Sequence[Path]) -> str:
    return f"null, or {', '.join(gpu_names(folders))}"
