"""A folder's manifest: any changed byte is found and named, in a file and in the manifest itself."""

import os
import shutil
import subprocess

import pytest

from reports.record.seal import MANIFEST, broken, digest_of, faults, seal, sealed


@pytest.fixture
def folder(tmp_path):
    whole = tmp_path / "whole"
    (whole / "ptx").mkdir(parents=True)
    (whole / "a.json").write_text("{}\n")
    (whole / "b c.json").write_text("[1]\n")
    (whole / "ptx" / "k.ptx").write_bytes(b".version 8.7\n")
    seal(whole)
    return whole


def test_a_whole_folder_is_whole_and_its_manifest_is_sha256sums(folder):
    assert broken(folder) == []
    lines = (folder / MANIFEST).read_text().splitlines()
    assert [line[66:] for line in lines] == ["a.json", "b c.json", "ptx/k.ptx"]
    assert (folder / MANIFEST).read_bytes() == sealed(folder)
    if shutil.which("sha256sum"):
        done = subprocess.run(["sha256sum", "-c", MANIFEST], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["a.json", "b c.json", "ptx/k.ptx"])
def test_any_changed_byte_of_a_file_is_found_and_named(folder, name):
    right = (folder / name).read_bytes()
    for at in range(len(right)):
        (folder / name).write_bytes(right[:at] + bytes([right[at] ^ 1]) + right[at + 1 :])
        (fault,) = broken(folder)
        assert fault.startswith(f"{name}: changed")
    (folder / name).write_bytes(right)
    assert broken(folder) == []


def test_any_changed_byte_of_the_manifest_is_found(folder):
    right = (folder / MANIFEST).read_bytes()
    for at in range(len(right)):
        (folder / MANIFEST).write_bytes(right[:at] + bytes([right[at] ^ 1]) + right[at + 1 :])
        assert broken(folder), f"byte {at}"
    for changed in (right[:-1], right + b"\n", b"\n" + right, right + right.splitlines(keepends=True)[0]):
        (folder / MANIFEST).write_bytes(changed)
        assert broken(folder)


def test_missing_and_added_files_are_named(folder):
    (folder / "a.json").rename(folder / "z.json")
    assert broken(folder) == [f"z.json: not in {MANIFEST}", "a.json: missing"]


def test_what_is_still_being_written_does_not_count(folder):
    (folder / ".0123.tmp").write_text("half")
    assert broken(folder) == []


def test_lines_in_another_order_are_not_as_written(folder):
    lines = (folder / MANIFEST).read_bytes().splitlines(keepends=True)
    (folder / MANIFEST).write_bytes(b"".join(reversed(lines)))
    assert broken(folder) == [f"{MANIFEST}: not as it is written, although every line is right"]


def test_the_manifests_digest_tells_folders_apart(folder):
    before = digest_of(folder)
    assert before.startswith("sha256:")
    (folder / "a.json").write_text("{} \n")
    assert digest_of(folder) == before, "it is the manifest's own"
    seal(folder)
    assert digest_of(folder) != before


def test_without_a_manifest_or_a_folder_there_is_a_clear_line(tmp_path):
    for call in (broken, digest_of):
        with pytest.raises(ValueError, match=r"manifest\.sha256: there is no manifest here"):
            call(tmp_path)
    with pytest.raises(ValueError, match="no such folder"):
        sealed(tmp_path / "none")


def test_a_pipe_is_named_and_not_waited_for(folder):
    os.mkfifo(folder / "pipe")
    with pytest.raises(ValueError, match="pipe: a pipe, which has no content that a manifest could list"):
        seal(folder)
    assert "pipe: a pipe" in broken(folder)


def test_a_name_that_has_no_line_is_refused(tmp_path):
    (tmp_path / "a\nb").write_text("")
    with pytest.raises(ValueError, match="a name with a line's end"):
        seal(tmp_path)


def test_faults_name_their_file_whatever_its_name_is(folder):
    path = folder / "a: b, line 1: changed"
    path.write_text("x", encoding="utf-8")
    seal(folder)
    path.write_text("y", encoding="utf-8")
    (folder / "added").write_text("z", encoding="utf-8")
    assert [name for name, _ in faults(folder)] == [path.name, "added"]
    assert [sentence for _, sentence in faults(folder)] == broken(folder)
    (folder / MANIFEST).write_text("nothing\n", encoding="utf-8")
    assert faults(folder)[0] == (MANIFEST, f"{MANIFEST}, line 1: damaged")
