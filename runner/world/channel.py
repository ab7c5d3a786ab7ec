"""Whole messages over one end of a socket pair: how a world's parent and its rank processes talk."""

from __future__ import annotations

import contextlib
import pickle
import socket
import struct
import threading
from typing import Any

from memory.pickling import dumps

SEND_LIMIT_S = 5.0
"""How long the parent tries to send: a process that was stopped takes nothing, and must not stop the parent, too."""

_LENGTH = struct.Struct("!Q")
_CHUNK_BYTES = 1 << 20


class Channel:
    """Sends and receives tuples of plain values. Any thread may send; one thread receives."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._sending = threading.Lock()
        self._received = bytearray()
        self.closed = False
        """Whether the other side is gone, and all that it had sent was taken."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, *message: Any, limit_s: float | None = None) -> None:
        """Raises OSError if the other side is gone; TimeoutError if it does not take the message in time."""
        body = dumps(message)
        with self._sending:
            # Only the parent gives a limit, and its one thread never receives meanwhile.
            self._socket.settimeout(limit_s)
            self._socket.sendall(_LENGTH.pack(len(body)) + body)

    def receive(self) -> tuple[Any, ...] | None:
        """Wait for the next message; None when the other side is gone."""
        while True:
            message = self._message()
            if message is not None:
                return message
            try:
                chunk = self._socket.recv(_CHUNK_BYTES)
            except ConnectionError:
                chunk = b""
            if not chunk:
                self.closed = True
                return None
            self._received += chunk

    def arrived(self) -> list[tuple[Any, ...]]:
        """All messages that are here by now; waits for none. Tells by closed when no more can come."""
        self._socket.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while not self.closed:
                try:
                    chunk = self._socket.recv(_CHUNK_BYTES)
                except ConnectionError:
                    chunk = b""
                self.closed = not chunk
                self._received += chunk
        found = []
        while (message := self._message()) is not None:
            found.append(message)
        return found

    def close(self) -> None:
        self._socket.close()

    def _message(self) -> tuple[Any, ...] | None:
        """Take the first message out of what was received, if it is whole."""
        if len(self._received) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._received)
        end = _LENGTH.size + length
        if len(self._received) < end:
            return None
        message = pickle.loads(memoryview(self._received)[_LENGTH.size : end].toreadonly().tobytes())
        del self._received[:end]
        assert isinstance(message, tuple)
        return message
