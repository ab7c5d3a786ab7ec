"""What NCCL was told by its environment: algorithm, protocol, channels and the mixing of graphs, as requests ask for
them and records say.

NCCL reads them when a communicator is made, so each setting has a world of its own. A record's library says them after
the version, "NCCL 2.28.9 (Ring, LL, 8 channels)", so that no table, curve or history mixes two settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from cases.record.record import Record

MAX_CHANNELS = 64
"""The most that NCCL has."""


class NcclAlgorithm(StrEnum):
    """NCCL_ALGO, as NCCL writes it. Members are named as they are written: OmegaConf reads names."""

    Ring = "Ring"
    Tree = "Tree"
    CollnetDirect = "CollnetDirect"
    CollnetChain = "CollnetChain"
    NVLS = "NVLS"
    NVLSTree = "NVLSTree"
    PAT = "PAT"


class NcclProtocol(StrEnum):
    """NCCL_PROTO, as NCCL writes it."""

    LL = "LL"
    LL128 = "LL128"
    Simple = "Simple"


@dataclass(frozen=True, slots=True)
class NcclSettings:
    """What NCCL has to heed; None: its own choice. channels: the number of blocks that it may use at most, and that it
    makes ready. graph_mixing: whether launches of graphs and calls outside of them, or of several graphs, may be under
    way at once, for which NCCL puts nodes of its own beside each call of a graph."""

    algorithm: NcclAlgorithm | None = None
    protocol: NcclProtocol | None = None
    channels: int | None = None
    graph_mixing: bool | None = None

    @property
    def choice(self) -> NcclSettings:
        """What of it restricts NCCL's choice: algorithm, protocol and channels."""
        return replace(self, graph_mixing=None)

    @property
    def is_own_choice(self) -> bool:
        """Whether NCCL chooses algorithm, protocol and channels itself."""
        return self.choice == OWN_CHOICE

    @property
    def text(self) -> str:
        """What is set, "Ring, LL, 8 channels, no graph mixing"; "" if nothing is."""
        channels = "" if self.channels is None else f"{self.channels} channel{'s' * (self.channels > 1)}"
        mixing = "" if self.graph_mixing is None else MIXING[self.graph_mixing]
        return ", ".join(part for part in (self.algorithm, self.protocol, channels, mixing) if part)

    @property
    def variables(self) -> dict[str, str]:
        """The environment that sets it. Channels are NCCL's CTAs; their old names are set as well, for old versions."""
        mixing = None if self.graph_mixing is None else int(self.graph_mixing)
        found: dict[str, object] = {"NCCL_ALGO": self.algorithm, "NCCL_PROTO": self.protocol, MIXING_VARIABLE: mixing}
        found |= dict.fromkeys(CHANNEL_VARIABLES, self.channels)
        return {name: str(value) for name, value in found.items() if value is not None}

    def named(self, library: str) -> str:
        """Return a library's name with the settings: "NCCL 2.28.9 (Ring, LL)"."""
        return f"{library} ({self.text})" if self.text else library


OWN_CHOICE = NcclSettings()

MIXING = {True: "graph mixing", False: "no graph mixing"}
"""How a record's library names it."""

MIXING_VARIABLE = "NCCL_GRAPH_MIXING_SUPPORT"

CHANNEL_VARIABLES = ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS")

TOLD = ("NCCL_ALGO", "NCCL_PROTO", *CHANNEL_VARIABLES, "NCCL_TUNER_PLUGIN", "NCCL_TUNER_CONFIG_FILE")
"""Variables that take NCCL's choice away, in part or all."""

KEYS = {
    "nccl_algo": "algorithm",
    "nccl_proto": "protocol",
    "nccl_channels": "channels",
    "nccl_graph_mixing": "graph_mixing",
}
"""The keys of the section library, with what each sets."""


def settings_from(section: Mapping[str, Any]) -> NcclSettings:
    """Return what a configuration's section library asks for. ValueError for what is no setting."""
    algorithm, protocol, channels, mixing = (section.get(key) for key in KEYS)
    if mixing is not None and not isinstance(mixing, bool):
        raise ValueError(f"nccl_graph_mixing is {mixing!r}, give true or false")
    return NcclSettings(
        None if algorithm is None else NcclAlgorithm(algorithm),
        None if protocol is None else NcclProtocol(protocol),
        None if channels is None else int(channels),
        mixing,
    )


def asked_settings(record: Record) -> NcclSettings:
    """Return what the command of a record asked of NCCL; nothing set if it does not say."""
    section = (record.request.configuration or {}).get("library")
    return settings_from(section) if isinstance(section, Mapping) else NcclSettings()


def contradiction(record: Record) -> str:
    """Return in what a record of nccl names other settings than its command asked for; "" if it does not."""
    if record.case.algorithm not in ("nccl", "nccl/symmetric") or not record.library:
        return ""
    try:
        asked = asked_settings(record).text
    except ValueError as error:
        return f"{record.id} asked NCCL for what it does not have: {error}"
    said = said_settings(record)
    return "" if asked == said else f"{record.id} asked NCCL for {asked or 'nothing'}, and names {said or 'nothing'}"


def said_settings(record: Record) -> str:
    """Return the settings that a record's library names, "Ring, LL, 8 channels"; "" if it names none."""
    found = re.fullmatch(r"NCCL .+ \(([^()]+)\)", record.library)
    return found[1] if found is not None else ""


def said_choice(record: Record) -> str:
    """Return what of the settings that a record's library names restricted NCCL's choice; "" if nothing did."""
    return ", ".join(part for part in said_settings(record).split(", ") if part and part not in MIXING.values())
