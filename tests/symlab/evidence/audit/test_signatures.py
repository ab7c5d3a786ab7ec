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
from tests.golden import refused, same_text
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


def said(*audits):
    """The exit code, the verdict and the points on signatures of each audit."""
    lines = []
    for audit in audits:
        lines.append(f"{audit.exit_code}: {audit.verdict}; {audit.level.signed}")
        lines += [f"  {point.outcome}, {point.share}: {point.evidence}" for point in audit.items[-1].points]
    return "\n".join(lines)


HIDDEN = (
    r"(?<=SHA256:)\S+",
    r"(?<=manifest sha256:)\w+",
    r"(?<=changed \()[^)]*",
    r"(?<=beside it \()[^)]*",
    r"(?<=has expired)[^)]*",
)
"""Digests of what is made here, and what versions of ssh-keygen say differently."""


def compared(*audits):
    same_text(said(*audits), *HIDDEN)


def test_a_signed_folder_names_its_signer(place, keys):
    folder = place / "command0"
    assert broken(folder) == [], "no manifest lists its signature"
    (point,) = audited(folder, keys / "signers").items[-1].points
    assert (point.outcome, point.ground) == (Outcome.VERIFIED, Ground.COMPARED)
    assert digest_of(folder) in point.evidence
    file = sorted(folder.glob("all_reduce*.json"))[0]
    without_list = audited(folder, None)
    compared(audited(folder, keys / "signers"), audited(file, keys / "signers"), without_list)
    (folder / SIGNATURE).unlink()
    with patch.object(worker, "ask", lambda *_: answer()):
        compared(audited(folder, keys / "signers"), check(records(1), signers=keys / "signers"))


def test_the_signature_is_one_that_ssh_keygen_verifies_without_symlab(place, keys):
    folder = place / "command0"
    line = ["-f", str(keys / "signers"), "-I", ALICE, "-n", "symlab", "-s", str(folder / SIGNATURE)]
    for text, code in ((manifest := (folder / MANIFEST).read_bytes(), 0), (manifest + b"\n", 255)):
        done = subprocess.run(["ssh-keygen", "-Y", "verify", *line], input=text, capture_output=True)
        assert done.returncode == code


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


def for_something_else(folder, keys):
    (folder / SIGNATURE).unlink()
    line = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(keys / ALICE), "-n", "git", str(folder / MANIFEST)]
    subprocess.run(line, check=True, capture_output=True)


FORGED = {
    "resealed": resealed,
    "one bit": one_bit,
    "of another folder": of_another_folder,
    "with both": with_both,
    "no manifest": lambda folder: (folder / MANIFEST).unlink(),
    "one more file": lambda folder: (folder / "more.txt").write_text("x"),
    "words": lambda folder: (folder / SIGNATURE).write_text("NVIDIA vouches"),
    "a pipe": a_pipe,
}


@pytest.mark.parametrize("name", [*FORGED, "for something else"])
def test_a_forged_signature_is_a_finding(name, place, keys):
    """With a list of signers and without: what is wrong with a signature shows in both."""
    folder = place / "command0"
    FORGED[name](folder) if name in FORGED else for_something_else(folder, keys)
    audits = [audited(folder, signers) for signers in (keys / "signers", None)]
    assert {(audit.exit_code, ALICE in audit.verdict) for audit in audits} == {(1, False)}
    compared(*audits)


@pytest.mark.parametrize("line", ["", f'{ALICE} namespaces="git" ', f'{ALICE} valid-before="20200101" '])
def test_a_signer_whom_the_list_does_not_take_is_a_finding(line, place, keys, tmp_path):
    path = tmp_path / "list"
    path.write_text(f"{BOB} {(keys / f'{BOB}.pub').read_text()}")
    if line:
        path.write_text(f"{line}{(keys / f'{ALICE}.pub').read_text()}")
    compared(audited(place / "command0", path))


def test_part_of_a_place_is_signed_and_signed_again(place, keys):
    (place / "command1" / SIGNATURE).unlink()
    compared(audited(place, keys / "signers"))
    signed(place / "command1", keys, BOB)
    compared(audited(place, keys / "signers"))
    resealed(place / "command0")
    signed(place / "command0", keys, BOB)
    compared(audited(place / "command0", keys / "signers"))


def test_the_folder_of_everything_published(place, keys):
    """A manifest above the machines: a signature there is one of each machine, too. It hides no other that is bad."""
    for name in ("command0", "command1"):
        (place / name / MANIFEST).rename(place / name / "was")
        (place / name / SIGNATURE).unlink()
    seal(place)
    signed(place, keys)
    compared(audited(place / "command0", keys / "signers"))
    (place / "command1" / "more").write_text("not listed")
    compared(*(audited(one, keys / "signers") for one in (place / "command0", place)))
    (place / "command0" / "was").rename(place / "command0" / MANIFEST)
    (place / "command0" / SIGNATURE).write_text("none")
    seal(place)
    signed(place, keys)
    compared(audited(place, keys / "signers"))


def test_what_can_not_be_signed_or_audited(place, keys, capsys):
    folder = place / "command0"
    (folder / SIGNATURE).unlink()
    os.mkfifo(place / "pipe")
    names = (ALICE, "nothing", "locked")
    signing = [(place, ALICE), (folder / "command.json", ALICE), *((folder, name) for name in names[1:])]
    lines = [["sign", str(what), "--key", str(keys / name)] for what, name in signing]
    lines += [["sign", str(folder), "--key", str(folder / "command.json")], ["sign", str(folder)]]
    lines += [["audit", str(place), "--signers", str(place / signers)] for signers in ("none", "pipe")]
    lines += [["audit", str(place), str(place), "--signers", str(keys / "signers")]]
    (place / "command1" / "more.txt").write_text("x")
    lines += [["sign", str(place / "command1"), "--key", str(keys / ALICE)]]
    assert [main(line) for line in lines] == [2] * len(lines)
    same_text(capsys.readouterr().err, r"(?<=can't sign \(--key\): ).*")
    assert not (folder / SIGNATURE).exists()


def test_without_ssh_keygen(place, keys, monkeypatch):
    (place / "command1" / SIGNATURE).unlink()
    monkeypatch.setattr(signatures.shutil, "which", lambda name: None)
    with refused():
        signatures.sign(place / "command1", keys / ALICE)
    with refused():
        audited(place / "command0", None)
    assert "; unsigned" in audited(place / "command1", None).verdict
