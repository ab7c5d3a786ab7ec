"""Bundles: nothing is lost, the same records give the same bytes, and they are small."""

import dataclasses
import json
import lzma
import os
from pathlib import Path

import pytest

from cases.record.record import load
from reports.record import bundle
from reports.record.writing import can_be_written, write_file
from tests import golden
from tests.reports.synthetic import KIB, record, refused, study

EXAMPLES = Path(__file__).parents[1] / "examples"
RECORDS = study(("one_shot", "nccl"), (KIB, 4 * KIB), worlds=2)


def lines_of_records(packed):
    return [line for line in map(json.loads, lzma.decompress(packed).splitlines()) if "id" in line]


def test_what_is_packed_comes_back(tmp_path):
    strange = record(reason="a line\u2028that\u0085ends\nearly", environment={"host": {"x": [1, None, True, "é"]}})
    path = tmp_path / "all.jsonl.xz"
    bundle.write([*RECORDS, strange], path)
    assert {one.to_json() for one in bundle.unpacked(path)} == {one.to_json() for one in [*RECORDS, strange]}
    assert len(lines_of_records(path.read_bytes())) == len(RECORDS) + 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["all.jsonl.xz"]


def test_the_same_records_are_the_same_bytes():
    assert bundle.packed(RECORDS) == bundle.packed([*reversed(RECORDS), RECORDS[3]])
    assert bundle.digest(RECORDS) == bundle.digest(reversed(RECORDS))
    assert bundle.packed(RECORDS) != bundle.packed(RECORDS[1:])
    assert bundle.digest(RECORDS) != bundle.digest(RECORDS[1:])


@pytest.mark.slow
def test_500_records_are_small():
    records = study(world_size=8, worlds=8)[:500]
    assert len(records) == 500
    assert sum(len(row) for one in records if one.timing for row in one.timing.samples_us) > 100_000
    size_bytes = len(bundle.packed(records))
    assert 100_000 < size_bytes < 1_500_000


def test_files_folders_and_bundles_are_read_in_the_order_of_time(tmp_path):
    folder = tmp_path / "records" / "run"
    folder.mkdir(parents=True)
    late, early = record("nccl", world=2), record("two_shot", world=0)
    middle = refused("nvshmem", world=1)
    (folder / "a.json").write_text(late.to_json(), encoding="utf-8")
    (folder / "b.json").write_text(early.to_json(), encoding="utf-8")
    (folder / "command.json").write_text("{}", encoding="utf-8")
    bundle.write([middle, late], folder / "c.jsonl.xz")
    assert bundle.read([tmp_path / "records"]) == [early, middle, late]
    assert bundle.read([folder / "a.json", folder / "c.jsonl.xz", folder]) == [early, middle, late]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("schema2*.json")), ids=lambda path: path.stem)
def test_records_of_the_published_schema_are_bundled_as_they_are(path, tmp_path):
    old = load(path)
    bundle.write([old], tmp_path / "x.jsonl.xz")
    assert bundle.unpacked(tmp_path / "x.jsonl.xz") == [old]
    line = json.loads(lzma.decompress((tmp_path / "x.jsonl.xz").read_bytes()))
    assert line == json.loads(path.read_text(encoding="utf-8"))


def test_worlds_are_neighbours():
    ids = [line["id"] for line in lines_of_records(bundle.packed(RECORDS))]
    assert ids == sorted(ids, key=ids.index)
    assert [ids[index] == ids[index + 1] for index in range(0, len(ids), 2)] == [True] * (len(ids) // 2)


UNREADABLE = {
    **{"empty.jsonl.xz": b"", "none.jsonl.xz": b"no xz", "cut.jsonl.xz": bundle.packed(RECORDS)[:-20]},
    "line.jsonl.xz": lzma.compress(f"{bundle.line_of(record())}\n{{}}\n".encode()),
    "nothing.jsonl.xz": lzma.compress(b""),
    "README.md": b"# words\n",
    "marked.json": record().to_json().encode("utf-8-sig"),
    "binary.json": b"\xfd7zXZ",
}


@pytest.mark.parametrize("name", [*UNREADABLE, "folder", "gone.json", "gone.jsonl.xz", "x" * 300, ""])
def test_what_can_not_be_read_is_named(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    if name in UNREADABLE:
        (tmp_path / name).write_bytes(UNREADABLE[name])
    with golden.refused():
        bundle.read([name])


def test_what_can_not_be_written_is_named(tmp_path):
    for place in ("x.xz", "gone/x.jsonl.xz"):
        with golden.refused():
            bundle.write(RECORDS, tmp_path / place)
    for write in (can_be_written, lambda path: write_file(path, b"")):
        with golden.refused():
            write(tmp_path / ("x" * 300))


def test_a_device_or_a_pipe_is_never_replaced(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for place in (pipe, link):
        for write in (can_be_written, lambda path: write_file(path, b"")):
            with pytest.raises(ValueError, match=r"can't be written \(it is no ordinary file\)"):
                write(place)
    assert pipe.is_fifo()
    assert link.is_symlink()


def test_a_record_that_changed_is_another_one():
    changed = dataclasses.replace(RECORDS[0], duration_s=2.0)
    assert bundle.line_of(changed) != bundle.line_of(RECORDS[0])


def test_what_worlds_have_alike_is_one_object(tmp_path):
    """10,000 records have few different checks and counters; an audit holds them in two processes."""
    bundle.write([record(world=world, counters={"steps": 3}) for world in range(2)], path := tmp_path / "two.jsonl.xz")
    first, second = bundle.read([path])
    assert first.check is second.check is not None
    assert first.counters is second.counters
