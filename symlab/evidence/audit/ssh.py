"""Signatures by ssh-keygen: people have such keys, git and forges know them, and lists of signers have its form.

ssh-keygen makes and verifies; a signature's own namespace and key are read here, so that what is wrong can be named.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cases.record.reading import contents
from reports.record.signed import BEGIN, END

NAMESPACE = "symlab"
"""What signatures are for: one made for git, or for a file, does not count here, nor the other way round."""

PROGRAM = "ssh-keygen"

_PATIENCE_S = 20.0
"""Maximum seconds of one verification: no key takes more than milliseconds."""

_PROBLEMS = {
    "no private key found for public key": "is a public key, and no agent has its private half; give the private key, "
    "or add it to the agent with ssh-add",
    "incorrect passphrase": "has a passphrase, which was wrong or could not be typed here; add the key to an agent "
    "with ssh-add",
    "unprotected private key": "is a private key that others can read; make it yours alone with chmod 600",
    "couldn't load public key": "is not a key of ssh; make one with ssh-keygen -t ed25519",
    "agent refused": "is a key that the agent refused to use; confirm it, or add it again with ssh-add",
}
"""What ssh-keygen says, in small letters, and what is wrong and would be right."""


class State(StrEnum):
    """What a signature proves."""

    KNOWN = "known"
    """It is right, and the list of signers names the key's owner for this namespace and for today."""
    UNKNOWN = "unknown"
    """It is right, and the list does not name its key, or not for this namespace, or not for today."""
    UNLISTED = "unlisted"
    """It is right, and there is no list."""
    OTHER_NAMESPACE = "other namespace"
    BAD = "bad"
    """It is not a signature of this text."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found of a signature: its state, the signer's name in the list (if KNOWN), the key as "ED25519
    SHA256:..", and what ssh-keygen says, if that helps."""

    state: State
    name: str = ""
    key: str = ""
    says: str = ""

    @property
    def is_pattern(self) -> bool:
        """Whether the name is a pattern of the list's, such as "*@example.org", and so names no person."""
        return any(one in self.name for one in "*?")


def sign(text: str, key: Path) -> str:
    """Return the signature of a text. key: a private key, or the public key of one that an agent holds. ssh-keygen asks
    for a passphrase on the terminal. Raises ValueError for a key that can't be used, and without ssh-keygen."""
    _need("--key")
    key = key.expanduser()
    if not key.is_file():
        raise ValueError(f"{key}: no such key (--key); give the file of an SSH key, or make one: ssh-keygen -t ed25519")
    with tempfile.TemporaryDirectory(prefix="symlab-") as folder:
        path = Path(folder) / "statement"
        path.write_text(text, encoding="ascii")
        done = subprocess.run(
            [PROGRAM, "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        made = path.with_name("statement.sig")
        if done.returncode or not made.is_file():
            raise ValueError(f"{key} (--key) {_problem(done.stderr)}")
        return made.read_text(encoding="ascii")


def verified(signature: str, text: str, signers: Path | None) -> Verified:
    """Return what a signature of a text proves. signers: a list of signers as ssh-keygen takes it, or None.

    Raises ValueError without ssh-keygen, and if it does not answer.
    """
    _need("signatures are verified by it")
    try:
        key, namespace = _parts(signature)
    except ValueError:
        return Verified(State.BAD)
    if namespace != NAMESPACE:
        return Verified(State.OTHER_NAMESPACE, key=key, says=namespace)
    with tempfile.TemporaryDirectory(prefix="symlab-") as folder:
        path = Path(folder) / "signature"
        path.write_text(signature, encoding="ascii")
        if _asked("check-novalidate", text, "-n", NAMESPACE, "-s", str(path)).returncode:
            return Verified(State.BAD, key=key)
        if signers is None:
            return Verified(State.UNLISTED, key=key)
        return _of_list(path, text, key, contents(signers))


def _of_list(signature: Path, text: str, key: str, signers: bytes) -> Verified:
    """Return whom a list of signers names for a signature that is right: a name before a pattern.

    A key can have several lines, one a namespace or a period. ssh-keygen names the principals of the first one only, so
    it gets each line by itself, at its own place in the list; the whole list for the key of a certificate.
    """
    path = signature.with_name("signers")
    arguments = "-s", str(signature), "-f", str(path)
    known: list[Verified] = []
    said: list[str] = []
    public = base64.b64encode(_fields(signature.read_text(encoding="ascii"))[0])
    lines = enumerate(signers.split(b"\n"))
    for lone in [b"\n" * number + line + b"\n" for number, line in lines if public in line] or [signers]:
        path.write_bytes(lone)
        found = _asked("find-principals", text, *arguments)
        names = found.stdout.splitlines() if found.returncode == 0 else []
        says = found.stderr
        for name in (one for line in names for one in line.split(",") if not one.startswith("!")):
            done = _asked("verify", text, *arguments, "-I", name, "-n", NAMESPACE)
            says = done.stderr if done.returncode else says
            known += [] if done.returncode else [Verified(State.KNOWN, name, key)]
        said.append(_reason(says, path))
    if known:
        return min(known, key=lambda one: one.is_pattern)
    return Verified(State.UNKNOWN, key=key, says="; line ".join(dict.fromkeys(filter(None, said))))


def key_of(signature: str) -> str:
    """Return the key that a signature names, "" if it names none."""
    try:
        return _parts(signature)[0]
    except ValueError:
        return ""


def checked_signers(path: Path) -> Path:
    """Return the path of a list of signers. Raises ValueError if it can't be read, and without ssh-keygen."""
    _need("--signers")
    path = path.expanduser()
    try:
        contents(path)  # opens no pipe, which would wait for a writer
    except ValueError as error:
        raise ValueError(f"--signers {error}; give a file with lines 'name ssh-ed25519 AAAA..'") from None
    return path


def _need(what: str) -> None:
    if shutil.which(PROGRAM) is None:
        raise ValueError(f"{PROGRAM} is missing ({what}); install OpenSSH's client, 8.2 or later")


def _asked(verb: str, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [PROGRAM, "-Y", verb, *arguments],
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"{PROGRAM} -Y {verb} gave no answer within {_PATIENCE_S:.0f} s") from None


def _parts(signature: str) -> tuple[str, str]:
    """Return a signature's key in words and its namespace. Raises ValueError for what is no signature."""
    key, namespace = _fields(signature)
    kind, _ = _field(key)
    digest = base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")
    return f"{_printable(kind).removeprefix('ssh-').upper()} SHA256:{digest}", _printable(namespace)


def _fields(signature: str) -> tuple[bytes, bytes]:
    """Return a signature's key and namespace (OpenSSH's PROTOCOL.sshsig). Raises ValueError for anything else."""
    body = signature.strip().removeprefix(BEGIN).removesuffix(END)
    try:
        data = base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None
    if data[:10] != b"SSHSIG\0\0\0\1":
        raise ValueError("not a signature of ssh, version 1")
    key, rest = _field(data[10:])
    return key, _field(rest)[0]


def _field(data: bytes) -> tuple[bytes, bytes]:
    """Return the first string of SSH's wire form, and the rest."""
    size = int.from_bytes(data[:4], "big")
    if len(data) < 4 + size:
        raise ValueError("cut short")
    return data[4 : 4 + size], data[4 + size :]


def _printable(data: bytes) -> str:
    text = data[:40].decode("ascii", errors="replace")
    return "".join(one if one.isprintable() else "?" for one in text)


def _problem(said: str) -> str:
    small = said.lower()
    for words, problem in _PROBLEMS.items():
        if words in small:
            return problem
    return f"can't sign: {_last(said.splitlines()) or f'{PROGRAM} gave no reason'}"


def _reason(said: str, signers: Path) -> str:
    """Return the line of ssh-keygen's that names the list's line that does not fit; "" if there is none."""
    lines = [line.strip() for line in said.splitlines() if line.startswith(f"{signers}:")]
    return _last(lines).removeprefix(f"{signers}:")


def _last(lines: Sequence[str]) -> str:
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
