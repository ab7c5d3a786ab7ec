"""Where kernels have run and given what they should: kernels/proven/<machine>.json, one a machine.

`python -m tests.matrix --proof FILE` writes them. Each says what ran, where and when, and which code that was: the
digest of the sources, and the digest of what they compile to (kernels/matrix/codes.py), which outlives moved files and
comments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """One file: the machine, the day (2026-11-21), the commit, and a tally for each kernel by its name.

    code_from says where the tallies' code digests come from if they were added later ("compiled later from
    git, commit eaba1e3ee557"); "" if the proof was written with them.
    """

    machine: str
    date: str
    commit: str
    specs: Mapping[str, Tally]
    code_from: str = ""

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
        content = json.loads(path.read_text(encoding="utf-8"))
        proof = Proof(
            machine=_text(content, "machine"),
            date=_text(content, "date"),
            commit=_text(content, "commit"),
            specs={name: _tally(one) for name, one in content["specs"].items()},
            code_from=_text(content, "code_from") if "code_from" in content else "",
        )
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: can't be read ({error})") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: no proof as python -m tests.matrix --proof writes it ({error!r})") from None
    return proof


def written(proof: Proof) -> str:
    """Return the file's text; the same proof gives the same bytes. What a proof does not have is not written."""
    content = {"machine": proof.machine, "date": proof.date, "commit": proof.commit}
    if proof.code_from:
        content["code_from"] = proof.code_from
    specs = {
        name: {key: value for key, value in asdict(tally).items() if value is not None}
        for name, tally in sorted(proof.specs.items())
    }
    return json.dumps({**content, "specs": specs}, indent=1) + "\n"


def _text(content: Mapping[str, Any], key: str) -> str:
    value = content[key]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} is {value!r}: give text")
    return value


def _tally(content: Mapping[str, Any]) -> Tally:
    numbers = [content["passed"], content["refused"], *content["world_sizes"]]
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise ValueError("counts and world sizes are whole numbers")
    sizes = tuple(sorted(set(content["world_sizes"])))
    code = _text(content, "code") if "code" in content else None
    return Tally(content["passed"], content["refused"], sizes, _text(content, "sources"), code)
