"""What orders the launches of a rank, on one stream or on several: streams, events, and the host that waits."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.happens_before.clocks import Room


@dataclass(slots=True, eq=False)
class RankStreams:
    """What orders the launches of a rank since its host has waited for all of them.

    enqueued: by number of a launch, what the host knew, and the launches of other streams for whose end it waits. ends:
    by stream, the number of the last launch that is over, and the row at its end. wanted: by number of a launch for
    whose end another stream waits, the row there; -1 until it is over. rooms: the stream whose blocks are in each room
    (Clocks.rooms).
    """

    enqueued: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    ends: dict[int | None, tuple[int, int]] = field(default_factory=dict)
    wanted: dict[int, int] = field(default_factory=dict)
    rooms: dict[int, int | None] = field(default_factory=dict)

    def rows(self) -> list[int]:
        """Return the rows in use."""
        kept = [row for row in self.wanted.values() if row >= 0]
        return [*kept, *(row for row, _ in self.enqueued.values()), *(row for _, row in self.ends.values())]

    def begin(self, number: int, stream: int | None) -> list[int]:
        """Return the rows of what comes before a launch that begins."""
        row, after = self.enqueued.pop(number)
        found = [row, *(self.wanted.get(one, -1) for one in after), self.ends.get(stream, (0, -1))[1]]
        return [one for one in found if one >= 0]

    def end(self, number: int, stream: int | None, row: int) -> None:
        """Note the row at the end of a launch."""
        self.ends[stream] = (number, row)
        if number in self.wanted:
            self.wanted[number] = row

    def order(self, number: int) -> None:
        """A stream waits for the end of a launch, the last one of another stream."""
        self.wanted.setdefault(number, next((row for one, row in self.ends.values() if one == number), -1))

    def take_room(self, stream: int | None, grid: int, rooms: list[Room]) -> int:
        """Return the room for the blocks of a launch: one of its stream, or that no stream has; or a new one. It is
        large enough, or the last one, which can grow."""
        able = [at for at, room in enumerate(rooms) if room.blocks >= grid or room is rooms[-1]]
        mine = [at for at in able if at in self.rooms and self.rooms[at] == stream]
        free = [at for at in able if at not in self.rooms]
        number = (mine or free or [len(rooms)])[0]
        self.rooms[number] = stream
        return number

    def forget(self) -> None:
        """The host has waited for all launches."""
        self.ends.clear()
        self.wanted.clear()
        self.rooms.clear()
