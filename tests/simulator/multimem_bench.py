"""The bench of multimem's vectors: all of them in one kernel, launched on every rank of a world with different data."""

from functools import lru_cache

import numpy as np

import tests.simulator.isa.vectors_multicast_copies as copies
import tests.simulator.isa.vectors_multimem as multimem
import tests.simulator.isa.vectors_switch as switch
from simulator.isa import key_of
from simulator.isa.registry import canonical
from simulator.ptx.parse import parse_kernel
from tests.simulator.harness import executable, get, make_world, module, put, run, start
from tests.simulator.isa.vectors_multimem import COUNT

ARCH = "sm_100a"
"""The first that has all forms."""

MAX_SHOWN = 20


class MultimemBench:
    """All vectors in one kernel, launched on every rank."""

    def __init__(self, vectors, ranks):
        self.vectors, self.ranks = vectors, ranks
        self.blobs = {"in": [], "cells": []}
        self.sizes = {"in": 0, "cells": 0}
        self.output_bytes = 0
        self.outputs = []
        self.cells = []
        parts = [
            f"  mad.lo.u64 %in{s}, %lane64, {s}, %in;\n  mad.lo.u64 %out{s}, %lane64, {s}, %out;\n"
            for s in (1, 2, 4, 8)
        ]
        parts += [self._section(one) for one in vectors]
        registers = "".join(f"  .reg .b64 %in{s}, %out{s};\n" for s in (1, 2, 4, 8)) + copies.SHARED
        self.ptx = module(
            "".join(parts), ["u64 in", "u64 out", "u64 mcin", "u64 mccells"], registers=registers, target=ARCH
        )

    def _place(self, where, rows):
        at = self.sizes[where]
        padded = np.full((self.ranks, -(-rows.shape[1] // 256) * 256), 0x5A, np.uint8)
        padded[:, : rows.shape[1]] = rows
        self.blobs[where].append(padded)
        self.sizes[where] += padded.shape[1]
        return at

    def _section(self, vector):
        lines = ["{", ".reg .b64 p; .reg .pred q;"]
        text = vector.text
        if vector.data is not None:
            text = text.replace("{data}", str(self._place("in", vector.data)))
        self.cells.append(self.sizes["cells"])
        if vector.before is not None:
            text = text.replace("{cells}", str(self._place("cells", vector.before)))
        for register, (kind, values) in vector.inputs.items():
            size = int(kind[1:]) // 8
            at = self._place(
                "in", np.ascontiguousarray(values.astype(f"u{size}")).view(np.uint8).reshape(self.ranks, -1)
            )
            lines.append(f".reg .{kind} {register}; ld.global.{kind} {register}, [%in{size}+{at}];")
        lines += [f".reg .{kind} {register};" for register, (kind, _) in vector.outputs.items()]
        lines.append(text)
        here = {}
        for register, (kind, _) in vector.outputs.items():
            size = int(kind[1:]) // 8
            here[register] = self.output_bytes
            lines.append(f"st.global.{kind} [%out{size}+{self.output_bytes}], {register};")
            self.output_bytes += COUNT * size
        self.outputs.append(here)
        return "\n".join([*lines, "}\n"])

    def keys(self):
        kernel = parse_kernel(self.ptx, "kernel")
        return {key_of(one) for block in kernel.blocks for one in block.instructions} & {
            canonical(v.key.split("."), frozenset()) for v in self.vectors
        }

    def run(self, model):
        """Every rank's outputs and cells."""
        data = {
            name: np.concatenate(blobs, axis=1) if blobs else np.zeros((self.ranks, 256), np.uint8)
            for name, blobs in self.blobs.items()
        }
        code = executable(self.ptx, "bench/multimem", ARCH)

        def program(fabric):
            source = put(fabric, "in", data["in"][fabric.rank])
            cells = put(fabric, "cells", data["cells"][fabric.rank])
            out = fabric.allocate(max(self.output_bytes, 256), 256, "out")
            arguments = [source.address, out.address, fabric.multicast_address(source), fabric.multicast_address(cells)]
            fabric.barrier()
            start(fabric, code, 2, COUNT // 2, arguments)
            fabric.synchronize()
            fabric.barrier()
            return get(fabric, out, "u1"), get(fabric, cells, "u1")

        size = self.sizes["in"] + self.sizes["cells"] + self.output_bytes + (1 << 16)
        outcome = run(make_world(self.ranks, heap_bytes=1 << size.bit_length(), multimem=model, arch=ARCH), program)
        if any(outcome.errors):
            raise outcome.error()
        return outcome.results

    def check(self, model):
        """Compare every vector's registers on every rank, and its cells on every replica."""
        memories = self.run(model)
        wrong = [problem for number in range(len(self.vectors)) for problem in self._wrong(number, model, memories)]
        assert not wrong, f"{len(wrong)} differences\n" + "\n".join(wrong[:MAX_SHOWN])

    def _wrong(self, number, model, memories):
        vector = self.vectors[number]
        for rank, (out, cells) in enumerate(memories):
            for register, (kind, by_model) in vector.outputs.items():
                size = int(kind[1:]) // 8
                at = self.outputs[number][register]
                found = out[at : at + COUNT * size].view(f"u{size}")
                expected = by_model[model].astype(f"u{size}")
                wrong = np.flatnonzero(found != expected)
                if len(wrong):
                    yield (
                        f"{vector.key}-{vector.name} {model}, rank {rank}, {register}: {len(wrong)} samples differ; "
                        f"first {wrong[0]}: expected {int(expected[wrong[0]]):#x}, found {int(found[wrong[0]]):#x}"
                    )
            if vector.after is not None:
                at = self.cells[number]
                if not np.array_equal(cells[at : at + vector.after.shape[1]], vector.after[rank]):
                    yield f"{vector.key}-{vector.name} {model}, replica {rank}: its cells differ"


@lru_cache(maxsize=8)
def family(ranks):
    return [*multimem.family(ranks), *switch.family(ranks), *copies.family(ranks)]


@lru_cache(maxsize=8)
def bench_of(ranks):
    return MultimemBench(family(ranks), ranks)
