"""All exhibits: one module of tests/museum/exhibits each, those of the field first, in the order of their threads."""

import importlib
import pkgutil

from tests.museum import exhibits

MODULES = sorted(one.name for one in pkgutil.iter_modules(exhibits.__path__))


def _shown(module):
    return importlib.import_module(f"tests.museum.exhibits.{module}").EXHIBIT


EXHIBITS = tuple(sorted(map(_shown, MODULES), key=lambda one: (not one.thread, one.name.lower())))
"""Of the field, then mutants of ours."""
