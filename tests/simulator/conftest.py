"""Makes this folder's own modules importable by name (simulator_bench is bench.py), whatever the import mode."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class Finder:
    """Finds simulator_NAME in the folder or those within."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        found = list(HERE.rglob(f"{name.removeprefix('simulator_')}.py")) if name.startswith("simulator_") else []
        return importlib.util.spec_from_file_location(name, found[0]) if found else None


if Finder not in sys.meta_path:
    sys.meta_path.append(Finder)
