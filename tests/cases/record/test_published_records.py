"""All records that were ever published: they are read, have the id that their case gives, and are written again as
they were."""

import lzma
from pathlib import Path

import pytest

from reports.record.bundle import packed, read

FLOORS = Path(__file__).parents[3] / "conf" / "gpu" / "floors"
PUBLISHED = Path(__file__).parents[3] / "reports" / "published"
BUNDLES = sorted(PUBLISHED.glob("*/*.jsonl.xz"))


@pytest.mark.parametrize(
    "path", [*BUNDLES, *FLOORS.glob("*.jsonl.xz")], ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_records_are_read_and_written_again_to_the_byte(path):
    records = read([path])
    assert records
    assert all(one.id == one.case.id for one in records)
    assert lzma.decompress(packed(records)) == lzma.decompress(path.read_bytes())


def test_there_are_bundles():
    assert {path.parent.name for path in BUNDLES} >= {"h200-x2", "h200-x4", "h200-x2-2026-11-28"}
    assert {path.name for path in FLOORS.iterdir()} >= {"h100.jsonl.xz", "h200.jsonl.xz"}
