"""A GPU's own clock and its graphs, behind a seam so small that a test can stand in for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import torch

DELAY_CYCLES = 180_000
"""What delay() spins for: about 100 us at an H200's clock, in which every rank's host can queue a graph."""


class Stopwatch(Protocol):
    """What timing needs of a device. All but elapsed_us queue on the current stream and return at once."""

    def capture(self, queue: Callable[[], None]) -> Callable[[], None]:
        """Make a graph of what queue() queues; gives what replays it. Nothing of it runs yet."""
        ...

    def delay(self) -> None:
        """Keep the device busy for a little while, so that the host can queue what comes next."""
        ...

    def mark(self) -> Any:
        """Note the time when the device gets here."""
        ...

    def elapsed_us(self, start: Any, end: Any) -> float:
        """Microseconds between two marks that the device has passed."""
        ...


class TorchStopwatch:
    """CUDA events and graphs, through torch."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def capture(self, queue: Callable[[], None]) -> Callable[[], None]:
        # Not torch.cuda.graph(): that synchronises the whole device, and a hang there would have no deadline.
        graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(self._device)
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side):
            # Other threads (NCCL's watchdog) may go on with calls that a capture of this thread must not make.
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                queue()
            except BaseException:
                with contextlib.suppress(Exception):
                    graph.capture_end()
                raise
            graph.capture_end()
        current.wait_stream(self._side)
        replay: Callable[[], None] = graph.replay
        return replay

    def delay(self) -> None:
        torch.cuda._sleep(DELAY_CYCLES)  # type: ignore[no-untyped-call]

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def elapsed_us(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return float(start.elapsed_time(end)) * 1000.0
