"""Who vouches for a set of records: item 21, from the signatures in its folders and bundles; and `symlab sign`.

A signature is compared with what lies outside the set: the list of signers that the reader gives. It counts if it is
one of the statement beside it, if the statement is that of the records as they are, and if the list names its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from reports.audit.completeness import concerns
from reports.audit.items import Ground, Item, Outcome, Point, listed
from reports.audit.material import Material
from reports.audit.ssh import State, Verified, key_of, sign, verified
from reports.record import bundle
from reports.record.record import Record
from reports.record.seal import digest_of, faults
from reports.record.signatures import signed_folders, signed_of
from reports.record.signed import (
    SIGNATURES,
    SIGNED,
    Signed,
    Statement,
    digests_by_command,
    record_digest,
    statement_of,
)
from reports.table.text import counted

NUMBER = 21

UNSIGNED = "unsigned"


@dataclass(frozen=True, slots=True)
class Vouched:
    """Item 21, and who vouches in a few words: "signed by NAME", "unsigned"."""

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


def who_vouches(material: Material, signers: Path | None = None) -> Vouched:
    """Return item 21. signers: the reader's list of signers, or None. Raises ValueError if ssh-keygen is missing and
    there are signatures."""
    claims = [claim for place in material.places for claim in (*_of_folders(material, place), *_of_bundles(place))]
    points: list[Point] = []
    names: dict[str, None] = {}
    covered: set[str] = set()
    for claim in claims:
        found, known = _judged(claim, signers, len(material.records))
        points += found
        if known:
            names |= dict.fromkeys(known)
            covered |= claim.covered
    if not claims:
        where = f"{material.source}: " if material.source else ""
        points.append(Point(Outcome.NOT_CAPTURED, f"{where}no signature; symlab sign FOLDER --key KEY makes one"))
    elif names and (rest := sum(record_digest(record) not in covered for record in material.records)):
        total = counted(len(material.records), "record")
        points.append(Point(Outcome.NOT_CAPTURED, f"{rest} of {total}: no signature"))
    return Vouched(Item(NUMBER, "who vouches", tuple(dict.fromkeys(points))), _says(points, list(names)))


def _says(points: Sequence[Point], names: Sequence[str]) -> str:
    outcomes = {point.outcome for point in points}
    if Outcome.FINDING in outcomes:
        return "signature not valid"
    if not names:
        return UNSIGNED if Outcome.NOT_CAPTURED in outcomes else "signature not verified"
    part = "signed in part by" if Outcome.NOT_CAPTURED in outcomes else "signed by"
    return f"{part} {listed(names)}"


def _of_folders(material: Material, place: Path) -> Iterator[_Claim]:
    """Yield what is signed of the folders of a place, and of the one that it lies in."""
    files: list[Path] | None = None
    for folder in signed_folders(place):
        try:
            signed = signed_of(folder)
            assert signed is not None
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
        for signed in found:
            try:
                statement = Statement.read(signed.text)
            except ValueError as error:
                yield _Claim(path.name, None, str(error))
                continue
            covered, problem = statement.covered(digests), ""
            if not statement.is_of(digests):
                problem = f"changed after signing: {counted(statement.count, 'record')} signed, "
                problem += f"{len(covered)} of these commands are here, and not the same"
            yield _Claim(f"{path.name} (records {statement.records})", signed, problem, covered)


def _judged(claim: _Claim, signers: Path | None, total: int) -> tuple[list[Point], list[str]]:
    """Return the points of a claim, and the names of the signers who vouch for its records."""
    if claim.signed is None:
        return [Point(Outcome.FINDING, f"{claim.where}: {claim.problem}")], []
    found = [verified(one, claim.signed.text, signers) for one in claim.signed.signatures]
    known = [one.name for one in found if one.state is State.KNOWN]
    if known:  # another signer whom the reader does not know takes nothing from the one whom he does
        found = [one for one in found if one.state is not State.UNKNOWN]
    points = [_point(claim, one, signers, total) for one in found]
    if claim.problem:
        bad = [one for one in points if one.outcome is Outcome.FINDING]
        return [Point(Outcome.FINDING, f"{claim.where}: {claim.problem}"), *bad], []
    return points, [] if any(one.state is State.BAD for one in found) else known


def _point(claim: _Claim, found: Verified, signers: Path | None, total: int) -> Point:
    """Return what one signature says. total: the number of records of the whole set."""
    match found.state:
        case State.KNOWN:
            covered = len(claim.covered)
            says = f"{claim.where}: signed by {found.name} ({found.key}), {counted(covered, 'record')}"
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
    what can't be signed: no manifest, or files that differ from it; and for a key that can't be used.
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
    signed = Signed(text, (*others, made))
    if is_bundle:
        # A signer of all of a bundle and signers of its parts do not contradict each other.
        bundle.write(records, place, signed=[*(one for one in earlier if one.text != text), signed])
        replaced = False
    else:
        bundle.write_file(place / SIGNED, text.encode("ascii"))
        bundle.write_file(place / SIGNATURES, "".join(signed.signatures).encode("ascii"))
        replaced = bool(earlier) and not same
    what = f"manifest {manifest}" if manifest else f"records {statement.records}"
    beside = f"; {counted(len(others), 'other signature')} beside it" if others else ""
    beside += "; the earlier signatures were of other content, and are replaced" if replaced else ""
    return f"{place}: signed with {name}: {what}, {counted(statement.count, 'record')}{beside}"


def _whole(folder: Path) -> str:
    """Return the digest of a folder's manifest. Raises ValueError if files differ from it."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: neither a folder nor a bundle ({bundle.SUFFIX}), nothing else can be signed")
    digest = digest_of(folder)
    if changed := [says for _, says in faults(folder)]:
        raise ValueError(f"{folder}: not signed, for it is not as its manifest has it: {listed(changed)}")
    return digest


def _earlier(place: Path, is_bundle: bool) -> list[Signed]:
    """Return what was signed before; what can't be read counts as other content."""
    if is_bundle:
        return bundle.signed_in(place)
    try:
        signed = signed_of(place)
    except ValueError:
        return [Signed("", ())]
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
        return signed_of(folder) or "it is gone"
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
