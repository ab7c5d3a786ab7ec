"""NVIDIA's management library, NVML: a session of it, and questions that it may not answer. It is read, never set."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def session() -> Iterator[Any]:
    """Yield the module pynvml, initialized. Raises ModuleNotFoundError without it, and NVML's errors."""
    import pynvml

    pynvml.nvmlInit()
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def answers(questions: Mapping[str, Callable[[], Any]]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the answer to each question by name, and the reason by name where the question raised."""
    found, missing = {}, {}
    for name, ask in questions.items():
        try:
            found[name] = ask()
        except Exception as error:
            missing[name] = reason(error)
    return found, missing


def reason(error: Exception) -> str:
    """Return in words why NVML gave no answer."""
    if isinstance(error, ModuleNotFoundError):
        return "nvidia-ml-py is not installed (it belongs to the gpu extra)"
    return str(error) or type(error).__name__
