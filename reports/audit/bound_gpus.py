"""An environment per world that agrees with itself: GPU model, architecture, multiprocessors, links, ranks.

What a model has is the maker's word (NVIDIA's data sheets of A100, H100, H200, B200 and GB200; CUDA C++ Programming
Guide, compute capabilities). A model that is unknown here is compared with itself only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.audit.bound_worlds import gpus_of
from reports.audit.contradiction import Contradiction
from reports.record.record import SHARE_GPUS, Record

MACHINE, BOUND = 5, 15


@dataclass(frozen=True, slots=True)
class Model:
    """arch: of the architecture that code is compiled for, without its letter. multiprocessors: of the whole GPU,
    None if the name does not say which form. links: NVLinks; link_gbps: GB/s of one direction of one link."""

    arch: str
    multiprocessors: int | None
    links: int
    link_gbps: float

    @property
    def limit_gbps(self) -> float:
        """GB/s of one direction of all links."""
        return self.links * self.link_gbps


_A100 = Model("sm_80", 108, 12, 25.0)
_H100, _H200 = Model("sm_90", None, 18, 25.0), Model("sm_90", 132, 18, 25.0)
_B200 = Model("sm_100", None, 18, 50.0)

MODELS = (("GB200", _B200), ("B200", _B200), ("H200", _H200), ("H100", _H100), ("A100", _A100))
"""By a word of the name that the driver gives, such as "NVIDIA H200"."""


def model_of(name: str) -> Model | None:
    """Return what is known of a model by its name; None if nothing is."""
    words = re.split("[^A-Za-z0-9]+", name)
    return next((model for word, model in MODELS if word in words), None)


def contradictions(world: Sequence[Record]) -> Iterator[Contradiction]:
    """Yield what the records of one world say against their own environment, each sentence once."""
    found: dict[tuple[int, str], None] = {}
    for record in world:
        if record.fabric is not None and not record.fabric.simulated:
            for item, sentences in ((MACHINE, _machine(record)), (BOUND, _limit(record))):
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


def _limit(record: Record) -> Iterator[str]:
    limit = record.timing.limit if record.timing is not None else None
    names = {str(gpu.get("model")) for gpu in record.environment.gpus or ()}
    for name in sorted(names):
        model = model_of(name)
        if limit is not None and model is not None and limit.gbps > model.limit_gbps:
            yield f"the link's limit is {limit.gbps:.1f} GB/s, the NVLinks of {name} carry {model.limit_gbps:g}"
