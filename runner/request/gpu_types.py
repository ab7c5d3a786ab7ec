"""fabric.gpu: the limits of a type of GPU, from its name or its file. runner/gpu reads the files."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from cases.documents import decoded
from runner.gpu.names import CONF, KEY, gpu_names
from runner.request.schema import FabricSchema
from runner.request_error import RequestError, naming
from simulator.gpu import Gpu

if TYPE_CHECKING:
    from runner.gpu.gpu_type import GpuType


@dataclass(frozen=True, slots=True)
class GpuAsked:
    """The type of GPU that a request names. given: fabric.gpu as it was asked, a name or the path of a file; "" for
    none. folders: of configurations, in which names are looked up."""

    given: str = ""
    folders: tuple[Path, ...] = (CONF,)

    def type(self) -> GpuType:
        """Return the type. RequestError for a name that no folder has, and for a file that describes none."""
        from runner.gpu.reading import gpu_type

        return gpu_type(self.given, self.folders)


NO_GPU = GpuAsked()
"""What a request asks for that names no type."""


def gpu_asked(given: object, folders: Sequence[Path] = (CONF,)) -> GpuAsked:
    """Return the GPU that fabric.gpu names as it was asked. folders: of configurations. RequestError for what is no
    name."""
    if given is None:
        return NO_GPU
    if not isinstance(given, str):
        raise RequestError(
            f"{given!r} is no GPU ({KEY}), give null, {', '.join(gpu_names(folders))}, or the path of a file"
        )
    return GpuAsked(given, tuple(folders))


def with_limits(config: DictConfig, is_arch_given: bool, folders: Sequence[Path] = (CONF,)) -> DictConfig:
    """Put the limits into a configuration that names a GPU, so that it says by itself what holds. Returns config.

    Where fabric.arch is left at its default (is_arch_given: it was asked for), it becomes the GPU's. folders: of
    configurations; the first that has the GPU is taken. RequestError for an unknown GPU.
    """
    given = OmegaConf.select(config, KEY)
    if isinstance(given, str):  # a record has the limits
        gpu = GpuAsked(given, tuple(folders)).type().limits
        OmegaConf.update(config, KEY, document_of(gpu), merge=False)
        usual = config.fabric.arch == FabricSchema.arch
        if usual and not is_arch_given and gpu.arch != FabricSchema.arch.rstrip("af"):
            config.fabric.arch = arch_of(gpu)
    return config


def gpu_of(given: Any) -> Gpu | None:
    """Return the limits that a configuration holds; None for no GPU. RequestError for a key or value that is wrong."""
    if given is None:
        return None
    with naming(KEY):
        found = decoded(Gpu, given, "the GPU")
        if not re.fullmatch(r"sm_\d+", found.arch):
            raise ValueError(f"the GPU.arch is '{found.arch}', give one such as sm_90")
        for name, value in document_of(found).items():
            if type(value) is int and value < (0 if name.startswith("reserved") else 1):
                raise ValueError(f"the GPU has {value} {name}, give a larger number")
    return found


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
    """Return the limits of a GPU, as a configuration and a record have them."""
    return dataclasses.asdict(gpu)
