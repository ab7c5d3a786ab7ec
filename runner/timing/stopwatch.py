"""A GPU's own clock and its graphs, behind a seam so small that a test can stand in for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch

from runner.timing.kernel_names import CapturedKernel, captured_kernels

DELAY_S = 100e-6
"""What delay() lasts, unless asked for more: in this time every rank's host can queue most graphs."""

CYCLES_PER_S = 1.8e9
"""About an H200's clock; where a GPU's is faster, a delay is that much shorter."""


class Stopwatch:
    """CUDA events and graphs, through torch. All but passed and elapsed_us queue on the current stream and return at
    once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._kernels: tuple[CapturedKernel, ...] = ()

    def capture(self, queue: Callable[[], None]) -> Callable[[], None]:
        """Make a graph of what queue() queues; gives what replays it. Nothing of it runs yet."""
        # Not torch.cuda.graph(): that synchronises the whole device, and a hang there would have no deadline.
        graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(self._device)
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side):
            # Other threads (NCCL's watchdog) may go on with calls that a capture of this thread must not make.
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                queue()
                self._kernels = captured_kernels(self._side.cuda_stream)
            except BaseException:
                with contextlib.suppress(Exception):
                    graph.capture_end()
                raise
            graph.capture_end()
        current.wait_stream(self._side)
        replay: Callable[[], None] = graph.replay
        return replay

    def kernels(self) -> tuple[CapturedKernel, ...]:
        """The kernels in the graph that was made last, each once; none where the driver doesn't tell."""
        return self._kernels

    def delay(self, seconds: float = DELAY_S) -> None:
        """Keep the device busy for about that while, so that the host can queue what comes next."""
        torch.cuda._sleep(round(seconds * CYCLES_PER_S))  # type: ignore[no-untyped-call]

    def mark(self) -> torch.cuda.Event:
        """Note the time when the device gets here."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def passed(self, mark: torch.cuda.Event) -> bool:
        """Whether the device has got to a mark; asks, and waits for nothing."""
        return bool(mark.query())  # type: ignore[no-untyped-call]

    def elapsed_us(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return float(start.elapsed_time(end)) * 1000.0
