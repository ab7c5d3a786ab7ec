"""Item "signatures": who vouches for a set of records, by the signatures of manifests in its folders; `symlab sign`.

ssh-keygen signs and verifies: people have such keys, git and forges know them, and lists of signers have its form. What
is signed is the manifest of a folder, which has the digest of every file there. A signature is compared with what lies
outside the set, the list of signers that the reader gives. It counts if it is one of the manifest beside it, if the
files are as that says, and if the list names its key.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cases.record.reading import below, contents
from reports.record import bundle
from reports.record.seal import MANIFEST, MOST_MANIFEST_BYTES, SIGNATURE, broken, digest_of, faults
from reports.record.writing import write_file
from reports.table.text import counted
from symlab.evidence.audit.completeness import concerns
from symlab.evidence.audit.items import Ground, Item, Outcome, Point, listed
from symlab.evidence.audit.material import Material

NAMESPACE = "symlab"
"""What signatures are for: one made for git, or for a file, does not count here, nor the other way round."""

PROGRAM = "ssh-keygen"

_PATIENCE_S = 20.0
"""Maximum seconds of one verification: no key takes more than milliseconds."""

_KEY = re.compile(r"with (\S+) key (\S+)")
"""How ssh-keygen names the key of a signature that is right."""


@dataclass(frozen=True, slots=True)
class Vouched:
    """The item, and who vouches in a few words: "signed by NAME", "unsigned"."""

    item: Item
    says: str


def sign(folder: Path, key: Path) -> str:
    """Sign the manifest of a folder, in place of an earlier signature; return what was done, in one line.

    key: a private key's file, or the public one of a key that an agent holds; ssh-keygen asks for a passphrase on the
    terminal. Raises ValueError for a folder without manifest, for files that differ from it, for a key that can't be
    used, and without ssh-keygen.
    """
    _need("--key")
    if not folder.is_dir():
        raise ValueError(f"{folder}: not a folder; sign the folder of a command, or reports/published")
    digest = digest_of(folder)
    if changed := broken(folder):
        raise ValueError(f"{folder}: not signed, for it is not as its manifest has it: {listed(changed)}")
    key = key.expanduser()
    if not key.is_file():
        raise ValueError(f"{key}: no such key (--key); give the file of an SSH key, or make one: ssh-keygen -t ed25519")
    with tempfile.TemporaryDirectory(prefix="symlab-") as place:
        text = Path(place) / MANIFEST
        text.write_bytes(contents(folder / MANIFEST, MOST_MANIFEST_BYTES))
        made = text.with_name(SIGNATURE)
        done = _asked(["sign", "-f", str(key), "-n", NAMESPACE, str(text)], b"", None)
        if done.returncode or not made.is_file():
            raise ValueError(f"{key} can't sign (--key): {_said(done.stderr)}")
        write_file(folder / SIGNATURE, made.read_bytes())
    return f"{folder}: signed: manifest {digest}"


def checked_signers(path: Path) -> Path:
    """Return the path of a list of signers. Raises ValueError if it can't be read, and without ssh-keygen."""
    _need("--signers")
    path = path.expanduser()
    try:
        contents(path)  # opens no pipe, which would wait for a writer
    except ValueError as error:
        raise ValueError(f"--signers {error}; give a file with lines 'name ssh-ed25519 AAAA..'") from None
    return path


def who_vouches(material: Material, signers: Path | None = None) -> Vouched:
    """Return the item. signers: the reader's list of signers, or None. Raises ValueError if ssh-keygen is missing and
    there are signatures."""
    points: list[Point] = []
    names: dict[str, None] = {}
    signed: list[Path] = []
    for place, folder in dict.fromkeys((one, folder) for one in material.places for folder in _signed(one)):
        point, name = _judged(folder, place, signers)
        points.append(point)
        names |= {name: None} if name else {}
        signed += [folder] if name else []
    files = {path.resolve() for place in material.places for path in bundle.record_files(place)}
    rest = sum(not any(folder in path.parents for folder in signed) for path in files)
    if not points:
        points.append(Point(Outcome.NOT_CAPTURED, "no signature; symlab sign FOLDER --key KEY makes one"))
    elif names and rest:
        points.append(Point(Outcome.NOT_CAPTURED, f"{rest} of {counted(len(files), 'file')} of records: no signature"))
    return Vouched(Item("signatures", tuple(dict.fromkeys(points))), _says(points, list(names)))


def _says(points: list[Point], names: list[str]) -> str:
    outcomes = {point.outcome for point in points}
    if Outcome.FINDING in outcomes:
        return "signature not valid"
    if not names:
        return "unsigned" if Outcome.NOT_CAPTURED in outcomes else "signature not verified"
    return f"signed {'in part ' if Outcome.NOT_CAPTURED in outcomes else ''}by {listed(names)}"


def _signed(place: Path) -> list[Path]:
    """Return the folders with a signature in a place and below, and the nearest one above it that has a manifest, if
    it has a signature."""
    found = {path.parent.resolve() for path in below(place, SIGNATURE)}
    here = place.resolve()
    above = next((one for one in (here, *here.parents) if (one / MANIFEST).is_file()), None)
    if above is not None and (above / SIGNATURE).exists():
        found.add(above)
    return sorted(found)


def _judged(folder: Path, place: Path, signers: Path | None) -> tuple[Point, str]:
    """Return what the signature of a folder says, and who vouches by it, "" if no one known does."""
    _need("signatures are verified by it")
    try:
        text = contents(folder / MANIFEST, MOST_MANIFEST_BYTES)
        signature = contents(folder / SIGNATURE)
        changed = [says for name, says in faults(folder) if concerns(name, folder, place)]
    except ValueError as error:
        return Point(Outcome.FINDING, f"{folder.name}: {error}", Ground.COMPARED), ""
    where = f"{folder.name} (manifest {digest_of(folder)})"
    if changed:
        return Point(Outcome.FINDING, f"{where}: changed after signing: {listed(changed)}", Ground.COMPARED), ""
    with tempfile.TemporaryDirectory(prefix="symlab-") as temporary:
        path = Path(temporary) / "signature"
        path.write_bytes(signature)
        right = _asked(["check-novalidate", "-n", NAMESPACE, "-s", str(path)], text)
        key = " ".join(found.groups()) if (found := _KEY.search(right.stdout.decode(errors="replace"))) else ""
        if right.returncode:
            says = f"{where}: bad signature: it is not one of the manifest beside it ({_said(right.stderr)})"
            return Point(Outcome.FINDING, says, Ground.COMPARED), ""
        if signers is None:
            says = f"{where}: signed with the key {key}; --signers FILE says whose it is"
            return Point(Outcome.CAPTURED, says), ""
        name, why = _signer(path, text, signers)
    if not name:
        return Point(Outcome.FINDING, f"{where}: unknown signer, key {key} ({signers}: {why})", Ground.COMPARED), ""
    return Point(Outcome.VERIFIED, f"{where}: signed by {name} ({key})", Ground.COMPARED), name


def _signer(signature: Path, text: bytes, signers: Path) -> tuple[str, str]:
    """Return whom a list of signers names for a signature that is right, or "" and why it names none."""
    arguments = ["-s", str(signature), "-f", str(signers)]
    found = _asked(["find-principals", *arguments], text)
    said = found.stderr
    for line in found.stdout.decode(errors="replace").splitlines() if not found.returncode else ():
        for name in line.split(","):
            done = _asked(["verify", *arguments, "-I", name, "-n", NAMESPACE], text)
            if not done.returncode:
                return name, ""
            said = done.stderr
    return "", _said(said) or "the list does not name it"


def _need(what: str) -> None:
    if shutil.which(PROGRAM) is None:
        raise ValueError(f"{PROGRAM} is missing ({what}); install OpenSSH's client, 8.2 or later")


def _asked(words: list[str], text: bytes, patience_s: float | None = _PATIENCE_S) -> subprocess.CompletedProcess[bytes]:
    line = [PROGRAM, "-Y", *words]
    try:
        return subprocess.run(line, input=text, capture_output=True, check=False, timeout=patience_s)
    except subprocess.TimeoutExpired:
        raise ValueError(f"{PROGRAM} -Y {words[0]} gave no answer within {_PATIENCE_S:.0f} s") from None


def _said(output: bytes) -> str:
    """Return what ssh-keygen said, in one line that can be shown."""
    lines = (line.strip() for line in output.decode(errors="replace").splitlines() if line.strip())
    return "".join(one if one.isprintable() else "?" for one in "; ".join(lines)[:300])
