"""All exhibits: one module of tests/museum/exhibits each, those of the field first, in the order of their threads."""

from __future__ import annotations

import importlib
import pkgutil

from tests.museum import exhibits
from tests.museum.ways import Shown

MODULES = sorted(one.name for one in pkgutil.iter_modules(exhibits.__path__))


def _shown(module: str) -> Shown:
    found: Shown = importlib.import_module(f"tests.museum.exhibits.{module}").EXHIBIT
    return found


EXHIBITS: tuple[Shown, ...] = tuple(sorted(map(_shown, MODULES), key=lambda one: (not one.thread, one.name.lower())))
"""Of the field, then mutants of ours."""
