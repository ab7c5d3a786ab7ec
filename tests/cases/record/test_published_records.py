"""All records that were ever published: they are read, have the id that their case gives, and are written again as
they were."""

import lzma
from pathlib import Path

import pytest

from cases.record.record import from_json
from reports.record.bundle import line_of, packed, read

FLOORS = Path(__file__).parents[3] / "conf" / "gpu" / "floors"
PUBLISHED = Path(__file__).parents[3] / "reports" / "published"
BUNDLES = sorted(PUBLISHED.glob("*/*.jsonl.xz"))


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_each_line_is_read_and_written_again_to_the_byte(path):
    lines = lzma.decompress(path.read_bytes()).decode("utf-8").splitlines()
    assert lines
    for number, line in enumerate(lines, start=1):
        record = from_json(line, f"{path.name}, line {number}")
        assert record.id == record.case.id
        assert line_of(record) == line


@pytest.mark.parametrize("path", sorted(FLOORS.glob("*.jsonl.xz")), ids=lambda path: path.name)
def test_records_of_floors_are_read_and_written_again_to_the_byte(path):
    assert lzma.decompress(packed(read([path]))) == lzma.decompress(path.read_bytes())


def test_there_are_bundles():
    assert {path.parent.name for path in BUNDLES} >= {"h200-x2", "h200-x4"}
    assert {path.name for path in FLOORS.iterdir()} >= {"h100.jsonl.xz", "h200.jsonl.xz"}
