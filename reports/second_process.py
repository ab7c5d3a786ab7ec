"""A module of this project in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
"""The folder that this project's packages lie in."""

_PROGRAM = (
    "import importlib, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "sys.exit(importlib.import_module(sys.argv.pop(1)).main())"
)


def module_command(module: str) -> list[str]:
    """Return the command line that runs a module's main() in a new interpreter, from whatever folder.

    The interpreter is this one, and the module comes from the tree that this one's packages come from.
    """
    return [sys.executable, "-P", "-c", _PROGRAM, str(PROJECT), module]
