"""What draws pages and pictures, as one digest: they name it, so that an audit knows whether it can draw them again."""

from __future__ import annotations

import functools
import hashlib
from importlib import metadata
from pathlib import Path

_FOLDER = Path(__file__).parent

_ROOMS = ("html", "figures", "numerics", "table", "record")
"""The rooms whose code a page or a picture is made by."""

_SUFFIXES = frozenset({".py", ".j2", ".css", ".js"})

_PACKAGES = ("jinja2", "markupsafe", "matplotlib", "numpy", "PyYAML")
"""The packages whose versions change what is drawn."""

PREFIX = "symlab, drawn by "
"""How a page and a picture begin to name it."""


@functools.cache
def drawn_by() -> str:
    """Return "symlab, drawn by sha256:<hex>", of the code here and of the packages' versions."""
    digest = hashlib.sha256()
    for room in _ROOMS:
        for path in sorted((_FOLDER / room).rglob("*")):
            if path.suffix in _SUFFIXES:
                digest.update(f"{path.relative_to(_FOLDER).as_posix()}\0".encode())
                digest.update(path.read_bytes())
    for name in _PACKAGES:
        digest.update(f"{name} {metadata.version(name)}\n".encode())
    return f"{PREFIX}sha256:{digest.hexdigest()}"
