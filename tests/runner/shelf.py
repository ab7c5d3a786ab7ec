"""job.Keeper in memory: a job's records, and the worlds that it had."""

from runner.records.store import StoreError


class Shelf:
    """A new world comes of make_world whenever the last one is hurt. events: what happened, in order."""

    def __init__(self, make_world, full_after=1000):
        self.records = []
        self.worlds = []
        self.events = []
        self.make_world, self.full_after = make_world, full_after

    def world(self):
        if not self.worlds or not self.worlds[-1].healthy:
            self.worlds.append(self.make_world())
        return self.worlds[-1]

    def starting(self, case):
        self.events.append(f"start {case.size_bytes} {case.algorithm}")

    def preparing(self, what):
        self.events.append(what)

    def keep(self, record, executable):
        if len(self.records) >= self.full_after:
            raise StoreError("no room")
        self.events.append(f"keep {record.case.size_bytes} {record.case.algorithm}")
        self.records.append(record)
