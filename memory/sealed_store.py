"""A store whose values only the holders of one key can write: each is signed, and a wrong signature is an error.

A TCPStore takes values from every process that reaches its port. Behind this class such a value ends the run in one
line, before anything looks at it. What a process without the key can still do: delete and overwrite, which ends a run,
too, and put there what the same key signed for the same name in an earlier run. A value does not count under another
name. Nothing is encrypted: a process that reaches the store can read all of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Any, cast

from memory.fabric import FabricError
from memory.meeting import Store
from memory.private_folder import make_private

_SIGNATURE_BYTES = hashlib.sha256().digest_size
_LENGTH_BYTES = 8
_KEY_BYTES = 32


class SealedStore:
    """memory.meeting.Store over another one, for holders of the key."""

    def __init__(self, store: Store, key: bytes) -> None:
        """Raises ValueError for an empty key."""
        if not key:
            raise ValueError("a sealed store needs a key")
        self._store = store
        self._key = key

    def set(self, key: str, value: str, /) -> None:
        self._store.set(key, self._frame(key, value))

    def append(self, key: str, value: str, /) -> None:
        """Add to a value: what was added is signed by itself."""
        cast(Any, self._store).append(key, self._frame(key, value))

    def check(self, keys: list[str], /) -> bool:
        return self._store.check(keys)

    def get(self, key: str, /) -> bytes:
        return self._opened(key, self._store.get(key))

    def multi_get(self, keys: list[str], /) -> list[bytes]:
        return [self._opened(key, value) for key, value in zip(keys, self._store.multi_get(keys), strict=True)]

    def delete_key(self, key: str, /) -> bool:
        return self._store.delete_key(key)

    def _frame(self, key: str, value: str) -> str:
        """A signed value: its signature and its length in bytes, both in hexadecimal, then the value itself."""
        content = value.encode()
        return f"{self._signature(key, content).hex()}{len(content):0{2 * _LENGTH_BYTES}x}{value}"

    def _opened(self, key: str, value: bytes) -> bytes:
        """The contents of all frames of a value, one after another. FabricError for any that the key did not sign."""
        found = bytearray()
        place = 0
        head = 2 * (_SIGNATURE_BYTES + _LENGTH_BYTES)
        while place < len(value) or not value:
            try:
                signature = bytes.fromhex(value[place : place + 2 * _SIGNATURE_BYTES].decode("ascii"))
                length = int(value[place + 2 * _SIGNATURE_BYTES : place + head].decode("ascii"), 16)
            except ValueError:
                raise _foreign(key) from None
            content = value[place + head : place + head + max(length, 0)]
            if len(content) != length or not hmac.compare_digest(signature, self._signature(key, content)):
                raise _foreign(key)
            found += content
            place += head + length
        return bytes(found)

    def _signature(self, key: str, content: bytes) -> bytes:
        name = key.encode()
        return hmac.digest(self._key, len(name).to_bytes(_LENGTH_BYTES) + name + content, "sha256")


def user_key(place: Path | None = None) -> bytes:
    """Return the key of this user's worlds, from a file that they alone can read; it is made once. Ranks on machines
    without a common home folder need SYMLAB_KEY. FabricError if there can be none."""
    try:
        place = place or Path.home() / ".cache" / "symlab" / "world.key"
        if not place.exists():
            make_private(place.parent)
            beside = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
            try:
                beside.touch(0o600)
                beside.write_bytes(secrets.token_bytes(_KEY_BYTES))
                with contextlib.suppress(FileExistsError):  # another rank was quicker
                    os.link(beside, place)
            finally:
                beside.unlink(missing_ok=True)
        with place.open("rb") as file:
            found = os.fstat(file.fileno())
            if found.st_uid == os.geteuid() and not found.st_mode & 0o077:
                if len(key := file.read()) == _KEY_BYTES:
                    return key
                problem = f"it has not {_KEY_BYTES} bytes, remove it"
            else:
                problem = "others can read or write it, remove it"
    except (OSError, RuntimeError) as error:  # RuntimeError: this user has no home
        problem = str(getattr(error, "strerror", error))
    where = f"{place} (SYMLAB_KEY)"
    raise FabricError(f"no key for this user's worlds in {where}: {problem}, or set SYMLAB_KEY for all ranks")


def _foreign(key: str) -> FabricError:
    return FabricError(
        f"the value of {key!r} in the world's store was not written by a rank of this world: another process reaches "
        "the store, or the ranks have different keys (SYMLAB_KEY)"
    )
