"""Who vouches: signatures of manifests made by the real ssh-keygen, and ways to get past them."""

import os
import shutil
import subprocess
from pathlib import Path
from unittest.mock import patch

import pytest

from reports.record import bundle
from reports.record.seal import MANIFEST, SIGNATURE, broken, digest_of, seal
from symlab.command import main
from symlab.evidence.audit import signatures, worker
from symlab.evidence.audit.checklist import check
from symlab.evidence.audit.items import Ground, Outcome
from tests.symlab.evidence.audit.complete_set import answer, kept, records

ALICE, BOB, EVE = "alice@example.org", "bob", "eve"

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is missing")


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A folder with a key of each person, one with a passphrase, and the list of the signers who are trusted."""
    folder = tmp_path_factory.mktemp("keys")
    for name, passphrase in ((ALICE, ""), (BOB, ""), (EVE, ""), ("locked", "secret")):
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", name, "-f", str(folder / name)]
        subprocess.run(made, check=True, capture_output=True)
    lines = [f"{name} {(folder / f'{name}.pub').read_text()}" for name in (ALICE, BOB)]
    (folder / "signers").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def both_signed(keys, tmp_path_factory):
    """A place with the folders of two commands, of two records each, signed by Alice; a test takes a copy."""
    place = kept(tmp_path_factory.mktemp("signed") / "records", records(2))
    for name in ("command0", "command1"):
        signed(place / name, keys)
    return place


@pytest.fixture
def place(both_signed, tmp_path):
    return Path(shutil.copytree(both_signed, tmp_path / "records"))


def signed(folder, keys, name=ALICE):
    assert main(["sign", str(folder), "--key", str(keys / name)]) == 0


def audited(place, signers):
    with patch.object(worker, "ask", lambda *_: answer()):
        return check(bundle.read([place]), [place], signers=signers)


def findings(audit):
    return "\n".join(point.evidence for point in audit.items[-1].points if point.outcome is Outcome.FINDING)


def test_a_signed_folder_names_its_signer_on_the_last_line(place, keys):
    folder = place / "command0"
    assert broken(folder) == [], "no manifest lists its signature"
    audit = audited(folder, keys / "signers")
    (point,) = audit.items[-1].points
    assert audit.items[-1].name == "signatures"
    assert (point.outcome, point.ground, point.share) == (Outcome.VERIFIED, Ground.COMPARED, (2, 2))
    assert f"(manifest {digest_of(folder)}): signed by {ALICE} (ED25519 SHA256:" in point.evidence
    assert f"; signed by {ALICE}" in audit.verdict
    assert audit.document()["signed"] == f"signed by {ALICE}"
    path = sorted(folder.glob("all_reduce*.json"))[0]
    assert f"; signed by {ALICE}" in audited(path, keys / "signers").verdict, "a file of a signed folder"


def test_the_signature_is_one_that_ssh_keygen_verifies_without_symlab(place, keys):
    folder = place / "command0"
    line = ["-f", str(keys / "signers"), "-I", ALICE, "-n", "symlab", "-s", str(folder / SIGNATURE)]
    for text, code in ((manifest := (folder / MANIFEST).read_bytes(), 0), (manifest + b"\n", 255)):
        done = subprocess.run(["ssh-keygen", "-Y", "verify", *line], input=text, capture_output=True)
        assert done.returncode == code


def test_without_signature_and_without_list(place, keys):
    audit = audited(place / "command0", None)
    (point,) = audit.items[-1].points
    assert point.outcome is Outcome.CAPTURED
    assert "; signature not verified" in audit.verdict
    (place / "command0" / SIGNATURE).unlink()
    audit = audited(place / "command0", keys / "signers")
    assert [one.outcome for one in audit.items[-1].points] == [Outcome.NOT_CAPTURED]
    assert "; unsigned" in audit.verdict
    with patch.object(worker, "ask", lambda *_: answer()):
        assert "; unsigned" in check(records(1), signers=keys / "signers").verdict


def resealed(folder):
    """Change a record, and seal the folder again, as who forges would."""
    path = sorted(folder.glob("all_reduce*.json"))[0]
    path.write_text(path.read_text(encoding="utf-8").replace("20.127", "19.127"), encoding="utf-8")
    seal(folder)


def one_bit(folder):
    text = (folder / SIGNATURE).read_text()
    at = text.index("\n", 200) - 4
    (folder / SIGNATURE).write_text(text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :])


def of_another_folder(folder):
    shutil.copy(folder.with_name("command1") / SIGNATURE, folder / SIGNATURE)


def with_both(folder):
    """The manifest and the signature of the other command, which Alice signed, too."""
    of_another_folder(folder)
    shutil.copy(folder.with_name("command1") / MANIFEST, folder / MANIFEST)


def a_pipe(folder):
    (folder / SIGNATURE).unlink()
    os.mkfifo(folder / SIGNATURE)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (resealed, "bad signature"),
        (one_bit, "bad signature"),
        (of_another_folder, "bad signature"),
        (with_both, "changed after signing: "),
        (lambda folder: (folder / MANIFEST).unlink(), MANIFEST),
        (lambda folder: (folder / "more.txt").write_text("x"), "changed after signing: more.txt: not in"),
        (lambda folder: (folder / SIGNATURE).write_text("NVIDIA vouches"), "bad signature"),
        (a_pipe, "it is a pipe"),
    ],
)
def test_a_forged_signature_is_a_finding(change, finding, place, keys):
    """With a list of signers and without: what is wrong with a signature shows in both."""
    change(place / "command0")
    for signers in (keys / "signers", None):
        audit = audited(place / "command0", signers)
        assert finding in findings(audit)
        assert audit.exit_code == 1
        assert "; signature not valid" in audit.verdict
        assert ALICE not in audit.verdict


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "No principal matched"),
        (f'{ALICE} namespaces="git" ', "not permitted for use in signature namespace"),
        (f'{ALICE} valid-before="20200101" ', "key has expired"),
    ],
)
def test_a_signer_whom_the_list_does_not_take_is_a_finding(line, says, place, keys, tmp_path):
    path = tmp_path / "list"
    path.write_text(f"{BOB} {(keys / f'{BOB}.pub').read_text()}")
    if line:
        path.write_text(f"{line}{(keys / f'{ALICE}.pub').read_text()}")
    audit = audited(place / "command0", path)
    assert "unknown signer, key ED25519 SHA256:" in findings(audit)
    assert says in findings(audit)
    assert "; signature not valid" in audit.verdict


def test_a_signature_made_for_something_else_is_a_finding(place, keys):
    folder = place / "command0"
    (folder / SIGNATURE).unlink()
    line = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(keys / ALICE), "-n", "git", str(folder / MANIFEST)]
    subprocess.run(line, check=True, capture_output=True)
    assert "bad signature" in findings(audited(folder, keys / "signers"))


def test_part_of_a_place_is_signed(place, keys):
    (place / "command1" / SIGNATURE).unlink()
    audit = audited(place, keys / "signers")
    assert f"; signed in part by {ALICE}" in audit.verdict
    assert "2 of 4 records: no signature" in audit.items[-1].points[-1].evidence
    signed(place / "command1", keys, BOB)
    audit = audited(place, keys / "signers")
    assert f"; signed by {ALICE}; {BOB}" in audit.verdict
    assert [point.share for point in audit.items[-1].points] == [(2, 4), (2, 4)]


def test_the_folder_of_everything_published(place, keys):
    """A manifest above the machines: a signature there is one of each machine, too. It hides no other that is bad."""
    for name in ("command0", "command1"):
        (place / name / MANIFEST).rename(place / name / "was")
        (place / name / SIGNATURE).unlink()
    seal(place)
    signed(place, keys)
    assert f"; signed by {ALICE}" in audited(place / "command0", keys / "signers").verdict
    (place / "command1" / "more").write_text("not listed")
    assert f"; signed by {ALICE}" in audited(place / "command0", keys / "signers").verdict
    assert "changed after signing: command1/more" in findings(audited(place, keys / "signers"))
    (place / "command0" / "was").rename(place / "command0" / MANIFEST)
    (place / "command0" / SIGNATURE).write_text("none")
    seal(place)
    signed(place, keys)
    assert "bad signature" in findings(audited(place, keys / "signers"))


def test_what_can_not_be_signed(place, keys, capsys):
    def refused(what, key):
        assert main(["sign", str(what), "--key", str(key)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    folder = place / "command0"
    (folder / SIGNATURE).unlink()
    assert "there is no manifest here" in refused(place, keys / ALICE)
    assert "not a folder; sign the folder of a command" in refused(folder / "command.json", keys / ALICE)
    assert "no such key (--key); give the file of an SSH key" in refused(folder, keys / "nothing")
    assert "can't sign (--key): " in refused(folder, folder / "command.json")
    assert "can't sign (--key): " in refused(folder, keys / "locked")
    (folder / "more.txt").write_text("x")
    assert "not signed, for it is not as its manifest has it: more.txt: not in" in refused(folder, keys / ALICE)
    assert not (folder / SIGNATURE).exists()
    assert main(["sign", str(folder)]) == 2, "without a key"


def test_signing_again_replaces_the_signature(place, keys):
    resealed(place / "command0")
    signed(place / "command0", keys, BOB)
    assert f"; signed by {BOB}" in audited(place / "command0", keys / "signers").verdict


def test_without_ssh_keygen(place, keys, monkeypatch):
    (place / "command1" / SIGNATURE).unlink()
    monkeypatch.setattr(signatures.shutil, "which", lambda name: None)
    with pytest.raises(ValueError, match="ssh-keygen is missing"):
        signatures.sign(place / "command1", keys / ALICE)
    with pytest.raises(ValueError, match="ssh-keygen is missing"):
        audited(place / "command0", None)
    assert "; unsigned" in audited(place / "command1", None).verdict


def test_a_list_that_can_not_be_read_and_two_sets(place, keys, capsys):
    os.mkfifo(place / "pipe")
    for signers in ("none", "pipe"):
        assert main(["audit", str(place), "--signers", str(place / signers)]) == 2
        assert f"--signers {place / signers}: can't be read (" in capsys.readouterr().err
    assert main(["audit", str(place), str(place), "--signers", str(keys / "signers")]) == 2
    assert "audit each of them alone" in capsys.readouterr().err
