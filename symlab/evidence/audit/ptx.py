"""What a stored PTX file says of a kernel, beside what the record says: the digest of its code, its entry, and its
multimem instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cases.code_digest import code_digest
from cases.record.record import KernelInfo

_ENTRIES = re.compile(r"\.entry[ \t]+([\w$%]+)")
_MULTIMEM = re.compile(r"\bmultimem\.(?:ld_reduce|st|red)\b[\w.:]*")
"""Instructions, and not the name of a file, such as multimem.py in a line table; older records have that, too."""


class StoredCode:
    """What one PTX file says."""

    def __init__(self, data: bytes) -> None:
        """data: the file's contents. ValueError if it is no UTF-8."""
        ptx = data.decode("utf-8")
        self._digest = code_digest(ptx)
        self._entries = frozenset(_ENTRIES.findall(ptx))
        self._multimem = tuple(sorted(set(_MULTIMEM.findall(ptx))))

    def contradicted(self, kernel: KernelInfo) -> Iterator[str]:
        """Yield what a kernel's record says and the file does not."""
        if kernel.code_digest is not None and kernel.code_digest != self._digest:
            yield "its code has another digest than the recorded one"
        if kernel.entry not in self._entries:
            yield f"it has no entry {kernel.entry}"
        if tuple(sorted(filter(_MULTIMEM.fullmatch, kernel.multimem))) != self._multimem:
            yield "its multimem instructions are not the recorded ones"
