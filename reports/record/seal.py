"""A folder's manifest: every file in it with its digest, so that a changed byte is found and named.

The form is sha256sum's, so that `sha256sum -c manifest.sha256` says the same without this program. What the manifest
itself is must be the same to the byte, too: a changed digest or name in it is found like a changed file.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from cases.record.reading import contents, kind_of, leaves
from reports.record.writing import write_file

MANIFEST = "manifest.sha256"

SIGNATURE = f"{MANIFEST}.sig"
"""A signature of the manifest, beside it, as ssh-keygen writes it; no manifest lists it."""

MOST_FOLDER_BYTES = 1 << 32
"""Maximum size of a folder's files together: 4 GiB take some ten seconds. A sparse file of terabytes takes hours."""

MOST_MANIFEST_BYTES = 1 << 26


def seal(folder: Path | str) -> Path:
    """Write the manifest of a folder, in one step. ValueError naming what can't be read or written."""
    path = Path(folder) / MANIFEST
    write_file(path, sealed(folder))
    return path


def sealed(folder: Path | str) -> bytes:
    """The manifest as it has to be: a line for each file in the folder and below, by name, but for itself.

    ValueError naming a file that can't be read, and for a name that has no place in a line.
    """
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(_digests(Path(folder)).items())).encode("utf-8")


def broken(folder: Path | str) -> list[str]:
    """What is not as the manifest has it, one sentence for each file or line; nothing where all is whole.

    ValueError where there is no manifest, or a file can't be read.
    """
    return [sentence for _, sentence in faults(folder)]


def faults(folder: Path | str) -> list[tuple[str, str]]:
    """The sentences of broken, each with the name of the file that it is about, relative to the folder."""
    folder = Path(folder)
    listed, damaged = _listed(folder / MANIFEST)
    result = [(MANIFEST, sentence) for sentence in damaged]
    odd: list[tuple[str, str]] = []
    found = _digests(folder, odd)
    result += odd
    for name, digest in sorted(found.items()):
        if name not in listed:
            result.append((name, f"{name}: not in {MANIFEST}"))
        elif listed[name] != digest:
            says = f"{name}: changed (SHA-256 {digest[:12]}.., {MANIFEST} has {listed[name][:12]}..)"
            result.append((name, says))
    result += [(name, f"{name}: missing") for name in sorted(set(listed) - set(found) - {name for name, _ in odd})]
    if not result and _read(folder / MANIFEST) != sealed(folder):
        result.append((MANIFEST, f"{MANIFEST}: not as it is written, although every line is right"))
    return result


def digest_of(folder: Path | str) -> str:
    """The digest of a folder's manifest, "sha256:<hex>": it tells the folder from any other.
    ValueError where there is none."""
    return f"sha256:{hashlib.sha256(_read(Path(folder) / MANIFEST)).hexdigest()}"


def _listed(path: Path) -> tuple[dict[str, str], list[str]]:
    """The digests by name that a manifest lists, and a sentence for each of its lines that is not valid."""
    listed: dict[str, str] = {}
    faults = []
    for number, line in enumerate(_read(path).split(b"\n")[:-1], start=1):
        digest, gap, name = line.decode("utf-8", errors="replace").partition("  ")
        if gap and name and len(digest) == 64 and set(digest) <= set("0123456789abcdef") and name not in listed:
            listed[name] = digest
        else:
            faults.append(f"{MANIFEST}, line {number}: damaged")
    return listed, faults


def _digests(folder: Path, faulty: list[tuple[str, str]] | None = None) -> dict[str, str]:
    """Digests by name relative to the folder, with slashes. What is still being written (.*.tmp) does not count.

    faulty takes the names and a sentence each of what is no regular file of the folder: a pipe, a link that leaves it.
    None: ValueError for the first of them.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder")
    found: dict[str, str] = {}
    total_bytes = 0
    for root, folders, names in os.walk(folder):
        folders.sort()
        linked = [name for name in folders if os.path.islink(os.path.join(root, name))]
        for name in (*names, *linked):
            path = Path(root) / name
            short = path.relative_to(folder).as_posix()
            if short == MANIFEST or (name.startswith(".") and name.endswith(".tmp")):
                continue
            if name == SIGNATURE and (short == name or MANIFEST in names):
                continue
            if "\n" in short or "\\" in short:
                raise ValueError(f"{path}: a name with a line's end or a backslash has no place in a manifest")
            if odd := _odd(path, folder):
                if faulty is None:
                    raise ValueError(f"{path}: {odd}, which has no content that a manifest could list")
                faulty.append((short, f"{short}: {odd}"))
                continue
            total_bytes += path.stat().st_size
            if total_bytes > MOST_FOLDER_BYTES:
                raise ValueError(f"{folder}: more than {MOST_FOLDER_BYTES:,} bytes, which no folder of records has")
            found[short] = _digest(path)
    return found


def _odd(path: Path, folder: Path) -> str:
    """What a path is that is no regular file of the folder; "" of one that is."""
    if path.is_symlink() and leaves(path, folder):
        return "a link that leaves the folder"
    return kind_of(path)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ValueError(f"{path}: can't be read ({error.strerror or error})") from None


def _read(path: Path) -> bytes:
    if not path.exists():
        raise ValueError(f"{path}: there is no manifest here, and without one changed files cannot be found")
    return contents(path, MOST_MANIFEST_BYTES)
