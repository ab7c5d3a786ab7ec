"""Item "signatures": who vouches for a set of records, by the signatures in its folders and bundles; `symlab sign`.

A signature is compared with what lies outside the set: the list of signers that the reader gives. It counts if it is
one of the statement beside it, if the statement is that of the records as they are, and if the list names its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from cases.record.record import Record
from reports.record import bundle
from reports.record.seal import MANIFEST, digest_of, faults
from reports.record.signatures import signed_folders, signed_of
from reports.record.signed import MAX_SIGNATURES, Signed, Statement, digests_by_command, record_digest, statement_of
from reports.record.writing import SIGNATURES, SIGNED, write_file
from reports.table.text import counted
from reports.tracked import BUNDLE_NAME, Tracker, Unreadable
from symlab.evidence.audit.completeness import concerns
from symlab.evidence.audit.items import Ground, Item, Outcome, Point, listed
from symlab.evidence.audit.material import Material
from symlab.evidence.audit.ssh import State, Verified, key_of, sign, verified

UNSIGNED = "unsigned"

MAX_VERIFIED = 500
"""Maximum number of signatures that an audit verifies: three processes each, about 10 s in all. A bundle of a few KB
can hold thousands."""


@dataclass(frozen=True, slots=True)
class Vouched:
    """The item, and who vouches in a few words: "signed by NAME", "unsigned"."""

    item: Item
    says: str


@dataclass(frozen=True, slots=True)
class _Claim:
    """A statement with its signatures, where it was found, why it is not one of what is there ("" if it is), and the
    digests of the records that it covers."""

    where: str
    signed: Signed | None
    problem: str = ""
    covered: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Verifier:
    """Verifies each signature of a text once, and no more than MAX_VERIFIED; left_out counts the others."""

    signers: Path | None
    found: dict[tuple[str, str], Verified] = field(default_factory=dict)
    left_out: int = 0

    def all_of(self, signed: Signed) -> list[Verified]:
        """Return what the signatures of a statement prove, without those that are left out."""
        found = []
        for one in dict.fromkeys(signed.signatures):
            if (one, signed.text) not in self.found:
                if len(self.found) >= MAX_VERIFIED:
                    self.left_out += 1
                    continue
                self.found[one, signed.text] = verified(one, signed.text, self.signers)
            found.append(self.found[one, signed.text])
        return found


def who_vouches(material: Material, signers: Path | None = None, tracker: Tracker | None = None) -> Vouched:
    """Return the item. signers: the reader's list of signers, or None. tracker: what MLflow has, which may have
    signatures. Raises ValueError if ssh-keygen is missing and there are signatures."""
    claims = [claim for place in material.places for claim in (*_of_folders(material, place), *_of_bundles(place))]
    claims += _of_tracker(material, tracker) if tracker is not None else []
    points: list[Point] = []
    names: dict[str, None] = {}
    covered: set[str] = set()
    verifier = _Verifier(signers)
    for claim in claims:
        found, known = _judged(claim, verifier, len(material.records))
        points += found
        if known:
            names |= dict.fromkeys(known)
            covered |= claim.covered
    if verifier.left_out:
        says = f"{counted(verifier.left_out, 'signature')} not verified: {MAX_VERIFIED} are an audit's maximum"
        points.append(Point(Outcome.NOT_COMPARABLE, says))
    if not claims:
        where = f"{material.source}: " if material.source else ""
        points.append(Point(Outcome.NOT_CAPTURED, f"{where}no signature; symlab sign FOLDER --key KEY makes one"))
    elif names and (rest := sum(record_digest(record) not in covered for record in material.records)):
        total = counted(len(material.records), "record")
        points.append(Point(Outcome.NOT_CAPTURED, f"{rest} of {total}: no signature"))
    return Vouched(Item("signatures", tuple(dict.fromkeys(points))), _says(points, list(names)))


def _says(points: Sequence[Point], names: Sequence[str]) -> str:
    outcomes = {point.outcome for point in points}
    if Outcome.FINDING in outcomes:
        return "signature not valid"
    if not names:
        return UNSIGNED if Outcome.NOT_CAPTURED in outcomes else "signature not verified"
    part = "signed in part by" if outcomes & {Outcome.NOT_CAPTURED, Outcome.NOT_COMPARABLE} else "signed by"
    return f"{part} {listed(names)}"


def _of_folders(material: Material, place: Path) -> Iterator[_Claim]:
    """Yield what is signed of the folders of a place, and of the one that it lies in."""
    files: list[Path] | None = None
    for folder in signed_folders(place):
        try:
            signed = signed_of(folder)
            if signed is None:
                continue
            manifest = Statement.read(signed.text).manifest
            there = digest_of(folder)
        except ValueError as error:
            yield _Claim(folder.name, None, str(error))
            continue
        problem = ""
        if manifest != there:
            problem = f"changed after signing: the manifest's digest is {there}, signed was {manifest or 'no manifest'}"
        elif damaged := [says for name, says in faults(folder) if concerns(name, folder, place)]:
            problem = f"changed after signing: {listed(damaged)}"
        files = bundle.record_files(place) if files is None else files
        inside = [path for path in files if folder.resolve() in path.resolve().parents]
        is_all = len(inside) == len(files) and len(material.places) == 1
        records = () if problem else material.records if is_all else bundle.read(inside) if inside else ()
        covered = frozenset(map(record_digest, records))
        yield _Claim(f"{folder.name} (manifest {there})", signed, problem, covered)


def _of_bundles(place: Path) -> Iterator[_Claim]:
    """Yield what is signed of the bundles of a place."""
    for path in bundle.record_files(place):
        if not path.name.endswith(bundle.SUFFIX):
            continue
        found = bundle.signed_in(path)
        digests = digests_by_command(bundle.unpacked(path)) if found else {}
        yield from (_claim_of(path.name, signed, digests, "the bundle") for signed in found)


def _of_tracker(material: Material, tracker: Tracker) -> Iterator[_Claim]:
    """Yield what is signed of the commands' records in MLflow; of the set's records it covers those that are alike."""
    here = frozenset(map(record_digest, material.records))
    for command in dict.fromkeys(record.request.command for record in material.records):
        for run in tracker.parents(command):
            name = f"MLflow's run {run.id}"
            try:
                signed = tracker.signed(run)
                if signed is None:
                    continue
                digests = digests_by_command(tracker.records(run, BUNDLE_NAME))
            except Unreadable:
                raise
            except ValueError as error:
                yield _Claim(name, None, str(error))
                continue
            claim = _claim_of(name, signed, digests, "it")
            yield replace(claim, covered=claim.covered & here)


def _claim_of(where: str, signed: Signed, digests: Mapping[str, Set[str]], has: str) -> _Claim:
    """Return the claim of a statement about records, whose digests are given by command. has: what has the records."""
    try:
        statement = Statement.read(signed.text)
    except ValueError as error:
        return _Claim(where, None, str(error))
    covered, problem = statement.covered(digests), ""
    if not statement.is_of(digests):
        how = ", with other contents" if len(covered) == statement.count else ""
        problem = f"changed after signing: {counted(statement.count, 'record')} signed, {has} has "
        problem += f"{counted(len(covered), 'record')} of the same commands{how}"
    return _Claim(f"{where} (records {statement.records})", signed, problem, covered)


def _judged(claim: _Claim, verifier: _Verifier, total: int) -> tuple[list[Point], list[str]]:
    """Return the points of a claim, and the names of the signers who vouch for its records."""
    if claim.signed is None:
        return [Point(Outcome.FINDING, f"{claim.where}: {claim.problem}")], []
    if claim.problem:  # no signature of other content proves anything here
        return [Point(Outcome.FINDING, f"{claim.where}: {claim.problem}", Ground.COMPARED)], []
    found = verifier.all_of(claim.signed)
    known = [_signer(one) for one in found if one.state is State.KNOWN]
    if known:  # another signer whom the reader does not know takes nothing from the one whom he does
        found = [one for one in found if one.state is not State.UNKNOWN]
    points = [_point(claim, one, verifier.signers, total) for one in found]
    return points, [] if any(one.state is State.BAD for one in found) else known


def _signer(found: Verified) -> str:
    """Return who made a signature by a known key, in a few words."""
    return f"a key of the pattern '{found.name}'" if found.is_pattern else found.name


def _point(claim: _Claim, found: Verified, signers: Path | None, total: int) -> Point:
    """Return what one signature says. total: the number of records of the whole set."""
    match found.state:
        case State.KNOWN:
            covered = len(claim.covered)
            note = f"; the pattern in {signers} names no person" if found.is_pattern else ""
            says = f"{claim.where}: signed by {_signer(found)} ({found.key}), {counted(covered, 'record')}{note}"
            if not covered:  # such as a folder that the audited file does not lie in
                return Point(Outcome.CAPTURED, says)
            return Point(Outcome.VERIFIED, says, Ground.COMPARED, (covered, max(covered, total)))
        case State.UNLISTED:
            says = f"signed with the key {found.key}; --signers FILE says whose it is"
            return Point(Outcome.CAPTURED, f"{claim.where}: {says}")
        case State.UNKNOWN:
            why = f" ({signers}, line {found.says})" if found.says else f": {signers} does not name it"
            says = f"unknown signer, key {found.key}{why}"
            return Point(Outcome.FINDING, f"{claim.where}: {says}", Ground.COMPARED)
        case State.OTHER_NAMESPACE:
            says = f"wrong namespace: the signature with {found.key} was made for '{found.says}', not for symlab"
            return Point(Outcome.FINDING, f"{claim.where}: {says}", Ground.COMPARED)
        case _:
            says = f"bad signature{f' with {found.key}' if found.key else ''}: it is not one of the statement beside it"
            return Point(Outcome.FINDING, f"{claim.where}: {says}", Ground.COMPARED)


def signed_with(place: Path, key: Path) -> str:
    """Sign a folder with a manifest, or a bundle. Returns what was done, in one line.

    Other signatures of the same content stay, one a key; those of other content are replaced. Raises ValueError for
    what can't be signed: no manifest, files that differ from it, signatures that can't be read, or as many as there may
    be; and for a key that can't be used.
    """
    is_bundle = place.name.endswith(bundle.SUFFIX) and not place.is_dir()
    manifest = "" if is_bundle else _whole(place)
    records = bundle.unpacked(place) if is_bundle else bundle.read([place])
    statement = statement_of(records, manifest)
    text = statement.text()
    earlier = _earlier(place, is_bundle)
    made = sign(text, key)
    name = key_of(made)
    same = [one for one in earlier if one.text == text]
    others = [each for one in same for each in one.signatures if key_of(each) != name]
    if len(others) >= MAX_SIGNATURES:
        most = f"and {MAX_SIGNATURES} signatures are the maximum"
        raise ValueError(f"{place}: not signed, for {len(others)} other keys signed it, {most}")
    signed = Signed(text, (*others, made))
    if is_bundle:
        # A signer of all of a bundle and signers of its parts do not contradict each other.
        bundle.write(records, place, signed=[*(one for one in earlier if one.text != text), signed])
        replaced = False
    else:
        _write(place, signed, is_new=not same)
        replaced = bool(earlier) and not same
    what = f"manifest {manifest}" if manifest else f"records {statement.records}"
    beside = f"; {counted(len(others), 'other signature')} beside it" if others else ""
    beside += "; the earlier signatures were of other content, and are replaced" if replaced else ""
    return f"{place}: signed with {name}: {what}, {counted(statement.count, 'record')}{beside}"


def _write(folder: Path, signed: Signed, is_new: bool) -> None:
    """Write a statement and its signatures. is_new: the statement was not there. Whenever this ends, the folder has a
    statement with its signatures or none: signatures never lie beside a statement that they are not of."""
    try:
        if is_new:
            (folder / SIGNATURES).unlink(missing_ok=True)
    except OSError as error:
        raise ValueError(f"{folder / SIGNATURES}: can't be replaced ({error.strerror or error})") from None
    write_file(folder / SIGNED, signed.text.encode("ascii"))
    write_file(folder / SIGNATURES, "".join(signed.signatures).encode("ascii"))


def _whole(folder: Path) -> str:
    """Return the digest of a folder's manifest. Raises ValueError if files differ from it."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: neither a folder nor a bundle ({bundle.SUFFIX}), nothing else can be signed")
    if not (folder / MANIFEST).exists() and (below := _with_manifest(folder)):
        raise ValueError(f"{folder}: no command's folder, it has no manifest; sign one of those below: {listed(below)}")
    digest = digest_of(folder)
    if changed := [says for _, says in faults(folder)]:
        raise ValueError(f"{folder}: not signed, for it is not as its manifest has it: {listed(changed)}")
    return digest


def _with_manifest(folder: Path) -> list[str]:
    """Return the folders with a manifest in a folder, and one level further down."""
    return sorted(str(path.parent) for pattern in ("*", "*/*") for path in folder.glob(f"{pattern}/{MANIFEST}"))


def _earlier(place: Path, is_bundle: bool) -> list[Signed]:
    """Return what was signed before. Raises ValueError for signatures that can't be read: they are not replaced."""
    if is_bundle:
        return bundle.signed_in(place)
    signatures = place / SIGNATURES
    if not signatures.is_symlink() and not signatures.exists():  # a statement alone: nothing would be lost
        return []
    try:
        signed = signed_of(place)
    except ValueError as error:
        what = f"not signed, for the signatures here can't be read ({error})"
        raise ValueError(f"{place}: {what}; remove {SIGNED} and {SIGNATURES} to sign anew") from None
    return [] if signed is None else [signed]


def carried(places: Sequence[Path], records: Sequence[Record]) -> tuple[list[Signed], list[str]]:
    """Return the statements in places that a bundle of these records can carry, and a sentence for each other one."""
    kept, left_out = [], []
    digests = digests_by_command(records) if any(map(_has_signatures, places)) else {}
    for place in places:
        found = [(folder.name, _signed_or_problem(folder)) for folder in signed_folders(place)]
        for path in bundle.record_files(place):
            if path.name.endswith(bundle.SUFFIX):
                found += [(path.name, one) for one in bundle.signed_in(path)]
        for where, signed in found:
            problem = signed if isinstance(signed, str) else _not_of(signed, digests)
            if problem or isinstance(signed, str):
                left_out.append(f"the signature of {where} is left out: {problem}")
            else:
                kept.append(signed)
    return kept, left_out


def _signed_or_problem(folder: Path) -> Signed | str:
    try:
        return signed_of(folder) or f"there is a statement, and no {SIGNATURES}"
    except ValueError as error:
        return str(error)


def _has_signatures(place: Path) -> bool:
    """Return whether there may be signatures in a place: it has some, or it has bundles."""
    return bool(signed_folders(place)) or any(path.name.endswith(bundle.SUFFIX) for path in bundle.record_files(place))


def _not_of(signed: Signed, digests: Mapping[str, Set[str]]) -> str:
    """Return why a statement is not one of these records; "" if it is."""
    try:
        statement = Statement.read(signed.text)
    except ValueError as error:
        return str(error)
    return (
        ""
        if statement.is_of(digests)
        else f"the {counted(statement.count, 'record')} that it is of are not all here, unchanged"
    )
