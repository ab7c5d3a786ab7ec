"""The bench of vectors: many pieces of PTX, each with its inputs and the bytes it has to leave, run in one launch.

A Vector belongs to a key of simulator.isa.TABLE. Its text uses registers it names as inputs (loaded for every sample)
and outputs (stored for every sample), or addresses of its own blobs and stores. A sample is a lane. The bench proves
that a vector's key was run by parsing the kernel it launched and asking key_of for each instruction.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.isa import key_of
from simulator.isa.registry import canonical
from simulator.ptx.ir import Instruction
from simulator.ptx.parse import parse_kernel
from tests.simulator.harness import ARCH, executable, make_world, module, put, run, start

Array = npt.NDArray[Any]
SAMPLES = 1024
SIZES = {"pred": 4, "b16": 2, "b32": 4, "b64": 8}
DTYPES = {"pred": "u4", "b16": "u2", "b32": "u4", "b64": "u8"}


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """Bytes that samples leave: rows[i] at offsets[i] of a region of size_bytes; everything else there stays poison."""

    rows: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    size_bytes: int


def dense(values):
    """One value a sample, side by side."""
    rows = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    width = rows.shape[1]
    return Store(rows, np.arange(len(values), dtype=np.int64) * width, rows.size)


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """text: PTX; {name} stands for the byte offset of a blob (from %in) or of a store (from %out).

    inputs: register, class, one value a sample. outputs: register, class, the value each sample must end with.
    """

    key: str
    name: str
    text: str
    inputs: tuple[tuple[str, str, Array], ...] = ()
    outputs: tuple[tuple[str, str, Array], ...] = ()
    blobs: dict[str, Array] = field(default_factory=dict)
    stores: dict[str, Store] = field(default_factory=dict)
    registers: str = ""  # further declarations

    @property
    def id(self):
        return f"{self.key}-{self.name}"

    @property
    def entry(self):
        """The key as the table spells it."""
        return canonical(self.key.split("."), frozenset())


@dataclass(frozen=True, slots=True)
class Shape:
    """How the samples are spread. skip: a quarter of the lanes leaves before (so that groups are not ranges).

    Vectors of one kernel use the same shared memory one after another, by elements of several sizes, with no barrier
    between them: a random order runs whole blocks.
    """

    ranks: int = 1
    block: int = 128
    skip: bool = False
    schedule: str = "fair"
    granularity: str = "block"
    seed: int = 0


SHAPES = {
    "range": Shape(),
    "scattered": Shape(skip=True),
    "four_ranks": Shape(ranks=4, block=64),
    "random": Shape(ranks=2, block=128, skip=True, schedule="random", seed=7),
}


@dataclass(slots=True)
class Finding:
    """What a vector left, beside what it should have left: byte regions, per store."""

    expected: dict[str, npt.NDArray[np.uint8]]
    found: dict[str, npt.NDArray[np.uint8]]


class Bench:
    """Vectors of a family in one kernel. Its results, which are large, are not kept."""

    def __init__(self, vectors, shared="", parameters=(), before="", target=ARCH, cluster=1):
        """shared: declarations. parameters: type, name and value of further kernel parameters. before: text at the
        module's top level. target: the architecture. cluster: blocks of a cluster."""
        self.target = target
        self.vectors = list(vectors)
        self.shared = shared
        self.parameters = parameters
        self.before = before
        self.cluster = cluster
        self.blob_at = {}
        self.blobs = []
        self.input_bytes = 0
        self.output_bytes = 0
        self.stores = []
        self.ptx = self._module()

    def _blob(self, values):
        raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        key = raw.tobytes()
        if key not in self.blob_at:
            self.blob_at[key] = self.input_bytes
            self.blobs.append(raw)
            pad = -len(raw) % 256
            self.blobs.append(np.full(pad, 0xA5, np.uint8))
            self.input_bytes += len(raw) + pad
        return self.blob_at[key]

    def _room(self, store):
        at = self.output_bytes
        self.output_bytes += -(-store.size_bytes // 256) * 256
        return at

    def _module(self):
        parts = [
            "  add.u32 %lane, %lane, %first;\n  cvt.u64.u32 %lane64, %lane;\n",
            "  and.b32 %r1, %lane, %mask;\n  setp.eq.b32 %p0, %r1, 1;\n  @%p0 bra END;\n",
        ]
        for size in (2, 4, 8):
            parts.append(
                f"  mad.lo.u64 %in{size}, %lane64, {size}, %in;\n  mad.lo.u64 %out{size}, %lane64, {size}, %out;\n"
            )
        parts += [self._section(vector) for vector in self.vectors]
        parts.append("END:\n")
        registers = "".join(f"  .reg .b64 %in{size}, %out{size};\n" for size in (2, 4, 8)) + self.shared
        more = [f"{kind} {name}" for kind, name, _ in self.parameters]
        return module(
            "".join(parts), ["u64 in", "u64 out", "u32 first", "u32 mask", *more], self.before, registers, self.target
        )

    def _section(self, vector):
        places = {name: self._blob(values) for name, values in vector.blobs.items()}
        stores = {name: (self._room(store), store) for name, store in vector.stores.items()}
        places.update({name: at for name, (at, _) in stores.items()})
        lines = ["{", vector.registers]
        for register, kind, values in vector.inputs:
            at, size = self._blob(values.astype(DTYPES[kind])), SIZES[kind]
            lines.append(f".reg .{kind} {register};")
            if kind == "pred":
                lines.append(f".reg .b32 {register}_word;")
                lines.append(f"ld.global.b32 {register}_word, [%in4+{at}]; setp.ne.b32 {register}, {register}_word, 0;")
            else:
                lines.append(f"ld.global.{kind} {register}, [%in{size}+{at}];")
        lines += [f".reg .{kind} {register};" for register, kind, _ in vector.outputs]
        text = vector.text
        for name, at in places.items():
            text = text.replace(f"{{{name}}}", str(at))
        lines.append(text)
        for register, kind, values in vector.outputs:
            store = dense(values.astype(DTYPES[kind]))
            at, size = self._room(store), SIZES[kind]
            stores[register] = (at, store)
            word = register
            if kind == "pred":
                word = f"{register}_out"
                lines.append(f".reg .b32 {word}; selp.b32 {word}, 1, 0, {register};")
                kind = "b32"
            lines.append(f"st.global.{kind} [%out{size}+{at}], {word};")
        self.stores.append(stores)
        return "\n".join([*lines, "}\n"])

    def keys(self):
        """Keys of the instructions in the kernel: a vector counts only if its own is among them."""
        kernel = parse_kernel(self.ptx, "kernel")
        present = {key_of(one) for block in kernel.blocks for one in block.instructions if isinstance(one, Instruction)}
        return present & {vector.entry for vector in self.vectors}

    def run(self, name):
        """Launch once in this shape; one finding a vector."""
        shape = SHAPES[name]
        each = SAMPLES // shape.ranks
        data = np.concatenate(self.blobs) if self.blobs else np.zeros(256, np.uint8)
        code = executable(self.ptx, "bench")

        def program(fabric):
            source = put(fabric, "in", data)
            out = fabric.allocate(max(self.output_bytes, 256), 256, "out")
            more = [value for _, _, value in self.parameters]
            arguments = [source.address, out.address, fabric.rank * each, 3 if shape.skip else 0, *more]
            start(fabric, code, each // shape.block, shape.block, arguments, cluster=self.cluster)
            fabric.synchronize()
            return fabric.read(out, 0, out.size_bytes).numpy()

        heap_bytes = 1 << (len(data) + self.output_bytes + (1 << 16)).bit_length()
        how = {"schedule": shape.schedule, "granularity": shape.granularity, "seed": shape.seed}
        world = make_world(shape.ranks, heap_bytes=heap_bytes, **how)
        outcome = run(world, program)
        if any(outcome.errors):
            raise outcome.error()
        lanes = np.arange(SAMPLES)
        active = (lanes & 3) != 1 if shape.skip else np.ones(SAMPLES, np.bool_)
        return [self._finding(stores, outcome.results, lanes, active, each) for stores in self.stores]

    @staticmethod
    def _finding(stores, memories, lanes, active, each):
        finding = Finding({}, {})
        for name, (at, store) in stores.items():
            width = store.rows.shape[1]
            wanted = []
            for rank in range(len(memories)):
                region = np.full(store.size_bytes, 0xFF, np.uint8)
                mine = lanes[active & (lanes // each == rank)]
                region[store.offsets[mine, None] + np.arange(width)] = store.rows[mine]
                wanted.append(region)
            finding.expected[name] = np.concatenate(wanted)
            finding.found[name] = np.concatenate([memory[at : at + store.size_bytes] for memory in memories])
        return finding


MAX_SHOWN = 20


def compare_all(vectors, findings, shape):
    """Compare every vector; the message lists the keys that differ, and shows the first vectors that do."""
    wrong = {}
    for vector, finding in zip(vectors, findings, strict=True):
        try:
            compare(vector, finding, shape)
        except AssertionError as error:
            wrong.setdefault(vector.entry, str(error))
    if wrong:
        shown = "\n".join(list(wrong.values())[:MAX_SHOWN])
        raise AssertionError(f"vectors of {len(wrong)} keys differ: {', '.join(wrong)}\n{shown}")


def compare(vector, finding, shape):
    """Every byte; the message shows the first sample that differs and its inputs."""
    for name, expected in finding.expected.items():
        found = finding.found[name]
        if np.array_equal(expected, found):
            continue
        store = vector.stores.get(name)
        width = store.rows.shape[1] if store else SIZES[{r: k for r, k, _ in vector.outputs}[name]]
        wrong = np.flatnonzero((expected != found).reshape(-1, width).any(axis=1))
        first = int(wrong[0])
        sample = first % SAMPLES
        inputs = ", ".join(f"{r}={int(v[sample]):#x}" for r, _, v in vector.inputs)
        want, got = (
            int.from_bytes(x[first * width : (first + 1) * width].tobytes(), "little") for x in (expected, found)
        )
        raise AssertionError(
            f"{vector.id} ({shape}): {name} differs in {len(wrong)} places; first at row {first} ({inputs}): "
            f"expected {want:#x}, found {got:#x}\n{vector.text}"
        )
