"""What each op means, apart from how it is done: counts, outputs, bus factor, as a Collective each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases.case import Case, Sends
from cases.refusal import Refusal, unknown_name
from cases.sends import ROOM, sends_of

if TYPE_CHECKING:
    import torch


Factors = tuple["torch.Tensor", "torch.Tensor"]
"""A (rows, depth) and B (columns, depth) of a product A B^T."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """Shapes of a rank's matrices in a product C = A B^T, rows contiguous. A and B lie behind each other in its input,
    C is its output. Where A or C has the rows of all ranks, the first dimension is the rank."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    c: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """What an op multiplies. matrices(case): a rank's. factors(ranks, rank): of all ranks' A and B those whose products
    together are the rank's C, in rank order. received(case): the elements that a rank gets from others, if they have no
    multicast."""

    matrices: Callable[[Case], Matrices]
    factors: Callable[[Sequence[Factors], int], list[Factors]]
    received: Callable[[Case], int]


@dataclass(frozen=True, slots=True)
class Collective:
    """What an op means, apart from how it is done.

    counts(numel, world_size) gives the elements of one rank's input and output buffer. outputs(inputs, rank, root)
    gives, for the world's inputs (one 1-D tensor a rank), the parts that are reduced into that rank's output, in rank
    order; where the op reduces nothing, the one tensor whose bits must come out; None where this rank's output is to
    stay as it was. bus_factor(world_size) is nccl-tests' busbw = algbw * factor.

    chunked: numel is divided into world_size equal chunks, so it has to be a multiple of world_size. in_place(numel,
    world_size, rank) gives the elements at which input and output begin in the one buffer of max(counts) elements that
    they share, as in NCCL; None where the op has no such form.

    source(rank, world_size, root), of an op whose outputs are each the input of one rank, gives that rank.

    sends(case), of an op with counts per peer, gives the elements that each rank sends to each; None of other ops. What
    a rank sends lies in its input in the order of the ranks it is for, what it gets in its output in the order of the
    ranks it is from, without gaps; counts() then is the room of both buffers, and a rank's output may fill a part of
    it, whose rest stays as it was. outputs(inputs, rank, root) is what uniform counts give.

    product, of an op that multiplies (Case.gemm). What counts and outputs say is then of C, the product of each rank.
    """

    op: str
    summary: str
    counts: Callable[[int, int], tuple[int, int]]
    outputs: Callable[[list[torch.Tensor], int, int], list[torch.Tensor] | None]
    bus_factor: Callable[[int], float]
    same_on_all_ranks: bool
    reduces: bool = True
    source: Callable[[int, int, int], int] | None = None
    rooted: bool = False
    chunked: bool = False
    in_place: Callable[[int, int, int], tuple[int, int]] | None = None
    sends: Callable[[Case], Sends] | None = None
    product: Product | None = None

    def elements(self, case: Case) -> tuple[int, int]:
        """Return the elements of a rank's input and output buffer."""
        if self.product is None:
            return self.counts(case.numel, case.world_size)
        shapes = self.product.matrices(case)
        return math.prod(shapes.a) + math.prod(shapes.b), math.prod(shapes.c)

    def factors(self, case: Case, inputs: Sequence[torch.Tensor], rank: int) -> list[Factors]:
        """Return the matrices whose products together are a rank's C, in rank order. inputs: one 1-D tensor a rank."""
        assert self.product is not None
        shapes = self.product.matrices(case)
        end = math.prod(shapes.a)
        ranks = [(one[:end].view(shapes.a), one[end:].view(shapes.b)) for one in inputs]
        return [(a.reshape(-1, a.shape[-1]), b) for a, b in self.product.factors(ranks, rank)]

    def parts(self, case: Case, inputs: list[torch.Tensor], rank: int) -> list[torch.Tensor] | None:
        """Return outputs() for a case: with its root, or its counts per peer."""
        return (
            self.outputs(inputs, rank, case.root) if self.sends is None else [exchanged(inputs, self.sends(case), rank)]
        )

    def received(self, case: Case, rank: int) -> int:
        """Return the elements of a rank's output that the op fills, from its beginning on."""
        if self.sends is None:
            return self.elements(case)[1]
        return sum(row[rank] for row in self.sends(case))

    def gives(self, case: Case, rank: int) -> bool:
        """Whether a rank gets anything: a reduction to a root gives nothing to the others."""
        return self.is_for_all or rank == case.root

    @property
    def is_for_all(self) -> bool:
        """Whether every rank gets something."""
        return not (self.reduces and self.rooted)


def exchanged(inputs: list[torch.Tensor], sends: Sends, rank: int) -> torch.Tensor:
    """Return what a rank gets of all ranks' inputs (1-D) by counts per peer: 1-D, in the order of the ranks."""
    import torch

    starts = [sum(row[:rank]) for row in sends]
    return torch.cat([one[at : at + row[rank]] for one, row, at in zip(inputs, sends, starts, strict=True)])


def _whole(numel: int, world_size: int) -> tuple[int, int]:
    return numel, numel


def _share(world_size: int) -> float:
    return (world_size - 1) / world_size


def _one(world_size: int) -> float:
    return 1.0


def _at_the_beginning(numel: int, world_size: int, rank: int) -> tuple[int, int]:
    return 0, 0


def _all_of_each(inputs: list[torch.Tensor], rank: int, root: int) -> list[torch.Tensor] | None:
    return inputs


def _in_rank_order(inputs: list[torch.Tensor], rank: int, root: int) -> list[torch.Tensor] | None:
    import torch  # takes seconds, and ops are read before anything runs

    return [torch.cat(inputs)]


def _there_and_back(world_size: int) -> float:
    return 2 * (world_size - 1) / world_size


ALL_REDUCE = Collective(
    op="all_reduce",
    summary="every rank gets the reduction of all inputs",
    counts=_whole,
    outputs=_all_of_each,
    bus_factor=_there_and_back,
    same_on_all_ranks=True,
    in_place=_at_the_beginning,
)
"""Each rank gives numel elements and gets the elementwise reduction of all ranks' elements."""


def _scattered(numel: int, world_size: int) -> tuple[int, int]:
    return numel, numel // world_size


def _chunk_of_each(inputs: list[torch.Tensor], rank: int, root: int) -> list[torch.Tensor] | None:
    chunk = inputs[0].numel() // len(inputs)
    return [one[rank * chunk : (rank + 1) * chunk] for one in inputs]


def _output_at_its_chunk(numel: int, world_size: int, rank: int) -> tuple[int, int]:
    return 0, rank * (numel // world_size)


REDUCE_SCATTER = Collective(
    op="reduce_scatter",
    summary="every rank gets its chunk of the reduction of all inputs",
    counts=_scattered,
    outputs=_chunk_of_each,
    bus_factor=_share,
    same_on_all_ranks=False,
    chunked=True,
    in_place=_output_at_its_chunk,
)
"""Each rank gives numel elements and gets its chunk of their elementwise reduction."""


def _gathered(numel: int, world_size: int) -> tuple[int, int]:
    return numel // world_size, numel


def _input_at_its_chunk(numel: int, world_size: int, rank: int) -> tuple[int, int]:
    return rank * (numel // world_size), 0


ALL_GATHER = Collective(
    op="all_gather",
    summary="every rank gets the chunks of all ranks, in rank order",
    counts=_gathered,
    outputs=_in_rank_order,
    bus_factor=_share,
    same_on_all_ranks=True,
    reduces=False,
    chunked=True,
    in_place=_input_at_its_chunk,
)
"""Each rank gives its chunk and gets the chunks of all, numel elements in rank order."""


def _root(rank: int, world_size: int, root: int) -> int:
    return root


def _of_the_root(inputs: list[torch.Tensor], rank: int, root: int) -> list[torch.Tensor] | None:
    return [inputs[root]]


BROADCAST = Collective(
    op="broadcast",
    summary="every rank gets the root's input",
    counts=_whole,
    outputs=_of_the_root,
    bus_factor=_one,
    same_on_all_ranks=True,
    reduces=False,
    source=_root,
    rooted=True,
    in_place=_at_the_beginning,
)
"""The root gives numel elements, and every rank gets them."""


def _all_to_the_root(inputs: list[torch.Tensor], rank: int, root: int) -> list[torch.Tensor] | None:
    return inputs if rank == root else None


REDUCE = Collective(
    op="reduce",
    summary="the root gets the reduction of all inputs",
    counts=_whole,
    outputs=_all_to_the_root,
    bus_factor=_one,
    same_on_all_ranks=False,
    rooted=True,
    in_place=_at_the_beginning,
)
"""Each rank gives numel elements, and the root gets the elementwise reduction of all."""


def _chunks_for_it(inputs: list[torch.Tensor], rank: int, root: int) -> list[torch.Tensor] | None:
    import torch

    return [torch.cat(_chunk_of_each(inputs, rank, root) or [])]


ALL_TO_ALL = Collective(
    op="all_to_all",
    summary="every rank gets the chunk for it from every rank",
    counts=_whole,
    outputs=_chunks_for_it,
    bus_factor=_share,
    same_on_all_ranks=False,
    reduces=False,
    chunked=True,
)
"""Each rank gives a chunk for each rank and gets the chunks for it, in rank order."""


def _rooms(numel: int, world_size: int) -> tuple[int, int]:
    return ROOM * numel, ROOM * numel


def _exchanged_evenly(inputs: list[torch.Tensor], rank: int, root: int) -> list[torch.Tensor] | None:
    ranks = len(inputs)
    chunk = inputs[0].numel() // (ROOM * ranks)
    return [exchanged(inputs, ((chunk,) * ranks,) * ranks, rank)]


ALL_TO_ALL_V = Collective(
    op="all_to_all_v",
    summary="every rank gets what every rank has for it, by counts per peer",
    counts=_rooms,
    outputs=_exchanged_evenly,
    bus_factor=_share,
    same_on_all_ranks=False,
    reduces=False,
    chunked=True,
    sends=sends_of,
)
"""Each rank gives each rank as much as it has for it, and gets what others have for it.

It is all_to_all with counts per peer, as the dispatch of a mixture of experts has it. A rank knows only how much it
sends. Both buffers are packed, as of torch.distributed.all_to_all_single with split sizes: what a rank gets lies
without gaps in the order of the ranks it is from, so that one grouped product can take it as it is, and the memory is
that of what arrives and not of the largest message from every rank. The price is that a rank must know what others send
before it can store: the algorithms say how counts travel.

size_bytes is what one rank sends if the counts are uniform, as in nccl-tests' alltoall; others distribute the total of
all ranks (cases/sends.py). The bus factor is alltoall's for all counts, over the bytes of the mean rank: a bus
bandwidth below that of uniform counts is the cost of the imbalance, which a factor over the busiest rank's bytes would
hide. nccl-tests has no such op.
"""


def _rank_before(rank: int, world_size: int, root: int) -> int:
    return (rank - 1) % world_size


def _of_the_rank_before(inputs: list[torch.Tensor], rank: int, root: int) -> list[torch.Tensor] | None:
    return [inputs[_rank_before(rank, len(inputs), root)]]


SEND_RECV = Collective(
    op="send_recv",
    summary="every rank gets the input of the rank before it",
    counts=_whole,
    outputs=_of_the_rank_before,
    bus_factor=_one,
    same_on_all_ranks=False,
    reduces=False,
    source=_rank_before,
)
"""Each rank gives numel elements to the next rank, the last to the first: a ring shift."""


def _tokens(numel: int, world_size: int) -> tuple[int, int]:
    return numel, numel * world_size


def _none(world_size: int) -> float:
    return 0.0


BARRIER = Collective(
    op="barrier",
    summary="no rank leaves before all have arrived; each leaves with the tokens of all",
    counts=_tokens,
    outputs=_in_rank_order,
    bus_factor=_none,
    same_on_all_ranks=True,
    reduces=False,
)
"""No rank leaves before all have arrived.

Each rank brings a token, numel elements that it hands to all before it arrives, and leaves with those of all ranks: so
a barrier that lets a rank go too early, or does not order what was written before it, gives a wrong output.
"""


def refuses_gemm(op: Collective, gemm: Sequence[int] | None, world_size: int) -> Refusal | None:
    """Return why an op can't run with (M, N, K), or without; None if it can."""
    if op.product is None:
        return Refusal("m, n, k", f"{op.op} multiplies nothing", "leave m, n and k out") if gemm else None
    if not gemm:
        return Refusal("m, n, k", f"{op.op} has no size of its own", "give m, n and k")
    if op.chunked and gemm[0] % world_size:
        return Refusal("m", f"{op.op} divides its {gemm[0]} rows evenly", f"give a multiple of {world_size} ranks")
    return None


def _all_rows(ranks: Sequence[Factors], rank: int) -> list[Factors]:
    return list(ranks)


def _own_rows(ranks: Sequence[Factors], rank: int) -> list[Factors]:
    return [(a[rank], b) for a, b in ranks]


def _of_itself(ranks: Sequence[Factors], rank: int) -> list[Factors]:
    return [ranks[rank]]


def _gathered_rows(ranks: Sequence[Factors], rank: int) -> list[Factors]:
    import torch

    return [(torch.cat([a for a, _ in ranks]), ranks[rank][1])]


def _sizes(case: Case) -> tuple[int, int, int]:
    assert case.gemm is not None, f"{case.op} without M, N, K"
    return case.gemm


def _whole_matrices(case: Case) -> Matrices:
    m, n, k = _sizes(case)
    return Matrices((m, k), (n, k), (m, n))


def _matrices(case: Case, has_all_a: bool, has_all_c: bool) -> Matrices:
    """has_all_a, has_all_c: whether A and C have the rows of all ranks."""
    m, n, k = _sizes(case)
    all_rows, own_rows = (case.world_size, m // case.world_size), (m // case.world_size,)
    return Matrices((*(all_rows if has_all_a else own_rows), k), (n, k), (*(all_rows if has_all_c else own_rows), n))


def _of_this_rank(inputs: list[torch.Tensor], rank: int, root: int) -> list[torch.Tensor] | None:
    return [inputs[rank]]


def _shards(case: Case, columns: int) -> int:
    """Elements of as many shards of rows as there are other ranks."""
    return (case.world_size - 1) * (_sizes(case)[0] // case.world_size) * columns


MATMUL = Collective(
    op="matmul",
    summary="every rank multiplies its own matrices: what fused ops are compared with",
    counts=_whole,
    outputs=_of_this_rank,
    bus_factor=_none,
    same_on_all_ranks=False,
    product=Product(_whole_matrices, _of_itself, lambda case: 0),
)
"""Each rank gives A (M, K) and B (N, K), and gets C (M, N) = A B^T. The ops that multiply have no bus factor: what
their links carry is no fixed share of size_bytes, and tables say TFLOP/s."""

ALL_GATHER_MATMUL = Collective(
    op="all_gather_matmul",
    summary="every rank multiplies the rows of all ranks by columns of its own",
    counts=_whole,
    outputs=_of_this_rank,
    bus_factor=_none,
    same_on_all_ranks=False,
    chunked=True,
    product=Product(
        lambda case: _matrices(case, False, True), _gathered_rows, lambda case: _shards(case, _sizes(case)[2])
    ),
)
"""Each rank gives its rows of A, M / ranks of them, and its own B, and gets C (M, N) = all rows of A times its B^T.

It is the first layer of a tensor parallel pair.
"""

MATMUL_REDUCE_SCATTER = Collective(
    op="matmul_reduce_scatter",
    summary="every rank gets its rows of the sum of all ranks' products",
    counts=_scattered,
    outputs=_chunk_of_each,
    bus_factor=_none,
    same_on_all_ranks=False,
    chunked=True,
    product=Product(lambda case: _matrices(case, True, False), _own_rows, lambda case: _shards(case, _sizes(case)[1])),
)
"""Each rank gives A (M, K) and B (N, K), its part of the depth, and gets its M / ranks rows of the sum of all A B^T."""

MATMUL_ALL_REDUCE = Collective(
    op="matmul_all_reduce",
    summary="every rank gets the sum of all ranks' products",
    counts=_whole,
    outputs=_all_of_each,
    bus_factor=_none,
    same_on_all_ranks=True,
    chunked=True,
    product=Product(
        lambda case: _matrices(case, True, True), _all_rows, lambda case: 2 * _shards(case, _sizes(case)[1])
    ),
)
"""Each rank gives A (M, K) and B (N, K), its part of the depth, and gets C (M, N), the sum of all A B^T."""

MATMULS = (MATMUL, ALL_GATHER_MATMUL, MATMUL_REDUCE_SCATTER, MATMUL_ALL_REDUCE)
"""The ops that multiply (Case.gemm). M, N and K say their sizes."""

COLLECTIVES = (
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    BROADCAST,
    REDUCE,
    ALL_TO_ALL,
    ALL_TO_ALL_V,
    SEND_RECV,
    BARRIER,
)
"""All ops that only communicate. What is neither here nor in MATMULS does not exist."""

OPS: tuple[str, ...] = tuple(one.op for one in (*COLLECTIVES, *MATMULS))


def collective(op: str) -> Collective:
    """What an op means; ValueError with the nearest names if there is none."""
    for known in (*COLLECTIVES, *MATMULS):
        if known.op == op:
            return known
    raise ValueError(unknown_name("op", op, OPS))
