"""What a stored PTX file says of a kernel, beside what the record says: the digest of its code, its entry, and its
multimem instructions.

The rule of the digest is kernels/code.py's, which reports may not import; a test compares both.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator

from reports.record.record import KernelInfo

_LINES = re.compile(r"^[ \t]*\.(?:file|loc)\b[^\n]*\n?", re.MULTILINE)
_DEBUG_SECTIONS = re.compile(r"^[ \t]*\.section[ \t]+\.debug_\w+\s*\{[^{}]*\}[ \t]*\n?", re.MULTILINE)
_DEBUG_NAMES = re.compile(r"\$L__(?:tmp|func_begin|func_end)\d+\b")
_DEBUG_LABELS = re.compile(r"^(\$L__(?:tmp|func_begin|func_end)\d+):[ \t]*\n?", re.MULTILINE)
_ENTRIES = re.compile(r"\.entry[ \t]+([\w$%]+)")
_MULTIMEM = re.compile(r"\bmultimem\.[\w.:]+")


def code_digest(ptx: str) -> str:
    """Return "sha256:<hex>" of the PTX without line information. Names are counted once, so that a file with many
    labels takes no longer than another of its length."""
    text = _DEBUG_SECTIONS.sub("", _LINES.sub("", ptx))
    named = Counter(_DEBUG_NAMES.findall(text))
    code = _DEBUG_LABELS.sub(lambda match: "" if named[match[1]] == 1 else match[0], text)
    return f"sha256:{hashlib.sha256(code.encode()).hexdigest()}"


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
        if tuple(sorted(kernel.multimem)) != self._multimem:
            yield "its multimem instructions are not the recorded ones"
