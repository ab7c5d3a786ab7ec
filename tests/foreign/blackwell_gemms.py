"""CuTe DSL's GEMMs for Blackwell, alone and with a collective, from a checkout of NVIDIA/cutlass: how each of them is
compiled, what memory it takes, and what a program launches on each rank. No GPU has run this project's copies.
"""

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

import symlab
from kernels.functions import CallArgument, compiled_callable
from tests.foreign.cutlass_examples import ARCH, FOLDER, example, taken

DENSE = FOLDER.parent / "dense_gemm"
NAMES = {torch.bfloat16: "bfloat16", torch.float8_e4m3fn: "float8_e4m3fn", torch.int32: "int32", torch.uint8: "uint8"}


@dataclass(frozen=True)
class Gemm:
    """C = A B of (rows, depth) and (columns, depth) of each rank. pair: two blocks carry out each product together."""

    rows: int
    columns: int
    depth: int
    tile: tuple
    cluster: tuple = (1, 1)
    pair: bool = False
    clusters: int = 0
    dtype: torch.dtype = torch.bfloat16

    @property
    def flags(self):
        return self.rows // 64 * (self.columns // 64) + 160


@dataclass(frozen=True)
class ScaledGemm(Gemm):
    """The same with scale factors. element: type of A and B, of so many bits; scale: type of the factors, of which each
    is of so many elements (vector)."""

    element: str = "Float4E2M1FN"
    bits: int = 4
    scale: str = "Float8E4M3FN"
    vector: int = 16


def laid(tensor, rows, columns):
    """A tensor of rows with a third dimension of one element."""
    import cutlass.cute as cute

    return cute.make_tensor(tensor.iterator, cute.make_layout((rows, columns, 1), stride=(columns, 1, rows * columns)))


def dense(folder, gemm):
    """A function for symlab.simulate; the persistent kernel if the number of clusters is given, that which asks for the
    work of others if it is -1."""
    import cutlass
    import cutlass.cute as cute

    if gemm.clusters:
        name = "dense_gemm_persistent_dynamic" if gemm.clusters < 0 else "dense_gemm_persistent"
        made = example(folder, name).PersistentDenseGemmKernel
    else:
        made = example(folder, "dense_gemm").DenseGemmKernel
    kernel = made(cutlass.Float32, gemm.pair, gemm.tile, gemm.cluster, True)
    more = (gemm.clusters,) if gemm.clusters > 0 else ()

    @cute.jit
    def function(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
        matrices = (laid(a, gemm.rows, gemm.depth), laid(b, gemm.columns, gemm.depth), laid(c, gemm.rows, gemm.columns))
        no_stream = []
        kernel(*matrices, *more, no_stream)

    return function


@dataclass(frozen=True)
class Exchange:
    """A file's GEMM with a collective. takes: its tensors in order, each a buffer and how it is seen: "own", "all" (its
    multicast address), "each" (of each rank), or, of buffers that a rank has as many of as there are ranks, "mine all"
    and "those"."""

    file: str
    kernel: str
    takes: tuple

    def sizes(self, gemm, ranks):
        """Rows and columns of each buffer."""
        matrix = (gemm.rows, gemm.columns)
        out = (gemm.rows // ranks, gemm.columns) if "scatter" in self.file else matrix
        sizes = {"a": (gemm.rows, gemm.depth), "b": (gemm.columns, gemm.depth), "c": matrix, "out": out}
        return sizes | dict.fromkeys(("ping", "pong"), matrix)

    def dtype_of(self, name, gemm):
        return gemm.dtype

    def made(self, module, gemm, **ranks):
        import cutlass

        how = (gemm.pair, gemm.tile, gemm.cluster, True)
        return getattr(module, self.kernel)(cutlass.Float32, cutlass.BFloat16, *how, **ranks)

    def called(self, kernel, tensors, gemm):
        no_stream = []
        kernel(*tensors, no_stream, gemm.clusters)


@dataclass(frozen=True)
class ScaledExchange(Exchange):
    """One whose A and B have scale factors: bytes, as their sizes are."""

    def sizes(self, gemm, ranks):
        matrix = (gemm.rows, gemm.columns)
        sizes = {"c": matrix, "out": matrix}
        for name, rows in (("a", gemm.rows), ("b", gemm.columns)):
            sizes[name] = (rows, gemm.depth * gemm.bits // 8)
            sizes[f"s{name}"] = (rows // 128, gemm.depth // gemm.vector * 128)
        return sizes

    def dtype_of(self, name, gemm):
        return gemm.dtype if name in ("c", "out") else torch.uint8

    def made(self, module, gemm, **ranks):
        import cutlass

        return getattr(module, self.kernel)(gemm.vector, gemm.tile, gemm.cluster, cutlass.BFloat16, **ranks)

    def called(self, kernel, tensors, gemm):
        import cutlass
        import cutlass.cute as cute
        from cutlass.cute.nvgpu import OperandMajorMode
        from cutlass.utils import LayoutEnum

        no_stream = []
        kinds = [getattr(cutlass, one) for one in (gemm.element, gemm.element, gemm.scale, gemm.scale)]
        given = [cute.recast_ptr(one.iterator, dtype=kind) for one, kind in zip(tensors[:4], kinds, strict=True)]
        majors = (OperandMajorMode.K, OperandMajorMode.K, LayoutEnum.ROW_MAJOR)
        shape = (gemm.rows, gemm.columns, gemm.depth, 1)
        kernel(*given, tensors[4].iterator, majors, shape, gemm.clusters, no_stream, lambda one: one, *tensors[5:])


A, B, C, FLAGS = ("a own", "b own", "c own", ("flags own", "flags all"))
REDUCE_SCATTER = Exchange(
    "distributed_gemm_reduce_scatter_blackwell",
    "Sm100PersistentDenseGemmReduceScatterLDMCKernel",
    (A, B, C, "c all", "out own", *FLAGS, "flags each"),
)
ALL_REDUCE = Exchange(
    "distributed_gemm_all_reduce_blackwell",
    "Sm100PersistentDenseGemmAllReduceLDMCxSTMCKernel",
    (A, B, C, "c all", "out all", *FLAGS),
)
LOADS = Exchange(
    "distributed_gemm_all_reduce_ldxstmc_blackwell",
    "Sm100PersistentDenseGemmAllReduceLDxSTMCKernel",
    (A, B, C, "c each", "out all", *FLAGS),
)
LAMPORT = Exchange(
    "distributed_gemm_all_reduce_lamport_blackwell",
    "Sm100PersistentDenseGemmAllReduceLamportKernel",
    (A, B, "ping mine all", "ping those", "pong those", "out own"),
)
SCALED = ScaledExchange(
    "distributed_gemm_blockscaled_all_reduce_ldmcxstmc_blackwell",
    "Sm100PersistentBlockScaleDenseGemmAllReduceLDMCxSTMCKernel",
    (A, B, "sa own", "sb own", C, "c all", "out all", *FLAGS),
)


def compiled(folder, exchange, gemm, ranks):
    """A kernel for each rank, and how its host code launches it."""
    module, sizes = example(folder / FOLDER, exchange.file), exchange.sizes(gemm, ranks)
    counts = [ranks if one.endswith(("each", "those")) else 1 for one in exchange.takes]

    def arranged(tensors):
        found, rest = [], list(tensors)
        for one, count in zip(exchange.takes, counts, strict=True):
            some, rest = rest[:count], rest[count:]
            shape = sizes.get(one.split()[0])
            some = some if shape is None else [laid(tensor, *shape) for tensor in some]
            found.append(some[0] if count == 1 else tuple(some))
        return found

    members = []
    for one, count in zip(exchange.takes, counts, strict=True):
        shape = sizes.get(one.split()[0])
        kind = (NAMES[exchange.dtype_of(one.split()[0], gemm)], shape) if shape else ("int32", (gemm.flags,))
        members += [CallArgument("tensor", *kind)] * count
    made = []
    for rank in range(ranks):
        kernel = exchange.made(module, gemm, rank_id=rank, num_ranks=ranks)
        arguments = [CallArgument("tensors", members=tuple(members))]
        name = f"{exchange.file} of rank {rank}"
        found = compiled_callable(launching(exchange, kernel, arranged, gemm), name, arguments, ARCH)
        made.append((taken(found.executable), found.host.launch([bytes(8)] * len(members), [True] * len(members))))
    return made


def launching(exchange, kernel, arranged, gemm):
    import cutlass.cute as cute

    @cute.jit
    def function(tensors: list[cute.Tensor]):
        exchange.called(kernel, arranged(tensors), gemm)

    return function


def changed(kernels, *pairs):
    """The kernels with changes of their PTX: pairs of a pattern and what stands there."""
    found = []
    for executable, host in kernels:
        text = executable.ptx
        for pattern, new in pairs:
            text, count = re.subn(pattern, new, text)
            assert count, pattern
        digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        found.append((replace(executable, ptx=text, digest=digest), host))
    return found


def ran(kernels, exchange, gemm, a, b, scales=(), **how):
    """What each rank's output is, and what the race checker found. a, b, scales (of a and of b): by rank."""
    ranks, sizes = len(kernels), exchange.sizes(gemm, len(kernels))
    names = dict.fromkeys(one.split()[0] for one in exchange.takes)

    def program(rank, _):
        with rank.pool() as pool:
            tensors = {}
            for name in names:
                count = ranks if name in ("ping", "pong") else 1
                shape, dtype, fill = gemm.flags, torch.int32, 0
                if name in sizes:
                    shape, dtype, fill = sizes[name], exchange.dtype_of(name, gemm), None
                fill = -0.0 if name == "ping" else fill
                tensors[name] = [pool.tensor(shape, dtype, name=f"{name}{at or ''}", fill=fill) for at in range(count)]
            for name, some in zip(("a", "b", "sa", "sb"), (a, b, *scales), strict=False):
                tensors[name][0].write(some[rank.rank])
            rank.barrier()
            addresses = [place.address for one in exchange.takes for place in seen(tensors, one, rank.rank, ranks)]
            executable, host = kernels[rank.rank]
            rank.fabric.launch(executable, host.launch, host.arguments(addresses))
            rank.synchronize()
            rank.barrier()
            return tensors["out"][0].read().clone()

    with symlab.world(ranks, arch=ARCH, **how) as world:
        return world.run(program), world.findings() if how.get("races") else ()


def seen(tensors, take, rank, ranks):
    """The places that a kernel takes for a tensor."""
    name, *how = take.split()
    made = tensors[name]
    if how == ["each"]:
        return [made[0].peer(one) for one in range(ranks)]
    if how == ["those"]:
        return made
    one = made[rank] if how[0] == "mine" else made[0]
    return [one.multicast() if how[-1] == "all" else one]


def integers(gemm, ranks=1, seed=3):
    """A and B of each rank, whose products and sums bfloat16 has exactly."""
    made = torch.Generator().manual_seed(seed)
    shapes = ((gemm.rows, gemm.depth), (gemm.columns, gemm.depth))
    return [[torch.randint(-1, 2, shape, generator=made).to(gemm.dtype) for _ in range(ranks)] for shape in shapes]


SCALES = {"Float8E4M3FN": (0x38, 0x40), "Float8E8M0FNU": (127, 128)}
"""Codes of 1 and 2."""
ONES = {"Float4E2M1FN": (2, 10), "Float8E4M3FN": (0x38, 0xB8), "Float8E5M2": (0x3C, 0xBC)}
"""Codes of 1 and -1."""


def scaled_integers(gemm, rows, made):
    """A matrix of -1, 0 and 1 and its scale factors 1 and 2, as bytes, and what it is."""
    chosen = made.integers(-1, 2, (rows, gemm.depth))
    codes = np.array([0, *ONES[gemm.element]])[chosen].astype(np.uint8)
    given = codes[:, 0::2] | codes[:, 1::2] << 4 if gemm.bits == 4 else codes
    doubled = made.integers(0, 2, (rows, gemm.depth // gemm.vector))
    # a unit of 512 bytes is of 128 rows and 4 factors: 32 rows, of each the factors of every 32nd row
    units = np.array(SCALES[gemm.scale], np.uint8)[doubled].reshape(rows // 128, 4, 32, -1, 4).transpose(0, 3, 2, 1, 4)
    scales = np.ascontiguousarray(units).reshape(rows // 128, -1)
    whole = chosen * np.repeat(1 + doubled, gemm.vector, axis=1)
    return torch.from_numpy(given), torch.from_numpy(scales), torch.from_numpy(whole).double()


def checkout_of(request):
    """The checkout's folder, None without one."""
    given = request.config.getoption("--cutlass-checkout")
    assert given is None or (Path(given) / FOLDER).is_dir(), f"{given} has no {FOLDER} (--cutlass-checkout)"
    return None if given is None else Path(given)


GROUPED = FOLDER.parent / "grouped_gemm"
LARGEST = (1024, 1024)
"""What the maps that a kernel changes are made for."""


def grouped(folder, groups, clusters, in_shared):
    """CuTe DSL's grouped GEMM, compiled, and how its host code launches it. groups: rows, columns and depth of each."""
    import cutlass
    import cutlass.cute as cute
    from cutlass.utils import TensorMapUpdateMode

    mode = TensorMapUpdateMode.SMEM if in_shared else TensorMapUpdateMode.GMEM
    kernel = example(folder / GROUPED, "grouped_gemm").GroupedGemmKernel(
        cutlass.Float32, False, (128, 128), (1, 1), mode
    )
    tiles = sum(-(-rows // 128) * -(-columns // 128) for rows, columns, _ in groups)

    @cute.jit
    def function(tensors: list[cute.Tensor]):
        no_stream = []
        matrices = [laid(one, *LARGEST) for one in tensors[:3]]
        kernel(*matrices, len(groups), *tensors[3:6], tiles, tensors[6], clusters, no_stream)

    kinds = [("bfloat16", LARGEST), ("bfloat16", LARGEST), ("float32", LARGEST)]
    kinds += [("int32", (len(groups), 4)), ("int32", (len(groups), 3, 2)), ("int64", (len(groups), 3))]
    members = tuple(CallArgument("tensor", *one) for one in (*kinds, ("int64", (clusters, 3, 16))))
    found = compiled_callable(function, "grouped", [CallArgument("tensors", members=members)], ARCH)
    return taken(found.executable), found.host.launch([bytes(8)] * 7, [True] * 7)


def ran_grouped(kernel, groups, a, b, clusters, **how):
    """C of each group, and what the race checker found."""

    def program(rank, _):
        with rank.pool() as pool:

            def held(name, value):
                made = pool.tensor(tuple(value.shape), value.dtype, name=name)
                made.write(value)
                return made

            places = [[held(f"{name}{at}", one) for at, one in enumerate(some)] for name, some in (("a", a), ("b", b))]
            places.append([pool.tensor(one[:2], torch.float32, name=f"c{at}") for at, one in enumerate(groups)])
            sizes = torch.tensor([(*one, 1) for one in groups], dtype=torch.int32)
            strides = torch.tensor([[(k, 1), (k, 1), (n, 1)] for _, n, k in groups], dtype=torch.int32)
            addresses = torch.tensor([[one.address for one in three] for three in zip(*places, strict=True)])
            rest = [held("sizes", sizes), held("strides", strides), held("addresses", addresses)]
            rest.append(held("maps", torch.zeros(clusters, 3, 16, dtype=torch.int64)))
            rank.barrier()
            executable, host = kernel
            given = [one.address for one in (*(some[0] for some in places), *rest)]
            rank.fabric.launch(executable, host.launch, host.arguments(given))
            rank.synchronize()
            rank.barrier()
            return [one.read().clone() for one in places[2]]

    with symlab.world(1, arch=ARCH, **how) as world:
        return world.run(program)[0], world.findings() if how.get("races") else ()


def gated(folder, gemm):
    """The all_gather's GEMM for symlab.simulate, which waits for a flag before it loads A."""
    import cutlass
    import cutlass.cute as cute

    made = example(folder / FOLDER, "distributed_all_gather_gemm_blackwell").PersistentDenseGemmKernel
    kernel = made(cutlass.Float32, gemm.pair, gemm.tile, gemm.cluster, True, True)

    @cute.jit
    def function(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, flags: cute.Tensor):
        no_stream = []
        matrices = (laid(a, gemm.rows, gemm.depth), laid(b, gemm.columns, gemm.depth), laid(c, gemm.rows, gemm.columns))
        kernel(*matrices, gemm.clusters, no_stream, 1, flags)

    return function
