"""A worker's process for tests of its supervisor: it does what its content says, as a pickled list of steps.

("job", n): begin job n. ("die", n): be killed in job n. ("killed",): be killed between jobs, once. ("code", c): end
with an exit code. ("wait",): wait to be told to end. Jobs that were lost before are left out.
"""

import os
import pickle
import signal
import sys
from dataclasses import replace
from pathlib import Path

from runner.launch.files import LaunchFiles


def main():
    size = int.from_bytes(sys.stdin.buffer.read(8), "little")
    orders = pickle.loads(sys.stdin.buffer.read(size))
    files = LaunchFiles(Path(orders.folder))
    state = files.state(orders.worker)
    for step, (what, *number) in enumerate(pickle.loads(orders.content)):
        if what in ("job", "die") and number[0] in state.lost:
            continue
        if what == "killed":
            try:
                (Path(orders.folder) / f"killed-{orders.worker}-{step}").touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "wait":
            sys.stdin.buffer.read()
            return 130
        if what == "code":
            print("what it said last")
            return int(number[0])
        files.write_state(replace(state, job=number[0], process=os.getpid()))
        (Path(orders.folder) / f"did-{number[0]}.json").write_text(os.environ.get("GIVEN", ""))
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
    files.write_state(replace(state, job=None, process=os.getpid()))
    return 0
