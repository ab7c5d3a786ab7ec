"""Specs of matmuls, alone and fused with collectives: memory, arguments and tuning by the case. kernels/matmul/ has
what runs.

Each is a CuTe DSL function whose host half makes tensor maps, so it is compiled for a case's shapes (a second or two,
not cached) and launched with what that half computes: as kernels that are brought (kernels/own/functions.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.ops import Matrices, collective
from cases.refusal import Refusal
from kernels.family import OUT
from kernels.matmul.tuning import Tuning, tuning_named
from kernels.own.arguments import ArgumentSpec, BroughtArgument, tables_of
from kernels.own.functions import ShapedBuffer, compiled_function
from kernels.spec import KernelSpec, Parameter, Workspace
from kernels.tuned_name import has_tuning
from memory.fabric import Executable, Launch

if TYPE_CHECKING:
    import torch

WAVE_NS = {256: 12.6, 192: 9.6, 128: 6.5}
"""How long a wave of 132 tiles takes for each element of depth, by a tile's columns: medians of 15 shapes on an H200
(random bfloat16, 512 to 16384 rows, 28 November 2026). What it chooses is the fastest of the three at 14 of them, and
2 % slower at the other."""

BARE_WAVES = 0.08
"""What fused matmuls add for the exchange of a tile that no other one hides. With it they take the fastest of the three
at 10 of 11 shapes on 2 H200 (128 to 2048 rows, 28 November 2026), and 7 % more at the other."""

RANKS = 8
"""The most GPUs of one host."""

ALIGNED = 8
"""Elements of 16 bytes, which tensor maps demand of rows."""

PROMISED = frozenset({"late_rank", "no_host_barrier", "graph_out_of_step", "dead_rank"})
WHY_NOT = {
    "alternating_sizes": "its code is made for one M, N and K",
    "two_streams": "its flags and its count of launches are those of one launch at a time",
    "dead_rank": "no rank waits for another",
}

_END = (
    ArgumentSpec("address", "flags"),
    ArgumentSpec("peers", "flags"),
    ArgumentSpec("address", "state"),
    ArgumentSpec("address", "status"),
    ArgumentSpec("u32", "rank"),
    ArgumentSpec("u64", "patience"),
)
_C_OF_ALL = (ArgumentSpec("tensor", "a"), ArgumentSpec("tensor", "b"), ArgumentSpec("tensors", "c"))
_OWN = (ArgumentSpec("tensor", "a"), ArgumentSpec("tensor", "b"), ArgumentSpec("tensor", "c"))
_INBOX = (ArgumentSpec("address", "inbox"), ArgumentSpec("peers", "inbox"))
_GATHERED = (ArgumentSpec("tensor", "gathered"), ArgumentSpec("peers", "gathered"))


@dataclass(frozen=True, eq=False)
class BuiltMatmul:
    """A matmul. kernel: its class, as "file:Name" of kernels/matmul; arguments: of its __call__, without the last, the
    number of blocks; scratch(case): its scratch buffer, by name. made: what was compiled, by case and architecture."""

    name: str
    kernel: str
    arguments: tuple[BroughtArgument, ...]
    scratch: Callable[[Case], dict[str, ShapedBuffer]]
    made: dict[tuple[str, str], Executable] = field(default_factory=dict)

    def build(self, case: Case) -> Any:
        """Return the CuTe DSL object."""
        from importlib import import_module

        import cutlass

        file, name = self.kernel.split(":")
        dtype = {"bfloat16": cutlass.BFloat16, "float16": cutlass.Float16}[case.dtype]
        ranks = (case.world_size,) if exchanges(case.op) else ()
        return getattr(import_module(f"kernels.matmul.{file}"), name)(dtype, *ranks, tuning_of(case))

    def buffers(self, case: Case) -> dict[str, ShapedBuffer]:
        """Return all buffers that arguments name."""
        shapes = matrices(case)
        own = {name: ShapedBuffer(case.dtype, getattr(shapes, name)) for name in ("a", "b", "c")}
        return own | self.scratch(case) | {one.name: ShapedBuffer(one.dtype, (one.numel,)) for one in _words(case)}

    def workspaces(self, case: Case) -> tuple[Workspace, ...]:
        scratch = self.scratch(case).items()
        return (*(Workspace(name, prod(one.shape), one.dtype, zeroed=False) for name, one in scratch), *_words(case))

    def executable(self, case: Case, arch: str) -> Executable:
        """Return what runs, for a case's shapes. ValueError for what the compiler refuses."""
        key = repr((*sorted(choices(case).items()), tuning_of(case).blocks)), arch
        if key not in self.made:
            by_rank = [self.arguments_of(case)] * case.world_size
            self.made[key] = compiled_function(self.build(case), self.name, by_rank, self.buffers(case), {}, arch)
        return replace(self.made[key], name=case.name)

    def arguments_of(self, case: Case) -> tuple[BroughtArgument, ...]:
        """Return what the function takes for a case."""
        return (*self.arguments, ArgumentSpec("u32", tuning_of(case).blocks))

    def refusal(self, case: Case, arch: str) -> Refusal | None:
        """Return why it does not run a case."""
        assert case.gemm is not None
        _, n, k = case.gemm
        if case.world_size < 2 and exchanges(case.op):
            return Refusal("world_size", f"{self.name} is of several ranks", "give 2 or more")
        for key, length in (("n", n), ("k", k)):
            if length % ALIGNED:
                return Refusal(key, f"{self.name} takes rows of whole 16 bytes", f"give a multiple of {ALIGNED}")
        if case.offset:
            return Refusal("offset", f"{self.name} takes buffers at boundaries of 16 bytes", "leave it at 0")
        if case.inputs == "edge":
            return Refusal("inputs", f"{self.name} has no edge inputs", "give normal or exact")
        if has_tuning(case.algorithm):
            try:
                self.build(case)
            except ValueError as error:  # what this kernel alone does not take of a tuning
                return Refusal("algorithms", str(error))
        return None


def exchanges(op: str) -> bool:
    """Whether ranks wait for each other: all ops divide rows among them but matmul."""
    return collective(op).chunked


def matrices(case: Case) -> Matrices:
    """Return the shapes of a rank's A, B and C."""
    product = collective(case.op).product
    assert product is not None
    return product.matrices(case)


def tunings_of(name: str) -> tuple[Tuning, ...]:
    """Return the tunings that the kernel of a name, such as "matmul/tiles", chooses among, by columns of a tile."""
    from kernels.matmul import all_gather, matmul, reduce_scatter

    return {
        "matmul/tiles": matmul.TUNINGS,
        "all_gather_matmul/push": all_gather.TUNINGS,
        "matmul_reduce_scatter/inbox": reduce_scatter.TUNINGS,
    }.get(name, reduce_scatter.TUNINGS_OF_OTHERS)


def tuning_of(case: Case) -> Tuning:
    """Return the tuning of a case: the one that its algorithm names (kernels/matmul/tuning.py), else the columns of a
    tile with which all tiles take the least time, by WAVE_NS."""
    from kernels.matmul import all_gather

    if has_tuning(case.algorithm):
        return tuning_named(case.algorithm)
    bare = BARE_WAVES if exchanges(case.op) else 0
    found = min(tunings_of(case.name), key=lambda one: (waves_of(case, one) + bare) * WAVE_NS[one.columns])
    is_at_once = case.op == "all_gather_matmul" and waves_of(case, found) == 1
    return all_gather.at_once(found) if is_at_once else found


def waves_of(case: Case, tuning: Tuning) -> int:
    """Return the most tiles that an SM takes."""
    return -(-tiles_of(case, tuning) // (tuning.blocks // tuning.cluster))


def tiles_of(case: Case, tuning: Tuning) -> int:
    """Return the number of tiles of all shards; those of a cluster count as one."""
    rows, columns = _shard(case)
    return -(-rows // (tuning.cluster * 128)) * -(-columns // tuning.columns) * _shards(case)


def choices(case: Case) -> dict[str, Any]:
    """Return what the code depends on."""
    m, n, k = case.gemm or (0, 0, 0)
    tuning = tuning_of(case)
    names = ("columns", "stages", "chunks", "piece_bytes", "in_flight", "cluster", "along", "panel")
    return {"dtype": case.dtype, "world_size": case.world_size, "m": m, "n": n, "k": k} | {
        name: getattr(tuning, name) for name in names
    }


def _shard(case: Case) -> tuple[int, int]:
    """Rows and columns of a shard: all of a rank that multiplies alone."""
    assert case.gemm is not None
    return case.gemm[0] // _shards(case), case.gemm[1]


def _shards(case: Case) -> int:
    return case.world_size if exchanges(case.op) else 1


def _words(case: Case) -> tuple[Workspace, ...]:
    from kernels.dsl.status import STATUS_WORDS
    from kernels.matmul.ranks import STATE_WORDS, WHOLE
    from kernels.matmul.reduce_scatter import half_tiles

    if not exchanges(case.op):
        return ()
    flags = (WHOLE + 1) * case.world_size * half_tiles(*_shard(case), tuning_of(case))
    return (Workspace("flags", flags), Workspace("state", STATE_WORDS), Workspace("status", STATUS_WORDS))


def _inbox(case: Case) -> dict[str, ShapedBuffer]:
    from kernels.matmul.reduce_scatter import inbox_bytes

    size = inbox_bytes(*_shard(case), case.world_size, tuning_of(case))
    return {"inbox": ShapedBuffer("uint8", (size,))}


def _gathered(case: Case) -> dict[str, ShapedBuffer]:
    rows, depth = matrices(case).a
    return {"gathered": ShapedBuffer(case.dtype, (2 * case.world_size, rows, depth))}


def _launch(case: Case) -> Launch:
    from kernels.matmul.matmul import THREADS

    tuning = tuning_of(case)
    grid = min(tuning.blocks // tuning.cluster, tiles_of(case, tuning)) * tuning.cluster
    return Launch(grid, THREADS, tuning.shared_bytes, tuning.cluster)


def _owner_of_rows(case: Case, rank: int) -> torch.Tensor:
    """Of reduce_scatter: the rank itself adds."""
    import torch

    return torch.full((prod(matrices(case).c),), rank)


def _owner_by_row(case: Case, rank: int) -> torch.Tensor:
    """Of all_reduce: the owner of a shard of C adds for all."""
    import torch

    rows, columns = _shard(case)
    return torch.arange(case.world_size).repeat_interleave(rows * columns)


def _spec(
    name: str, kernel: str, summary: str, arguments: tuple[BroughtArgument, ...], scratch: Any, **rest: Any
) -> KernelSpec:
    op, algorithm = name.split("/")
    one = BuiltMatmul(name, kernel, arguments, scratch)
    here = Path(__file__).resolve()
    code = here.parent / "matmul" / f"{kernel.partition(':')[0]}.py"
    return KernelSpec(
        op=op,
        algorithm=algorithm,
        summary=summary,
        dtypes=("bfloat16", "float16"),
        accumulators=("float32",),
        reductions=("sum",),
        placements=OUT,
        needs_multicast=False,
        parameters=tuple(Parameter("peers", table) for table in tables_of(arguments)),
        workspaces=one.workspaces,
        launch=_launch,
        build=one.build,
        files=(str(here), str(code)),
        archs=("sm_90a",),
        max_world_size=RANKS,
        choices=choices,
        refusal=one.refusal,
        made=one.executable,
        arguments=lambda case, launch, rank: one.arguments_of(case),
        promises=PROMISED if exchanges(op) else PROMISED - {"dead_rank"} | {"two_streams"},
        why_not=WHY_NOT,
        **rest,
    )


KERNELS = (
    _spec(
        "matmul/tiles",
        "matmul:Matmul",
        "tensor cores take tiles that a thread of each block copies ahead",
        _OWN,
        lambda case: {},
        fold="rank_order",
    ),
    _spec(
        "all_gather_matmul/push",
        "all_gather:AllGather",
        "each rank pushes its rows of A to all others, and multiplies those that have come",
        (*_OWN, *_GATHERED, *_END),
        _gathered,
        fold="rank_order",
    ),
    _spec(
        "matmul_reduce_scatter/inbox",
        "reduce_scatter:ReduceScatter",
        "tiles are pushed into inboxes of the rank that owns them, which adds them in the order of ranks",
        (*_OWN, *_INBOX, *_END),
        _inbox,
        fold="from_next_rank",
        owner=_owner_of_rows,
    ),
    _spec(
        "matmul_reduce_scatter/adding",
        "reduce_scatter:ReduceScatterByAdding",
        "tiles are added to C of the rank that owns them by bulk copies, in any order",
        (*_C_OF_ALL, *_END),
        lambda case: {},
        fold="unordered",
    ),
    _spec(
        "matmul_all_reduce/inbox",
        "reduce_scatter:AllReduce",
        "as matmul_reduce_scatter/inbox, and the owner of a tile stores the sum to all ranks",
        (*_C_OF_ALL, *_INBOX, *_END),
        _inbox,
        fold="from_next_rank",
        owner=_owner_by_row,
        one_owner=True,
    ),
)
