"""What a signer of a set of records signs, and where the signatures are kept.

A signature is over a statement: a text of few lines with the digest of the folder's manifest, the digest of its records
and the names of their commands. In a folder the statement is SIGNED and the signatures are SIGNATURES, as ssh-keygen
writes them, one after another; both lie beside the manifest, which lists neither. A bundle has a line for each
statement, after its records. The digest of records does not depend on the files that hold them, so that a statement
still says what was signed once the records have been packed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from cases.record.record import Record

BEGIN, END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"

MAX_SIGNATURES = 16
"""Maximum number of signatures of one statement; each costs some processes to verify."""

MAX_STATEMENTS = 1000
"""Maximum number of statements in a bundle."""

LINE = '{"signed":'
"""How a bundle's line with a statement begins; no record does."""

_TITLE = "symlab: the signer vouches for these records"
_STATEMENT = re.compile(
    rf"{_TITLE}\n(?:manifest: (?P<manifest>sha256:[0-9a-f]{{64}})\n)?"
    r"records: (?P<records>sha256:[0-9a-f]{64}), (?P<count>[0-9]{1,9})\n(?P<commands>(?:command: \"[^\n]*\"\n)*)"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """What is signed: the digest of the manifest ("" of a set without one), the digest and the number of records, and
    their commands' names, sorted."""

    manifest: str
    records: str
    count: int
    commands: tuple[str, ...]

    def text(self) -> str:
        """Return the statement as it is signed."""
        manifest = f"manifest: {self.manifest}\n" if self.manifest else ""
        commands = "".join(f"command: {json.dumps(name)}\n" for name in self.commands)
        return f"{_TITLE}\n{manifest}records: {self.records}, {self.count}\n{commands}"

    @classmethod
    def read(cls, text: str) -> Statement:
        """Return the statement in a text. Raises ValueError unless the text is exactly what text() gives."""
        found = _STATEMENT.fullmatch(text)
        if found is None:
            raise ValueError("not a statement of symlab sign")
        try:
            commands = tuple(str(json.loads(line.partition(": ")[2])) for line in found["commands"].splitlines())
        except (ValueError, RecursionError):
            raise ValueError("not a statement of symlab sign") from None
        statement = cls(found["manifest"] or "", found["records"], int(found["count"]), commands)
        # Each command once: their records would count again and again, which a few bytes can ask for.
        if statement.text() != text or list(commands) != sorted(set(commands)):
            raise ValueError("not a statement of symlab sign")
        return statement

    def covered(self, digests: Mapping[str, Set[str]]) -> frozenset[str]:
        """Return the digests of the records of the statement's commands, from those of all records by command."""
        return frozenset().union(*(digests.get(name, frozenset()) for name in self.commands))

    def is_of(self, digests: Mapping[str, Set[str]]) -> bool:
        """Return whether these records' digests, by command, are those that were signed."""
        return _digest_of(sorted(self.covered(digests))) == self.records


@dataclass(frozen=True, slots=True)
class Signed:
    """A statement's text, and the signatures of it in ssh-keygen's form."""

    text: str
    signatures: tuple[str, ...]

    def line(self) -> str:
        """Return the line of a bundle, without its end."""
        return f"{LINE}{json.dumps({'statement': self.text, 'signatures': self.signatures}, separators=(',', ':'))}}}"


def statement_of(records: Sequence[Record], manifest: str = "") -> Statement:
    """Return the statement of a set of records. manifest: the digest of its folder's manifest, if it has one."""
    commands = tuple(sorted({record.request.command for record in records}))
    each = _digests(records)
    return Statement(manifest, _digest_of(each), len(each), commands)


def records_digest(records: Iterable[Record]) -> str:
    """Return "sha256:<hex>" of the records' contents, each once, in any order."""
    return _digest_of(_digests(records))


def record_digest(record: Record) -> str:
    """Return the SHA-256 of a record's content, whatever the form of its file."""
    text = json.dumps(record.document(), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def digests_by_command(records: Iterable[Record]) -> dict[str, set[str]]:
    """Return the digests of records by the names of their commands."""
    found: dict[str, set[str]] = {}
    for record in records:
        found.setdefault(record.request.command, set()).add(record_digest(record))
    return found


def _digests(records: Iterable[Record]) -> list[str]:
    return sorted({record_digest(record) for record in records})


def _digest_of(each: Sequence[str]) -> str:
    lines = "".join(f"{one}\n" for one in each)
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"


def lines(signed: Iterable[Signed]) -> list[str]:
    """Return a bundle's lines of what was signed, sorted. Raises ValueError for more than can be read again."""
    found = set(signed)
    most = max((len(one.signatures) for one in found), default=0)
    if most > MAX_SIGNATURES:
        raise ValueError(f"{most} signatures of one statement; {MAX_SIGNATURES} are the maximum")
    if len(found) > MAX_STATEMENTS:
        raise ValueError(f"{len(found):,} statements were signed; {MAX_STATEMENTS:,} are a bundle's maximum")
    return sorted(one.line() for one in found)


def split(text: str, where: str) -> tuple[str, ...]:
    """Return each signature of a text of several. Raises ValueError, naming where, for anything else."""
    found = re.findall(rf"{BEGIN}\n[A-Za-z0-9+/=\n]*?{END}\n", text)
    if not found or "".join(found) != text:
        raise ValueError(f"{where}: not SSH signatures")
    if len(found) > MAX_SIGNATURES:
        raise ValueError(f"{where}: {len(found)} signatures; {MAX_SIGNATURES} are the maximum")
    return tuple(found)


def read_line(line: str, where: str) -> Signed:
    """Return what a bundle's line says was signed. Raises ValueError, naming where, if it is not such a line."""
    try:
        document = json.loads(line)["signed"]
        text, signatures = document["statement"], document["signatures"]
        if not isinstance(text, str) or not isinstance(signatures, list):
            raise TypeError
        each = [split(one, where) for one in signatures[:MAX_SIGNATURES]]
        found = Signed(text, tuple(one for (one,) in each))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{where}: not a statement with its signatures") from None
    if len(signatures) > MAX_SIGNATURES:
        raise ValueError(f"{where}: {len(signatures)} signatures; {MAX_SIGNATURES} are the maximum")
    return found
