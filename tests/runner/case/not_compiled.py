"""What stands for an executable where a kernel is only bound: memory and arguments, and no launch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

NOT_COMPILED: Any = SimpleNamespace(host=None)
