"""Where kernels have run and given what they should: kernels/proven/<machine>.json, one a machine, made from records.

`python -m runner.prove` writes them. Each says what ran, where and when, and the digest of the sources it was then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PLACE = Path(__file__).resolve().parents[1] / "proven"

SIMULATOR = "simulator"
"""The machine that is none; all others are GPUs, such as "4 x NVIDIA H200"."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of one kernel's cases on a machine: so many passed and were refused, on so many ranks each.

    sources is the digest of the kernel's sources (kernels.compile.source_digest) at that time.
    """

    passed: int
    refused: int
    world_sizes: tuple[int, ...]
    sources: str


@dataclass(frozen=True, slots=True)
class Proof:
    """One file: the machine, the day (2026-11-21), the commit, and a tally for each kernel by its name."""

    machine: str
    date: str
    commit: str
    specs: Mapping[str, Tally]

    @property
    def simulated(self) -> bool:
        return self.machine == SIMULATOR


def proofs(folder: Path = PLACE) -> tuple[Proof, ...]:
    """All files' contents, the simulator's first, then by machine. ValueError naming the file for what is none."""
    found = [read(path) for path in sorted(folder.glob("*.json"))]
    return tuple(sorted(found, key=lambda proof: (not proof.simulated, proof.machine)))


def read(path: Path) -> Proof:
    """One file's content; ValueError naming the file for what is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        proof = Proof(
            machine=_text(content, "machine"),
            date=_text(content, "date"),
            commit=_text(content, "commit"),
            specs={name: _tally(one) for name, one in content["specs"].items()},
        )
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: can't be read ({error})") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: not what python -m runner.prove writes ({error!r})") from None
    return proof


def written(proof: Proof) -> str:
    """The file's text; the same proof gives the same bytes."""
    specs = {name: asdict(tally) for name, tally in sorted(proof.specs.items())}
    content = {"machine": proof.machine, "date": proof.date, "commit": proof.commit, "specs": specs}
    return json.dumps(content, indent=1) + "\n"


def _text(content: Mapping[str, Any], key: str) -> str:
    value = content[key]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} is no text")
    return value


def _tally(content: Mapping[str, Any]) -> Tally:
    numbers = [content["passed"], content["refused"], *content["world_sizes"]]
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise ValueError("counts and world sizes are whole numbers")
    sizes = tuple(sorted(set(content["world_sizes"])))
    return Tally(content["passed"], content["refused"], sizes, _text(content, "sources"))
