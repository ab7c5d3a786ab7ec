"""A simulated world in which one rank takes a step only when no other can: the others get as far ahead as they may."""

import numpy as np

from simulator.observe.lanes import ids_of
from simulator.run import streams
from simulator.run.groups import compact
from simulator.run.orders import Fair, Step
from simulator.world import SimulatedWorld


class Behind(Fair):
    """The order in which lanes of a rank run only if all others wait; who has waited longest at its place goes first.
    Hosts go on at once."""

    def __init__(self, rank):
        super().__init__()
        self.rank = rank

    def turn(self, batches):
        for batch in batches:
            batch.wake()
        number, index, _ = min(self._places(batches), key=lambda one: (one[2], batches[one[0]].last_run.get(one[1], 0)))
        batch = batches[number]
        ids = ids_of(batch.take(index))
        others = self._is_other(batch, ids)
        if others.any() and not others.all():
            batch.ready.setdefault(index, []).append(compact(ids[~others]))
            ids = ids[others]
        return Step(number, index, compact(ids))

    def returns(self):
        return True

    def _places(self, batches):
        """Each batch and place where lanes are ready, and whether they are the rank's alone."""
        for number, batch in enumerate(batches):
            for index, groups in sorted(batch.ready.items()):
                ids = np.concatenate([ids_of(one) for one in groups])
                yield number, index, not self._is_other(batch, ids).any()

    def _is_other(self, batch, ids):
        other = batch.launched.ranks_of(ids) != self.rank
        return other


def world_behind(rank, monkeypatch):
    """The class of worlds whose order is Behind(rank), if they are made with schedule=random and granularity=block;
    launches begin as soon as they can."""
    monkeypatch.setattr(streams, "DELAYS", (0,))

    class BehindWorld(SimulatedWorld):
        def _scheduler(self):
            made = super()._scheduler()
            made.order = Behind(rank)
            return made

    return BehindWorld
