"""algorithms=best: at each size the kernel and the tuning that a table of choices has (symlab/speed/tuned/table.py).

`best` is a word of requests only: the case, and with it the record, has the name of what runs, such as
"two_shot@t512b64l8p", which needs no table to be run again. The record says beside it which table chose it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cases.case import Case
from kernels.baselines import find_baseline
from kernels.brought import Place
from kernels.sources import digest_of
from kernels.spec import KernelSpec
from runner.request.chooser import BEST
from runner.request.sizes import AUTO
from runner.request_error import RequestError, naming
from runner.world.fabrics import FabricRequest, look
from symlab.speed.tuned.table import FOLDER, Choice, Table, how_to_make, place_for, read, slug_of, tables_in

SIMULATED = "simulated"
"""The type of simulated GPUs without fabric.gpu."""


@dataclass(frozen=True, slots=True)
class TableChooser:
    """Chooses from a table, for GPUs of a type and an architecture. brought: kernels of the user's own by place."""

    table: Table
    gpu: str
    arch: str
    brought: Mapping[str, KernelSpec] = field(default_factory=dict)
    _known: dict[Case, Choice] = field(default_factory=dict, init=False, repr=False, compare=False)

    def choice(self, case: Case) -> Choice:
        """Return the choice for a case, whose algorithm does not matter. RequestError if there is none."""
        asked = replace(case, algorithm=BEST)
        if asked not in self._known:
            try:
                self._known[asked] = self.table.choice(asked, self.arch, self.gpu, self.brought)
            except ValueError as error:
                raise RequestError(f"{error} (algorithms=best)") from None
        return self._known[asked]

    def name_for(self, case: Case) -> str:
        return self.choice(case).name

    def described(self, case: Case) -> Mapping[str, Any] | None:
        if find_baseline(case.algorithm) is not None:  # a library's, whose accumulator and placement no entry takes
            return None
        found = self.choice(case)
        if found.name != case.algorithm:
            return None
        entry = found.entry
        return {
            "by": BEST,
            "algorithm": found.name,
            "table": Path(self.table.place).name,
            "digest": self.table.digest,
            "gpu": self.table.gpu,
            "searched": {
                **{"op": entry.op, "dtype": entry.dtype, "ranks": entry.ranks, "size_bytes": entry.size_bytes},
                **({"gemm": list(entry.gemm)} if entry.gemm else {}),
            },
            "nearest": found.nearest,
        }

    def said(self, cases: Iterable[Case]) -> list[str]:
        """Return lines that say which table chooses, and in what its entries differ from cases."""
        notes = dict.fromkeys(self.choice(case).nearest for case in cases if self.described(case) is not None)
        return [
            f"best: {self.table.place} ({self.table.gpu})",
            *(f"best: the nearest entry, {note}" for note in notes if note),
        ]


def places_in(tuned: str, op: str) -> dict[str, str]:
    """Return the places of the user's own kernels that a table has for an op, each with the digest of its files.
    tuned: as chooser_for takes it; the project's tables have none. RequestError without a table that can be read."""
    if tuned == AUTO:
        return {}
    with naming("tuned"):
        entries = read(Path(tuned).expanduser()).entries
    return {one.choice.name: one.kernel for one in entries if one.kernel and one.op == op}


def chooser_for(
    tuned: str,
    fabric: FabricRequest,
    op: str,
    folder: Path = FOLDER,
    ranks: int = 2,
    specs: Sequence[KernelSpec] = (),
) -> TableChooser:
    """Return what chooses on a decided fabric. tuned: a table's file, or "auto" for the project's; ranks: of the world,
    for the advice; specs: those of places_in among others. RequestError without a table that can be read."""
    gpu = (fabric.gpu.name if fabric.gpu else SIMULATED) if fabric.simulated else gpu_name() or "an unknown GPU"
    table = _table(tuned, gpu, fabric, op, ranks, folder)
    there = {(one.origin.name, f"sha256:{digest_of(one.files)}"): one for one in specs if isinstance(one.origin, Place)}
    wanted = {one.choice.name: (one.choice.name.rpartition(":")[2], one.kernel) for one in table.entries if one.kernel}
    brought = {place: there[key] for place, key in wanted.items() if key in there}
    return TableChooser(table, gpu, fabric.arch if fabric.simulated else table.arch, brought)


def _table(tuned: str, gpu: str, fabric: FabricRequest, op: str, ranks: int, folder: Path) -> Table:
    try:
        if tuned != AUTO:
            return read(Path(tuned).expanduser())
        own = place_for(gpu, folder)
        if own.is_file():
            return read(own)
        others = [read(one) for one in tables_in(folder)]
    except ValueError as error:
        raise RequestError(f"{error} (tuned)") from None
    if not others:
        raise RequestError(
            f"there is no table of choices for {gpu} GPUs (algorithms=best), make one {how_to_make(op, ranks)}, then "
            "give tuned=my-table.json"
        )
    return min(others, key=lambda one: (one.arch != fabric.arch, slug_of(one.gpu) != slug_of(gpu), one.place))


def gpu_name() -> str:
    """Return the name of the first GPU that the CUDA driver names; "" if it names none."""
    return next(iter(look().devices), "")
