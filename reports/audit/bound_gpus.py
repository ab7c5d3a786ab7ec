"""An environment per world that agrees with itself: GPU model, architecture, multiprocessors, links, ranks.

What a model has is the maker's word (NVIDIA's data sheets; CUDA C++ Programming Guide, compute capabilities), and its
highest clocks those that nvidia-smi lists. A model that is unknown here is compared with itself only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cases.record.record import SHARE_GPUS, Record
from reports.audit.bound_worlds import gpus_of
from reports.audit.contradiction import Contradiction

MACHINE, CLOCKS, BOUND = 5, 7, 15

_LARGE = 64 << 20
"""Bytes of a copy from which it has the rate of the links."""

PCIE_GBPS = 128.0
"""GB/s of one direction of 16 lanes of PCIe 6."""

LEAST_SHARE = 0.5
"""Minimum of the link's measured limit, as a share of what the NVLinks carry. On two and four H200 it was 0.86."""


@dataclass(frozen=True, slots=True)
class Model:
    """arch: of the architecture that code is compiled for, without its letter. multiprocessors: of the whole GPU,
    None if the name does not say which form. links: NVLinks, 0 for none; link_gbps: GB/s of one direction of one link.
    sm_mhz, memory_mhz: the highest clocks, None if unknown here."""

    arch: str
    multiprocessors: int | None
    links: int
    link_gbps: float
    sm_mhz: int | None = None
    memory_mhz: int | None = None

    @property
    def limit_gbps(self) -> float:
        """GB/s of one direction of all links."""
        return self.links * self.link_gbps


_A100 = Model("sm_80", 108, 12, 25.0, 1410, 1593)
_H100, _H200 = Model("sm_90", None, 18, 25.0, 1980, 2619), Model("sm_90", 132, 18, 25.0, 1980, 3201)
_B200, _B300 = Model("sm_100", None, 18, 50.0), Model("sm_103", None, 18, 50.0)

MODELS = {
    "V100": Model("sm_70", 80, 6, 25.0, 1597),
    "A100": _A100,
    "A800": Model("sm_80", 108, 8, 25.0, 1410, 1593),
    **dict.fromkeys(("A10", "A40", "A6000"), Model("sm_86", None, 4, 14.0)),
    **dict.fromkeys(("L4", "L40", "L40S"), Model("sm_89", None, 0, 0.0)),
    "H100 PCIe": Model("sm_90", None, 12, 25.0, 1980, 2619),
    "H100 NVL": Model("sm_90", None, 12, 25.0, 1980, 2619),
    "H100": _H100,
    "H800": Model("sm_90", None, 8, 25.0, 1980, 2619),
    "H20": Model("sm_90", 78, 18, 25.0, 1980),
    "GH200": Model("sm_90", 132, 18, 25.0, 1980),
    "H200": _H200,
    **dict.fromkeys(("B200", "GB200"), _B200),
    **dict.fromkeys(("B300", "GB300"), _B300),
    **dict.fromkeys(("RTX PRO 6000", "RTX 5090"), Model("sm_120", None, 0, 0.0)),
}
"""By words of the name that the driver gives, such as "NVIDIA H200"; the first that fits counts."""


def model_of(name: str) -> Model | None:
    """Return what is known of a model by its name; None if nothing is."""
    words = f" {' '.join(re.split('[^A-Za-z0-9]+', name))} "
    return next((model for text, model in MODELS.items() if f" {text} " in words), None)


def contradictions(world: Sequence[Record]) -> Iterator[Contradiction]:
    """Yield what the records of one world say against their own environment, each sentence once."""
    found: dict[tuple[int, str], None] = {}
    for record in world:
        if record.fabric is not None and not record.fabric.simulated:
            for item, sentences in ((MACHINE, _machine(record)), (CLOCKS, _clocks(record)), (BOUND, _limit(record))):
                found |= {(item, sentence): None for sentence in sentences}
    name = world[0].request.command or world[0].id
    yield from (Contradiction(item, f"{name}: {sentence}") for item, sentence in found)


def _machine(record: Record) -> Iterator[str]:
    gpus = [gpu for gpu in record.environment.gpus or () if isinstance(gpu.get("model"), str)]
    names = sorted({str(gpu["model"]) for gpu in gpus})
    assert record.fabric is not None
    uuids = [gpu["uuid"] for gpu in gpus if gpu.get("uuid")]
    if len(set(uuids)) < len(uuids):
        yield "a GPU is listed twice"
    nodes = (record.environment.launch or {}).get("nodes")
    is_shared = bool(record.fabric.settings.get(SHARE_GPUS))
    if uuids and nodes in (None, 1) and len(uuids) < record.case.world_size and not is_shared:
        yield f"{len(uuids)} GPUs are listed, {record.case.world_size} ranks ran"
    said = record.fabric.description.partition(",")[0]
    if names and model_of(said) is not None and said not in names:
        yield f"the fabric says {said}, the machine has {', '.join(names)}"
    known = {name: model for name in [*names, said] if (model := model_of(name)) is not None}
    for name, model in known.items():
        if _bare(record.fabric.arch) != model.arch:
            yield f"code for {record.fabric.arch} ran on {name}, which is {model.arch}"
    for gpu in gpus:
        yield from _links(gpu)
    yield from _ranks(record, names)
    yield from _distinct(record)


def _bare(arch: str) -> str:
    """Return an architecture without the letter of its family: sm_90 of sm_90a."""
    return re.sub("[a-z]$", "", arch)


def _links(gpu: Mapping[str, Any]) -> Iterator[str]:
    model, links = model_of(str(gpu["model"])), gpu.get("nvlink")
    if model is None or not isinstance(links, dict):
        return
    for what in ("count", "active"):
        count = links.get(what)
        if type(count) is int and count > model.links:
            yield f"{gpu['model']} has {model.links} NVLinks, {count} are recorded"
    speed = links.get("link_mbps")
    if type(speed) is int and speed > model.link_gbps * 1000 * 1.1:
        yield f"an NVLink of {gpu['model']} carries {model.link_gbps:g} GB/s, {speed / 1000:g} are recorded"


def _ranks(record: Record, names: Sequence[str]) -> Iterator[str]:
    """What each rank said of its own device."""
    ranks = (record.environment.world or {}).get("ranks")
    devices = [
        one["device"] for one in ranks if isinstance(one, dict) and isinstance(one.get("device"), dict)
    ] if isinstance(ranks, list) else []  # fmt: skip
    assert record.fabric is not None
    for device in devices:
        name, arch = str(device.get("name")), f"sm_{str(device.get('capability')).replace('.', '')}"
        if names and name not in names:
            yield f"a rank ran on {name}, the machine has {', '.join(names)}"
        if device.get("capability") and arch != _bare(record.fabric.arch):
            yield f"a rank ran on {arch}, the fabric says {record.fabric.arch}"
        count, model = device.get("multiprocessors"), model_of(name)
        if model is not None and model.multiprocessors is not None and count not in (None, model.multiprocessors):
            yield f"{name} has {model.multiprocessors} multiprocessors, a rank had {count}"
        size = device.get("l2_bytes")
        if record.timing is not None and record.timing.l2_bytes and size not in (None, record.timing.l2_bytes):
            yield f"a rank's L2 cache has {size} B, the timing says {record.timing.l2_bytes}"
    had = [str(device["uuid"]) for device in devices if device.get("uuid")]
    uuids = set(had)
    if len(uuids) < len(had) and not record.fabric.settings.get(SHARE_GPUS):
        yield "two ranks ran on the same GPU, which was not asked for (fabric.share_gpus)"
    if uuids and (strange := sorted(gpus_of(record) - uuids)):
        yield f"{strange[0]} was timed, which no rank had"


def _distinct(record: Record) -> Iterator[str]:
    """Each rank has a GPU of its own, the same before and after."""
    devices = record.timing.devices if record.timing is not None else ()
    pairs = [
        [str(state["uuid"]) for state in one.values() if isinstance(state, dict) and "uuid" in state] for one in devices
    ]
    if any(len(set(one)) > 1 for one in pairs):
        yield "a rank had another GPU after the samples than before"
    firsts = [one[0] for one in pairs if one]
    if len(set(firsts)) < len(firsts):
        yield "two ranks were timed on the same GPU"


def _known(record: Record) -> dict[str, Model]:
    """The models of the machine's GPUs that are known here, by name."""
    names = {str(gpu.get("model")) for gpu in record.environment.gpus or ()}
    return {name: model for name in sorted(names) if (model := model_of(name)) is not None}


def _clocks(record: Record) -> Iterator[str]:
    """Clocks above the highest of the GPUs' type."""
    devices = record.timing.devices if record.timing is not None else ()
    states = [state for one in devices for state in one.values() if isinstance(state, dict)]
    for name, model in _known(record).items():
        for key, most in (("sm_mhz", model.sm_mhz), ("memory_mhz", model.memory_mhz)):
            read = [state[key] for state in states if type(state.get(key)) in (int, float)]
            if read and most is not None and max(read) > most:
                yield f"{key} was {max(read)}, the highest of {name} is {most}"


def _limit(record: Record) -> Iterator[str]:
    """A limit of the link that the NVLinks of the GPUs' type can't carry, or that is far below what they carry."""
    limit = record.timing.limit if record.timing is not None else None
    if limit is None or (record.fabric is not None and record.fabric.settings.get(SHARE_GPUS)):
        return
    active = [_active(gpu) for gpu in record.environment.gpus or ()]
    for name, model in _known(record).items():
        known = [count for count in active if count is not None]
        carried = min([model.links, *known]) * model.link_gbps
        if model.links and limit.gbps > model.limit_gbps:
            yield f"the link's limit is {limit.gbps:.1f} GB/s, the NVLinks of {name} carry {model.limit_gbps:g}"
        elif not model.links and limit.gbps > PCIE_GBPS:
            yield f"the link's limit is {limit.gbps:.1f} GB/s, {name} has no NVLinks, and PCIe carries {PCIE_GBPS:g}"
        elif (least := min(limit.push_gbps, limit.pull_gbps)) < LEAST_SHARE * carried and limit.size_bytes >= _LARGE:
            yield f"the link's limit is {least:.1f} GB/s, the NVLinks of {name} carry {carried:g}"


def _active(gpu: Mapping[str, Any]) -> int | None:
    """The number of a GPU's active NVLinks; None if the environment does not say."""
    links = gpu.get("nvlink")
    counts = [links.get(key) for key in ("active", "count")] if isinstance(links, Mapping) else []
    return next((count for count in counts if type(count) is int), None)
