"""Small programs under the race checker, each rank with code of its own, and what is found."""

from dataclasses import replace

import numpy as np

from tests.simulator.harness import executable, make_world, module, put, start, succeed


def poll(order="acquire.sys", flag="%flag", label="SPIN"):
    return f"{label}: ld.{order}.global.b32 %r2, [{flag}]; setp.eq.u32 %p2, %r2, 0; @%p2 bra {label};"


def found(code, grid=1, block=1, launches=1, before="", is_apart=True, assumptions=(), cluster=1, later=None, **order):
    """What the checker finds when each rank runs its own code; of one code, when two ranks run it. is_apart: the hosts
    meet between launches. later: the assumptions that launches after the first one declare, if others. order: how the
    world is made."""
    ranks = 2 if isinstance(code, str) else len(code)
    body = code if isinstance(code, str) else each_rank(code)
    parameters = ["u64 data", "u64 peer", "u64 flag", "u64 peerflag", "u64 all", "u32 rank"]
    ptx = module(f"mov.u32 %r1, 1; mov.u32 %r9, %tid.x; {body}", parameters, before)
    world = make_world(ranks, races=True, **order)

    def program(fabric):
        data = put(fabric, "data", np.zeros(1024, np.uint32))
        flag = put(fabric, "flag", np.zeros(64, np.uint32))
        peer = (fabric.rank + 1) % ranks
        multicast = fabric.multicast_address(data)
        values = [data.address, fabric.peer_address(data, peer), flag.address, fabric.peer_address(flag, peer)]
        fabric.barrier()
        for number in range(launches):
            declared = assumptions if later is None or not number else later
            kernel = replace(executable(ptx), assumptions=declared)
            start(fabric, kernel, grid, block, [*values, multicast, fabric.rank], cluster=cluster)
            fabric.synchronize()
            if is_apart:
                fabric.barrier()
        fabric.barrier()

    succeed(world, program)
    return world.findings


def about_data(*code, **how):
    """What is found about data when each rank runs its own code."""
    return [one for one in found(code, **how) if one.first.tensor == "data"]


def each_rank(code):
    """Code in which each rank runs its own."""
    jumps = "".join(f"setp.eq.u32 %p1, %rank, {rank}; @%p1 bra RANK{rank};" for rank in range(len(code)))
    return jumps + "\n".join(f"RANK{rank}: {one} ret;" for rank, one in enumerate(code))


def missing(findings):
    """Severity and what is missing of the findings about data."""
    return {(one.severity, one.missing) for one in findings if "flag" not in one.first.tensor}
