"""Runs PTX text on a simulated world: one thread a rank, errors kept, numbers in and numbers out."""

import hashlib
import threading
import time
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

from memory.fabric import Argument, Deadlock, DeviceFault, Executable, Launch, PeerLost
from simulator.isa import UnknownInstruction
from simulator.ptx.parse import parse_kernel
from simulator.run.decode import decode
from simulator.world import SimulatedWorld, SimulatorOptions
from tests.patience import joined

ARCH = "sm_90a"
HEADER = f".version 9.0\n.target {ARCH}\n.address_size 64\n"
HEAP_BYTES = 1 << 20


def module(body, parameters=(), before="", registers="", target=ARCH):
    """A PTX module with one kernel "kernel". parameters: "u64 name" each; loaded into registers %name, like all that
    the body may use: %tid, %ctaid, %ntid, %nctaid, %lane (b32, the thread's number on its rank), %lane64.
    "struct24 name" is a struct of 24 bytes by value, which the body loads itself; one of 128 is aligned as tensor maps
    are."""
    declared = [tuple(one.split()) for one in parameters]
    structs = {name: int(kind[6:]) for kind, name in declared if kind.startswith("struct")}
    heads = ", ".join(
        f".param .align {64 if structs[name] == 128 else 16} .b8 kernel_{name}[{structs[name]}]"
        if name in structs
        else f".param .{kind} kernel_{name}"
        for kind, name in declared
    )
    loads = "".join(
        f"  .reg .b{kind[1:]} %{name};\n  ld.param.{kind} %{name}, [kernel_{name}];\n"
        for kind, name in declared
        if name not in structs
    )
    return (
        f"{HEADER.replace(ARCH, target)}{before}\n.visible .entry kernel({heads})\n{{\n"
        "  .reg .pred %p<16>;\n  .reg .b16 %h<16>;\n  .reg .b32 %r<32>;\n  .reg .b64 %d<32>;\n"
        f"  .reg .b32 %lane, %block;\n  .reg .b64 %lane64;\n{registers}\n{loads}"
        "  mov.u32 %block, %ctaid.x;\n  mov.u32 %lane, %ntid.x;\n  mov.u32 %r0, %tid.x;\n"
        "  mad.lo.u32 %lane, %lane, %block, %r0;\n  cvt.u64.u32 %lane64, %lane;\n"
        f"{body}\n  ret;\n}}\n"
    )


def executable(ptx, name="test/kernel", arch=ARCH):
    return Executable(name, "kernel", arch, ptx, "sha256:" + hashlib.sha256(ptx.encode()).hexdigest())


def start(fabric, kernel, grid, block, values=(), **how):
    """Launch a kernel with plain values, each of the size that the kernel's parameter has. how: the rest of Launch."""
    sizes = [one.size_bytes for one in parse_kernel(kernel.ptx, kernel.entry).parameters]
    arguments = [typed(value, size) for value, size in zip(values, [*sizes, *[8] * len(values)], strict=False)]
    fabric.launch(kernel, Launch(grid, block, **how), arguments)


def typed(value, size_bytes):
    """The value as an argument of size_bytes."""
    if isinstance(value, bytes):
        return Argument("bytes", value)
    if size_bytes not in (4, 8):
        return Argument("bytes", value.to_bytes(size_bytes, "little"))
    return Argument("u64" if size_bytes == 8 else "u32", value)


@dataclass(slots=True)
class Outcome:
    """What every rank returned or raised, and the world afterwards."""

    world: SimulatedWorld
    results: list[Any]
    errors: list[BaseException | None]
    wall_s: float
    counters: dict[str, Any] = field(default_factory=dict)

    @property
    def right(self):
        """What all ranks returned. Raises what any rank raised."""
        if any(self.errors):
            raise self.error()
        return self.results

    def error(self):
        """The first error that isn't the echo of another rank's."""
        found = [one for one in self.errors if one is not None]
        assert found, "no rank failed"
        return next((one for one in found if not isinstance(one, PeerLost)), found[0])


def refuse_unsupported(ptx, entry="kernel"):
    """Raise UnknownInstruction for the first form of the kernel that the simulator does not have."""
    for one in decode(ptx, entry).unsupported:
        raise UnknownInstruction(f"{one.reason}; PTX line {one.line}: {one.text}")


def make_world(world_size=1, **options):
    return SimulatedWorld(world_size, SimulatorOptions(**{"heap_bytes": HEAP_BYTES, **options}))


def run(world, *programs, deadline_s=None):
    """One program for all ranks, or one for each."""
    size = world.world_size
    each = list(programs) if len(programs) > 1 else list(programs) * size
    assert len(each) == size
    results = [None] * size
    errors = [None] * size
    fabrics = [world.fabric(rank) for rank in range(size)]
    if deadline_s is not None:
        world.set_deadline(time.monotonic() + deadline_s)

    def work(rank):
        try:
            results[rank] = each[rank](fabrics[rank])
        except BaseException as error:
            errors[rank] = error
        try:
            world.leave(rank, errors[rank])
        except BaseException as error:
            errors[rank] = errors[rank] or error

    start = time.monotonic()
    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for rank, thread in enumerate(threads):
        joined(thread, f"rank {rank}")
    return Outcome(world, results, errors, time.monotonic() - start, world.counters())


def succeed(world, *programs):
    """run, and raise what any rank raised."""
    outcome = run(world, *programs)
    assert outcome.right is outcome.results
    return outcome


def put(fabric, name, values):
    """A new allocation that holds the array's bytes."""
    raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    region = fabric.allocate(len(raw), 256, name)
    fabric.write(region, 0, torch.from_numpy(raw.copy()))
    return region


def get(fabric, region, dtype):
    """All of an allocation."""
    return fabric.read(region, 0, region.size_bytes).numpy().view(dtype)


PEER, RANK = object(), object()
"""Values of launching: the address of the next rank's first buffer, and the rank's own number."""


def launching(kernel, grid=1, block=1, values=(), at=None, **how):
    """A program that launches a kernel, or a module's, once on every rank.

    values: numbers, PEER, RANK, and arrays, for each of which a rank has a buffer named like the parameter.
    It returns the 32-bit words of the last buffer (None: there is none), or the word at a place. how: see start.
    """
    code = executable(kernel) if isinstance(kernel, str) else kernel
    names = [one.name.removeprefix("kernel_") for one in parse_kernel(code.ptx, code.entry).parameters]

    def program(fabric):
        regions = {
            place: put(fabric, names[place], one) for place, one in enumerate(values) if isinstance(one, np.ndarray)
        }
        given = [regions[place].address if place in regions else one for place, one in enumerate(values)]
        if any(one is PEER for one in values):
            fabric.barrier()
            far = fabric.peer_address(regions[min(regions)], (fabric.rank + 1) % fabric.world_size)
            given = [far if one is PEER else one for one in given]
        start(fabric, code, grid, block, [fabric.rank if one is RANK else one for one in given], **how)
        fabric.synchronize()
        if any(one is PEER for one in values):
            fabric.barrier()
        words = get(fabric, regions[max(regions)], "u4").tolist() if regions else None
        return words if words is None or at is None else words[at]

    return program


OF_LAUNCHES = ("cluster", "shared_bytes", "cooperative", "stream")


def ran(body, values=MappingProxyType({}), grid=1, block=1, ranks=1, before="", registers="", **options):
    """Run a body once on every rank of a new world. values: by the parameters' names, as launching takes them; numbers
    have 32 bits, those of NumPy their own. A result has the words of the last buffer. options: of the launch, and of
    the world."""
    kinds = {True: "u64", False: "u32"}
    heads = [
        f"struct{len(one)} {name}"
        if isinstance(one, bytes)
        else f"{kinds[one is PEER or isinstance(one, np.ndarray | np.uint64)]} {name}"
        for name, one in values.items()
    ]
    how = {name: options.pop(name) for name in OF_LAUNCHES if name in options}
    given = [int(one) if isinstance(one, np.uint64) else one for one in values.values()]
    program = launching(module(body, heads, before, registers), grid, block, given, **how)
    return run(make_world(ranks, **options), program)


def simple(body, inputs=(), output_bytes=4, grid=1, block=1, **options):
    """Run the body on one rank: %in0, %in1, .. and %out are addresses (u64). Gives the output bytes (0xFF: poison)."""
    names = [f"u64 in{number}" for number in range(len(inputs))]
    ptx = module(body, [*names, "u64 out"])

    def program(fabric):
        regions = [put(fabric, f"in{number}", values) for number, values in enumerate(inputs)]
        out = fabric.allocate(output_bytes, 256, "out")
        start(fabric, executable(ptx), grid, block, [*(one.address for one in regions), out.address])
        return get(fabric, out, "u1")

    outcome = succeed(make_world(1, **{"heap_bytes": 64 << 20, **options}), program)
    return outcome.results[0]


def orders(seeds):
    """Options of the fair order, and of random ones."""
    return [{}, *({"schedule": "random", "seed": seed} for seed in range(seeds))]


def in_orders(seeds):
    """Run a test with `options` in the fair order, and in random ones."""
    return pytest.mark.parametrize("options", orders(seeds), ids=["fair", *(f"seed{seed}" for seed in range(seeds))])


STORE = "\nmad.lo.u64 %d1, %lane64, 4, %out; st.global.b32 [%d1], %r2;"


def stored(body, grid=2, block=64, cluster=1, ranks=2, before="", registers="", **options):
    """What each thread stores of %r2 (99: nothing), the same on all ranks."""
    out = {"out": np.full(grid * block, 99, np.uint32)}
    results = ran(body + STORE, out, grid, block, ranks, before, registers, cluster=cluster, **options).right
    assert all(one == results[0] for one in results)
    return list(results[0])


def failed(body, grid=1, block=64, cluster=1, before="", registers="", **options):
    """The fault or deadlock of one rank, by its kind and text."""
    error = ran(body, {}, grid, block, 1, before, registers, cluster=cluster, **options).error()
    assert isinstance(error, DeviceFault | Deadlock), error
    return f"{type(error).__name__}: {error}"
