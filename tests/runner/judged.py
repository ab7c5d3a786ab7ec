"""What the runner's check says of a case that ran on all ranks of a simulated world."""

from runner.case.check import merge
from runner.case.program import Plan, run_case
from runner.world.threads import ThreadWorld
from simulator.world import SimulatorOptions
from tests.patience import NEVER_S


def judged(case, spec, executable=None, launches=2, wrap=lambda fabric: fabric, **options):
    """The merged check. spec: a kernel's or a baseline. wrap(fabric): what a rank gets. options: the simulator's."""
    world = ThreadWorld(case.world_size, SimulatorOptions(**{"heap_bytes": 1 << 23} | options))
    plan = Plan(case, spec, executable, launches=launches)
    outcomes = world.run(lambda fabric, plan: run_case(wrap(fabric), plan), plan, NEVER_S)
    return merge(case, spec, [one.check for one in outcomes if one.check is not None])
