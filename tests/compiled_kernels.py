"""The folder of compiled kernels that runs of the tests keep: .pytest_cache/d/compiled-kernels.

It lies in the checkout, so that worktrees don't meet; workers share it, as processes may share any cache of kernels.
"""

import contextlib
from pathlib import Path

from memory.private_folder import exposure

MAX_BYTES = 512 << 20


def folder(config):
    """The folder, made if it is missing; None without pytest's own cache (-p no:cacheprovider), and where others could
    put code there."""
    cache = getattr(config, "cache", None)
    if cache is None:
        return None
    place = Path(cache.mkdir("compiled-kernels"))
    place.chmod(0o700)
    return None if exposure(place) else place


def bound(place, max_bytes=MAX_BYTES):
    """Remove the oldest entries until the others have at most `max_bytes`, and return how many went. Another run may
    read or remove entries meanwhile: one that is gone is compiled again."""
    entries = []
    for path in place.glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            entries.append((found.st_mtime, found.st_size, path))
    total, removed = sum(size for _, size, _ in entries), 0
    for _, size, path in sorted(entries):
        if total <= max_bytes:
            break
        path.unlink(missing_ok=True)
        total -= size
        removed += 1
    return removed
