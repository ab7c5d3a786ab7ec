"""The validation of a configuration: from the values as written to a Request that holds valid values only.

Names, types, words and limits are those of the table of keys (runner/request/schema.py); this file sees to all other
values.
It imports neither torch nor a kernel, so that a wrong request is answered at once. cases.py checks what needs the
catalogue of kernels: whether an algorithm exists, and whether the accumulator fits the dtype.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cases.ops import MATMULS, collective
from cases.record.nccl_settings import settings_from
from cases.stress import combined
from memory.private_folder import exposure
from runner.gpu.names import KEY as GPU_KEY
from runner.request.chooser import Chooser
from runner.request.gpu_types import check_arch, gpu_of
from runner.request.schema import (
    KEYS,
    SECTIONS,
    Key,
    PlainKeys,
    Schema,
    TimingMode,
    TimingRequest,
    TrackName,
    TrackRequest,
)
from runner.request.sizes import AUTO, are_given, format_bytes, parse_bytes, sizes_of, written
from runner.request_error import RequestError, first_line, near
from runner.world.fabrics import FabricName, FabricRequest
from simulator.options import Interleaving

MIN_HEAP_BYTES, MAX_HEAP_BYTES = 1 << 12, 1 << 32
MAX_DEVICE_HEAP_BYTES = 1 << 37
"""The largest heap that can be asked for on GPUs; NVSHMEM's grows as it is used."""

CUSTOM = "custom"
"""The op of a kernel that does none of the ops known here."""

_GEMM = ("m", "n", "k")
_NOT_CUSTOM = ("dtype", "accumulator", "reduction", "placement", "root", "offset", "counts", *_GEMM, "inputs", "stress")
"""Keys that mean nothing for it: its own section says what it is given."""

URI_SCHEMES = ("sqlite", "postgresql", "mysql", "mssql", "http", "https", "databricks")


@dataclass(unsafe_hash=True, kw_only=True)
class _Job(PlainKeys):
    """What an open and a resolved request of one job both say."""

    sizes_bytes: tuple[int, ...]
    check: bool
    records: Path
    cache_dir: Path
    custom: Mapping[str, Any] | None = field(default=None, compare=False)
    timing: TimingRequest
    fabric: FabricRequest
    track: TrackRequest

    @property
    def gemm(self) -> tuple[int, int, int] | None:
        """(M, N, K) of an op that multiplies, else None."""
        return (self.m, self.n, self.k) if self.m and self.n and self.k else None


@dataclass(unsafe_hash=True, kw_only=True)
class Request(_Job):
    """One job as it was asked for, every value checked by itself; runner.case.cases.resolved decides what is open.

    dtype, accumulator and reduction may be "auto", algorithms and fabric.name, too; baselines "auto" are all that there
    are for the op on a real fabric, none on a simulated one. sizes_given: the sizes are not just the usual ones.
    """

    algorithms: tuple[str, ...] | Literal["auto", "all", "device_nvshmem"]
    baselines: tuple[str, ...] | Literal["auto"]
    sizes_given: bool


@dataclass(unsafe_hash=True, kw_only=True)
class ResolvedRequest(_Job):
    """One job with nothing left open: names for its algorithms and baselines, a dtype, an accumulator, a reduction, a
    fabric; sizes in bytes, in order. Whether the catalogue has all that, runner.case.cases.check_against_catalogue
    says. chooser says what "best" among the algorithms is at a size; None if it is not among them."""

    algorithms: tuple[str, ...]
    baselines: tuple[str, ...]
    chooser: Chooser | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for key in ("dtype", "accumulator", "reduction"):
            assert getattr(self, key) != AUTO, f"{key} is left open"
        assert self.fabric.name != FabricName.auto, "the fabric is left open"


def check_names(config: DictConfig) -> None:
    """Every key of the schema is there and no other. Hydra's +key=value and ~key get past the schema otherwise."""
    for section, schema in SECTIONS.items():
        known = {member.name for member in dataclasses.fields(schema)}
        node = OmegaConf.select(config, section) if section else config
        present = {str(key) for key in node} - {"hydra"}
        prefix = f"{section}." if section else ""
        for key in sorted(present - known):
            raise RequestError(f"unknown key '{prefix}{key}' ({prefix}{key}), {near(key, known)}")
        for key in sorted(known - present):
            raise RequestError(f"key '{prefix}{key}' was removed ({prefix}{key}), it needs a value")


def validate(config: DictConfig) -> Request:
    """The request that a composed configuration (without its hydra section) makes. Else RequestError, for one value."""
    check_names(config)
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise RequestError(f"{first_line(error)} ({error.full_key}), give a value") from None
    assert isinstance(plain, dict)
    values: dict[str, Any] = {str(key): value for key, value in plain.items() if key != "hydra"}
    for key in KEYS.values():
        _check_limits(key, OmegaConf.select(config, key.name))
    plain_keys = {one.name: values[one.name] for one in dataclasses.fields(PlainKeys)}
    plain_keys |= {key: _word(values, key) for key in ("op", "reduction", "tuned")}
    plain_keys["dtype"], plain_keys["accumulator"] = _types(values)
    plain_keys |= {"stress": _stress(values), "custom": _custom(values)}
    _check_gemm(values)
    plain_keys |= {"algorithms": _algorithms(values["algorithms"]), "baselines": _baselines(values["baselines"])}
    return Request(
        **plain_keys,
        sizes_bytes=sizes_of(values["sizes"]),
        sizes_given=are_given(values["sizes"]),
        check=values["check"]["results"],
        records=writable_folder(_word(values, "records"), "records"),
        cache_dir=private_folder(_word(values, "cache_dir"), "cache_dir"),
        timing=TimingRequest(**values["timing"]),
        fabric=_fabric(values["fabric"], _races(values), values["library"], values["timing"]),
        track=_track(values["track"]),
    )


def _check_limits(key: Key, value: Any) -> None:
    """RequestError for a number outside its key's limits; nan is outside all."""
    if key.kind in (int, float) and value is not None and not key.least <= value <= key.most:
        raise RequestError(f"{key.name} is {value} ({key.name}), give {key.wanted}")


def writable_folder(text: str, key: str) -> Path:
    """The absolute path of a folder that can be made or written to; nothing is made yet. RequestError else."""
    folder = Path(text).expanduser().absolute()
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise RequestError(f"{existing} is not a folder ({key}={text}), name a folder that can be written to")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise RequestError(f"no permission to write in {existing} ({key}={text}), name a folder that can be written to")
    return folder


def private_folder(text: str, key: str) -> Path:
    """The same of a folder that no other user can write to: what lies there will run."""
    folder = writable_folder(text, key)
    if exposed := exposure(folder):
        raise RequestError(
            f"{folder} {exposed}, and compiled kernels from there would run ({key}={text}), name another folder, or "
            "take the others' permission away and remove what is in it"
        )
    return folder


def _word(values: dict[str, Any], key: str) -> str:
    text = values[key]
    if not isinstance(text, str) or not text.strip():
        raise RequestError(f"no {key} given ({key}), give a name")
    return text


def _custom(values: dict[str, Any]) -> Mapping[str, Any] | None:
    """The section of op=custom as it was written; None for another op. What is in it, runner/custom says."""
    section = values["custom"]
    if values["op"] != CUSTOM:
        if section is not None:
            raise RequestError(f"{values['op']} takes no section custom (custom), give op=custom, or leave it out")
        return None
    if not isinstance(section, dict):
        raise RequestError(
            "op=custom needs a section with kernel, launch, buffers, arguments and reference (custom), such as that of "
            "conf/exp/custom_ptx.yaml"
        )
    for key in _NOT_CUSTOM:
        default = next(member.default for member in dataclasses.fields(Schema) if member.name == key)
        if values[key] != default:
            raise RequestError(f"op=custom has no {key} ({key}={values[key]}), leave it at {default}")
    if values["timing"]["dependent_launch"]:
        raise RequestError(
            "op=custom has no dependent launches (timing.dependent_launch), leave it false: only kernels of the "
            "catalogue are known to wait for the launches before them"
        )
    if are_given(values["sizes"]):
        raise RequestError("op=custom has no sizes (sizes), give each buffer its shape (custom.buffers)")
    return section


def _check_gemm(values: dict[str, Any]) -> None:
    """RequestError for an op that multiplies without m, n and k or with sizes, and for another op with any of them."""
    op, given = values["op"], [key for key in _GEMM if values[key] is not None]
    if op not in [one.op for one in MATMULS]:
        if given:
            raise RequestError(f"{op} multiplies nothing ({given[0]}={values[given[0]]}), leave m, n and k out")
        return
    if missing := [key for key in _GEMM if key not in given]:
        raise RequestError(f"{op} needs m, n and k ({missing[0]}), give those of a rank: m=4096 n=8192 k=8192")
    if values["timing"]["dependent_launch"]:
        raise RequestError(f"{op} has no dependent launches (timing.dependent_launch), leave it false")
    if are_given(values["sizes"]):
        raise RequestError(f"{op} has no sizes (sizes), m, n and k say them: leave it out")
    m, ranks = values["m"], values["world_size"]
    if collective(op).chunked and (over := m % ranks):
        raise RequestError(f"{m} rows are no multiple of {ranks} ranks (m), give one such as {max(m - over, ranks)}")


def _types(values: dict[str, Any]) -> tuple[str, str]:
    """dtype and accumulator. dtype=bfloat16/native is short for both: a sweep can go over such pairs."""
    dtype, accumulator = _word(values, "dtype"), _word(values, "accumulator")
    name, slash, other = dtype.partition("/")
    if not slash:
        return dtype, accumulator
    if not name or not other or accumulator not in (AUTO, other):
        raise RequestError(
            f"'{dtype}' and the accumulator '{accumulator}' (dtype, accumulator), give dtype=bfloat16/native or the "
            "accumulator by itself"
        )
    return name, other


def _algorithms(value: object) -> tuple[str, ...] | Literal["auto", "all", "device_nvshmem"]:
    if value == "auto" or value == "all" or value == "device_nvshmem":
        return value
    right = "auto, all, device_nvshmem or names: algorithms=[one_shot,two_shot]"
    return _names(value, "algorithms", right, least=1)


def _baselines(value: object) -> tuple[str, ...] | Literal["auto"]:
    if value == "auto":
        return "auto"
    if value in ("none", None, []):
        return ()
    return _names(value, "baselines", "auto, none or names: baselines=[nccl]")


def _names(value: object, key: str, right: str, least: int = 0) -> tuple[str, ...]:
    """Return a name, or a list of different names, as a tuple. Raises RequestError, which says what would be right."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or len(names) < least or not all(isinstance(name, str) and name for name in names):
        raise RequestError(f"{written(value)} is not a list of {key} ({key}), give {right}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RequestError(f"{twice[0]} is listed twice ({key}), name each {key.removesuffix('s')} once")
    return tuple(names)


def _stress(values: dict[str, Any]) -> str:
    try:
        return combined(values["stress"])
    except ValueError as error:
        raise RequestError(str(error)) from None


def _races(values: dict[str, Any]) -> bool | None:
    """Whether races are looked for; None: if it comes to be the simulator, as kernels are brought."""
    asked: bool | None = values["check"]["races"]
    algorithms = values["algorithms"]
    places = [one for one in algorithms if ":" in str(one)] if isinstance(algorithms, list) else []
    is_brought = values["op"] == CUSTOM or bool(places)
    return asked if asked is not None or is_brought else False


def _fabric(
    values: dict[str, Any], races: bool | None, library: Mapping[str, Any], timing: Mapping[str, Any]
) -> FabricRequest:
    is_free = values["heap_bytes"] == AUTO
    if is_free and values["name"] == FabricName.simulator:
        raise RequestError("the simulator's heap has a size (fabric.heap_bytes), give one such as 256M")
    given = MAX_DEVICE_HEAP_BYTES if is_free else values["heap_bytes"]
    if not re.fullmatch(r"sm_\d+[af]?", values["arch"]):
        raise RequestError(f"'{values['arch']}' is no architecture (fabric.arch), give one such as sm_90a or sm_100a")
    gpu = gpu_of(values["gpu"])
    if gpu is not None:
        if values["name"] != FabricName.nvshmem:
            check_arch(gpu, values["arch"])
        else:
            raise RequestError(f"GPUs have limits of their own ({GPU_KEY}), leave it out, or use fabric=simulator")
    if races and values["name"] == FabricName.nvshmem:
        raise RequestError(
            "GPUs do not show the order of their accesses (check.races), leave it out, or use fabric=simulator"
        )
    given_keys = [key for key, value in library.items() if value is not None and key != "nccl_graph_mixing"]
    if given_keys and values["name"] == FabricName.simulator:
        raise RequestError(f"NCCL needs GPUs (library.{given_keys[0]}), leave it out, or use fabric=nvshmem")
    if values["share_gpus"]:
        _check_shared_gpus(values, races, given_keys, timing["mode"])
    nccl = None
    if library["nccl"] is not None:
        from runner.world.preload import nccl_of

        nccl = nccl_of(library["nccl"])
    names = ("name", "arch", "multicast", "multimem", "memory", "step_budget", "share_gpus")
    fabric = FabricRequest(
        **{name: values[name] for name in names},
        heap_given=None if given is None else parse_bytes(given, "fabric.heap_bytes"),
        gpu=gpu,
        races=races,
        nccl=nccl,
        nccl_settings=settings_from(library),
        heap_free=is_free,
    ).under(_interleaving(values))
    check_heap(fabric, MAX_HEAP_BYTES if fabric.name == FabricName.simulator else MAX_DEVICE_HEAP_BYTES)
    return fabric


def _check_shared_gpus(values: dict[str, Any], races: bool | None, library: Sequence[str], mode: TimingMode) -> None:
    """RequestError for what ranks that share GPUs can't have: library holds the keys that set an NCCL."""
    name = values["name"]
    if name == FabricName.simulator or races or (name == FabricName.auto and values["gpu"] is not None):
        raise RequestError("simulated ranks have no GPU to share (fabric.share_gpus), leave it out")
    if mode != TimingMode.none:
        raise RequestError(
            "ranks that share a GPU take turns on it, which is no time of a collective (fabric.share_gpus), give "
            "timing.mode=none, too"
        )
    if library:
        raise RequestError(f"NCCL needs a GPU for each rank (library.{library[0]}, fabric.share_gpus), leave one out")


def _interleaving(values: dict[str, Any]) -> Interleaving:
    try:
        return Interleaving(values["schedule"], values["granularity"], values["seed"])
    except ValueError:
        raise RequestError(
            "granularity is access, and schedule is fair, which runs whole blocks (fabric.granularity), give block, or "
            "fabric.schedule=random"
        ) from None


def check_heap(fabric: FabricRequest, most_bytes: int) -> None:
    """RequestError for a heap that is too small for anything, or larger than most_bytes."""
    if not MIN_HEAP_BYTES <= fabric.heap_bytes <= most_bytes:
        limits = f"{format_bytes(MIN_HEAP_BYTES)} to {format_bytes(most_bytes)}"
        raise RequestError(f"a heap of {format_bytes(fabric.heap_bytes)} a rank (fabric.heap_bytes), give {limits}")


def _track(values: dict[str, Any]) -> TrackRequest:
    track = TrackRequest(**values)
    if track.name != TrackName.none:
        check_uri(track.uri, "track.uri")
        if not track.experiment.strip():
            raise RequestError("no experiment to log to (track.experiment), give a name such as symlab")
    return track


def check_uri(uri: str, key: str) -> None:
    """A tracking URI that MLflow can log to; its plain-file store is gone. RequestError else."""
    scheme = uri.partition(":")[0].partition("+")[0]
    if ":" not in uri or scheme not in URI_SCHEMES:
        raise RequestError(
            f"'{uri}' is no tracking URI ({key}), give sqlite:///mlflow.db or a server such as http://localhost:5000"
        )
    if scheme == "sqlite" and len(uri.partition(":///")[2]) == 0:
        raise RequestError(f"'{uri}' names no database file ({key}), give sqlite:///mlflow.db")


def check_database_folder(uri: str, key: str) -> None:
    """RequestError if the database of a tracking URI is a file in a folder that does not exist."""
    from reports.tracking import database_path, resolved_uri

    path = database_path(resolved_uri(uri))
    if path is not None and not path.parent.is_dir():
        raise RequestError(
            f"there is no folder {path.parent} for the database ({key}={uri}), create the folder or name another"
        )
