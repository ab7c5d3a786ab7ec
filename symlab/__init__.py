"""The public API of symlab. symlab/README.md shows it on one page; the names in __all__ are what is promised.

A name is loaded when it is first used, so that `import symlab` imports neither torch nor any other package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.world.world import WorldFailure as WorldFailure
    from symlab.checking import check as check
    from symlab.checking import make_inputs as make_inputs
    from symlab.checking import make_reference as make_reference
    from symlab.checks.exploring import explore as explore
    from symlab.compiling import compile as compile
    from symlab.describing import case as case
    from symlab.describing import catalogue as catalogue
    from symlab.describing import kernel as kernel
    from symlab.experiments import experiment as experiment
    from symlab.loading import records as records
    from symlab.ranks import Rank as Rank
    from symlab.running import run as run
    from symlab.simulating import simulate as simulate
    from symlab.worlds import world as world

_MODULES = {
    "catalogue": "symlab.describing",
    "kernel": "symlab.describing",
    "case": "symlab.describing",
    "compile": "symlab.compiling",
    "run": "symlab.running",
    "make_inputs": "symlab.checking",
    "make_reference": "symlab.checking",
    "check": "symlab.checking",
    "world": "symlab.worlds",
    "Rank": "symlab.ranks",
    "WorldFailure": "runner.world.world",
    "simulate": "symlab.simulating",
    "explore": "symlab.checks.exploring",
    "experiment": "symlab.experiments",
    "records": "symlab.loading",
}
"""The module of each name, in the order of symlab/README.md. No module has the name of a function: importing it would
replace the function."""

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'symlab' has no attribute '{name}': it has {', '.join(__all__)}")
    from symlab.rooms import ROOMS, is_here

    module = _MODULES[name]
    if (room := module.split(".")[1]) in ROOMS and not is_here(room):
        raise AttributeError(f"symlab.{name} is of symlab/{room}, which is not installed")
    found = getattr(importlib.import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
