"""Who vouches: signatures made by the real ssh-keygen, and every way to get past them that we could think of."""

from __future__ import annotations

import dataclasses
import lzma
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from cases.record.record import Record
from reports.record import bundle
from reports.record.seal import MANIFEST, broken, digest_of, seal
from reports.record.signed import BEGIN, Signed, Statement, records_digest, statement_of
from reports.record.writing import SIGNATURES, SIGNED
from symlab.command import main
from symlab.evidence.audit import signatures, ssh, worker
from symlab.evidence.audit.checklist import Audit, check
from symlab.evidence.audit.items import Ground, Outcome
from tests.patience import PATIENCE_S
from tests.symlab.evidence.audit.complete_set import answer, kept, outcomes, records, with_timing

ALICE, BOB, EVE = "alice@example.org", "bob", "eve"

needs_ssh_keygen = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is missing")
pytestmark = needs_ssh_keygen


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a key of each person, one with a passphrase, and the list of the signers who are trusted."""
    folder = tmp_path_factory.mktemp("keys")
    for name, passphrase in ((ALICE, ""), (BOB, ""), (EVE, ""), ("locked", "secret")):
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", name, "-f", str(folder / name)]
        subprocess.run(made, check=True, capture_output=True)
    lines = [f"{name} {(folder / f'{name}.pub').read_text()}" for name in (ALICE, BOB)]
    (folder / "signers").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kept(tmp_path_factory.mktemp("sealed"), records(2))


@pytest.fixture
def place(sealed: Path, tmp_path: Path) -> Path:
    """A place with the folders of two commands, of two records each."""
    return Path(shutil.copytree(sealed, tmp_path / "records"))


def signed(place: Path, keys: Path, *names: str) -> None:
    for name in names or (ALICE,):
        assert main(["sign", str(place), "--key", str(keys / name)]) == 0


@pytest.fixture(scope="module")
def both_signed(sealed: Path, keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, both signed by Alice; not to be changed."""
    place = Path(shutil.copytree(sealed, tmp_path_factory.mktemp("signed") / "records"))
    for name in ("command0", "command1"):
        signed(place / name, keys)
    return place


def audited(place: Path, signers: Path | None, **more: Any) -> Audit:
    with patch.object(worker, "ask", lambda *_: answer()):
        return check(bundle.read([place]), [place], signers=signers, **more)


def told(audit: Audit) -> list[tuple[Outcome, str]]:
    return [(point.outcome, point.evidence) for point in audit.items[-1].points]


def findings(audit: Audit) -> str:
    return "\n".join(text for outcome, text in told(audit) if outcome is Outcome.FINDING)


def test_a_signed_folder_names_its_signer_on_the_last_line(
    place: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = place / "command0"
    signed(folder, keys)
    out = capsys.readouterr().out
    assert digest_of(folder) in out
    assert "2 records" in out
    assert broken(folder) == []
    audit = audited(folder, keys / "signers")
    (point,) = audit.items[-1].points
    assert audit.items[-1].name == "signatures"
    assert (point.outcome, point.ground, point.share) == (Outcome.VERIFIED, Ground.COMPARED, (2, 2))
    assert f"signed by {ALICE} (ED25519 SHA256:" in point.evidence
    assert digest_of(folder) in point.evidence
    assert f"; signed by {ALICE}" in audit.verdict
    assert audit.document()["signed"] == f"signed by {ALICE}"


def test_the_signature_is_one_that_ssh_keygen_verifies_without_symlab(place: Path, keys: Path) -> None:
    folder = place / "command0"
    signed(folder, keys)
    statement = (folder / SIGNED).read_text()
    assert f"manifest: {digest_of(folder)}\n" in statement
    line = ["-f", str(keys / "signers"), "-I", ALICE, "-n", "symlab", "-s", str(folder / SIGNATURES)]
    for text, code in ((statement, 0), (statement + "\n", 255)):
        done = subprocess.run(["ssh-keygen", "-Y", "verify", *line], input=text, text=True, capture_output=True)
        assert done.returncode == code


def test_without_signature_and_without_list(place: Path, keys: Path) -> None:
    folder = place / "command0"
    audit = audited(folder, keys / "signers")
    assert told(audit) == [(Outcome.NOT_CAPTURED, "no signature; symlab sign FOLDER --key KEY makes one")]
    assert "; unsigned" in audit.verdict
    assert "signatures" in audit.items[-2].points[-1].evidence
    signed(folder, keys)
    audit = audited(folder, None)
    ((outcome, evidence),) = told(audit)
    assert outcome is Outcome.CAPTURED
    assert evidence.endswith("--signers FILE says whose it is")
    assert "; signature not verified" in audit.verdict


def test_records_of_mlflow_have_no_signature(keys: Path) -> None:
    with patch.object(worker, "ask", lambda *_: answer()):
        audit = check(records(1), source="MLflow's run", signers=keys / "signers")
    assert told(audit)[0][0] is Outcome.NOT_CAPTURED
    assert "; unsigned" in audit.verdict


def resealed(folder: Path) -> None:
    """Change a record, and seal the folder again, as who forges would."""
    path = sorted(folder.glob("all_reduce*.json"))[0]
    path.write_text(path.read_text(encoding="utf-8").replace("20.127", "19.127"), encoding="utf-8")
    seal(folder)


def stated_again(folder: Path) -> None:
    """The same, with a statement that fits, beside the old signature."""
    resealed(folder)
    text = statement_of(bundle.read([folder]), digest_of(folder)).text()
    (folder / SIGNED).write_text(text, encoding="ascii")


def one_bit(folder: Path) -> None:
    text = (folder / SIGNATURES).read_text()
    at = text.index("\n", 200) - 4
    other = "A" if text[at] != "A" else "B"
    (folder / SIGNATURES).write_text(text[:at] + other + text[at + 1 :])


def of_another_folder(folder: Path) -> None:
    """The statement and the signature of the other command, which Alice signed, too."""
    for name in (SIGNED, SIGNATURES):
        shutil.copy(folder.with_name("command1") / name, folder / name)


def without_statement(folder: Path) -> None:
    (folder / SIGNED).unlink()


def without_signatures(folder: Path) -> None:
    (folder / SIGNATURES).unlink()


def without_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def added_file(folder: Path) -> None:
    (folder / "more.txt").write_text("not listed")


def linked(folder: Path) -> None:
    path = folder / SIGNATURES
    path.rename(folder.parent / "elsewhere")
    path.symlink_to(folder.parent / "elsewhere")


def a_pipe(folder: Path) -> None:
    (folder / SIGNED).unlink()
    os.mkfifo(folder / SIGNED)


def large(folder: Path) -> None:
    (folder / SIGNATURES).write_text((folder / SIGNATURES).read_text() * 10_000)


def test_a_statement_without_signatures_is_unsigned(both_signed: Path, keys: Path, tmp_path: Path) -> None:
    """As a signing leaves it that was interrupted: nothing vouches for anything."""
    folder = Path(shutil.copytree(both_signed, tmp_path / "records")) / "command0"
    without_signatures(folder)
    audit = audited(folder, keys / "signers")
    assert (findings(audit), audit.level.signed) == ("", "unsigned")


def test_a_text_in_place_of_a_statement_is_a_finding(place: Path, keys: Path) -> None:
    """No signature is missing beside it: whoever reads the folder takes it for what symlab wrote."""
    (place / "command0" / "signed.txt").write_text("NVIDIA vouches: one_shot takes 0.01 us\n", encoding="ascii")
    audit = audited(place / "command0", keys / "signers")
    assert "signed.txt: not a statement of symlab sign" in findings(audit)
    assert audit.exit_code == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from symlab.evidence.audit.signatures import signed_with

steps = int(sys.argv[3])

def killed(function):
    def call(*arguments, **more):
        global steps
        if not steps:
            os.kill(os.getpid(), signal.SIGKILL)
        steps -= 1
        return function(*arguments, **more)
    return call

os.replace = killed(os.replace)
Path.unlink = killed(Path.unlink)
signed_with(Path(sys.argv[1]), Path(sys.argv[2]))
print("ended")
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_of_other_content", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_signing_that_is_killed_leaves_nothing_half_written(
    is_of_other_content: bool, place: Path, keys: Path, tmp_path: Path
) -> None:
    """Before each of its steps: there is a right signature, or none, and it can be signed again."""
    folder = place / "command0"
    if is_of_other_content:
        signed(folder, keys)
        (folder / "more.txt").write_text("more", encoding="utf-8")
        seal(folder)
    seen = set()
    for steps in range(9):
        here = Path(shutil.copytree(folder, tmp_path / f"killed{steps}"))
        line = [sys.executable, "-c", KILLED, str(here), str(keys / BOB), str(steps)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        audit = audited(here, keys / "signers")
        before = is_of_other_content and (here / SIGNATURES).exists() and BOB not in audit.level.signed
        assert findings(audit) == "" or before
        seen.add("as before" if before else audit.level.signed)
        signed(here, keys, BOB)
        assert audited(here, keys / "signers").level.signed == f"signed by {BOB}"
        if "ended" in done.stdout:
            break
        assert done.returncode == -9
    assert seen == {"unsigned", f"signed by {BOB}", *(["as before"] if is_of_other_content else [])}


def many(folder: Path) -> None:
    (folder / SIGNATURES).write_text((folder / SIGNATURES).read_text() * 17)


def no_base64(folder: Path) -> None:
    (folder / SIGNATURES).write_text(f"{BEGIN}\nAAAA\n-----END SSH SIGNATURE-----\n")


def more_text(folder: Path) -> None:
    (folder / SIGNATURES).write_text((folder / SIGNATURES).read_text() + "and more\n")


def other_text(folder: Path) -> None:
    (folder / SIGNED).write_text("I vouch for everything\n")


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (resealed, "changed after signing: the manifest's digest is sha256:"),
        (stated_again, "bad signature"),
        (one_bit, "bad signature"),
        (of_another_folder, "changed after signing: the manifest's digest is sha256:"),
        (without_statement, f"{SIGNED}: missing"),
        (without_manifest, "there is no manifest here"),
        (added_file, "changed after signing: more.txt: not in manifest.sha256"),
        (linked, "not an ordinary file"),
        (a_pipe, "not an ordinary file"),
        (large, "more than 1048576 bytes"),
        (many, "17 signatures; 16 are the maximum"),
        (no_base64, "bad signature"),
        (more_text, "not SSH signatures"),
        (other_text, "not a statement of symlab sign"),
    ],
)
def test_a_forged_signature_is_a_finding(
    change: Any, finding: str, both_signed: Path, keys: Path, tmp_path: Path
) -> None:
    """With a list of signers and without: what is wrong with a signature shows in both."""
    folder = Path(shutil.copytree(both_signed, tmp_path / "records")) / "command0"
    change(folder)
    for signers in (keys / "signers", None):
        audit = audited(folder, signers)
        assert finding in findings(audit)
        assert audit.exit_code == 1
        assert "; signature not valid" in audit.verdict
        assert ALICE not in audit.verdict


def test_a_signer_who_is_not_in_the_list(place: Path, keys: Path) -> None:
    folder = place / "command0"
    signed(folder, keys, EVE)
    audit = audited(folder, keys / "signers")
    assert f"{keys / 'signers'} does not name it" in findings(audit)
    assert "unknown signer, key ED25519 SHA256:" in findings(audit)
    assert "; signature not valid" in audit.verdict


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ('namespaces="git"', 'line 1: key is not permitted for use in signature namespace "symlab"'),
        ('valid-before="20200101"', "line 1: key has expired"),
    ],
)
def test_a_key_that_may_not_vouch_here_or_no_more(
    options: str, says: str, place: Path, keys: Path, tmp_path: Path
) -> None:
    folder = place / "command0"
    signed(folder, keys)
    (tmp_path / "list").write_text(f"{ALICE} {options} {(keys / f'{ALICE}.pub').read_text()}")
    assert says in findings(audited(folder, tmp_path / "list"))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_key_with_a_line_for_each_namespace(order: tuple[int, int], place: Path, keys: Path, tmp_path: Path) -> None:
    """ssh-keygen finds the names of the first line only; the second one counts, and is named with its number."""
    folder = place / "command0"
    signed(folder, keys)
    key = (keys / f"{ALICE}.pub").read_text()
    lines = [f'{one}-key namespaces="{one}" {key}' for one in ("git", "symlab")]
    path = tmp_path / "list"
    path.write_text("# signers\n" + "".join(lines[index] for index in order))
    audit = audited(folder, path)
    assert "; signed by symlab-key" in audit.verdict
    assert outcomes(audit, "signatures") == {Outcome.VERIFIED}
    path.write_text(f"{lines[0]}\n" + lines[1].replace('"symlab"', '"symlab",valid-before="20200101"'))
    says = findings(audited(folder, path))
    assert 'line 1: key is not permitted for use in signature namespace "symlab"; line 3: key has expired' in says


def test_a_certificate_whose_authority_has_two_lines(tmp_path: Path) -> None:
    for name in ("authority", "carol"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    certified = ["ssh-keygen", "-q", "-s", "authority", "-I", "id", "-n", "carol", "carol.pub"]
    subprocess.run(certified, check=True, cwd=tmp_path)
    signature, key = ssh.sign("text\n", tmp_path / "carol-cert.pub"), (tmp_path / "authority.pub").read_text()
    lines = [f'carol cert-authority,namespaces="{space}" {key}' for space in ("git", "symlab")]
    for some, state in ((lines, ssh.State.KNOWN), (lines[:1], ssh.State.UNKNOWN)):
        (tmp_path / "list").write_text("".join(some))
        assert ssh.verified(signature, "text\n", tmp_path / "list").state is state


@pytest.mark.parametrize("pattern", ["*@example.org", '"*,!mallory@x"', "alic?@example.org"])
def test_a_pattern_names_no_person(pattern: str, place: Path, keys: Path, tmp_path: Path) -> None:
    folder = place / "command0"
    signed(folder, keys)
    key = (keys / f"{ALICE}.pub").read_text()
    path = tmp_path / "list"
    path.write_text(f"{pattern} {key}")
    audit = audited(folder, path)
    name = pattern.strip('"').split(",")[0]
    assert f"; signed by a key of the pattern '{name}'" in audit.verdict
    ((outcome, evidence),) = told(audit)
    assert outcome is Outcome.VERIFIED
    assert evidence.endswith(f"; the pattern in {path} names no person")
    path.write_text(f"{pattern} {key}{ALICE} {key}")
    assert f"; signed by {ALICE}" in audited(folder, path).verdict


def test_a_signature_made_for_something_else(place: Path, keys: Path) -> None:
    """Such as a commit that git signed: the same key, and another namespace."""
    folder = place / "command0"
    signed(folder, keys)
    line = ["ssh-keygen", "-Y", "sign", "-f", str(keys / ALICE), "-n", "git", str(folder / SIGNED)]
    (folder / SIGNATURES).unlink()
    subprocess.run(line, check=True, capture_output=True)
    assert "wrong namespace" in findings(audited(folder, keys / "signers"))
    assert "was made for 'git', not for symlab" in findings(audited(folder, None))


def test_several_signers(place: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each key once; a signer whom the reader does not know takes nothing from one whom he does."""
    folder = place / "command0"
    signed(folder, keys, EVE, ALICE, BOB, ALICE)
    assert "2 other signatures beside it" in capsys.readouterr().out.splitlines()[-1]
    audit = audited(folder, keys / "signers")
    assert f"; signed by {BOB}; {ALICE}" in audit.verdict
    assert outcomes(audit, "signatures") == {Outcome.VERIFIED}
    assert (folder / SIGNATURES).read_text().count(BEGIN) == 3


def test_the_17th_signature_is_refused_and_the_others_stay(
    place: Path, keys: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the third, with two as the maximum."""
    monkeypatch.setattr(signatures, "MAX_SIGNATURES", 2)
    path = bundled(place / "command1", place.with_name("one.jsonl.xz"))
    for what in (place / "command0", path):
        signed(what, keys, ALICE, BOB, ALICE)
        before = digests(what)
        capsys.readouterr()
        assert main(["sign", str(what), "--key", str(keys / EVE)]) == 2
        assert "not signed, for 2 other keys signed it, and 2 signatures are the maximum" in capsys.readouterr().err
        assert digests(what) == before
        signed(what, keys, BOB)


def digests(place: Path) -> dict[str, bytes]:
    found = [place, *place.rglob("*")]
    return {str(path): path.read_bytes() for path in found if path.is_file()}


def test_signatures_that_can_not_be_read_are_not_replaced(
    place: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = place / "command0"
    for change in (many, more_text, without_statement, linked):
        signed(folder, keys)
        change(folder)
        before = digests(folder)
        capsys.readouterr()
        assert main(["sign", str(folder), "--key", str(keys / BOB)]) == 2
        said = capsys.readouterr().err
        assert "not signed, for the signatures here can't be read (" in said
        assert f"remove {SIGNED} and {SIGNATURES} to sign anew" in said
        assert digests(folder) == before
        for name in (SIGNED, SIGNATURES):
            (folder / name).unlink(missing_ok=True)
    signed(folder, keys)
    without_signatures(folder)  # as an interrupted command leaves it: no signature is lost
    signed(folder, keys, BOB)
    assert f"; signed by {BOB}" in audited(folder, keys / "signers").verdict


def with_statements(place: Path, keys: Path, number: int, *, is_other: bool) -> Path:
    """A bundle with statements that name a manifest each, of its records or of others, each signed twice with one
    signature."""
    path = bundled(place / "command0", place.with_name("one.jsonl.xz"))
    found = bundle.unpacked(path)
    digests = [f"sha256:{index:064x}" for index in range(number)]
    texts = [dataclasses.replace(statement_of(found), manifest=digest) for digest in digests]
    if is_other:
        texts = [dataclasses.replace(one, records=digest) for one, digest in zip(texts, digests, strict=True)]
    signature = ssh.sign(texts[0].text(), keys / ALICE)
    bundle.write(found, path, signed=[Signed(one.text(), (signature,) * 2) for one in texts])
    return path


def test_signatures_of_other_content_are_not_verified(place: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = with_statements(place, keys, 40, is_other=True)
    monkeypatch.setattr(signatures, "verified", lambda *_: pytest.fail("verified"))
    audit = audited(path, keys / "signers")
    assert findings(audit).count("changed after signing") == 40
    assert {point.ground for point in audit.items[-1].points} == {Ground.COMPARED}


@pytest.mark.slow
def test_an_audit_verifies_each_signature_once_and_no_more_than_its_maximum(
    place: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = with_statements(place, keys, 12, is_other=False)
    asked = []

    def counting(signature: str, text: str, signers: Path | None) -> ssh.Verified:
        asked.append((signature, text))
        return ssh.verified(signature, text, signers)

    monkeypatch.setattr(signatures, "verified", counting)
    monkeypatch.setattr(signatures, "MAX_VERIFIED", 5)
    audit = audited(path, keys / "signers")
    assert len(asked) == len(set(asked)) == 5
    assert (Outcome.NOT_COMPARABLE, "7 signatures not verified: 5 are an audit's maximum") in told(audit)
    monkeypatch.setattr(signatures, "MAX_VERIFIED", 12)
    assert Outcome.NOT_COMPARABLE not in outcomes(audited(path, keys / "signers"), "signatures")


def test_a_signer_beside_signatures_that_were_not_verified_signed_in_part(
    place: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed(place / "command0", keys, ALICE, BOB)
    monkeypatch.setattr(signatures, "MAX_VERIFIED", 1)
    audit = audited(place / "command0", keys / "signers")
    assert f"; signed in part by {ALICE}" in audit.verdict
    assert (Outcome.NOT_COMPARABLE, "1 signature not verified: 1 are an audit's maximum") in told(audit)


def test_a_list_that_is_a_pipe_is_refused_at_once(place: Path, keys: Path, tmp_path: Path) -> None:
    """Without a writer, an open of it would wait for ever."""
    os.mkfifo(tmp_path / "list")
    line = ["audit", str(place), "--signers", str(tmp_path / "list")]
    program = f"from symlab.command import main; import sys; sys.exit(main({line!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert said.endswith("list: can't be read (it is a pipe); give a file with lines 'name ssh-ed25519 AAAA..'")


def test_a_folder_that_was_sealed_again_is_signed_anew(
    place: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = place / "command0"
    signed(folder, keys, BOB)
    resealed(folder)
    signed(folder, keys)
    assert "the earlier signatures were of other content, and are replaced" in capsys.readouterr().out
    assert f"; signed by {ALICE}" in audited(folder, keys / "signers").verdict


@pytest.mark.slow
def test_part_of_a_place_is_signed(place: Path, keys: Path) -> None:
    signed(place / "command0", keys)
    audit = audited(place, keys / "signers")
    assert f"; signed in part by {ALICE}" in audit.verdict
    assert (Outcome.NOT_CAPTURED, "2 of 4 records: no signature") in told(audit)
    signed(place / "command1", keys, BOB)
    audit = audited(place, keys / "signers")
    assert f"; signed by {ALICE}; {BOB}" in audit.verdict
    assert [point.share for point in audit.items[-1].points] == [(2, 4), (2, 4)]


def test_a_file_of_a_signed_folder(place: Path, keys: Path) -> None:
    signed(place / "command0", keys)
    path = sorted((place / "command0").glob("all_reduce*.json"))[0]
    assert f"; signed by {ALICE}" in audited(path, keys / "signers").verdict


def bundled(place: Path, output: Path) -> Path:
    assert main(["bundle", str(place), "-o", str(output)]) == 0
    return output


def test_a_bundle_carries_the_signatures(place: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    signed(place / "command0", keys)
    signed(place / "command1", keys, BOB)
    path = bundled(place, place.with_name("all.jsonl.xz"))
    assert "4 records, 2 signatures" in capsys.readouterr().out
    assert records_digest(bundle.unpacked(path)) == records_digest(bundle.read([place]))
    audit = audited(path, keys / "signers")
    assert f"{ALICE}" in audit.verdict
    assert f"{BOB}" in audit.verdict
    assert outcomes(audit, "signatures") == {Outcome.VERIFIED}
    again = bundled(path, place.with_name("again.jsonl.xz"))
    assert again.read_bytes() == path.read_bytes()


def faster(record: Record) -> Record:
    return with_timing(record, samples_us=((1.0,) * 3,) * 4)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda found: [faster(found[0]), *found[1:]],
            "2 records signed, the bundle has 2 records of the same commands, with other contents",
        ),
        (lambda found: found[1:], "2 records signed, the bundle has 1 record of the same commands"),
        (lambda found: [*found, faster(found[0])], "2 records signed, the bundle has 3 records of the same commands"),
    ],
    ids=["one changed", "one left out", "one added"],
)
def test_records_of_a_bundle_that_are_not_those_signed(change: Any, says: str, place: Path, keys: Path) -> None:
    signed(place / "command0", keys)
    found = bundle.read([place / "command0"])
    path = bundled(place / "command0", place.with_name("one.jsonl.xz"))
    bundle.write(change(found), path, signed=bundle.signed_in(path))
    assert says in findings(audited(path, keys / "signers"))


def test_unsigned_records_in_a_bundle_are_counted(place: Path, keys: Path) -> None:
    signed(place / "command0", keys)
    path = bundled(place, place.with_name("both.jsonl.xz"))
    assert f"; signed in part by {ALICE}" in audited(path, keys / "signers").verdict


def test_a_signature_of_more_than_the_bundle_has_is_left_out_and_said(
    place: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signed(place / "command0", keys)
    part = sorted((place / "command0").glob("all_reduce*.json"))[0]
    path = bundled(part, place.with_name("part.jsonl.xz"))
    assert bundle.signed_in(path) == []
    says = "the signature of command0 is left out: the 2 records that it is of are not all here, unchanged"
    assert says in capsys.readouterr().err


def test_a_bundle_is_signed_as_a_whole(place: Path, keys: Path) -> None:
    path = bundled(place, place.with_name("all.jsonl.xz"))
    signed(path, keys)
    assert f"; signed by {ALICE}" in audited(path, keys / "signers").verdict
    (one,) = bundle.signed_in(path)
    assert Statement.read(one.text).manifest == ""
    shutil.copy(path, place / "command0")  # no manifest lists it: the folder is as open as any
    path.write_bytes(bundle.packed(bundle.unpacked(path)[1:], signed=[one]))
    assert "changed after signing: 4 records signed, the bundle has 3 records of the same" in findings(
        audited(path, keys / "signers")
    )


def test_the_folder_of_everything_published(place: Path, keys: Path) -> None:
    """A manifest above the machines: a signature there is one of each machine, too."""
    for name in ("command0", "command1"):
        bundled(place / name, place / name / "records.jsonl.xz")
        for path in place.glob(f"{name}/*"):
            if path.name != "records.jsonl.xz":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    seal(place)
    signed(place, keys)
    assert f"; signed by {ALICE}" in audited(place / "command0", keys / "signers").verdict
    (place / "command1" / "more").write_text("not listed")
    assert f"; signed by {ALICE}" in audited(place / "command0", keys / "signers").verdict
    assert "changed after signing: command1/more" in findings(audited(place, keys / "signers"))


def test_a_good_signature_inside_a_folder_that_was_sealed_around_it(place: Path, keys: Path) -> None:
    """An outer manifest hides no inner signature that is wrong."""
    signed(place / "command0", keys)
    resealed(place / "command0")
    seal(place)
    audit = audited(place, keys / "signers")
    assert "changed after signing" in findings(audit)
    assert {point.ground for point in audit.items[-1].points if point.outcome is Outcome.FINDING} == {Ground.COMPARED}


def test_what_can_not_be_signed(place: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(what: Path, key: Path) -> str:
        assert main(["sign", str(what), "--key", str(key)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    folder = place / "command0"
    above = refused(place, keys / ALICE)
    assert above.endswith(f"it has no manifest; sign one of those below: {folder}; {place / 'command1'}")
    (place / "empty").mkdir()
    assert "there is no manifest here" in refused(place / "empty", keys / ALICE)
    assert "neither a folder nor a bundle" in refused(folder / "command.json", keys / ALICE)
    assert "no such key (--key); give the file of an SSH key" in refused(folder, keys / "nothing")
    assert "is not a key of ssh; make one with ssh-keygen" in refused(folder, folder / "command.json")
    added_file(folder)
    assert "not signed, for it is not as its manifest has it: more.txt: not in" in refused(folder, keys / ALICE)
    assert not (folder / SIGNED).exists()
    assert main(["sign", str(folder)]) == 2, "without a key"


def test_a_public_key_alone_and_a_key_that_others_can_read(
    place: Path, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    alone = tmp_path / "alone.pub"
    shutil.copy(keys / f"{ALICE}.pub", alone)
    with pytest.raises(ValueError, match="is a public key, and no agent has its private half; give the private key"):
        ssh.sign("text\n", alone)
    open_key = tmp_path / "open"
    shutil.copy(keys / ALICE, open_key)
    open_key.chmod(0o644)
    with pytest.raises(ValueError, match="is a private key that others can read; make it yours alone"):
        ssh.sign("text\n", open_key)


def test_a_passphrase_that_can_not_be_asked_for(place: Path, keys: Path) -> None:
    """Without a terminal: in a session of its own, as CI has it."""
    line = ["symlab", "sign", str(place / "command0"), "--key", str(keys / "locked")]
    program = f"from symlab.command import main; import sys; sys.exit(main({line[1:]!r}))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith(("SSH_", "DISPLAY"))},
    )
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert "has a passphrase, which was wrong or could not be typed here; add the key to an agent" in said


@pytest.fixture
def agent(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An agent that holds Alice's key."""
    if shutil.which("ssh-agent") is None or shutil.which("ssh-add") is None:
        pytest.skip("ssh-agent or ssh-add is missing")
    socket = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        subprocess.run(["ssh-add", str(keys / ALICE)], check=True, capture_output=True)
        yield
        running.terminate()


@pytest.mark.usefixtures("agent")
def test_a_key_that_an_agent_holds(place: Path, keys: Path, tmp_path: Path) -> None:
    public = tmp_path / "held.pub"
    shutil.copy(keys / f"{ALICE}.pub", public)
    assert main(["sign", str(place / "command0"), "--key", str(public)]) == 0
    assert f"; signed by {ALICE}" in audited(place / "command0", keys / "signers").verdict


def test_without_ssh_keygen(place: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signed(place / "command0", keys)
    monkeypatch.setattr(ssh.shutil, "which", lambda name: None)
    with pytest.raises(ValueError, match="ssh-keygen is missing"):
        ssh.sign("text\n", keys / ALICE)
    with pytest.raises(ValueError, match="ssh-keygen is missing"):
        audited(place / "command0", None)
    assert "; unsigned" in audited(place / "command1", None).verdict


def test_a_list_that_can_not_be_read_and_two_sets(place: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(place), "--signers", str(keys / "none")]) == 2
    assert f"--signers {keys / 'none'}: can't be read (No such file" in capsys.readouterr().err
    assert main(["audit", str(place), "--signers", str(place)]) == 2
    assert "can't be read (it is a folder); give a file with lines 'name ssh-ed25519" in capsys.readouterr().err
    assert main(["audit", str(place), str(place), "--signers", str(keys / "signers")]) == 2
    assert "audit each of them alone" in capsys.readouterr().err


def test_a_statement_is_read_as_it_was_written_and_in_no_other_form() -> None:
    made = Statement("sha256:" + "0" * 64, "sha256:" + "1" * 64, 3, ("a", 'b "\n c'))
    assert Statement.read(made.text()) == made
    assert Statement.read(dataclasses.replace(made, manifest="").text()).manifest == ""
    twice = dataclasses.replace(made, commands=("a", "a")).text()
    unsorted = dataclasses.replace(made, commands=("b", "a")).text()
    for other in (
        twice,
        unsorted,
        made.text() + "\n",
        made.text().upper(),
        made.text().replace('"a"', '"\\u0061"'),
        "",
        "command: 3\n",
    ):
        with pytest.raises(ValueError, match="not a statement of symlab sign"):
            Statement.read(other)


def test_the_digest_of_records_is_of_their_content_alone() -> None:
    found = records(2)
    assert records_digest(found) == records_digest([*reversed(found), found[0]])
    for changed in (found[1:], [faster(found[0]), *found[1:]]):
        assert records_digest(changed) != records_digest(found)


def added(path: Path, *signed: Signed) -> None:
    """Write a bundle with statements that symlab would not write."""
    lines = bundle.lines_of(records(1)) + "".join(f"{one.line()}\n" for one in signed).encode("ascii")
    path.write_bytes(lzma.compress(lines))


@pytest.mark.parametrize(
    "line", ['{"signed":3}', '{"signed":{"statement":"x"}}', '{"signed":{"statement":"x","signatures":["y"]}}', "{"]
)
def test_a_damaged_line_of_a_bundle(line: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.xz"

    class Damaged(Signed):
        def line(self) -> str:
            return line if line.startswith('{"signed":') else '{"signed":'

    bundle.write(records(1), path, signed=[Damaged("", ())])
    assert len(bundle.unpacked(path)) == 2
    with pytest.raises(ValueError, match="line [0-9]+: not a statement with its signatures"):
        bundle.signed_in(path)


def test_a_bundle_of_many_statements_is_refused_before_any_is_verified(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.xz"
    signature = f"{BEGIN}\nAAAA\n-----END SSH SIGNATURE-----\n"
    found = [Signed(str(number), (signature,)) for number in range(1001)]
    with pytest.raises(ValueError, match="1,001 statements were signed; 1,000 are a bundle's maximum"):
        bundle.write(records(1), path, signed=found)
    assert not path.exists()
    added(path, *found)
    with pytest.raises(ValueError, match="more than 1,000 statements were signed"):
        bundle.signed_in(path)


def test_a_line_of_17_signatures_is_refused_and_not_written(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.xz"
    signature = f"{BEGIN}\nAAAA\n-----END SSH SIGNATURE-----\n"
    signed = Signed("text", (signature,) * 17)
    with pytest.raises(ValueError, match="17 signatures of one statement; 16 are the maximum"):
        bundle.write(records(1), path, signed=[signed])
    added(path, signed)
    with pytest.raises(ValueError, match="17 signatures; 16 are the maximum"):
        bundle.signed_in(path)
    added(path, Signed("text", (signature * 2,)))
    with pytest.raises(ValueError, match="not a statement with its signatures"):
        bundle.signed_in(path)
