"""fabric.gpu: the limits of a type of GPU, from a name, a file of conf/gpu, or as they are written."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from yaml import YAMLError

from runner.request.experiments import CONF, SUFFIX, gpu_names
from runner.request.schema import FabricSchema
from runner.request_error import RequestError, first_line, near
from simulator.gpu import Gpu

KEY = "fabric.gpu"
LIKE = "like"
"""The key of a description that names the GPU whose limits hold for all that it does not say."""

_KINDS = typing.get_type_hints(Gpu)


def with_limits(config: DictConfig, is_arch_given: bool, folders: Sequence[Path] = (CONF,)) -> DictConfig:
    """Put the limits into a configuration that names a GPU, so that it says by itself what holds. Returns config.

    Where fabric.arch is left at its default (is_arch_given: it was asked for), it becomes the GPU's. folders: of
    configurations; the first that has the GPU is taken. RequestError for an unknown GPU.
    """
    asked = OmegaConf.select(config, KEY)
    if asked is not None:
        plain = OmegaConf.to_container(asked, resolve=True) if OmegaConf.is_config(asked) else asked
        found = described(plain, folders)
        OmegaConf.update(config, KEY, found, merge=False)
        gpu = gpu_of(found)
        usual = config.fabric.arch == FabricSchema.arch
        if gpu is not None and usual and not is_arch_given and gpu.arch != FabricSchema.arch.rstrip("af"):
            config.fabric.arch = arch_of(gpu)
    return config


def described(given: object, folders: Sequence[Path] = (CONF,), above: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the whole description of a GPU that is given by its name, or by some of its limits and what it is like.

    above: the names of the GPUs that are like it.
    """
    if isinstance(given, str):
        return _read(given, folders, above)
    if not isinstance(given, Mapping):
        raise RequestError(f"{given!r} is no GPU ({KEY}), give {_choices(folders)}")
    found = {str(key): value for key, value in given.items()}
    if LIKE in found:
        like = found.pop(LIKE)
        if not isinstance(like, str):
            raise RequestError(f"{like!r} is no GPU to be like ({KEY}), give {_choices(folders)}")
        found = _read(like, folders, above) | found
    return found


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
        if kind is int and (type(value) is not int or value < (0 if name.startswith("reserved") else 1)):
            raise RequestError(f"{value!r} is no number for {name} ({KEY}), give a whole number")
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


def _read(name: str, folders: Sequence[Path], above: tuple[str, ...]) -> dict[str, Any]:
    """The description in a file of gpu/."""
    known = gpu_names(folders)
    if name in above:
        raise RequestError(f"the GPU {name} is like itself ({KEY}), name another GPU")
    if name not in known:
        raise RequestError(f"unknown GPU '{name}' ({KEY}), {near(name, known)}")
    path = next(one for folder in folders if (one := folder / "gpu" / f"{name}{SUFFIX}").is_file())
    try:
        found = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise RequestError(
            f"{path} can't be read: {first_line(error)} ({KEY}), write limits as those of h100"
        ) from error
    if not isinstance(found, dict):
        raise RequestError(f"{path} describes no GPU ({KEY}), write limits as those of h100")
    return described({"name": name, **{str(key): value for key, value in found.items()}}, folders, (*above, name))


def _choices(folders: Sequence[Path]) -> str:
    return f"null, or {', '.join(gpu_names(folders))}"
