"""symlab.records: records from disk, as a sequence and as a table."""

import sys
from pathlib import Path

import pytest

import symlab
from reports.record import bundle
from reports.table.table import plain, values
from runner.records.store import Store
from tests.golden import refused

PUBLISHED = Path(symlab.__file__).resolve().parents[1] / "reports" / "published"


@pytest.fixture(scope="module")
def some():
    """A case that passed, and one that was refused."""
    names = ("all_reduce/one_shot", "all_reduce/nccl")
    found = tuple(symlab.run(symlab.case(name, size_bytes="1K")).record for name in names)
    return tuple(record for record in found if record is not None)


def test_files_folders_and_bundles_hold_the_same_records(some, tmp_path):
    store = Store(tmp_path / "records" / "one")
    files = [store.write(record) for record in some]
    bundle.write(some, tmp_path / "some.jsonl.xz")
    for places in (files, [tmp_path / "records"], [str(tmp_path / "some.jsonl.xz")], [tmp_path, *files]):
        found = symlab.records(*places)
        assert tuple(found) == some, "each once, in the order in which they were begun"
    assert len(found) == 2
    assert found[1] is found[1:][0] is found[-1]
    assert repr(found) == "<2 records>"
    assert some[0] in found


def test_a_table_is_the_commands(some, tmp_path):
    bundle.write(some, tmp_path / "some.jsonl.xz")
    found = symlab.records(tmp_path / "some.jsonl.xz")
    assert found.rows() == values(list(found))
    assert found.table() == plain(list(found))
    frame = found.to_pandas()
    assert list(frame.columns) == list(found.rows()[0])
    assert list(frame["algorithm"]) == ["one_shot", "nccl"]
    assert list(frame["status"]) == ["PASSED", "REFUSED"]


def test_timed_records_have_times():
    found = symlab.records(PUBLISHED / "h200-x2")
    frame = found.to_pandas()
    timed = [record for record in found if record.timing is not None]
    assert timed
    assert 0 < len(frame) <= len(found), "worlds of one case are one row"
    column = next(name for name in frame.columns if "median" in name)
    assert frame[column].notna().any()


def test_without_pandas_it_says_so_in_a_line(some, monkeypatch):
    from symlab.loading import Records

    monkeypatch.setitem(sys.modules, "pandas", None)
    with refused():
        Records(some).to_pandas()
    assert Records(some).rows(), "all else works without it"


def test_what_can_not_be_read_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn.json").write_text('{"schema": 4')
    for places in ((), *((tmp_path / name,) for name in ("empty", "torn.json", "none.json"))):
        with refused():
            symlab.records(*places)
