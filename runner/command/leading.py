"""Work that one process of a launcher's world does, and that the others follow."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.interrupt import exit_code_of
from runner.request_error import RequestError
from runner.world.launcher import find

if TYPE_CHECKING:
    from runner.command.plan import PreparedJob
    from runner.command.running import Tools
    from runner.request.compose import ComposedJob
    from runner.world.launched import Leader


def led(work: Callable[[Leader | None], int], runs: bool = True) -> int:
    """Do work in this process; where a launcher started many, in that of rank 0, which the others follow.

    work gets the leader of the launcher's world, or None without one, and returns the exit code. runs says whether it
    needs the others at all. RequestError as work raises it.
    """
    outer = find(os.environ)
    if outer is None:
        return work(None)
    # One of many processes that a launcher started: rank 0 alone speaks.
    from runner.world.launched import Leader, follow

    if outer.rank > 0:
        return follow(outer) if runs else 0
    if not runs:
        return work(None)
    leader = Leader(outer)
    code = 1
    try:
        code = work(leader)
    except KeyboardInterrupt as interrupt:
        code = exit_code_of(interrupt)
        raise
    except RequestError as error:
        # At once: the other processes may take a while to end.
        print(f"symlab: error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        code = 2
    finally:
        leader.end(code)
    return code


def led_tools(tools: Tools, leader: Leader | None, jobs: Sequence[ComposedJob | PreparedJob]) -> Tools:
    """Return the tools of a process that may lead a launcher's world: NVSHMEM's world is that one."""
    if leader is None:
        return tools
    if all(job.request.fabric.simulated for job in jobs):
        leader.tell_end(0)  # the simulator needs one process
        return tools
    from runner.world.fabrics import joining

    return replace(tools, make_world=joining(leader))
