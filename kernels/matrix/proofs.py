"""Where kernels have run and given what they should: kernels/proven/<machine>.json, one a machine.

`python -m tests.matrix --proof FILE` writes them. Each says what ran, where and when, and which code that was: the
digest of the sources, and the digest of what they compile to (kernels/matrix/codes.py), which outlives moved files and
comments.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from cases.documents import LATER, decoded, encoded, parsed

PLACE = Path(__file__).resolve().parents[1] / "proven"

SIMULATOR = "simulator"
"""The simulator's key; every other key names a GPU machine, such as "4 x NVIDIA H200"."""

SHARED = "shared by ranks"
"""What a machine's name ends with if several ranks took turns on one GPU."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of one kernel's cases on a machine: numbers of cases, and the world sizes of those that passed.

    sources is the digest of the kernel's sources (kernels.compile.source_digest) at that time, code the digest over its
    compiled variants (kernels.matrix.codes.code_over), None in proofs of before there was one.
    """

    passed: int
    refused: int
    world_sizes: tuple[int, ...]
    sources: str
    code: str | None = field(default=None, metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """One file: the machine, the day (2026-11-21), the commit, and a tally for each kernel by its name.

    code_from says where the tallies' code digests come from if they were added later ("compiled later from
    git, commit eaba1e3ee557"); "" if the proof was written with them.
    """

    machine: str
    date: str
    commit: str
    code_from: str = field(default="", metadata=LATER)
    specs: dict[str, Tally]

    @property
    def simulated(self) -> bool:
        return self.machine == SIMULATOR


def proofs(folder: Path = PLACE) -> tuple[Proof, ...]:
    """Return all proofs in a folder, the simulator's first, then by machine.

    Raises ValueError, naming the file, if one is not a valid proof.
    """
    found = [read(path) for path in sorted(folder.glob("*.json"))]
    return tuple(sorted(found, key=lambda proof: (not proof.simulated, proof.machine)))


def read(path: Path) -> Proof:
    """Return one file's proof. Raises ValueError, naming the file, if it is not a valid proof."""
    try:
        content = parsed(path.read_text(encoding="utf-8"))
        specs = {name: decoded(Tally, one, name) for name, one in content["specs"].items()}
        return decoded(Proof, {**content, "specs": specs}, "the proof")
    except (OSError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: no proof as python -m tests.matrix --proof writes it ({error!r})") from None


def written(proof: Proof) -> str:
    """Return the file's text; the same proof gives the same bytes. What a proof does not have is not written."""
    specs = {name: encoded(tally) for name, tally in sorted(proof.specs.items())}
    return json.dumps(encoded(proof, {"specs": specs}), indent=1) + "\n"
