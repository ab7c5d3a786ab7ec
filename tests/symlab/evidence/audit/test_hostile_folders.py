"""Folders that others made: what is no record ends in one line, in bounded memory and time, and nothing outside the
folder is read."""

import json
import lzma
import os
import resource
import socket
from pathlib import Path

import pytest

from cases.documents import LONGEST_NUMBER, parsed
from reports.record import bundle
from reports.record.seal import MANIFEST, broken, seal
from symlab.evidence.audit.items import Outcome
from tests.golden import refused
from tests.patience import PATIENCE_S, within
from tests.processes import ran
from tests.symlab.evidence.audit.complete_set import audited, kept, records

MOST_BYTES = 500 << 20

PROGRAM = """
import sys
from reports.__main__ import main
try:
    code = main(["audit", sys.argv[1], "--up-to", "0"])
except SystemExit as end:
    code = end.code
# Not ru_maxrss: what the process that started this one had in memory counts there, too.
(peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")]
print("PEAK", int(peak) * 1024, file=sys.stderr)
sys.exit(code)
"""


def a_pipe(folder):
    os.mkfifo(folder / "pipe.json")


def a_socket(folder):
    with socket.socket(socket.AF_UNIX) as one:
        os.chdir(folder)  # a socket's path has at most 108 bytes
        one.bind("socket.json")


def a_device(folder):
    (folder / "device.json").symlink_to("/dev/zero")


def a_link_that_leaves(folder):
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "one.json").write_text(records()[0].to_json(), encoding="utf-8")
    (folder / "one.json").symlink_to("../outside/one.json")


def a_link_in_a_circle(folder):
    (folder / "one.json").symlink_to("one.json")


def a_sparse_giant(folder):
    with open(folder / "giant.json", "wb") as file:
        file.truncate(1 << 40)


def a_sparse_bundle(folder):
    with open(folder / "giant.jsonl.xz", "wb") as file:
        file.truncate(1 << 40)


def a_bomb_of_one_line(folder):
    packer = lzma.LZMACompressor(preset=1)
    with open(folder / "bomb.jsonl.xz", "wb") as file:
        for _ in range(64):
            file.write(packer.compress(b"[" * (1 << 22)))
        file.write(packer.flush())


def a_bomb_of_one_record(folder):
    line = (bundle.line_of(records()[0]) + "\n").encode()
    packer = lzma.LZMACompressor(preset=1)
    with open(folder / "bomb.jsonl.xz", "wb") as file:
        for _ in range(64):
            file.write(packer.compress(line * 400))
        file.write(packer.flush())


def a_dictionary_of_gigabytes(folder):
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]
    data = bytearray(lzma.compress(b"{}\n", lzma.FORMAT_XZ, filters=filters))
    place = data.index(bytes([0x21, 0x01, data[data.index(b"\x21\x01") + 2]]))
    data[place + 2] = 37  # 3 GiB
    header = data[12 : 12 + (data[12] + 1) * 4 - 4]
    import zlib

    data[12 + len(header) : 12 + len(header) + 4] = zlib.crc32(bytes(header)).to_bytes(4, "little")
    (folder / "bomb.jsonl.xz").write_bytes(bytes(data))


def json_900_deep(folder):
    deep = "[" * 900 + "]" * 900
    (folder / "deep.json").write_text(f'{{"schema": 8, "counters": {deep}}}', encoding="utf-8")


def an_environment_900_deep(folder):
    document = records()[0].document()
    text = json.dumps(document).replace('"withheld": 3', '"withheld": ' + '{"a": ' * 900 + "1" + "}" * 900)
    (folder / "deep.json").write_text(text, encoding="utf-8")


def a_number_of_thousands_of_digits(folder):
    (folder / "long.json").write_text('{"schema": ' + "9" * 4200 + "}", encoding="utf-8")


def a_million_objects(folder):
    (folder / "many.json").write_text('{"schema": 8, "counters": [' + "{}," * 4_000_000 + "{}]}", encoding="utf-8")


def a_command_900_deep(folder):
    kept(folder / "set")
    deep = "[" * 900 + "]" * 900
    (folder / "set" / "command0" / "command.json").write_text(f'{{"jobs": {deep}}}', encoding="utf-8")


def a_command_that_leaves(folder):
    kept(folder / "set")
    path = folder / "set" / "command0" / "command.json"
    path.rename(folder.parent / "command.json")
    path.symlink_to("../../../command.json")


HOSTILE = {
    a_pipe: "it is a pipe",
    a_socket: "it is a socket",
    a_device: "a link that leaves the folder",
    a_link_that_leaves: "a link that leaves the folder",
    a_link_in_a_circle: "a link that leaves the folder",
    a_sparse_giant: "more than the 16,777,216 that are read",
    a_sparse_bundle: "more than the 134,217,728 that are read",
    a_bomb_of_one_line: "unpacks to more than 16,777,216 bytes a line",
    a_bomb_of_one_record: "a record is there twice",
    a_dictionary_of_gigabytes: "Memory usage limit",
    json_900_deep: "record: lacks id",
    an_environment_900_deep: "nested more than 100 deep",
    a_number_of_thousands_of_digits: "a number of more than 1000 digits",
    a_million_objects: "more than 250,000 lists and objects",
    a_command_900_deep: "nested more than 100 deep",
    a_command_that_leaves: "a link that leaves the folder",
}


@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: make.__name__)
def test_what_is_hostile_ends_in_one_line(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "hostile"
    folder.mkdir()
    make(folder)
    with within(), pytest.raises(ValueError, match=HOSTILE[make]) as caught:
        audited(place=folder)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 500
    assert str(folder) in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [a_pipe, a_sparse_giant, a_bomb_of_one_line, a_bomb_of_one_record, a_dictionary_of_gigabytes, a_million_objects],
    ids=lambda make: make.__name__,
)
def test_memory_is_bounded(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "hostile"
    folder.mkdir()
    make(folder)
    root = Path(__file__).parents[4]
    limited = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))}
    done = ran("-c", PROGRAM, str(folder), cwd=root, timeout=PATIENCE_S, **limited)
    *said, peak = done.stderr.strip().splitlines()
    assert done.returncode == 2, done.stderr
    assert len([line for line in said if not line.startswith("reading ")]) == 1
    assert int(peak.split()[1]) < MOST_BYTES


ODD = {
    lambda folder: os.mkfifo(folder / "odd"): "odd: a pipe",
    lambda folder: (folder / "odd").symlink_to("/etc/hostname"): "odd: a link that leaves the folder",
    lambda folder: (folder / "odd").symlink_to("/etc"): "odd: a link that leaves the folder",
    lambda folder: (folder / "odd").symlink_to("."): "odd: a folder",
    lambda folder: (folder / "odd").symlink_to("nothing"): "odd: a link that leaves the folder",
}


@pytest.mark.parametrize("make", ODD)
def test_what_no_manifest_can_list_is_named_and_all_else_is_compared(make, tmp_path):
    (tmp_path / "other").write_text("1", encoding="utf-8")
    seal(tmp_path)
    (tmp_path / "other").write_text("2", encoding="utf-8")
    make(tmp_path)
    odd, changed = broken(tmp_path)
    assert odd == ODD[make]
    assert changed.startswith("other: changed")
    with pytest.raises(ValueError, match="which has no content that a manifest could list"):
        seal(tmp_path)


def test_a_folder_of_terabytes_is_not_hashed(tmp_path):
    seal(tmp_path)
    for number in range(3):
        with open(tmp_path / str(number), "wb") as file:
            file.truncate(1 << 40)
    with within(), pytest.raises(ValueError, match="which no folder of records has"):
        broken(tmp_path)


def test_a_name_in_a_manifest_that_leaves_the_folder_is_not_read(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    (tmp_path / "outside").write_text("", encoding="utf-8")
    (folder / MANIFEST).write_text(f"{'0' * 64}  ../outside\n", encoding="utf-8")
    assert broken(folder) == ["../outside: missing"]


def test_a_difference_that_leaves_the_folder_is_not_read(tmp_path):
    (tmp_path / "outside.diff").write_text("secret", encoding="utf-8")
    kept_diff = {"file": "../../outside.diff", "digest": "sha256:0", "bytes": 6, "left_out_bytes": 0}
    git = {"commit": "0" * 40, "dirty": True, "changed_files": 1, "kept_diff": kept_diff}
    from tests.symlab.evidence.audit.complete_set import with_environment

    place = kept(tmp_path / "set", with_environment(records(), git=git))
    audit = audited(place=place)
    assert {point.outcome for point in audit.items[1].points} == {Outcome.CAPTURED, Outcome.NOT_COMPARABLE}


def test_a_long_number_is_refused_and_digits_in_a_text_are_none():
    assert parsed(json.dumps(["9" * 5000]))[0] == "9" * 5000
    assert parsed("1" * LONGEST_NUMBER) == int("1" * LONGEST_NUMBER)
    with refused():
        parsed(f"[{'1' * (LONGEST_NUMBER + 1)}]")
