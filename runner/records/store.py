"""Keeps records on disk: a folder a run, one JSON file a case, each there in full or not at all.

A run's folder is <root>/<UTC time>-<label>-<random>/ and holds command.json (what was asked for, and how it ended),
<case id>.json for every case, shared/<sha256>.json for every environment and every job's request that records refer to
(cases/record/shared.py), configuration files, source.diff where the sources differ from their commit,
ptx/<sha256>.ptx for every kernel that ran, brought/<digest>/ with the text of files that a user brought, and, once the
command has ended, manifest.sha256 with the digests of all these. Secrets and home folders stay out of all of them
(runner/records/scrub.py).
One process writes (the parent); readers may look at any time.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cases.record.record import Record
from cases.record.shared import SHARED, References, shared_path
from memory.atomic_file import replacing
from reports.record.seal import MANIFEST, sealed
from runner.records.command_json import COMMAND_JSON, CommandDocument
from runner.records.lock import LOCK_NAME, MIRROR_LOCK_NAME
from runner.records.scrub import scrubbed, scrubbed_record

DIFFERENCE_NAME = "source.diff"
MAX_DIFFERENCE_BYTES = 1 << 20
BROUGHT_NAME = "brought"
MAX_BROUGHT_BYTES = 1 << 20
"""Of the files of one brought kernel or custom job; what is beyond is recorded by its digest alone."""


class StoreError(ValueError):
    """Something could not be kept; the message says what, where, why, and what to do. Nothing half-written is
    left."""


class Store:
    """One run's folder. Made when it is missing, and tried at once, so that a bad place is known before anything
    runs."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).absolute()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            trial = self.folder / f".{secrets.token_hex(4)}.tmp"
            trial.touch(exist_ok=False)
            trial.unlink()
        except OSError as error:
            raise StoreError(_sentence("records", self.folder, error)) from error
        self._references = References()
        self._written: set[str] = set()

    @classmethod
    def create(cls, root: Path | str, label: str) -> Store:
        """Create a new folder under root with a unique name: the time, the label and four random bytes."""
        root = Path(root).absolute()
        label = re.sub(r"[^A-Za-z0-9_.+]+", "-", label).strip("-.")[:60] or "run"
        while True:
            now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
            folder = root / f"{now}-{label}-{secrets.token_hex(4)}"
            try:
                folder.mkdir(parents=True)
            except FileExistsError as error:
                if not folder.is_dir():
                    raise StoreError(_sentence("records", root, error)) from error
                continue
            except OSError as error:
                raise StoreError(_sentence("records", root, error)) from error
            return cls(folder)

    def write(self, record: Record, job: str = "") -> Path:
        """Keep a record, without secrets, as [<job>-]<id>.json. A case that is run again in one folder gets .2, .3:
        nothing is replaced."""
        path = next(path for path in self._names(file_stem(job, record.id), ".json") if not path.exists())
        text = scrubbed_record(record).referring(self._references)
        self._write_shared(record.id)  # first: a record never refers to what is not there
        self._write(path, text, f"the record of {record.id}")
        return path

    def _write_shared(self, case: str) -> None:
        """Keep what the record of a case refers to. A damaged file of an earlier process is replaced."""
        for digest in self._references.texts.keys() - self._written:
            path, text = self.folder / shared_path(digest), self._references.texts[digest]
            if not path.exists() or path.read_bytes() != text.encode():
                self._write(path, text, f"what the record of {case} refers to")
            self._written.add(digest)

    def write_command_json(self, manifest: CommandDocument) -> Path:
        """Keep command.json, in place of an earlier one."""
        path = self.folder / COMMAND_JSON
        self._write(path, manifest.to_json(), f"the command's {COMMAND_JSON}")
        return path

    def write_configuration(self, text: str, name: str = "configuration.yaml") -> Path:
        """Keep the resolved configuration, as the caller has written it down."""
        return self.write_text(name, text, f"the configuration {name}")

    def write_text(self, name: str, text: str, what: str = "") -> Path:
        """Keep a text under a name of its own. what: its name in a message."""
        path = self.folder / name
        self._write(path, text, what or name)
        return path

    def write_difference(self, text: str) -> dict[str, Any]:
        """Keep how the sources differ from their commit, without secrets and home folders. Gives what a record says.

        Beyond MAX_DIFFERENCE_BYTES it is cut at a line's end, and a last line says so. Another difference that is there
        already, of a command that is resumed, is left: this one is source.2.diff, source.3.diff.
        """
        data = scrubbed(text).encode()
        kept = data if len(data) <= MAX_DIFFERENCE_BYTES else data[: data.rfind(b"\n", 0, MAX_DIFFERENCE_BYTES) + 1]
        left_out = len(data) - len(kept)
        if left_out:
            kept += f"# cut here: {left_out} more bytes were not kept\n".encode()
        names = self._names(*os.path.splitext(DIFFERENCE_NAME))
        path = next(path for path in names if not path.exists() or path.read_bytes() == kept)
        self._write(path, kept.decode(), f"the difference {path.name}")
        digest = f"sha256:{hashlib.sha256(kept).hexdigest()}"
        return {"file": path.name, "digest": digest, "bytes": len(kept), "left_out_bytes": left_out}

    def write_ptx(self, digest: str, text: str) -> Path:
        """Keep a kernel's PTX under its digest ("sha256:<hex>"). The same text that is there already is left; a damaged
        file is replaced."""
        name = digest.removeprefix("sha256:")
        if hashlib.sha256(text.encode()).hexdigest() != name:
            raise ValueError(f"PTX: the text is not what its digest {digest} says")
        path = self.folder / "ptx" / f"{name}.ptx"
        if not path.exists() or path.read_bytes() != text.encode():
            self._write(path, text, f"the PTX {digest}")
        return path

    def write_brought(self, digest: str, files: Sequence[tuple[str, bytes]]) -> dict[str, Any]:
        """Keep the text of files that a user brought, by name, without secrets and home folders.

        They lie in brought/<digest>/, each under its name with .txt, so that nothing takes them for code to run. Gives
        what a record says: each file's name, digest and bytes, and the name of what is kept ("" beyond
        MAX_BROUGHT_BYTES, and for what is not text) with that one's digest.
        """
        folder = Path(BROUGHT_NAME) / digest.removeprefix("sha256:")[:16]
        left_bytes, entries, used = MAX_BROUGHT_BYTES, [], set[str]()
        for name, content in files:
            entry: dict[str, Any] = {"name": scrubbed(name), "digest": _digest(content), "bytes": len(content)}
            kept = ""
            text = _text_of(content)
            if text is not None and len(content) <= left_bytes:
                left_bytes -= len(content)
                stem = re.sub(r"[^A-Za-z0-9_.+=-]", "-", name)
                count = 1
                kept = f"{stem}.txt"
                while kept in used:
                    count += 1
                    kept = f"{stem}.{count}.txt"
                used.add(kept)
                text = scrubbed(text)
                path = self.folder / folder / kept
                if not path.exists() or path.read_bytes() != text.encode():
                    self._write(path, text, f"the text of {name}")
                entry |= {"kept_digest": _digest(text.encode())}
                kept = (folder / kept).as_posix()
            entries.append({**entry, "kept": kept})
        return {"files": entries}

    def sweep(self) -> None:
        """Remove what killed workers had not finished writing."""
        for path in self._unfinished():
            with suppress(OSError):
                path.unlink()

    def set_aside(self, name: str) -> None:
        """Rename a file to <name>.set_aside, so that it no longer counts as a record. An earlier one with that name is
        left: this is <name>.2.set_aside, <name>.3.set_aside."""
        path = next(path for path in self._names(name, ".set_aside") if not path.exists())
        try:
            os.rename(self.folder / name, path)
        except OSError as error:
            raise StoreError(_sentence(name, self.folder, error)) from error

    def reopen(self) -> None:
        """Prepare the folder of a command that was cut short for more records: remove its manifest, which no longer
        holds, and files that a killed process had not finished writing."""
        try:
            (self.folder / MANIFEST).unlink(missing_ok=True)
            for path in self._unfinished():
                path.unlink()
        except OSError as error:
            raise StoreError(_sentence("records", self.folder, error)) from error

    def seal(self) -> Path:
        """Write the folder's manifest: the digest of every file that is in it now. The last thing that is written."""
        path = self.folder / MANIFEST
        try:
            text = sealed(self.folder).decode("utf-8")
        except ValueError as error:
            raise StoreError(f"the folder's {MANIFEST} can't be made: {error}") from error
        self._write(path, text, f"the folder's {MANIFEST}")
        return path

    def _names(self, stem: str, suffix: str) -> Iterator[Path]:
        """<stem><suffix>, <stem>.2<suffix>, <stem>.3<suffix> and so on."""
        yield self.folder / f"{stem}{suffix}"
        yield from (self.folder / f"{stem}.{count}{suffix}" for count in itertools.count(2))

    def _unfinished(self) -> list[Path]:
        """What was not finished writing."""
        found = [path for inner in (".", "ptx", SHARED) for path in (self.folder / inner).glob(".*.tmp")]
        return [path for path in found if path.name not in (LOCK_NAME, MIRROR_LOCK_NAME)]

    def _write(self, path: Path, text: str, what: str) -> None:
        """Replace path by text in one step: a full file beside it, flushed to the disk, then renamed."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # A name that is not UTF-8 has surrogates, which become escapes: in JSON they mean the same.
            with (
                replacing(path) as beside,
                open(beside, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file,
            ):
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            _flush_folder(path.parent)
        except OSError as error:
            raise StoreError(_sentence(what, path.parent, error)) from error


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _text_of(content: bytes) -> str | None:
    """The text of a file; None if it is not UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def file_stem(job: str, case: str) -> str:
    """The name of a case's record without its suffix; job is "" in a command of one job."""
    return re.sub(r"[^A-Za-z0-9_.+=-]", "-", f"{job}-{case}" if job else case)


def _flush_folder(folder: Path) -> None:
    """Make the new name last, too, where the file system lets a folder be flushed. The file is whole in any case."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _sentence(what: str, folder: Path, error: OSError) -> str:
    return f"{what}: can't be written in {folder}: {error.strerror or error}; make room there or name another folder"
