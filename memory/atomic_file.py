"""Write a file whole or not at all. In the lowest room because kernels, reports and the runner all keep files."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the name of a hidden, unused file beside path, which takes path's place when the block ends.

    If the block or the renaming raises (KeyboardInterrupt included), path keeps its content, the file beside it is
    removed, and the exception goes on. Readers see the old content or all of the new one; of several writers at the
    same time the last one wins. Nothing is flushed to the disk: a caller that must survive a power failure calls
    os.fsync before the block ends.
    """
    beside = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        yield beside
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
