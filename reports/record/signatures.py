"""The statements and signatures that lie in folders: which there are, and their texts."""

from __future__ import annotations

from pathlib import Path

from reports.record.seal import MANIFEST
from reports.record.signed import Signed, Statement, split
from reports.record.writing import SIGNATURES, SIGNED

MAX_BYTES = 1 << 20
"""Maximum size of a statement, and of all signatures beside it: a statement of 10,000 commands is half as large."""


def signed_of(folder: Path) -> Signed | None:
    """Return what is signed of a folder, or None: a statement without signatures is what remains where a signing was
    interrupted. Raises ValueError naming a file that can't be a signature or a statement."""
    statement, signatures = folder / SIGNED, folder / SIGNATURES
    if not _is_there(signatures):
        if _is_there(statement):
            _statement(statement)
        return None
    return Signed(_text(statement), split(_text(signatures), str(signatures)))


def signed_folders(place: Path) -> list[Path]:
    """Return the folders with a statement or signatures in a place and below, and the nearest one above it that has a
    manifest, if it has signatures."""
    below = {path.parent for name in (SIGNED, SIGNATURES) for path in place.rglob(name)} if place.is_dir() else set()
    found = {folder for folder in below if (folder / MANIFEST).is_file() or (folder / SIGNED).is_file()}
    here = place.resolve()
    for folder in (here, *here.parents):
        if folder.is_dir() and (folder / MANIFEST).is_file():
            if _is_there(folder / SIGNED) or _is_there(folder / SIGNATURES):
                found = {one for one in found if one.resolve() != folder} | {folder}
            break
    return sorted(found)


def _is_there(path: Path) -> bool:
    return path.is_symlink() or path.exists()


def _statement(path: Path) -> Statement:
    try:
        return Statement.read(_text(path))
    except ValueError as error:
        raise ValueError(str(error) if str(path) in str(error) else f"{path}: {error}") from None


def _text(path: Path) -> str:
    """Return the text of a file. Raises ValueError for what is missing, too large, no ordinary file, or not ASCII."""
    if path.is_symlink() or not path.is_file():
        raise ValueError(f"{path}: {'not an ordinary file' if _is_there(path) else 'missing'}")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"{path}: more than {MAX_BYTES} bytes, which no signature has")
        return data.decode("ascii")
    except OSError as error:
        raise ValueError(f"{path}: can't be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not a signature's text") from None
