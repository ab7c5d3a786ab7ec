"""What records have in common, kept once: their environments and their requests, by digest.

In a command's folder a record file refers to its environment and to its request: {"shared": "sha256:<hex>"}. The text
is in shared/<hex>.json beside the record file, and <hex> is the SHA-256 of that file. Keys beside "shared" are the
record's own, such as the choices of a kernel. In a bundle, each text is a line. A record that is written by itself
(Record.to_json) has both parts in full, as has every record of the published schema.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from cases.documents import decoded, encoded, parsed
from cases.record.reading import contents
from cases.record.request import RecordedEnvironment, RecordedRequest

SHARED = "shared"
"""The key of a reference, and the name of the folder beside the records."""

SINCE = 6
"""The schema that lines of bundles with such a text have."""

PARTS: Mapping[str, type] = {"environment": RecordedEnvironment, "request": RecordedRequest}

_OWN = {"environment": (), "request": ("kernel",)}
"""Keys that stay in the record: they differ within a job."""

_REFERENCE = re.compile("sha256:([0-9a-f]{64})")
_FILE_NAME = re.compile(r"[0-9a-f]{64}\.json")
_WHOLE = "copy the folder of its command as a whole, or as a bundle (symlab bundle)"

_JSON = json.JSONEncoder().encode

Find = Callable[[str], dict[str, Any]]
"""Gives the content with a digest. Raises SharedError if it is missing or was changed."""


class SharedError(ValueError):
    """What a record refers to is missing or was changed. what: the same without the record's name."""

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(f"{where}: {what}" if where else what)
        self.what = what


def is_shared_file(path: Path) -> bool:
    """Whether a path is one of a file that records refer to, and so no record."""
    return path.parent.name == SHARED and _FILE_NAME.fullmatch(path.name) is not None


def shared_path(digest: str) -> Path:
    """Return the path of the file with a digest, from the folder of its records."""
    return Path(SHARED, f"{digest.removeprefix('sha256:')}.json")


def digest_of(text: str) -> str:
    """Return the digest by which records refer to a text."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def text_in(path: Path | str) -> str:
    """Return the text of a file. Raises ValueError, naming it, if it can't be read."""
    try:
        return contents(path).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: can't be read as text, so it is no record") from None


class References:
    """Makes references. texts: what they refer to, by digest."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._made: dict[tuple[str, int], tuple[dict[str, Any], Any]] = {}

    def of(self, record: Any) -> dict[str, dict[str, Any]]:
        """Return what is written for the environment and the request of a record. Records have them in common, as the
        same objects: each is made a text once."""
        return {name: self._of(name, getattr(record, name)) for name in PARTS}

    def _of(self, name: str, part: Any) -> dict[str, Any]:
        key = (name, id(part))
        if key not in self._made:
            document = encoded(part)
            found = {key: document.pop(key) for key in _OWN[name] if key in document}
            if document:
                text = _text(document)
                self.texts[digest_of(text)] = text
                found = {SHARED: digest_of(text), **found}
            self._made[key] = found, part  # the part is kept, so that its id stays its own
        return self._made[key][0]


class Known:
    """What many records have alike, each distinct one as one object: environments, requests, fabrics, kernels, readings
    of GPUs. Ten thousand records then take a part of the memory, and of the time to read them."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str], Any] = {}
        self._contents: dict[tuple[Path, str], dict[str, Any]] = {}
        self._kept: list[dict[str, Any]] = []

    def part(self, name: str, value: Any, find: Find) -> Any:
        """Return the part of a record's document; anything else is returned as it is.

        Raises SharedError if the document refers to what is missing or was changed; ValueError for a reference that is
        not one.
        """
        if not isinstance(value, dict):
            return value
        if SHARED not in value:
            return self.once(name, value, partial(_read, name))
        content = _found(name, value, find)
        key = (name, _JSON([id(content), value]))  # contents are kept here, so that an id stays that of one
        if key not in self._parts:
            self._kept.append(content)
            self._parts[key] = self.once(name, _resolved(name, value, content), partial(_read, name))
        return self._parts[key]

    def once(self, name: str, value: Any, read: Callable[[Any], Any]) -> Any:
        """Return what read makes of a JSON value: of equal values under one name, the same object."""
        key = (name, _JSON(value))
        if key not in self._parts:
            self._parts[key] = read(value)
        return self._parts[key]

    def beside(self, path: Path | str) -> Find:
        """Return what finds the contents that a record file refers to."""
        return partial(self._in_folder, Path(path).parent)

    def _in_folder(self, folder: Path, digest: str) -> dict[str, Any]:
        if (folder, digest) not in self._contents:
            path = folder / shared_path(digest)
            if not path.exists():
                raise SharedError(f"{path} is missing, to which it refers; {_WHOLE}")
            text = text_in(path)
            if digest_of(text) != digest:
                raise SharedError(f"{path}, to which it refers, was changed: its SHA-256 is not its name")
            self._contents[folder, digest] = _content(text, path)
        return self._contents[folder, digest]


def not_here(digest: str) -> dict[str, Any]:
    """The finder of a text that was read without its surroundings."""
    raise SharedError(f"it refers to {shared_path(digest)} beside its file, which was not read; {_WHOLE}")


def line(digest: str, text: str) -> str:
    """Return a content as one line of a bundle, without its end."""
    content = json.loads(text)
    return json.dumps({"schema": SINCE, SHARED: digest, "content": content}, separators=(",", ":"))


def of_lines(lines: Iterable[tuple[int, str]], path: Path | str) -> tuple[Find, Iterator[tuple[int, str]]]:
    """Divide the numbered lines of a bundle: return what finds the contents among those that were taken so far, and the
    lines of records, which refer to lines before them.

    Taking them raises ValueError, naming the line, for a content that is not valid or does not have its digest.
    """
    contents: dict[str, dict[str, Any]] = {}

    def records() -> Iterator[tuple[int, str]]:
        for number, one in lines:
            if not one.startswith(f'{{"schema":{SINCE},"{SHARED}":'):
                yield number, one
                continue
            where = f"{path}, line {number}"
            try:
                document = parsed(one)
            except ValueError as error:
                raise ValueError(f"{where}: not JSON ({error})") from None
            content, digest = document.get("content"), document[SHARED]
            if set(document) != {"schema", SHARED, "content"} or not isinstance(content, dict):
                raise ValueError(f"{where}: neither a record nor what records refer to")
            if digest_of(_text(content)) != digest:
                raise ValueError(
                    f"{where}: was changed: its content does not have the digest by which records refer to it"
                )
            contents[digest] = content

    def find(digest: str) -> dict[str, Any]:
        if digest not in contents:
            raise SharedError(f"{path} lacks {digest}, to which it refers; make the bundle again")
        return contents[digest]

    return find, records()


def _text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"


def _found(name: str, value: dict[str, Any], find: Find) -> dict[str, Any]:
    """What a part's document refers to. Raises ValueError for a reference that is not one."""
    digest = value[SHARED]
    if not isinstance(digest, str) or not _REFERENCE.fullmatch(digest):
        raise ValueError(f"{name}.{SHARED} is {json.dumps(digest)[:80]}; it is sha256: and 64 hexadecimal digits")
    if unknown := sorted(value.keys() - {SHARED, *_OWN[name]}):
        raise ValueError(f"{name}: {', '.join(unknown)} beside {SHARED}: a part is given in full or by reference")
    return find(digest)


def _resolved(name: str, value: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """A part's document: what it refers to, and what is the record's own."""
    own = {key: item for key, item in value.items() if key != SHARED}
    if twice := sorted(content.keys() & own.keys()):
        raise ValueError(f"{name}: {', '.join(twice)} is given twice, here and in {shared_path(value[SHARED])}")
    return {**content, **own}


def _read(name: str, value: dict[str, Any]) -> Any:
    return decoded(PARTS[name], value, f"record.{name}")


def _content(text: str, path: Path) -> dict[str, Any]:
    try:
        content = parsed(text)
    except ValueError as error:
        raise SharedError(f"{path}, to which it refers, is not JSON ({error})") from None
    if not isinstance(content, dict) or SHARED in content:
        raise SharedError(f"{path}, to which it refers, is no environment and no request")
    return content
