"""What stands in for a GPU when measuring is tested on the simulator: its barrier, its copies, its clock.

Everything that is queued is written down, by rank, so that a test can say in which order it must come.
"""

import dataclasses
from collections.abc import Callable

import torch

from cases.case import Case
from cases.record.timing import L2State
from kernels import catalogue
from kernels.compile import executable
from runner.case.contestant import Contestant
from runner.request.schema import Limit, TimingMode, TimingRequest
from runner.timing.kernel_names import CapturedKernel
from runner.timing.measure import MeasurePlan, measure
from runner.timing.stopwatch import DELAY_S
from runner.world.threads import ThreadWorld
from simulator.world import SimulatorOptions
from tests.patience import NEVER_S

TIMING = TimingRequest(TimingMode.graph, l2=L2State.rotate, warmup=2, samples=3, calls=4, limit=Limit.none)
CALL_US = 2.5


class RecordingFabric:
    """A simulator's fabric that passes for a GPU's and writes down what is asked of it."""

    def __init__(self, fabric, log, l2_bytes):
        self.fabric = fabric
        self.log = log
        self.device = torch.device("cpu")
        self.l2_bytes = l2_bytes
        self.noted = []

    @property
    def traits(self):
        return dataclasses.replace(self.fabric.traits, l2_bytes=self.l2_bytes)

    def __getattr__(self, name):
        return getattr(self.fabric, name)

    def launch(self, compiled, *arguments):
        self.log.append(f"launch {compiled.name}")
        self.fabric.launch(compiled, *arguments)

    def synchronize(self):
        self.log.append("synchronize")
        self.fabric.synchronize()

    def inspect(self, region, offset_bytes=0, size_bytes=None):
        """The memory itself, as on a GPU: whoever still looks at it when it is freed is told so."""
        self.fabric.synchronize()
        view = self.fabric.view(region)[offset_bytes:][:size_bytes]
        return view

    def never_written(self, region):
        """As a GPU, it can't tell."""
        return None

    def queue_barrier(self):
        self.log.append("queue_barrier")

    def note_queued(self, what):
        self.noted.append(what)

    def queue_copy(self, destination, source, size_bytes):
        self.log.append(f"copy {size_bytes}")


class RecordingStopwatch:
    """Graphs are the calls themselves, run again at each replay; each mark is CALL_US later for each launch before it.

    At capture nothing runs, as on a GPU: what is queued then is only counted. empty_graphs do nothing at all,
    tired_graphs nothing from that replay on, doubled_graphs everything twice. Marks from stuck_at on are never passed.
    """

    def __init__(self, log):
        self.log = log
        self.broken_capture = False
        self.empty_graphs = False
        self.tired_graphs = None
        self.doubled_graphs = False
        self.stuck_at = 1 << 30
        self.delays_s = []

    def capture(self, queue):
        self.log.append("capture")
        if self.broken_capture:
            raise RuntimeError("operation not permitted when stream is capturing")
        replays = 0

        def replay():
            nonlocal replays
            replays += 1
            self.log.append("replay")
            if self.empty_graphs or (self.tired_graphs is not None and replays >= self.tired_graphs):
                return
            for _ in range(2 if self.doubled_graphs else 1):
                queue()

        return replay

    def kernels(self):
        return (CapturedKernel("a_kernel", 7),)

    def delay(self, seconds=DELAY_S):
        self.log.append("delay")
        self.delays_s.append(seconds)

    def mark(self):
        self.log.append("mark")
        return len(self.log)

    def passed(self, mark):
        return mark < self.stuck_at

    def elapsed_us(self, start, end):
        """Launches and barriers between two marks, at CALL_US each."""
        between = self.log[start:end]
        return CALL_US * sum(line.startswith(("launch", "queue_barrier", "copy", "replay")) for line in between)


@dataclasses.dataclass
class Bench:
    """One measurement on a simulated world: the plan, and what each rank wrote down. spoil may change it."""

    plan: MeasurePlan
    world_size: int
    l2_bytes: int = 1 << 14
    logs: list[list[str]] = dataclasses.field(default_factory=list)
    spoil: Callable[[RecordingFabric, RecordingStopwatch], None] = lambda fabric, stopwatch: None

    def run(self):
        self.logs = [[] for _ in range(self.world_size)]

        def program(fabric, plan):
            log = self.logs[fabric.rank]
            recording, stopwatch = RecordingFabric(fabric, log, self.l2_bytes), RecordingStopwatch(log)
            self.spoil(recording, stopwatch)
            return measure(recording, plan, stopwatch)

        world = ThreadWorld(self.world_size, SimulatorOptions(heap_bytes=1 << 23))
        return world.run(program, self.plan, NEVER_S)


def case_of(algorithm, **changes):
    case = Case("all_reduce", algorithm, "bfloat16", "float32", "sum", 4096, 2)
    return dataclasses.replace(case, **changes)


def contestant(cache_dir, algorithm, **changes):
    case = case_of(algorithm, **changes)
    spec = catalogue.find(case.name)
    return Contestant(case, spec, executable(spec, case, "sm_90a", cache_dir))
