"""The digest of a kernel's code: of its PTX without line information.

Line information names source files and lines, so it changes when a comment moves, a file is renamed or two files become
one, and the machine code stays the same. Two kernels with equal code digests run the same instructions on the same
registers; the digest of the whole PTX (Executable.digest) says beside that which lines they come from.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter

_LINES = re.compile(r"^[ \t]*\.(?:file|loc)\b[^\n]*\n?", re.MULTILINE)
_USERS_LINES = re.compile(r"/\* at \S+:\d+ \*/ ")
"""Comments of kernels/dsl/device.py."""

_DEBUG_SECTIONS = re.compile(r"^[ \t]*\.section[ \t]+\.debug_\w+\s*\{[^{}]*\}[ \t]*\n?", re.MULTILINE)
_DEBUG_NAMES = re.compile(r"\$L__(?:tmp|func_begin|func_end)\d+\b")
_DEBUG_LABELS = re.compile(r"^(\$L__(?:tmp|func_begin|func_end)\d+):[ \t]*\n?", re.MULTILINE)
"""Labels that LLVM sets for its debug sections."""


def without_lines(ptx: str) -> str:
    """Return PTX without `.file`, `.loc`, users' lines, debug sections, and labels that only those sections name.

    Names are counted once, so that a file with many labels takes no longer than another of its length.
    """
    text = _DEBUG_SECTIONS.sub("", _USERS_LINES.sub("", _LINES.sub("", ptx)))
    named = Counter(_DEBUG_NAMES.findall(text))
    return _DEBUG_LABELS.sub(lambda match: "" if named[match[1]] == 1 else match[0], text)


def code_digest(ptx: str) -> str:
    """Return "sha256:<hex>" of the PTX without line information."""
    return f"sha256:{hashlib.sha256(without_lines(ptx).encode()).hexdigest()}"
