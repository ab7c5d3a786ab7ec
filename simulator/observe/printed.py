"""What kernels print: kept by the world, and shown on stderr with rank, block and thread before each text."""

from __future__ import annotations

import sys

from simulator.observe.events import Listener, Printed

MAX_LINES = 10_000
"""Maximum number of texts to keep and to show; as on a GPU, what is beyond is lost."""


class Printer(Listener):
    """Keeps and shows what kernels print."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.lost = 0

    def printed(self, event: Printed) -> None:
        places = zip(event.ranks.tolist(), event.blocks.tolist(), event.threads.tolist(), event.texts, strict=True)
        for rank, block, thread, text in places:
            if len(self.lines) >= MAX_LINES:
                self.lost += 1
                continue
            self.lines.append(f"rank {rank}, block {block}, thread {thread}: {text}")
            print(self.lines[-1], end="" if text.endswith("\n") else "\n", file=sys.stderr)
