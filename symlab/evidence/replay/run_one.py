"""Runs single cases of rebuilt jobs and returns their records, without a folder: for audits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.record.record import Record
from cases.record.request import RecordedEnvironment, RecordedRequest
from runner.command.job import run_job
from runner.command.means import Means
from runner.command.plan import Job
from runner.world.fabrics import FabricRequest, WorldMaker, make_world, settings

if TYPE_CHECKING:
    from cases.case import Case
    from memory.fabric import Executable
    from runner.command.plan import PreparedJob
    from runner.world.world import World


class OneByOne:
    """Runs a case at a time, in a world of its own: an open one keeps the memory of the largest case so far.

    make and means replace the worlds and the work of a case, for tests.
    """

    def __init__(self, make: WorldMaker = make_world, means: Means | None = None) -> None:
        self._make = make
        self._means = means
        self._wanted: tuple[FabricRequest, int] | None = None
        self._world: World | None = None
        self._record: Record | None = None

    def run(self, job: PreparedJob, case: Case) -> Record:
        """Run a case of a job and return its record, whose environment and request are empty."""
        from symlab.evidence.replay.by_reference import forget_after  # with torch, which takes seconds to import

        request = job.request
        self._wanted, self._record = (request.fabric, request.world_size), None
        asked = (settings(request.fabric), RecordedEnvironment, RecordedRequest())
        try:
            run_job(Job(request, (case,), *asked, job.specs, job.custom), self, self._means)
        finally:
            self._close()
            forget_after(case)
        assert self._record is not None
        return self._record

    def world(self) -> World:
        """Return a healthy world for the case at hand."""
        assert self._wanted is not None
        if self._world is None or not self._world.healthy:
            self._close()
            self._world = self._make(*self._wanted, lambda line: None)
        return self._world

    def starting(self, case: Case) -> None:
        """Nothing is shown of a single case."""

    def preparing(self, what: str) -> None:
        """Nor of what comes before it."""

    def keep(self, record: Record, executable: Executable | None) -> None:
        """Take the record of the case."""
        self._record = record

    def _close(self) -> None:
        """End the world, if one is open."""
        world, self._world = self._world, None
        if world is not None:
            world.close()
